/* A stand-in for libnvidia-ml.so.1: answers from the state file of a simulated machine, read anew at every call.
 *
 * Names, types and return codes are those of NVIDIA's public header nvml.h, as nvidia-ml-py declares them. What is
 * not here is a weak stub that answers NVML_ERROR_NOT_SUPPORTED (stubs.c, generated at build time).
 */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LIBRARY "libnvidia-ml.so."
#define DEVICES 64
#define EXPORTS 512

static struct { int index; } devices[DEVICES];
static int users;

static int machine_number(const char *key) { return (int)lookup_number(-1, key, 0); }

nvmlReturn_t reach(nvmlDevice_t device)
{
    char value[LINE];

    if (!users)
        return UNINITIALIZED;
    if (!device || device->index < 0 || device->index >= machine_number("count"))
        return INVALID_ARGUMENT;
    wait_while_hung(device->index, "hang");
    if (lookup(device->index, "slow", value, sizeof value) == SUCCESS)
        sleep((uint)atoi(value));
    if (lookup(device->index, "return", value, sizeof value) == SUCCESS)
        return atoi(value);
    return SUCCESS;
}

nvmlReturn_t text(nvmlDevice_t device, const char *key, char *value, size_t size)
{
    nvmlReturn_t ret = reach(device);
    if (ret != SUCCESS)
        return ret;
    return value ? lookup(device->index, key, value, size) : INVALID_ARGUMENT;
}

nvmlReturn_t big(nvmlDevice_t device, const char *key, ull *value)
{
    char words[LINE];
    nvmlReturn_t ret = text(device, key, words, sizeof words);
    if (ret == SUCCESS && value)
        *value = strtoull(words, NULL, 0);
    return ret;
}

nvmlReturn_t number(nvmlDevice_t device, const char *key, uint *value)
{
    char words[LINE];
    nvmlReturn_t ret = text(device, key, words, sizeof words);
    if (ret == SUCCESS && value)
        *value = (uint)strtol(words, NULL, 0);
    if (ret == SUCCESS && (!strncmp(key, "util", 4) || !strncmp(key, "remap_", 6))) { /* in MIG mode nobody knows */
        uint mig = 0;
        number(device, "mig", &mig);
        ret = mig ? NOT_SUPPORTED : SUCCESS;
    }
    return ret;
}

/* --- the library and the system --- */

API nvmlReturn_t nvmlInitWithFlags(uint flags)
{
    char module[LINE] = "", library[LINE] = "", value[LINE];
    nvmlReturn_t ret;

    (void)flags;
    ret = lookup(-1, "init", value, sizeof value);
    if (ret != SUCCESS && ret != NOT_SUPPORTED)
        return ret;
    lookup(-1, "module", module, sizeof module);
    library_version(LIBRARY, library, sizeof library);
    if (!*module)
        return DRIVER_NOT_LOADED;
    if (strcmp(module, library))
        return LIB_RM_VERSION_MISMATCH;
    users++;
    return SUCCESS;
}
API nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
API nvmlReturn_t nvmlShutdown(void) { return users ? (users--, SUCCESS) : UNINITIALIZED; }

API const char *nvmlErrorString(nvmlReturn_t code)
{
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case 19: return "In use by another client";
    default: return "Unknown Error";
    }
}

#define SYSTEM_TEXT(name, key) \
    API nvmlReturn_t name(char *value, uint size) { return users ? lookup(-1, key, value, size) : UNINITIALIZED; }
SYSTEM_TEXT(nvmlSystemGetDriverVersion, "module")

static nvmlReturn_t cuda(int *value)
{
    char words[LINE];
    nvmlReturn_t ret = lookup(-1, "cuda", words, sizeof words);
    char *dot = strchr(words, '.');
    if (ret == SUCCESS)
        *value = atoi(words) * 1000 + (dot ? atoi(dot + 1) * 10 : 0);
    return ret;
}
API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *value) { return cuda(value); }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *value) { return cuda(value); }
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *value, uint size)
{
    char library[64];
    int version = 0;
    nvmlReturn_t ret = cuda(&version);

    library_version(LIBRARY, library, sizeof library);
    if (ret == SUCCESS)
        snprintf(value, size, "%d.%s", version / 1000, library);
    return ret;
}
API nvmlReturn_t nvmlUnitGetCount(uint *count) { *count = 0; return users ? SUCCESS : UNINITIALIZED; }
/* nvidia-smi wants tables of functions that no header names before it does anything: all of ours support nothing. */
static nvmlReturn_t unsupported(void) { return NOT_SUPPORTED; }
API nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id)
{
    static const void *functions[EXPORTS];
    size_t at;
    (void)id;
    functions[0] = (const void *)sizeof functions;
    for (at = 1; at < EXPORTS; at++)
        functions[at] = (const void *)(size_t)unsupported;
    *table = functions;
    return SUCCESS;
}

/* --- handles --- */

API nvmlReturn_t nvmlDeviceGetCount_v2(uint *count)
{
    if (!users)
        return UNINITIALIZED;
    *count = (uint)machine_number("count");
    return SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetCount(uint *count) { return nvmlDeviceGetCount_v2(count); }
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(uint index, nvmlDevice_t *device)
{
    if (index >= DEVICES)
        return INVALID_ARGUMENT;
    devices[index].index = (int)index;
    *device = (nvmlDevice_t)&devices[index];
    return reach(*device);
}
API nvmlReturn_t nvmlDeviceGetHandleByIndex(uint index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t by_key(const char *key, const char *wanted, nvmlDevice_t *device)
{
    char value[LINE];
    int index, count = machine_number("count");

    if (!users)
        return UNINITIALIZED;
    for (index = 0; index < count && index < DEVICES; index++)
        if (lookup(index, key, value, sizeof value) == SUCCESS) {
            /* 0000:01:00.0 and 00000000:01:00.0 are the same */
            size_t there = strlen(value), asked = strlen(wanted);
            if (!strcasecmp(value, wanted) || (asked == 12 && there == 16 && !strcasecmp(value + 4, wanted)))
                return nvmlDeviceGetHandleByIndex_v2((uint)index, device);
        }
    return NOT_FOUND;
}
API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *id, nvmlDevice_t *device)
{
    uint at;
    if (strncmp(id, "MIG-", 4))
        return by_key("uuid", id, device);
    for (at = 0; nvmlDeviceGetHandleByIndex_v2(at, device) == SUCCESS; at++)
        if (mig_by_uuid(*device, id, device) == SUCCESS)
            return SUCCESS;
    return NOT_FOUND;
}
API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *id, nvmlDevice_t *d) { return by_key("serial", id, d); }
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *d) { return by_key("bus_id", id, d); }
API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, uint *index)
{
    nvmlReturn_t ret = reach(device);
    if (ret == SUCCESS)
        *index = mig_id(device) == NO_INSTANCE ? (uint)device->index : mig_index(device);
    return ret;
}
