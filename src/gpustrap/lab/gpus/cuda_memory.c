/* The part of the stand-in for libcuda.so.1 about memory, which lies on the host: pages that nobody wrote cost nothing.
 *
 * Addresses of a device are its physical ones above a base, lowest free first, so that a bit that is stuck is found by
 * who uses the memory where it is, and by nobody else. */
#include "cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BASE 0x100000000000ULL /* the host has nothing there */
#define SPAN 0x010000000000ULL /* for each device */
#define ALIGNMENT 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct device *owner(CUdeviceptr address)
{
    return address < BASE ? NULL : device_of((CUdevice)((address - BASE) / SPAN));
}
struct allocation *find(CUdeviceptr address, size_t size)
{
    struct device *device = owner(address);
    struct allocation *at;

    pthread_mutex_lock(&lock);
    for (at = device ? device->first : NULL; at; at = at->next)
        if (address >= at->address && address - at->address <= at->size && size <= at->size - (address - at->address))
            break;
    pthread_mutex_unlock(&lock);
    return at;
}
struct allocation *find_for_kernel(CUcontext context, CUdeviceptr address, size_t size)
{
    struct allocation *found = find(address, size);

    return found && found->device != context->device && !(context->peers >> found->device->ordinal & 1) ? NULL : found;
}

/* MIB,BIT: the bit of the 32-bit word at that many MiB from the beginning of the device's memory, which is always 1. */
ssize_t stuck_word(const struct allocation *where, size_t offset, size_t size, uint32_t *mask)
{
    CUdeviceptr base = BASE + SPAN * (CUdeviceptr)where->device->ordinal, begin = where->address + offset;
    unsigned long mib;
    unsigned bit;
    char words[LINE];

    if (lookup(where->device->index, "cuda_stuck", words, sizeof words) != FOUND ||
        sscanf(words, "%lu,%u", &mib, &bit) != 2 || base + MIB(mib) < begin ||
        base + MIB(mib) - begin + sizeof *mask > size)
        return -1;
    if (mask)
        *mask = 1U << bit;
    return (ssize_t)(base + MIB(mib) - where->address);
}
char *read_memory(struct allocation *where, size_t offset, size_t size)
{
    uint32_t word, mask;
    ssize_t stuck;

    make_real(where, offset, size);
    stuck = stuck_word(where, offset, size, &mask);
    if (stuck >= 0) {
        memcpy(&word, where->host + stuck, sizeof word);
        word |= mask;
        memcpy(where->host + stuck, &word, sizeof word);
    }
    return where->host + offset;
}
char *host_of(CUdeviceptr address, size_t size)
{
    struct allocation *found = find(address, size);
    return found ? read_memory(found, address - found->address, size) : NULL;
}
char *kernel_memory(CUcontext context, CUdeviceptr address, size_t size)
{
    struct allocation *found = find_for_kernel(context, address, size);
    return found ? read_memory(found, address - found->address, size) : NULL;
}

/* --- allocations --- */

static size_t allocated(const struct device *device)
{
    const struct allocation *at;
    size_t bytes = device->taken;

    for (at = device->first; at; at = at->next)
        bytes += at->size;
    return bytes;
}
API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    CUcontext context;
    CUresult ret = enter(&context);
    size_t used;

    if (ret != CUDA_SUCCESS)
        return ret;
    used = allocated(context->device);
    *total = context->device->memory;
    *available = used < *total ? *total - used : 0;
    return CUDA_SUCCESS;
}

/* The lowest place that is large enough; the list stays in order. */
static CUresult place(struct device *device, struct allocation *new)
{
    struct allocation **at = &device->first;
    CUdeviceptr start = BASE + SPAN * (CUdeviceptr)device->ordinal, end = start + device->memory;
    size_t wanted = (new->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    start += device->taken;
    for (; *at && (*at)->address - start < wanted; at = &(*at)->next)
        start = ((*at)->address + (*at)->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (start + wanted > end)
        return CUDA_ERROR_OUT_OF_MEMORY;
    new->device = device;
    new->address = start;
    new->next = *at;
    *at = new;
    return CUDA_SUCCESS;
}
API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    CUcontext context;
    struct allocation *new;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS && (!address || !size))
        ret = CUDA_ERROR_INVALID_VALUE;
    if (ret != CUDA_SUCCESS)
        return ret;
    new = calloc(1, sizeof *new);
    if (!new)
        return CUDA_ERROR_OUT_OF_MEMORY;
    new->size = size;
    new->context = context;
    new->host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pthread_mutex_lock(&lock);
    ret = new->host == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : place(context->device, new);
    pthread_mutex_unlock(&lock);
    if (ret == CUDA_SUCCESS) {
        *address = new->address;
        return CUDA_SUCCESS;
    }
    if (new->host != MAP_FAILED)
        munmap(new->host, size);
    free(new);
    return ret;
}
static void discard(struct allocation *gone)
{
    munmap(gone->host, gone->size);
    free(gone->chunks);
    free(gone);
}
API CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct device *device = owner(address);
    struct allocation **at, *gone;
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS && address)
        ret = finish(context);
    if (ret != CUDA_SUCCESS || !address)
        return ret;
    pthread_mutex_lock(&lock);
    for (at = device ? &device->first : NULL; at && *at && (*at)->address != address; at = &(*at)->next)
        ;
    gone = at ? *at : NULL;
    if (gone)
        *at = gone->next;
    pthread_mutex_unlock(&lock);
    if (!gone)
        return CUDA_ERROR_INVALID_VALUE;
    discard(gone);
    return CUDA_SUCCESS;
}
void release_memory(CUcontext context)
{
    struct allocation **at = &context->device->first, *gone;

    pthread_mutex_lock(&lock);
    while ((gone = *at)) {
        if (gone->context != context) {
            at = &gone->next;
            continue;
        }
        *at = gone->next;
        discard(gone);
    }
    pthread_mutex_unlock(&lock);
}

/* Memory of the host that a device reads at once; here all of it is. */
API CUresult cuMemHostAlloc(void **memory, size_t size, unsigned int flags)
{
    CUcontext context;
    CUresult ret = enter(&context);

    (void)flags;
    if (ret != CUDA_SUCCESS)
        return ret;
    return posix_memalign(memory, PAGE, size) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
API CUresult cuMemAllocHost_v2(void **memory, size_t size) { return cuMemHostAlloc(memory, size, 0); }
API CUresult cuMemFreeHost(void *memory)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS)
        free(memory);
    return ret;
}
