/* A libnvidia-ml.so.1 whose GPUs are described by the text file $FAKE_NVML, read anew at each call, so
 * that a test can change the load while a sidecar runs. One `GPU.key=value` a line:
 *   gpus=2   0.name=..  0.util=GPU,MEMORY  0.mem=TOTAL,RESERVED,FREE,USED (bytes)  0.power=mW
 *   0.energy=mJ  0.temperature=C  0.clocks=SM,MEM  0.reasons=BITS  0.process=PID,BYTES
 *   0.throttled=NS (by the power cap)   0.gpm.METRIC=VALUE  0.error.FUNCTION=CODE  0.error.all=CODE  delay_us=MICROSECONDS (power only)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long handle; /* a GPU's index + 1 */

static int look_up(const char *key, char *value, size_t room) {
    const char *path = getenv("FAKE_NVML");
    FILE *script = path ? fopen(path, "r") : NULL;
    char line[256];
    int found = 0;
    while (script && !found && fgets(line, sizeof line, script)) {
        char *equals = strchr(line, '=');
        if (!equals) continue;
        *equals = 0;
        if (strcmp(line, key)) continue;
        equals[1 + strcspn(equals + 1, "\n")] = 0;
        snprintf(value, room, "%s", equals + 1);
        found = 1;
    }
    if (script) fclose(script);
    return found;
}

static int of_gpu(handle gpu, const char *key, char *value, size_t room) {
    char name[128];
    snprintf(name, sizeof name, "%ld.%s", gpu - 1, key);
    return look_up(name, value, room);
}

static u64 number(handle gpu, const char *key) {
    char value[128];
    return of_gpu(gpu, key, value, sizeof value) ? strtoull(value, NULL, 0) : 0;
}

static int error_of(handle gpu, const char *function) {
    char key[96];
    int all = (int)number(gpu, "error.all");
    snprintf(key, sizeof key, "error.%s", function);
    return all ? all : (int)number(gpu, key);
}

#define OR_ERROR(gpu) \
    do { int code = error_of(gpu, __func__); if (code) return code; } while (0)

