/* The part of the stand-in for libcuda.so.1 about contexts, streams and events.
 *
 * What a kernel does is done when it is launched; what it would have taken on the board is added to its stream's
 * simulated time, and events are moments of that time. So elapsed times are the board's, not this machine's, and equal
 * in every run. A failed kernel shows where the real one shows: at the next call that waits, then at every call.
 */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH 32

static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;

static CUcontext current(void) { return depth ? stack[depth - 1] : NULL; }

CUresult enter(CUcontext *context)
{
    CUresult ret;

    if (!device_of(0))
        return CUDA_ERROR_NOT_INITIALIZED;
    *context = current();
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if ((*context)->destroyed)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    wait_while_hung((*context)->device->index, "hang");
    if ((*context)->broken == CUDA_SUCCESS && (ret = enter_device((*context)->device)) != CUDA_SUCCESS)
        (*context)->broken = ret;
    return (*context)->broken;
}

CUresult finish(CUcontext context)
{
    if (context->hung)
        wait_while_hung(context->device->index, "cuda_hang");
    context->hung = 0;
    if (context->pending != CUDA_SUCCESS)
        context->broken = context->pending;
    return context->broken;
}

CUresult stream_of(CUcontext context, CUstream handle, CUstream *stream)
{
    *stream = (uintptr_t)handle <= 2 ? &context->stream : handle; /* NULL, legacy, per thread */
    return (*stream)->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* --- contexts --- */

static CUresult create(CUcontext *context, CUdevice ordinal)
{
    struct device *device = device_of(ordinal);
    CUresult ret;

    if (device)
        wait_while_hung(device->index, "hang");
    ret = enter_device(device);
    if (ret != CUDA_SUCCESS)
        return ret;
    *context = calloc(1, sizeof **context);
    if (!*context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*context)->device = device;
    (*context)->stream.context = *context;
    return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext context)
{
    if (!device_of(0))
        return CUDA_ERROR_NOT_INITIALIZED;
    depth -= depth > 0;
    if (context)
        stack[depth++] = context;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current();
    return device_of(0) ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
API CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    if (!context || depth == DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}
API CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}
API CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CUresult ret = create(context, ordinal);

    (void)flags;
    return ret == CUDA_SUCCESS ? cuCtxPushCurrent_v2(*context) : ret;
}
API CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice ordinal)
{
    return params ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, ordinal);
}
API CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (!context || context->destroyed)
        return CUDA_ERROR_INVALID_CONTEXT;
    context->destroyed = 1; /* a thread may have it on its stack still */
    release_memory(context);
    if (current() == context)
        depth--;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *ordinal)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS)
        *ordinal = context->device->ordinal;
    return ret;
}
API CUresult cuCtxSynchronize(void)
{
    CUcontext context;
    CUresult ret = enter(&context);

    return ret == CUDA_SUCCESS ? finish(context) : ret;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    struct device *device = device_of(ordinal);
    CUresult ret = CUDA_SUCCESS;

    if (!device)
        return enter_device(device);
    if (!device->primary)
        ret = create(&device->primary, ordinal);
    if (ret != CUDA_SUCCESS)
        return ret;
    device->primary->references++;
    *context = device->primary;
    return CUDA_SUCCESS;
}
/* As it was made: memory is free, what was wrong with it is forgotten. */
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    struct device *device = device_of(ordinal);
    CUcontext context = device ? device->primary : NULL;

    if (!device)
        return enter_device(device);
    if (context) {
        context->broken = context->pending = CUDA_SUCCESS;
        context->peers = 0;
        context->stream.time = 0;
        release_memory(context);
    }
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    struct device *device = device_of(ordinal);

    if (!device)
        return enter_device(device);
    if (!device->primary || !device->primary->references)
        return CUDA_ERROR_INVALID_CONTEXT;
    return --device->primary->references ? CUDA_SUCCESS : cuDevicePrimaryCtxReset_v2(ordinal);
}
ALSO(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)
ALSO(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)

/* --- streams --- */

API CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    CUcontext context;
    CUresult ret = enter(&context);

    (void)flags;
    if (ret != CUDA_SUCCESS)
        return ret;
    *stream = calloc(1, sizeof **stream);
    if (!*stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*stream)->context = context;
    return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if ((uintptr_t)stream <= 2)
        return CUDA_ERROR_INVALID_HANDLE;
    free(stream);
    return ret;
}
ALSO(cuStreamDestroy, cuStreamDestroy_v2)
API CUresult cuStreamSynchronize(CUstream stream)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS)
        ret = stream_of(context, stream, &stream);
    return ret == CUDA_SUCCESS ? finish(context) : ret;
}
static CUresult ready(CUcontext context)
{
    if (context->hung && lookup_number(context->device->index, "cuda_hang", 0))
        return CUDA_ERROR_NOT_READY;
    return finish(context);
}
API CUresult cuStreamQuery(CUstream stream)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS)
        ret = stream_of(context, stream, &stream);
    return ret == CUDA_SUCCESS ? ready(context) : ret;
}

/* --- events --- */

struct CUevent_st { CUcontext context; double time; int recorded; };

API CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    CUcontext context;
    CUresult ret = enter(&context);

    (void)flags;
    if (ret != CUDA_SUCCESS)
        return ret;
    *event = calloc(1, sizeof **event);
    if (!*event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*event)->context = context;
    return CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent event)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    free(event);
    return ret;
}
ALSO(cuEventDestroy, cuEventDestroy_v2)
API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS)
        ret = stream_of(context, stream, &stream);
    if (ret == CUDA_SUCCESS && (!event || event->context != context))
        ret = CUDA_ERROR_INVALID_HANDLE;
    if (ret != CUDA_SUCCESS)
        return ret;
    event->time = stream->time;
    event->recorded = 1;
    return CUDA_SUCCESS;
}
API CUresult cuEventSynchronize(CUevent event)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS && !event)
        ret = CUDA_ERROR_INVALID_HANDLE;
    return ret == CUDA_SUCCESS && event->recorded ? finish(event->context) : ret;
}
API CUresult cuEventQuery(CUevent event)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS && !event)
        ret = CUDA_ERROR_INVALID_HANDLE;
    return ret == CUDA_SUCCESS && event->recorded ? ready(event->context) : ret;
}
API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS && (!start || !end || !start->recorded || !end->recorded))
        ret = CUDA_ERROR_INVALID_HANDLE;
    if (ret == CUDA_SUCCESS)
        ret = ready(end->context);
    if (ret == CUDA_SUCCESS)
        *milliseconds = (float)((end->time - start->time) * 1e3);
    return ret;
}
ALSO(cuEventElapsedTime, cuEventElapsedTime_v2)
API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    CUcontext context;
    CUresult ret = enter(&context);

    (void)flags;
    if (ret == CUDA_SUCCESS)
        ret = stream_of(context, stream, &stream);
    if (ret == CUDA_SUCCESS && !event)
        ret = CUDA_ERROR_INVALID_HANDLE;
    if (ret == CUDA_SUCCESS && event->recorded && stream->time < event->time)
        stream->time = event->time;
    return ret;
}
