/* The part of the stand-in for libnvidia-ml.so.1 that tells how a GPU is: heat, clocks, errors, links, fields. */
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CORRECTED = 0, VOLATILE = 0 };

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")
BIG(nvmlDeviceGetCurrentClocksThrottleReasons, "reasons")
BIG(nvmlDeviceGetCurrentClocksEventReasons, "reasons")
FIXED(nvmlDeviceGetSupportedClocksThrottleReasons, ull, 0x1FF)
FIXED(nvmlDeviceGetSupportedClocksEventReasons, ull, 0x1FF)
PAIR(nvmlDeviceGetEccMode, "ecc", "ecc_pending")
PAIR(nvmlDeviceGetMigMode, "mig", "mig_pending")

/* --- heat and clocks --- */

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, uint sensor, uint *value)
{
    return sensor ? INVALID_ARGUMENT : number(device, "temp", value);
}
typedef struct { uint version, sensor; int value; } temperature_t;
API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, temperature_t *asked)
{
    return asked->sensor ? INVALID_ARGUMENT : number(device, "temp", (uint *)&asked->value);
}
typedef struct { uint version; int value; } margin_t;
API nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, margin_t *margin)
{
    return number(device, "tlimit", (uint *)&margin->value);
}
API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, uint kind, uint *value)
{
    static const char *const keys[] = {"temp_shutdown", "temp_slowdown", "temp_max_memory", "temp_max",
                                       "", "temp_target", "", ""};
    return kind < 8 ? number(device, keys[kind], value) : INVALID_ARGUMENT;
}

/* graphics, SM, memory, video */
static nvmlReturn_t clock_of(nvmlDevice_t device, uint kind, int most, uint *value)
{
    static const char *const now[] = {"clock_graphics", "clock_graphics", "clock_memory", "clock_video"};
    static const char *const max[] = {"max_graphics", "max_graphics", "max_memory", "max_video"};
    return kind < 4 ? number(device, most ? max[kind] : now[kind], value) : INVALID_ARGUMENT;
}
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, uint kind, uint *value)
{
    return clock_of(device, kind, 0, value);
}
API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, uint kind, uint *value)
{
    return clock_of(device, kind, 1, value);
}
API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, uint kind, uint id, uint *value)
{
    return id == 0 ? clock_of(device, kind, 0, value) : NOT_SUPPORTED;
}

/* nanoseconds for which a reason to slow down has been there: they grow while it is */
static nvmlReturn_t reason_ns(nvmlDevice_t device, ull bit, ull *value)
{
    struct timespec now;
    ull reasons = 0;
    nvmlReturn_t ret = big(device, "reasons", &reasons);
    clock_gettime(CLOCK_MONOTONIC, &now);
    *value = reasons & bit ? (ull)now.tv_sec * 1000000000ULL + (ull)now.tv_nsec : 0;
    return ret;
}

/* --- errors of memory --- */