int nvmlInitWithFlags(u32 flags) { (void)flags; return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the fake"; }
int nvmlSystemGetDriverVersion(char *text, u32 room) { snprintf(text, room, "999.1"); return 0; }
int nvmlSystemGetNVMLVersion(char *text, u32 room) { snprintf(text, room, "13.999.1"); return 0; }

int nvmlDeviceGetCount_v2(u32 *count) {
    char value[16];
    *count = look_up("gpus", value, sizeof value) ? (u32)atoi(value) : 1;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(u32 index, handle *gpu) { *gpu = index + 1; return 0; }
int nvmlDeviceGetName(handle gpu, char *text, u32 room) {
    OR_ERROR(gpu);
    if (!of_gpu(gpu, "name", text, room)) snprintf(text, room, "Fake GPU");
    return 0;
}
int nvmlDeviceGetUUID(handle gpu, char *text, u32 room) {
    OR_ERROR(gpu);
    snprintf(text, room, "GPU-%ld", gpu - 1);
    return 0;
}
int nvmlDeviceGetMemoryBusWidth(handle gpu, u32 *bits) { OR_ERROR(gpu); *bits = 384; return 0; }
int nvmlDeviceGetMaxClockInfo(handle gpu, u32 kind, u32 *mhz) {
    OR_ERROR(gpu);
    *mhz = kind == 2 ? 10000 : 2000;
    return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(handle gpu, u32 *mw) { OR_ERROR(gpu); *mw = 700000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(handle gpu, u32 *mw) {
    OR_ERROR(gpu);
    *mw = 700000;
    return 0;
}
int nvmlDeviceGetUtilizationRates(handle gpu, u32 *rates) {
    char value[64];
    OR_ERROR(gpu);
    rates[0] = rates[1] = 0;
    if (of_gpu(gpu, "util", value, sizeof value)) sscanf(value, "%u,%u", rates, rates + 1);
    return 0;
}
static void four(handle gpu, u64 *into) {
    char value[128];
    memset(into, 0, 4 * sizeof *into);
    if (of_gpu(gpu, "mem", value, sizeof value))
        sscanf(value, "%llu,%llu,%llu,%llu", into, into + 1, into + 2, into + 3);
}
int nvmlDeviceGetMemoryInfo(handle gpu, u64 *memory) {
    u64 told[4];
    OR_ERROR(gpu);
    four(gpu, told);
    memory[0] = told[0];
    memory[1] = told[2];
    memory[2] = told[3] + told[1]; /* version 1 counts the driver's part as used */
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(handle gpu, u64 *memory) {
    OR_ERROR(gpu);
    if ((u32)memory[0] != 0x02000028) return 25; /* argument version mismatch */
    four(gpu, memory + 1);
    return 0;
}
int nvmlDeviceGetPowerUsage(handle gpu, u32 *milliwatt) {
    char value[16];
    OR_ERROR(gpu);
    if (look_up("delay_us", value, sizeof value)) usleep((useconds_t)atoi(value));
    *milliwatt = (u32)number(gpu, "power");
    return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(handle gpu, u64 *millijoule) {
    OR_ERROR(gpu);
    *millijoule = number(gpu, "energy");
    return 0;
}
int nvmlDeviceGetTemperatureV(handle gpu, int *request) { /* version, sensor, degrees */
    OR_ERROR(gpu);
    request[2] = (int)number(gpu, "temperature");
    return 0;
}
int nvmlDeviceGetClockInfo(handle gpu, u32 kind, u32 *mhz) {
    char value[64];
    u32 clocks[2] = {0, 0};
    OR_ERROR(gpu);
    if (of_gpu(gpu, "clocks", value, sizeof value)) sscanf(value, "%u,%u", clocks, clocks + 1);
    *mhz = clocks[kind == 2];
    return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(handle gpu, u64 *bits) {
    OR_ERROR(gpu);
    *bits = number(gpu, "reasons");
    return 0;
}
struct field { u32 id, scope; long long at, took; u32 type, code; u64 value; };
int nvmlDeviceGetFieldValues(handle gpu, int count, struct field *fields) {
    OR_ERROR(gpu);
    for (int i = 0; i < count; i++) {
        fields[i].code = 0;
        fields[i].value = fields[i].id == 74 ? number(gpu, "throttled") : 0;
    }
    return 0;
}
struct process { u32 pid; u64 used; u32 gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(handle gpu, u32 *count, struct process *list) {
    char value[64];
    u32 room = *count;
    OR_ERROR(gpu);
    *count = (u32)of_gpu(gpu, "process", value, sizeof value);
    if (room < *count) return 7; /* insufficient size */
    if (*count) sscanf(value, "%u,%llu", &list->pid, &list->used);
    return 0;
}

int nvmlGpmQueryDeviceSupport(handle gpu, u32 *support) { /* version, supported */
    OR_ERROR(gpu);
    support[1] = number(gpu, "gpm") != 0;
    return 0;
}
int nvmlGpmSampleAlloc(handle **snapshot) { *snapshot = calloc(1, sizeof **snapshot); return 0; }
int nvmlGpmSampleFree(handle *snapshot) { free(snapshot); return 0; }
int nvmlGpmSampleGet(handle gpu, handle *snapshot) { OR_ERROR(gpu); *snapshot = gpu; return 0; }
struct metrics {
    u32 version, count;
    handle *older, *newer;
    struct { u32 metric; int code; double value; char *text[3]; } list[];
};
int nvmlGpmMetricsGet(struct metrics *ask) {
    for (u32 i = 0; i < ask->count; i++) {
        char key[32], value[64];
        snprintf(key, sizeof key, "gpm.%u", ask->list[i].metric);
        int found = of_gpu(*ask->newer, key, value, sizeof value);
        ask->list[i].code = found ? 0 : 3; /* not supported */
        ask->list[i].value = found ? strtod(value, NULL) : 0;
    }
    return 0;
}
