// Reads a latency.hlog with another language's HDR library: one JSON line an interval.
const { readFileSync } = require("fs");
const { HistogramLogReader } = require("hdr-histogram-js");

const reader = new HistogramLogReader(readFileSync(process.argv[2], "utf8"));
for (let h = reader.nextIntervalHistogram(); h; h = reader.nextIntervalHistogram()) {
  console.log(
    JSON.stringify({
      tag: h.tag,
      start_ms: h.startTimeStampMsec,
      total: h.totalCount,
      p95: h.getValueAtPercentile(95),
    }),
  );
}
