/* The part of the stand-in for libnvidia-ml.so.1 about MIG: profiles, instances, and the devices made of them.
 *
 * mig_profile_ID=INDEX NAME SLICES COUNT SM CE DEC ENC JPG OFA MEMORY BAR1 SIZE START,… is what the board can make,
 * gi_ID=PROFILE START SIZE COMPUTE UUID is there. nvidia-smi makes and removes them. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANCES 15 /* ids 0 to 14: the whole, halves, quarters, eighths */
#define GPUS 64
#define MASK 0xFFFF

typedef struct {
    uint id, index, slices, count, sm, ce, dec, enc, jpg, ofa, memory, bar1, size;
    char name[32], starts[32];
} profile_t;
typedef struct { uint profile, start, size, compute; char uuid[64]; } instance_t;

static struct mig { int index; uint instance; } handles[GPUS][INSTANCES];
static int is_mig(nvmlDevice_t device)
{
    const struct mig *handle = (const struct mig *)(void *)device;
    return handle >= handles[0] && handle < handles[0] + GPUS * INSTANCES;
}
uint mig_id(nvmlDevice_t device) { return is_mig(device) ? ((struct mig *)(void *)device)->instance : NO_INSTANCE; }

static nvmlReturn_t profile_of(nvmlDevice_t device, uint id, profile_t *found)
{
    char key[32], line[LINE];
    nvmlReturn_t ret;

    snprintf(key, sizeof key, "mig_profile_%u", id);
    ret = text(device, key, line, sizeof line);
    found->id = id;
    return ret == SUCCESS && sscanf(line, "%u %31s %u %u %u %u %u %u %u %u %u %u %u %31s", &found->index, found->name,
        &found->slices, &found->count, &found->sm, &found->ce, &found->dec, &found->enc, &found->jpg, &found->ofa,
        &found->memory, &found->bar1, &found->size, found->starts) != 14 ? UNKNOWN : ret;
}
static nvmlReturn_t instance_of(nvmlDevice_t device, uint id, instance_t *found)
{
    char key[32], line[LINE];
    nvmlReturn_t ret;

    snprintf(key, sizeof key, "gi_%u", id);
    ret = text(device, key, line, sizeof line);
    return ret == SUCCESS && sscanf(line, "%u %u %u %u %63s", &found->profile, &found->start, &found->size,
                                    &found->compute, found->uuid) != 5 ? UNKNOWN : ret;
}
/* The profile with an index of nvml.h; its id is what nvidia-smi and the driver call it. */
static nvmlReturn_t by_index(nvmlDevice_t device, uint index, profile_t *found)
{
    uint id;
    nvmlReturn_t ret = reach(device);
    for (id = 0; id < 32 && ret == SUCCESS; id++)
        if (profile_of(device, id, found) == SUCCESS && found->index == index)
            return SUCCESS;
    return ret == SUCCESS ? NOT_SUPPORTED : ret;
}
int mig_instances(nvmlDevice_t device)
{
    instance_t instance;
    uint id;
    int count = 0;
    for (id = 0; id < INSTANCES; id++)
        count += instance_of(device, id, &instance) == SUCCESS;
    return count;
}
static nvmlReturn_t enabled(nvmlDevice_t device)
{
    uint mode = 0;
    nvmlReturn_t ret = number(device, "mig", &mode);
    return ret == SUCCESS && !mode ? NOT_SUPPORTED : ret;
}

