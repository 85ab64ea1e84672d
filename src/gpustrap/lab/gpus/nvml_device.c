/* The part of the stand-in for libnvidia-ml.so.1 that tells what a GPU is: names, memory, PCI, power and link. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

/* --- values that are one line of the file --- */

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *value, uint size)
{
    return mig_id(device) == NO_INSTANCE ? text(device, "name", value, size) : mig_text(device, 0, value, size);
}
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *value, uint size)
{
    return mig_id(device) == NO_INSTANCE ? text(device, "uuid", value, size) : mig_text(device, 1, value, size);
}
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetBoardId, "board_id")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetPowerUsage, "power_draw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default")
NUMBER(nvmlDeviceGetFanSpeed, "fan")
NUMBER(nvmlDeviceGetPerformanceState, "pstate")
NUMBER(nvmlDeviceGetPowerState, "pstate")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "gen")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "gen_max")
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "gen_max")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "width_max")
NUMBER(nvmlDeviceGetPcieReplayCounter, "replays")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_min", "power_max")

FIXED(nvmlDeviceGetComputeMode, uint, 0)
FIXED(nvmlDeviceGetDisplayMode, uint, 0)
FIXED(nvmlDeviceGetDisplayActive, uint, 0)
API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *value)
{
    return text(device, "gsp", value, 64);
}

/* --- values with a shape --- */

static int position(const char *const *names, const char *name)
{
    int at;
    for (at = 0; names[at]; at++)
        if (*names[at] && !strcmp(names[at], name))
            return at;
    return -1;
}
API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, uint *brand)
{
    static const char *const names[] = {"Unknown", "Quadro", "Tesla", "NVS", "GRID", "GeForce", "Titan",
                                        "", "", "", "", "", "QuadroRTX", "NvidiaRTX", "NVIDIA", NULL};
    char value[LINE];
    nvmlReturn_t ret = text(device, "brand", value, sizeof value);
    if (ret == SUCCESS)
        *brand = (uint)position(names, value);
    return ret;
}
API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, uint *architecture)
{
    static const char *const names[] = {"", "", "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere",
                                        "Ada Lovelace", "Hopper", "Blackwell", NULL};
    char value[LINE];
    nvmlReturn_t ret = text(device, "architecture", value, sizeof value);
    if (ret == SUCCESS)
        *architecture = (uint)position(names, value);
    return ret;
}
API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    char value[LINE];
    nvmlReturn_t ret = text(device, "compute", value, sizeof value);
    return ret == SUCCESS && sscanf(value, "%d.%d", major, minor) != 2 ? UNKNOWN : ret;
}

typedef struct { ull total, free, used; } memory_t;
typedef struct { uint version; ull total, reserved, free, used; } memory_v2_t;
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, memory_v2_t *memory)
{
    ull total = 0, reserved = 0, used = 0;
    uint part = 0;
    nvmlReturn_t ret = big(device, "memory_total", &total);
    if (ret == SUCCESS && mig_id(device) != NO_INSTANCE)
        ret = mig_memory(device, 0, &part), total = part;
    else if (ret == SUCCESS)
        ret = big(device, "memory_reserved", &reserved);
    if (ret == SUCCESS)
        ret = big(device, "memory_used", &used);
    memory->total = MIB(total), memory->reserved = MIB(reserved), memory->used = MIB(used);
    memory->free = MIB(total - reserved - used);
    return ret;
}
/* the first version counts what is reserved as used */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, memory_t *memory)
{
    memory_v2_t whole;
    nvmlReturn_t ret = nvmlDeviceGetMemoryInfo_v2(device, &whole);
    memory->total = whole.total, memory->free = whole.free, memory->used = whole.used + whole.reserved;
    return ret;
}
API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, memory_t *memory)
{
    ull total = 0, used = 0;
    uint part = 0;
    nvmlReturn_t ret = big(device, "bar1_total", &total);
    if (ret == SUCCESS && mig_id(device) != NO_INSTANCE)
        ret = mig_memory(device, 1, &part), total = part;
    else if (ret == SUCCESS)
        ret = big(device, "bar1_used", &used);
    memory->total = MIB(total), memory->used = MIB(used), memory->free = MIB(total - used);
    return ret;
}

typedef struct { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, pci_t *pci)
{
    nvmlReturn_t ret = text(device, "bus_id", pci->bus_id, sizeof pci->bus_id);
    if (ret != SUCCESS)
        return ret;
    snprintf(pci->legacy, sizeof pci->legacy, "%s", pci->bus_id + 4);
    if (sscanf(pci->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
        return UNKNOWN;
    ret = number(device, "device_id", &pci->id);
    return ret == SUCCESS ? number(device, "subsystem_id", &pci->subsystem) : ret;
}

typedef struct { uint version, domain, bus, device, id, subsystem, base, sub; char bus_id[32]; } pci_ext_t;
API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, pci_ext_t *pci)
{
    pci_t plain;
    char class[16] = "";
    nvmlReturn_t ret = nvmlDeviceGetPciInfo_v3(device, &plain);
    if (ret == SUCCESS)
        ret = text(device, "class", class, sizeof class);
    if (ret != SUCCESS || sscanf(class, "%2x%2x", &pci->base, &pci->sub) != 2)
        return ret == SUCCESS ? UNKNOWN : ret;
    pci->domain = plain.domain, pci->bus = plain.bus, pci->device = plain.device;
    pci->id = plain.id, pci->subsystem = plain.subsystem;
    memcpy(pci->bus_id, plain.bus_id, sizeof pci->bus_id);
    return SUCCESS;
}

typedef struct { uint gpu, memory; } utilization_t;
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, utilization_t *rates)
{
    nvmlReturn_t ret = number(device, "util", &rates->gpu);
    return ret == SUCCESS ? number(device, "util_memory", &rates->memory) : ret;
}
