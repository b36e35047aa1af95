"""The report as a file: whole, its own, and proof against what a target may say."""

import re
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import pytest

from reports import figures, html
from slo.summary import GpuView
from tests.reports import samples

VOID = {"meta", "br", "link", "img", "hr", "input", "wbr"}


class Page(HTMLParser):
    """Collects tags and text, and checks that every element is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs] or [(tag, "", "")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "title"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: html.render(*sample) for name, sample in samples.SAMPLES.items()}


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_it_is_well_formed_and_loads_nothing(name: str, pages: dict[str, str]) -> None:
    page = Page(pages[name])
    tags = {tag for tag, _, _ in page.attributes}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "a", "base", "form"}
    for tag, attribute, value in page.attributes:
        assert not attribute.startswith("on"), (tag, attribute)
        if attribute in ("src", "href", "xlink:href", "action"):
            assert value.startswith("#"), (tag, attribute, value)
    for reference in re.findall(r"url\(([^)]*)\)", pages[name]):
        assert reference.strip("'\"").startswith("#"), reference
    assert "@import" not in pages[name]
    assert "default-src 'none'" in pages[name]


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_ids_are_unique(name: str, pages: dict[str, str]) -> None:
    ids = [value for _, attribute, value in Page(pages[name]).attributes if attribute == "id"]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_verdict_is_said_in_a_word_and_a_sentence(name: str, pages: dict[str, str]) -> None:
    verdict = samples.SAMPLES[name][0]
    text = Page(pages[name]).text
    assert f" {verdict.result} " in text[:400]
    assert verdict.exit_code == 0 or "PASS" not in text[:120]


def test_hostile_text_is_shown_and_not_obeyed(pages: dict[str, str]) -> None:
    source = pages["hostile"]
    assert "<script" not in source
    assert "&lt;script&gt;" in source
    assert "算错了" in source
    assert "secret" not in source
    assert not set(source) & set("\x00\x1b\ud800\u202e")
    source.encode("utf-8")


def test_each_objective_says_its_numbers_why_and_what_next(pages: dict[str, str]) -> None:
    text = Page(pages["fail"]).text
    assert "512 ms 471 – 558 ms" in text
    assert ">60 s (failures)" in text
    assert "Next: About 240 more requests would decide it." in text
    assert "timeout_mid_stream 9 2.50 % request 131" in text


def test_what_was_not_measured_is_never_0(pages: dict[str, str]) -> None:
    text = Page(pages["inconclusive"]).text
    assert "GPU: not measured (no NVML library)" in text
    assert "not measured tokens per chunk" in re.sub(
        r"(tokens per chunk) (not measured)", r"\2 \1", text
    )
    nothing = Page(pages["no data"]).text
    assert "Latency: not measured" in nothing
    assert "GPU: not measured (the sidecar was off)" in nothing
    assert "nan" not in nothing.lower().split()


def test_a_gpu_field_that_failed_is_not_measured() -> None:
    verdict, summary, run = samples.PASS
    blind = tuple(replace(sample, power_w=None) for sample in summary.gpu.samples)
    gpu = GpuView(None, summary.gpu.names, blind)
    text = Page(html.render(verdict, replace(summary, gpu=gpu), run)).text
    assert "GPU power, W: not measured" in text


def test_the_checks_are_folded_only_while_all_hold(pages: dict[str, str]) -> None:
    verdict, summary, run = samples.PASS
    fine = replace(verdict, validity=samples.CHECKS[:4])
    assert "<details>" in html.render(fine, summary, run)
    assert "<details open>" in pages["invalid"]


def test_the_same_numbers_give_the_same_bytes(pages: dict[str, str]) -> None:
    assert html.render(*samples.FAIL) == pages["fail"]


def test_text_in_figures_is_text_and_their_colours_are_the_pages() -> None:
    svg = figures.over_time(samples.SUMMARY, samples.PASS[0], samples.RUN, narrow=False)
    assert svg is not None
    assert ">Requests/s</text>" in svg
    assert "var(--blue" in svg
    assert "#0" not in re.sub(r"var\([^)]*\)|(?:href=\"|url\()#\w+", "", svg)
    assert "<style" not in svg
    assert "<metadata" not in svg or "Date" not in svg


def test_no_setting_of_matplotlib_is_left_changed(pages: dict[str, str]) -> None:
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        html.render(*samples.HOSTILE_SAMPLE)
    assert dict(matplotlib.rcParams) == before


def test_a_run_of_hours_stays_a_file_that_opens() -> None:
    verdict, summary, run = samples.PASS
    long = replace(summary, seconds=samples.seconds(14_400), gpu=samples.gpu(28_800))
    text = html.render(verdict, long, replace(run, duration_s=14_385.0))
    assert len(text) < 2_000_000
    assert "Each point is one 16 s (the median of P50, the highest P95)" in text


def test_requests_that_all_failed_are_drawn_and_listed() -> None:
    verdict, summary, run = samples.FAIL
    lost = tuple(
        replace(found, failed=found.n, mean_s=None, max_s=None,
                percentiles_s=dict.fromkeys(found.percentiles_s))
        for found in summary.latencies
    )  # fmt: skip
    seconds = samples.seconds(30, stall=(0, 30))
    text = Page(html.render(verdict, replace(summary, latencies=lost, seconds=seconds), run)).text
    assert text.count(">60 s (failures)") >= 4 * len(lost)