/* --- MIG devices: handles of their own; what is not asked here is asked of their GPU --- */

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, uint *is)
{
    *is = (uint)is_mig(device);
    return reach(device);
}
API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, uint *count)
{
    uint mode;
    nvmlReturn_t ret = number(device, "mig", &mode);
    *count = ret == SUCCESS ? 7 : 0;
    return ret == NOT_SUPPORTED ? SUCCESS : ret;
}
API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, uint index, nvmlDevice_t *found)
{
    instance_t instance;
    uint id;
    nvmlReturn_t ret = enabled(device);
    for (id = 0; id < INSTANCES && ret == SUCCESS; id++)
        if (instance_of(device, id, &instance) == SUCCESS && instance.compute && !index--) {
            handles[device->index][id].index = device->index;
            handles[device->index][id].instance = id;
            *found = (nvmlDevice_t)(void *)&handles[device->index][id];
            return SUCCESS;
        }
    return ret == SUCCESS ? NOT_FOUND : ret;
}
/* Among the MIG devices of its GPU. */
uint mig_index(nvmlDevice_t device)
{
    instance_t instance;
    uint id, index = 0;
    for (id = 0; id < mig_id(device); id++)
        index += instance_of(device, id, &instance) == SUCCESS && instance.compute;
    return index;
}
nvmlReturn_t mig_by_uuid(nvmlDevice_t device, const char *uuid, nvmlDevice_t *found)
{
    instance_t instance;
    uint index;
    for (index = 0; nvmlDeviceGetMigDeviceHandleByIndex(device, index, found) == SUCCESS; index++)
        if (instance_of(device, mig_id(*found), &instance) == SUCCESS && !strcmp(instance.uuid, uuid))
            return SUCCESS;
    return NOT_FOUND;
}
API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    return is_mig(device) ? nvmlDeviceGetHandleByIndex_v2((uint)device->index, parent) : INVALID_ARGUMENT;
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, uint *id)
{
    *id = mig_id(device);
    return is_mig(device) ? reach(device) : INVALID_ARGUMENT;
}
API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, uint *id)
{
    *id = 0; /* one that takes the whole GPU instance */
    return is_mig(device) ? reach(device) : INVALID_ARGUMENT;
}
static nvmlReturn_t made_of(nvmlDevice_t device, instance_t *instance, profile_t *profile)
{
    nvmlReturn_t ret = is_mig(device) ? instance_of(device, mig_id(device), instance) : INVALID_ARGUMENT;
    return ret == SUCCESS ? profile_of(device, instance->profile, profile) : ret;
}
nvmlReturn_t mig_text(nvmlDevice_t device, int uuid, char *value, size_t size)
{
    char board[LINE];
    instance_t instance;
    profile_t profile;
    nvmlReturn_t ret = made_of(device, &instance, &profile);
    if (ret == SUCCESS && !uuid)
        ret = text(device, "name", board, sizeof board);
    if (ret == SUCCESS && uuid)
        snprintf(value, size, "%s", instance.uuid);
    else if (ret == SUCCESS)
        snprintf(value, size, "%s MIG %s", board, profile.name);
    return ret;
}
nvmlReturn_t mig_memory(nvmlDevice_t device, int bar1, uint *mib)
{
    instance_t instance;
    profile_t profile;
    nvmlReturn_t ret = made_of(device, &instance, &profile);
    *mib = bar1 ? profile.bar1 : profile.memory;
    return ret;
}
typedef struct { uint sm, ce, dec, enc, jpg, ofa, gpu_slices, compute_slices; ull memory; } attributes_t;
API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, attributes_t *found)
{
    instance_t instance;
    profile_t p;
    nvmlReturn_t ret = made_of(device, &instance, &p);
    if (ret == SUCCESS)
        *found = (attributes_t){p.sm, p.ce, p.dec, p.enc, p.jpg, p.ofa, p.slices, p.slices, p.memory};
    return ret;
}

/* --- profiles and instances --- */