static const char *ecc_key(uint error, uint counter)
{
    if (error == CORRECTED)
        return counter == VOLATILE ? "ecc_cor_vol" : "ecc_cor_agg";
    return counter == VOLATILE ? "ecc_unc_vol" : "ecc_unc_agg";
}
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, uint error, uint counter, ull *count)
{
    return error > 1 || counter > 1 ? INVALID_ARGUMENT : big(device, ecc_key(error, counter), count);
}
API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, uint error, uint counter, uint place, ull *count)
{
    nvmlReturn_t ret = nvmlDeviceGetTotalEccErrors(device, error, counter, count);
    if (place == 7 && ret == SUCCESS) /* SRAM: the faults of the lab are DRAM's */
        *count = 0;
    return place == 2 || place == 7 ? ret : NOT_SUPPORTED;
}
typedef struct { uint version; ull counts[11]; uint exceeded; } sram_t;
API nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, sram_t *status)
{
    memset(status->counts, 0, sizeof status->counts);
    return number(device, "sram_threshold", &status->exceeded);
}
API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, uint *cor, uint *unc, uint *pending, uint *failed)
{
    static const char *const keys[] = {"remap_cor", "remap_unc", "remap_pending", "remap_failed"};
    uint *const values[] = {cor, unc, pending, failed};
    nvmlReturn_t ret = SUCCESS;
    int at;
    for (at = 0; at < 4 && ret == SUCCESS; at++)
        ret = number(device, keys[at], values[at]);
    return ret;
}
typedef struct { uint max, high, partial, low, none; } histogram_t;
API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, histogram_t *banks)
{
    nvmlReturn_t ret = number(device, "banks_max", &banks->max);
    memset(&banks->high, 0, sizeof *banks - sizeof banks->max);
    if (ret == SUCCESS) {
        number(device, "banks_high", &banks->high);
        number(device, "banks_none", &banks->none);
    }
    return ret;
}
/* cause 0: many corrected errors, 1: an uncorrected one */
API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, uint cause, uint *count, ull *pages)
{
    uint there = 0, room = *count, at;
    nvmlReturn_t ret = number(device, cause ? "retired_dbe" : "retired_sbe", &there);
    if (ret != SUCCESS)
        return ret;
    *count = there;
    if (there && (!pages || room < there))
        return INSUFFICIENT_SIZE;
    for (at = 0; at < there; at++)
        pages[at] = 0x100000ULL + at;
    return SUCCESS;
}
typedef struct { uint version, channel, tpc; } repair_t;
API nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, repair_t *status)
{
    uint ecc;
    status->channel = status->tpc = 0;
    return number(device, "ecc", &ecc);
}

/* --- nobody computes here --- */

#define PROCESSES(name) \
    API nvmlReturn_t name(nvmlDevice_t device, uint *count, void *list) \
    { \
        (void)list; \
        *count = 0; \
        return reach(device); \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

FIXED(nvmlDeviceGetAccountingMode, uint, 0)
FIXED(nvmlDeviceGetAccountingBufferSize, uint, 4000)
FIXED(nvmlDeviceGetMultiGpuBoard, uint, 0)
FIXED(nvmlDeviceGetVirtualizationMode, uint, 0)

/* what encodes and decodes: utilization, and over how many microseconds it was taken */
#define ENGINE(name) \
    API nvmlReturn_t name(nvmlDevice_t device, uint *used, uint *period) \
    { \
        *period = 167000; \
        return number(device, "util", used); \
    }
ENGINE(nvmlDeviceGetEncoderUtilization)
ENGINE(nvmlDeviceGetDecoderUtilization)
ENGINE(nvmlDeviceGetJpgUtilization)
ENGINE(nvmlDeviceGetOfaUtilization)
API nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, uint *sessions, uint *fps, uint *latency)
{
    *sessions = *fps = *latency = 0;
    return reach(device);
}
typedef struct { uint sessions, fps, latency; } fbc_t;
API nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, fbc_t *stats)
{
    memset(stats, 0, sizeof *stats);
    return reach(device);
}
API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, uint counter, uint *value)
{
    *value = 0;
    return counter > 1 ? INVALID_ARGUMENT : reach(device);
}

/* --- events: an Xid is told once to every set that asked for it --- */

enum { XID = 0x8, TIMEOUT = 10, SET = 64 };
typedef struct { nvmlDevice_t devices[SET]; int told[SET], count; } set_t;
typedef struct { nvmlDevice_t device; ull type, data; uint gi, ci; } event_t;

FIXED(nvmlDeviceGetSupportedEventTypes, ull, XID)
API nvmlReturn_t nvmlEventSetCreate(set_t **set)
{
    *set = calloc(1, sizeof **set);
    return *set ? SUCCESS : UNKNOWN;
}
API nvmlReturn_t nvmlEventSetFree(set_t *set)
{
    free(set);
    return SUCCESS;
}
API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, ull types, set_t *set)
{
    nvmlReturn_t ret = reach(device);
    if (ret == SUCCESS && types & XID && set->count < SET)
        set->devices[set->count++] = device;
    return ret;
}
API nvmlReturn_t nvmlEventSetWait_v2(set_t *set, event_t *event, uint milliseconds)
{
    struct timespec pause = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    uint code;
    int at;
    for (at = 0; at < set->count; at++)
        if (!set->told[at] && number(set->devices[at], "xid", &code) == SUCCESS) {
            set->told[at] = 1;
            memset(event, 0, sizeof *event);
            event->device = set->devices[at], event->type = XID, event->data = code, event->gi = event->ci = ~0U;
            return SUCCESS;
        }
    nanosleep(&pause, NULL);
    return TIMEOUT;
}
API nvmlReturn_t nvmlEventSetWait(set_t *set, event_t *event, uint ms) { return nvmlEventSetWait_v2(set, event, ms); }

