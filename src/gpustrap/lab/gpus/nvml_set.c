/* The part of the stand-in for libnvidia-ml.so.1 that changes a GPU. As on a machine, only root may, and all of it is
 * lost at the next boot. The state file is replaced in one step: who reads it sees the old one or the new one. */
#include "nvml.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH 4096

/* Copies the state with the device's line of that key exchanged; other programs that change it wait. */
static int rewrite(FILE *from, FILE *to, const char *key, const char *value)
{
    char line[LINE];
    size_t length = strlen(key);

    while (fgets(line, sizeof line, from)) {
        if (!strncmp(line, key, length))
            snprintf(line, sizeof line, "%s%s\n", key, value);
        if (fputs(line, to) < 0)
            return -1;
    }
    return fflush(to);
}

static int open_lock(const char *path)
{
    int held = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    return held >= 0 && flock(held, LOCK_EX) ? (close(held), -1) : held;
}

nvmlReturn_t put(nvmlDevice_t device, const char *key, uint value)
{
    char old[LINE], wanted[64], words[32], lock[PATH], new[PATH];
    const char *path = state_path();
    nvmlReturn_t ret = text(device, key, old, sizeof old);
    FILE *from, *to;
    int held;

    if (ret != SUCCESS)
        return ret;
    if (geteuid())
        return NO_PERMISSION;
    snprintf(wanted, sizeof wanted, "%d.%s=", device->index, key);
    snprintf(words, sizeof words, "%u", value);
    snprintf(lock, sizeof lock, "%s.lock", path);
    snprintf(new, sizeof new, "%s.%d", path, (int)getpid());
    held = open_lock(lock);
    if (held < 0)
        return UNKNOWN;
    from = fopen(path, "re");
    to = fopen(new, "we");
    ret = from && to && !rewrite(from, to, wanted, words) && !fchmod(fileno(to), 0644) && !rename(new, path)
        ? SUCCESS : UNKNOWN;
    if (from)
        fclose(from);
    if (to)
        fclose(to);
    close(held);
    return ret;
}

API nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, uint mode)
{
    return mode > 1 ? INVALID_ARGUMENT : put(device, "persistence", mode);
}
API nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, uint milliwatts)
{
    uint least = 0, most = 0;
    nvmlReturn_t ret = number(device, "power_min", &least);

    if (ret == SUCCESS)
        ret = number(device, "power_max", &most);
    if (ret == SUCCESS && (milliwatts < least || milliwatts > most))
        return INVALID_ARGUMENT;
    return ret == SUCCESS ? put(device, "power_limit", milliwatts) : ret;
}
typedef struct { uint version; unsigned char scope; uint milliwatts; } power_t;
API nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, power_t *power)
{
    return power->scope ? NOT_SUPPORTED : nvmlDeviceSetPowerManagementLimit(device, power->milliwatts);
}
/* Takes effect at the next reset. */
API nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, uint mode)
{
    return mode > 1 ? INVALID_ARGUMENT : put(device, "ecc_pending", mode);
}
/* From Hopper on at once; not while there are instances. */
API nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, uint mode, nvmlReturn_t *activation)
{
    uint now;
    nvmlReturn_t ret = mode > 1 ? INVALID_ARGUMENT : number(device, "mig", &now);

    if (ret == SUCCESS && mig_instances(device))
        ret = IN_USE;
    if (ret == SUCCESS)
        ret = put(device, "mig_pending", mode);
    if (ret == SUCCESS)
        ret = put(device, "mig", mode);
    if (activation)
        *activation = ret;
    return ret;
}
