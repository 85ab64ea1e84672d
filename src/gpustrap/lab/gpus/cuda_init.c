/* A stand-in for libcuda.so.1 on the GPUs of a simulated machine: what starts, and what does not.
 *
 * cuInit ends as the real one does where public reports say how: no module or no device file 100, no /dev/nvidia-uvm
 * 999, a library of another version than the module 803 or 804, NVSwitches whose fabric is not up 802.
 */
#include "cuda.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libcuda.so."

static struct device devices[DEVICES];
static int count, started;

struct device *device_of(CUdevice ordinal)
{
    return started && ordinal >= 0 && ordinal < count ? &devices[ordinal] : NULL;
}
int device_count(void) { return started ? count : 0; }

int cuda_of_library(void)
{
    static const char known[] = " " LAB_CUDA_OF " ";
    char version[LINE] = "", loaded[LINE] = "", wanted[LINE], value[LINE] = "";
    const char *found;
    char *dot;

    library_version(LIBRARY, version, sizeof version);
    lookup(-1, "library", loaded, sizeof loaded);
    snprintf(wanted, sizeof wanted, " %d=", atoi(version));
    found = strcmp(version, loaded) ? strstr(known, wanted) : NULL;
    if (found)
        snprintf(value, sizeof value, "%s", found + strlen(wanted));
    else
        lookup(-1, "cuda", value, sizeof value);
    dot = strchr(value, '.');
    return atoi(value) * 1000 + (dot ? atoi(dot + 1) * 10 : 0);
}
API CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = cuda_of_library();
    return CUDA_SUCCESS;
}

/* --- what this process may use --- */

/* Whether this process's user may read and write a file. Neither open() nor access() tells: the container of a lab node
 * lets nobody use devices. */
static int permitted(const struct stat *file)
{
    gid_t groups[NGROUPS_MAX];
    int at, many = getgroups(NGROUPS_MAX, groups), member = file->st_gid == getegid();

    for (at = 0; at < many; at++)
        member |= groups[at] == file->st_gid;
    if (!geteuid())
        return 1;
    if (file->st_uid == geteuid())
        return (file->st_mode & 0600) == 0600;
    return member ? (file->st_mode & 0060) == 0060 : (file->st_mode & 0006) == 0006;
}
static int usable(const char *name)
{
    const char *place = getenv("LAB_GPU_DEV");
    struct stat file;
    char path[LINE];

    if (!place && getenv("LAB_GPU_STATE"))
        return 1;
    snprintf(path, sizeof path, "%s/%s", place ? place : "/dev", name);
    return !stat(path, &file) && permitted(&file);
}

static void describe(struct device *device, int index)
{
    char words[LINE] = "";

    memset(device, 0, sizeof *device);
    device->index = index;
    device->instance = -1;
    lookup(index, "name", device->name, sizeof device->name);
    lookup(index, "uuid", device->uuid, sizeof device->uuid);
    lookup(index, "compute", words, sizeof words);
    sscanf(words, "%d.%d", &device->major, &device->minor);
    lookup(index, "bus_id", words, sizeof words);
    sscanf(words, "%x:%x:%x", (unsigned *)&device->domain, (unsigned *)&device->bus, (unsigned *)&device->slot);
    device->sms = (int)lookup_number(index, "sms", 1);
    device->memory_bus = (int)lookup_number(index, "memory_bus", 256);
    device->clock = (double)lookup_number(index, "max_graphics", 1000) * 1e6;
    device->memory_clock = (double)lookup_number(index, "max_memory", 1000) * 1e6;
    device->memory = MIB(lookup_number(index, "memory_total", 0) - lookup_number(index, "memory_reserved", 0));
    device->taken = MIB(lookup_number(index, "memory_used", 0));
}

/* A GPU in MIG mode is no device, its first instance is. */
static int describe_instance(struct device *device)
{
    unsigned profile, compute, sms, memory;
    char key[32], line[LINE], name[32];

    for (device->instance = 0; device->instance < 15; device->instance++) {
        snprintf(key, sizeof key, "gi_%d", device->instance);
        if (lookup(device->index, key, line, sizeof line) != FOUND ||
            sscanf(line, "%u %*u %*u %u %63s", &profile, &compute, device->uuid) != 3 || !compute)
            continue;
        snprintf(key, sizeof key, "mig_profile_%u", profile);
        if (lookup(device->index, key, line, sizeof line) != FOUND ||
            sscanf(line, "%*u %31s %*u %*u %u %*u %*u %*u %*u %*u %u", name, &sms, &memory) != 3)
            continue;
        snprintf(device->name + strlen(device->name), sizeof device->name - strlen(device->name), " MIG %s", name);
        device->sms = (int)sms;
        device->memory = MIB(memory);
        return 1;
    }
    return 0;
}