/* --- fields --- */

typedef struct {
    uint field, scope;
    long long timestamp, latency;
    uint type;
    nvmlReturn_t ret;
    union { double d; uint u; unsigned long l; ull ll; long long s; int i; } value;
} field_t;
enum { TYPE_UINT = 1, TYPE_ULL = 3, TYPE_INT = 5, POWER = 185, POWER_LAST = 192 };
enum { LINKS = 91, LINK_SPEED = 164, LINK_VERSION = 166 };

static const struct { uint field; const char *key; uint type; } fields[] = {
    {1, "ecc", TYPE_UINT}, {2, "ecc_pending", TYPE_UINT},
    {3, "ecc_cor_vol", TYPE_ULL}, {4, "ecc_unc_vol", TYPE_ULL},
    {5, "ecc_cor_agg", TYPE_ULL}, {6, "ecc_unc_agg", TYPE_ULL},
    {29, "retired_sbe", TYPE_UINT}, {30, "retired_dbe", TYPE_UINT}, {31, "retired_pending", TYPE_UINT},
    {82, "temp_memory", TYPE_UINT}, {94, "replays", TYPE_UINT},
    {142, "remap_cor", TYPE_UINT}, {143, "remap_unc", TYPE_UINT},
    {144, "remap_pending", TYPE_UINT}, {145, "remap_failed", TYPE_UINT},
    {185, "power_draw", TYPE_UINT}, {186, "power_draw", TYPE_UINT}, {187, "power_min", TYPE_UINT},
    {188, "power_max", TYPE_UINT}, {189, "power_default", TYPE_UINT}, {190, "power_limit", TYPE_UINT},
    {192, "power_limit", TYPE_UINT},
    {193, "tlimit_shutdown", TYPE_INT}, {194, "tlimit_slowdown", TYPE_INT}, {195, "tlimit_memory", TYPE_INT},
    {196, "tlimit_max", TYPE_INT}, {230, "recovery", TYPE_UINT},
};
/* counters of why clocks were lowered: software power cap, sync boost, software and hardware heat, power brake */
static const struct { uint field; ull bit; } reasons[] = {{74, 0x4}, {76, 0x10}, {269, 0x20}, {270, 0x40}, {271, 0x80}};

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, field_t *values)
{
    nvmlReturn_t ret = reach(device);
    size_t at;
    int one;
    for (one = 0; one < count && ret == SUCCESS; one++) {
        field_t *field = &values[one];
        field->timestamp = (long long)time(NULL) * 1000000;
        field->latency = 0, field->value.ll = 0, field->ret = NOT_SUPPORTED;
        if (field->scope && field->field >= POWER && field->field <= POWER_LAST)
            continue; /* of the module and of its memory nothing is known */
        if (field->field == LINKS || (field->field >= LINK_SPEED && field->field <= LINK_VERSION)) {
            field->type = TYPE_UINT;
            field->ret = link_field(device, field->field, field->scope, &field->value.u);
            continue;
        }
        for (at = 0; at < sizeof fields / sizeof *fields; at++)
            if (fields[at].field == field->field) {
                field->type = fields[at].type;
                field->ret = field->type == TYPE_ULL ? big(device, fields[at].key, &field->value.ll)
                                                     : number(device, fields[at].key, &field->value.u);
            }
        for (at = 0; at < sizeof reasons / sizeof *reasons; at++)
            if (reasons[at].field == field->field) {
                field->type = TYPE_ULL;
                field->ret = reason_ns(device, reasons[at].bit, &field->value.ll);
            }
    }
    return ret;
}