typedef struct { uint id, p2p, slices, count, sm, ce, dec, enc, jpg, ofa; ull memory; } info_t;
typedef struct { uint version, id, p2p, slices, count, sm, ce, dec, enc, jpg, ofa; ull memory; char name[96]; } info2_t;
static nvmlReturn_t fill(nvmlReturn_t ret, const profile_t *p, info_t *info)
{
    if (ret == SUCCESS)
        *info = (info_t){p->id, 0, p->slices, p->count, p->sm, p->ce, p->dec, p->enc, p->jpg, p->ofa, p->memory};
    return ret;
}
static nvmlReturn_t fill2(nvmlReturn_t ret, const profile_t *p, info2_t *info)
{
    if (ret == SUCCESS) {
        *info = (info2_t){info->version, p->id, 0, p->slices, p->count, p->sm, p->ce, p->dec, p->enc, p->jpg, p->ofa,
                          p->memory, ""};
        snprintf(info->name, sizeof info->name, "MIG %s", p->name);
    }
    return ret;
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, uint index, info_t *info)
{
    profile_t profile;
    return fill(by_index(device, index, &profile), &profile, info);
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, uint index, info2_t *info)
{
    profile_t profile;
    return fill2(by_index(device, index, &profile), &profile, info);
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, uint id, info2_t *info)
{
    profile_t profile;
    return fill2(profile_of(device, id, &profile), &profile, info);
}
typedef struct { uint start, size; } placement_t;
/* Of the placements of a profile those that are free, or all. */
static uint placements(nvmlDevice_t device, const profile_t *profile, int free_only, placement_t *found)
{
    const char *list = profile->starts;
    instance_t there;
    uint count = 0, id;

    for (; *list; list += strcspn(list, ","), list += *list == ',') {
        uint start = (uint)atoi(list), taken = 0;
        for (id = 0; id < INSTANCES && free_only; id++)
            if (instance_of(device, id, &there) == SUCCESS)
                taken |= start < there.start + there.size && there.start < start + profile->size;
        if (taken)
            continue;
        if (found)
            found[count] = (placement_t){start, profile->size};
        count++;
    }
    return count;
}
API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    nvmlDevice_t device, uint id, placement_t *found, uint *count)
{
    profile_t profile;
    nvmlReturn_t ret = profile_of(device, id, &profile);
    if (ret == SUCCESS)
        *count = placements(device, &profile, 0, found);
    return ret;
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, uint id, uint *count)
{
    profile_t profile;
    nvmlReturn_t ret = profile_of(device, id, &profile);
    if (ret == SUCCESS) {
        uint room = enabled(device) == SUCCESS ? placements(device, &profile, 1, NULL) : 0;
        *count = room < profile.count ? room : profile.count;
    }
    return ret;
}
API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, uint profile, struct mig **found, uint *count)
{
    instance_t instance;
    uint id;
    nvmlReturn_t ret = enabled(device);
    *count = 0;
    for (id = 0; id < INSTANCES && ret == SUCCESS; id++)
        if (instance_of(device, id, &instance) == SUCCESS && instance.profile == profile) {
            handles[device->index][id].index = device->index;
            handles[device->index][id].instance = id;
            found[(*count)++] = &handles[device->index][id];
        }
    return ret;
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, uint id, struct mig **found)
{
    instance_t instance;
    nvmlReturn_t ret = id < INSTANCES ? instance_of(device, id, &instance) : NOT_FOUND;
    if (ret == SUCCESS) {
        handles[device->index][id].index = device->index;
        handles[device->index][id].instance = id;
        *found = &handles[device->index][id];
    }
    return ret == NOT_SUPPORTED ? NOT_FOUND : ret;
}
typedef struct { nvmlDevice_t device; uint id, profile; placement_t placement; } instance_info_t;
API nvmlReturn_t nvmlGpuInstanceGetInfo(struct mig *handle, instance_info_t *info)
{
    instance_t instance;
    nvmlReturn_t ret = instance_of((nvmlDevice_t)(void *)handle, handle->instance, &instance);
    if (ret == SUCCESS)
        ret = nvmlDeviceGetHandleByIndex_v2((uint)handle->index, &info->device);
    if (ret == SUCCESS) {
        info->id = handle->instance, info->profile = instance.profile;
        info->placement = (placement_t){instance.start, instance.size};
    }
    return ret;
}
/* Of compute instances there are those that fill a GPU instance: such a one has that one's handle. */
static uint compute_profile(const profile_t *profile) { return profile->slices == 7 ? 4 : profile->slices - 1; }
typedef struct { uint id, slices, count, sm, ce, dec, enc, jpg, ofa; } compute_profile_t;
typedef struct { uint version; compute_profile_t info; char name[96]; } compute_profile2_t;
API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    struct mig *handle, uint index, uint engines, compute_profile_t *info)
{
    instance_t instance;
    profile_t p;
    nvmlReturn_t ret = made_of((nvmlDevice_t)(void *)handle, &instance, &p);
    if (ret == SUCCESS && (engines || compute_profile(&p) != index))
        return NOT_SUPPORTED;
    if (ret == SUCCESS)
        *info = (compute_profile_t){index, p.slices, 1, p.sm, p.ce, p.dec, p.enc, p.jpg, p.ofa};
    return ret;
}
API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    struct mig *handle, uint index, uint engines, compute_profile2_t *info)
{
    instance_t instance;
    profile_t p;
    nvmlReturn_t ret = nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, index, engines, &info->info);
    if (ret == SUCCESS)
        ret = made_of((nvmlDevice_t)(void *)handle, &instance, &p);
    if (ret == SUCCESS)
        snprintf(info->name, sizeof info->name, "MIG %s", p.name);
    return ret;
}
API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(struct mig *handle, uint index, uint *count)
{
    instance_t instance;
    compute_profile_t info;
    nvmlReturn_t ret = nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, index, 0, &info);
    if (ret == SUCCESS)
        ret = instance_of((nvmlDevice_t)(void *)handle, handle->instance, &instance);
    *count = ret == SUCCESS && !instance.compute;
    return ret;
}
API nvmlReturn_t nvmlGpuInstanceGetComputeInstances(struct mig *handle, uint wanted, struct mig **found, uint *count)
{
    nvmlDevice_t device = (nvmlDevice_t)(void *)handle;
    instance_t instance;
    profile_t profile;
    nvmlReturn_t ret = made_of(device, &instance, &profile);
    *count = 0;
    if (ret == SUCCESS && instance.compute && compute_profile(&profile) == wanted)
        found[(*count)++] = handle;
    return ret;
}
API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(struct mig *handle, uint id, struct mig **found)
{
    instance_t instance;
    nvmlReturn_t ret = instance_of((nvmlDevice_t)(void *)handle, handle->instance, &instance);
    *found = handle;
    return ret == SUCCESS && (id || !instance.compute) ? NOT_FOUND : ret;
}
typedef struct { nvmlDevice_t device; struct mig *gpu; uint id, profile; placement_t placement; } compute_info_t;
API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(struct mig *handle, compute_info_t *info)
{
    instance_t instance;
    profile_t profile;
    nvmlReturn_t ret = made_of((nvmlDevice_t)(void *)handle, &instance, &profile);
    if (ret == SUCCESS)
        ret = nvmlDeviceGetHandleByIndex_v2((uint)handle->index, &info->device);
    if (ret == SUCCESS) {
        info->gpu = handle, info->id = 0, info->profile = compute_profile(&profile);
        info->placement = (placement_t){0, instance.size};
    }
    return ret;
}