/* Whether one word of CUDA_VISIBLE_DEVICES means a device: its number, or the beginning of its UUID. */
static int meant(const char *word, const struct device *device, int number)
{
    char *end;
    long given = strtol(word, &end, 10);

    if (end != word && !*end)
        return given == number;
    return strlen(word) > 4 && !strncmp(word, device->uuid, strlen(word));
}

/* Keeps what CUDA_VISIBLE_DEVICES names, in its order; the first word that means nothing ends it. */
static int select_visible(struct device *all, int found)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char words[4096], *word, *rest = words;
    int at, kept = 0;

    if (!visible) {
        memcpy(devices, all, sizeof *all * (size_t)found);
        return found;
    }
    snprintf(words, sizeof words, "%s", visible);
    while ((word = strsep(&rest, ",")) && kept < DEVICES) {
        for (at = 0; at < found && !meant(word, &all[at], at); at++)
            ;
        if (at == found)
            break;
        devices[kept++] = all[at];
    }
    return kept;
}

static int enumerate(void)
{
    static struct device all[DEVICES];
    int index, found = 0, at, total = (int)lookup_number(-1, "count", 0);
    char name[32];

    for (index = 0; index < total && found < DEVICES; index++) {
        snprintf(name, sizeof name, "nvidia%ld", lookup_number(index, "minor", index));
        if (!usable(name))
            continue;
        describe(&all[found], index);
        if (!lookup_number(index, "mig", 0) || describe_instance(&all[found]))
            found++;
    }
    found = select_visible(all, found);
    for (at = 0; at < found; at++)
        if (devices[at].instance >= 0) { /* a process sees one instance of MIG, and nothing else */
            devices[0] = devices[at];
            return 1;
        }
    return found;
}

/* --- whether the driver starts --- */

/* Versions as numbers, part by part: below, equal or above 0. */
static int compare(const char *left, const char *right)
{
    char *after, *behind;

    while (*left && *right) {
        long one = strtol(left, &after, 10), two = strtol(right, &behind, 10);
        if (one != two)
            return one < two ? -1 : 1;
        left = *after ? after + 1 : after;
        right = *behind ? behind + 1 : behind;
    }
    return 0;
}

static CUresult mismatch(const char *library, const char *module)
{
    int index, total = (int)lookup_number(-1, "count", 0);
    char brand[32];

    /* A library that is newer takes it for forward compatibility, which GeForce boards do not have. */
    for (index = 0; index < total && compare(library, module) > 0; index++)
        if (lookup(index, "brand", brand, sizeof brand) == FOUND && !strcmp(brand, "GeForce"))
            return CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE;
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

static CUresult start(void)
{
    char module[LINE] = "", library[LINE] = "", fabric[64];
    CUresult ret = (CUresult)lookup_number(-1, "cuda_init", 0);
    int at;

    if (ret != CUDA_SUCCESS)
        return ret;
    lookup(-1, "module", module, sizeof module);
    library_version(LIBRARY, library, sizeof library);
    if (!*module || !usable("nvidiactl"))
        return CUDA_ERROR_NO_DEVICE;
    if (strcmp(module, library))
        return mismatch(library, module);
    count = enumerate();
    if (!count)
        return CUDA_ERROR_NO_DEVICE;
    if (!usable("nvidia-uvm"))
        return CUDA_ERROR_UNKNOWN;
    for (at = 0; at < count; at++) {
        devices[at].ordinal = at;
        if (lookup(devices[at].index, "fabric", fabric, sizeof fabric) == FOUND && strcmp(fabric, "Completed"))
            return CUDA_ERROR_SYSTEM_NOT_READY;
        if (enter_device(&devices[at]) != CUDA_SUCCESS)
            return CUDA_ERROR_UNKNOWN;
    }
    return CUDA_SUCCESS;
}
API CUresult cuInit(unsigned int flags)
{
    CUresult ret;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (started)
        return CUDA_SUCCESS;
    ret = start();
    started = ret == CUDA_SUCCESS;
    return ret;
}

/* --- what results mean --- */

API CUresult cuGetErrorName(CUresult code, const char **words)
{
    switch ((int)code) {
#define NAME(number, name, text) case number: *words = #name; return CUDA_SUCCESS;
        RESULTS(NAME)
    default: *words = NULL; return CUDA_ERROR_INVALID_VALUE;
    }
}
API CUresult cuGetErrorString(CUresult code, const char **words)
{
    switch ((int)code) {
#define TEXT(number, name, text) case number: *words = text; return CUDA_SUCCESS;
        RESULTS(TEXT)
    default: *words = NULL; return CUDA_ERROR_INVALID_VALUE;
    }
}
