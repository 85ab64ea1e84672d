/* The part of the stand-in for libcuda.so.1 about devices: what they are, and how fast (simulated). */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HW_SLOWDOWN 0x8
/* What a kernel or a copy reaches of what the board could do: the lab's guess, the same for all boards. */
#define OF_COMPUTE 0.5
#define OF_MEMORY 0.9
#define OF_PCIE 0.83
#define OF_NVLINK 0.9

CUresult enter_device(const struct device *device)
{
    CUresult ret;

    if (!device)
        return device_count() ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NOT_INITIALIZED;
    ret = lookup_number(device->index, "return", 0) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS; /* NVML's own code */
    if (ret != CUDA_SUCCESS)
        sleep((unsigned)lookup_number(device->index, "slow", 0));
    return ret;
}

API CUresult cuDeviceGetCount(int *found)
{
    if (!device_of(0))
        return CUDA_ERROR_NOT_INITIALIZED;
    *found = device_count();
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device_of(0))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!device_of(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetName(char *name, int size, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (device && size > 0)
        snprintf(name, (size_t)size, "%s", device->name);
    return device ? CUDA_SUCCESS : enter_device(device);
}
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);
    const char *digits;
    int at;

    if (!device)
        return enter_device(device);
    digits = strchr(device->uuid, '-');
    for (at = 0; at < 16 && digits; at++) {
        unsigned byte = 0;
        digits += *digits == '-';
        sscanf(digits, "%2x", &byte);
        uuid->bytes[at] = (char)byte;
        digits += 2;
    }
    return CUDA_SUCCESS;
}
ALSO(cuDeviceGetUuid, cuDeviceGetUuid_v2)
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (device)
        *bytes = device->memory;
    return device ? CUDA_SUCCESS : enter_device(device);
}
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (!device)
        return enter_device(device);
    switch ((int)attribute) {
#define VALUE(number, name, found) case number: *value = found; return CUDA_SUCCESS;
        ATTRIBUTES(VALUE)
    default: return CUDA_ERROR_NOT_SUPPORTED; /* the real one knows more */
    }
}
API CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (device)
        snprintf(id, (size_t)size, "%04x:%02x:%02x.0", device->domain, device->bus, device->slot);
    return device ? CUDA_SUCCESS : enter_device(device);
}

/* --- peers --- */

/* How many of its links to NVSwitches or to its peers work. */
static int links_up(const struct device *device)
{
    char down[LINE] = "";
    int links = (int)lookup_number(device->index, "nvlinks", 0);
    const char *at = down;

    if (lookup(device->index, "nvlinks_down", down, sizeof down) == FOUND)
        for (links--; (at = strchr(at, ',')); at++)
            links--;
    return links > 0 ? links : 0;
}
static int by_nvlink(const struct device *one, const struct device *two) { return links_up(one) && links_up(two); }

/* As NVML's P2P status has it: between GeForce boards the driver lets nobody. */
int peers_possible(const struct device *one, const struct device *two)
{
    char brand[32] = "";

    lookup(one->index, "brand", brand, sizeof brand);
    return one != two && one->instance < 0 && two->instance < 0 && (by_nvlink(one, two) || strcmp(brand, "GeForce"));
}
API CUresult cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer)
{
    const struct device *one = device_of(ordinal), *two = device_of(peer);

    if (!one || !two)
        return enter_device(one ? two : one);
    *can = peers_possible(one, two);
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    if (from == to)
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute != CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuDeviceCanAccessPeer(value, from, to);
}

/* --- how long things take, if the board were there --- */

static double speed(const struct device *device)
{
    return (double)lookup_number(device->index, "cuda_speed", 100) / 100;
}

/* FP32 units of a multiprocessor, by compute capability: CUDA programming guide, arithmetic instructions. */
static double units(const struct device *device)
{
    if (device->major == 6)
        return device->minor == 0 ? 64 : 128;
    if (device->major == 7 || (device->major == 8 && device->minor == 0))
        return 64;
    return 128;
}
double seconds_of_product(const struct device *device, double operations)
{
    int slowed = (lookup_number(device->index, "reasons", 0) & HW_SLOWDOWN) != 0;
    double clock = slowed ? device->clock / 2 : device->clock;

    return operations / (device->sms * units(device) * 2 * clock * OF_COMPUTE * speed(device));
}
double seconds_of_memory(const struct device *device, double bytes)
{
    return bytes / (device->memory_clock * 2 * device->memory_bus / 8 * OF_MEMORY * speed(device));
}
double seconds_of_pcie(const struct device *device, double bytes)
{
    static const double lane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9};
    long gen = lookup_number(device->index, "gen_load", lookup_number(device->index, "gen_max", 3));
    long width = lookup_number(device->index, "width", 16);

    return bytes / (lane[gen < 1 || gen > 5 ? 3 : gen] * (double)width * OF_PCIE);
}
double seconds_between(const struct device *one, const struct device *two, double bytes, int direct)
{
    int fewer = links_up(one) < links_up(two) ? links_up(one) : links_up(two);
    double first = seconds_of_pcie(one, bytes), second = seconds_of_pcie(two, bytes);

    if (direct && by_nvlink(one, two))
        return bytes / ((double)lookup_number(one->index, "nvlink_mbps", 25000) * 1e6 * fewer * OF_NVLINK);
    if (direct)
        return first > second ? first : second;
    return first + second; /* by the host's memory */
}
