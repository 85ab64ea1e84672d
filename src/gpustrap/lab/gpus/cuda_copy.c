/* The part of the stand-in for libcuda.so.1 that copies and sets memory, within a device, to and from the host, and
 * between devices. A copy waits for the kernels before it. */
#include "cuda.h"

#include <string.h>

/* Every copy begins so; one that is asynchronous waits for nothing, as what it follows was done at its launch. */
static CUresult begin(CUcontext *context, CUstream *stream, int waits)
{
    CUresult ret = enter(context);

    if (ret == CUDA_SUCCESS)
        ret = stream_of(*context, *stream, stream);
    return ret == CUDA_SUCCESS && waits ? finish(*context) : ret;
}

/* --- to and from the host --- */

static CUresult to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream, int waits)
{
    CUcontext context;
    CUresult ret = begin(&context, &stream, waits);
    char *memory = host_of(to, size);

    if (ret != CUDA_SUCCESS || !size)
        return ret;
    if (!memory || !from)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(memory, from, size);
    stream->time += seconds_of_pcie(find(to, size)->device, (double)size);
    return CUDA_SUCCESS;
}
static CUresult to_host(void *to, CUdeviceptr from, size_t size, CUstream stream, int waits)
{
    CUcontext context;
    CUresult ret = begin(&context, &stream, waits);
    char *memory = host_of(from, size);

    if (ret != CUDA_SUCCESS || !size)
        return ret;
    if (!memory || !to)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, memory, size);
    stream->time += seconds_of_pcie(find(from, size)->device, (double)size);
    return CUDA_SUCCESS;
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    return to_device(to, from, size, NULL, 1);
}
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) { return to_host(to, from, size, NULL, 1); }
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    return to_device(to, from, size, stream, 0);
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    return to_host(to, from, size, stream, 0);
}

/* --- within a device, and between two --- */

/* A copy between peers that comes out wrong: one bit in each page. Over PCIe an IOMMU that translates does that. */
static int is_corrupted(const struct device *from, const struct device *to)
{
    int over_pcie = !lookup_number(from->index, "nvlinks", 0) || !lookup_number(to->index, "nvlinks", 0);
    int translated = lookup_number(from->index, "iommu", 0) || lookup_number(to->index, "iommu", 0);

    return (over_pcie && translated) || lookup_number(from->index, "p2p_corrupt", 0) ||
           lookup_number(to->index, "p2p_corrupt", 0);
}
static CUresult between(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    CUcontext context;
    CUresult ret = begin(&context, &stream, 0);
    const struct allocation *target = find(to, size), *source = find(from, size);
    const struct device *one, *two;
    char *memory = host_of(to, size);
    size_t at;
    int direct, corrupted;

    if (ret != CUDA_SUCCESS || !size)
        return ret;
    if (!target || !source)
        return CUDA_ERROR_INVALID_VALUE;
    memmove(memory, host_of(from, size), size);
    one = source->device, two = target->device;
    if (one == two) {
        stream->time += seconds_of_memory(one, 2 * (double)size); /* read and written */
        return CUDA_SUCCESS;
    }
    /* Without access enabled the driver goes by the host's memory. */
    direct = peers_possible(one, two) && (context->peers >> one->ordinal | context->peers >> two->ordinal) & 1;
    corrupted = direct && is_corrupted(one, two);
    for (at = 0; corrupted && at < size; at += PAGE)
        memory[at] ^= 0x10;
    stream->time += seconds_between(one, two, (double)size, direct);
    return CUDA_SUCCESS;
}
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) { return between(to, from, size, NULL); }
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    return between(to, from, size, stream);
}
API CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size)
{
    return to_context && from_context ? between(to, from, size, NULL) : CUDA_ERROR_INVALID_CONTEXT;
}
API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                               size_t size, CUstream stream)
{
    return to_context && from_context ? between(to, from, size, stream) : CUDA_ERROR_INVALID_CONTEXT;
}
API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret != CUDA_SUCCESS)
        return ret;
    if (!peer || peer == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!peers_possible(context->device, peer->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (context->peers >> peer->device->ordinal & 1)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context->peers |= 1ULL << peer->device->ordinal;
    return CUDA_SUCCESS;
}
API CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret != CUDA_SUCCESS)
        return ret;
    if (!peer || !(context->peers >> peer->device->ordinal & 1))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers &= ~(1ULL << peer->device->ordinal);
    return CUDA_SUCCESS;
}

/* --- setting --- */

static CUresult fill(CUdeviceptr to, const void *value, size_t width, size_t times, CUstream stream)
{
    CUcontext context;
    CUresult ret = begin(&context, &stream, 0);
    size_t at, size = width * times;
    char *memory = host_of(to, size);

    if (ret != CUDA_SUCCESS || !times)
        return ret;
    if (!memory || to % width)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(memory, value, width);
    for (at = width; at < size; at *= 2) /* what is there, once more */
        memcpy(memory + at, memory, size - at < at ? size - at : at);
    stream->time += seconds_of_memory(context->device, (double)size);
    return CUDA_SUCCESS;
}
#define SET(bits, type) \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t times) \
    { \
        return fill(to, &value, sizeof value, times, NULL); \
    } \
    API CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t times, CUstream stream) \
    { \
        return fill(to, &value, sizeof value, times, stream); \
    }
SET(8, unsigned char)
SET(16, unsigned short)
SET(32, unsigned int)
