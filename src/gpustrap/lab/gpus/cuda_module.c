/* The part of the stand-in for libcuda.so.1 about modules and launches.
 *
 * A module is PTX: its version must be one that the driver knows, its target one that the board has, its kernels must
 * be those of cuda_kernels.c with the parameters that these take. No PTX is compiled here: what such a kernel computes
 * is computed on the host.
 */
#include "cuda.h"
#include "cuda_kernels.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 64
#define ELF "\177ELF"
#define SM_OF_CUBIN 0x30 /* e_flags of an ELF file of 64 bits: the architecture in its lowest byte */

struct CUfunc_st { struct CUmod_st *module; char name[128], parameters[MOST_PARAMETERS + 1]; };
struct CUmod_st { CUcontext context; int entries; struct CUfunc_st functions[ENTRIES]; };

/* --- PTX --- */

/* The newest PTX of a driver, as major * 10 + minor: PTX ISA, release notes. */
static int newest_ptx(void)
{
    int version = cuda_of_library(), major = version / 1000, minor = version % 1000 / 10;

    if (major == 12 && minor > 5)
        minor--; /* 12.6 brought none */
    return (major - 4) * 10 + minor;
}

/* The letters of an entry's parameters, see cuda_kernels.h; `from` is behind its name. */
static const char *parameters_of(const char *from, char *letters)
{
    const char *end = strchr(from, ')'), *at = strchr(from, '(');
    int found = 0;

    if (!end || !at || at > end)
        return NULL;
    while ((at = strstr(at, ".param")) && at < end && found < MOST_PARAMETERS) {
        at += strlen(".param");
        at += strspn(at, " \t\n\r");
        letters[found++] = at[0] && at[1] && at[2] == '6' ? 'l' : 'i'; /* .u64, .b32 */
    }
    letters[found] = 0;
    return end;
}
static CUresult read_entries(struct CUmod_st *module, const char *text)
{
    const char *at = text;

    while ((at = strstr(at, ".entry")) && module->entries < ENTRIES) {
        struct CUfunc_st *one = &module->functions[module->entries++];
        size_t length;

        at += strlen(".entry");
        at += strspn(at, " \t\n\r");
        length = strcspn(at, " \t\n\r({");
        if (!length || length >= sizeof one->name)
            return CUDA_ERROR_INVALID_PTX;
        memcpy(one->name, at, length);
        one->module = module;
        at += length;
        if (at[strspn(at, " \t\n\r")] == '(')
            at = parameters_of(at, one->parameters);
        if (!at)
            return CUDA_ERROR_INVALID_PTX;
    }
    return module->entries ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

/* A board runs PTX of its own architecture or an older one; sm_90a and the like of no other than theirs. */
static int runs(const struct device *device, int sm, char suffix)
{
    int own = device->major * 10 + device->minor;

    if (suffix == 'a')
        return sm == own;
    return suffix == 'f' ? sm / 10 == device->major && sm <= own : sm <= own;
}
static CUresult check_text(const struct device *device, const char *text, const char **trouble)
{
    const char *version = strstr(text, ".version"), *target = strstr(text, ".target");
    int major, minor, sm;
    char suffix = 0;

    *trouble = "ptxas fatal   : Missing .version or .target directive";
    if (!version || !target || sscanf(version, ".version %d.%d", &major, &minor) != 2 ||
        sscanf(target, ".target sm_%d%c", &sm, &suffix) < 1)
        return CUDA_ERROR_INVALID_PTX;
    *trouble = "ptxas fatal   : Unsupported .version";
    if (major * 10 + minor > newest_ptx())
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    *trouble = "ptxas fatal   : SM version specified by .target is higher than default SM version assumed";
    return runs(device, sm, suffix) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

/* Machine code of another architecture is refused as the real one does; of the board's own, nobody here can run it. */
static CUresult check_code(const struct device *device, const unsigned char *image)
{
    int sm = image[SM_OF_CUBIN], own = device->major * 10 + device->minor;

    if (sm / 10 != device->major || sm > own)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    fprintf(stderr, "libcuda (simulated): this is machine code for sm_%d, only PTX can be loaded\n", sm);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult load(CUmodule *module, const void *image, const char **trouble)
{
    CUcontext context;
    CUresult ret = enter(&context);

    *trouble = "";
    if (ret == CUDA_SUCCESS && (!image || !module))
        ret = CUDA_ERROR_INVALID_VALUE;
    if (ret == CUDA_SUCCESS)
        ret = (CUresult)lookup_number(context->device->index, "cuda_load", 0);
    if (ret != CUDA_SUCCESS)
        return ret;
    if (!memcmp(image, ELF, 4))
        return check_code(context->device, image);
    ret = check_text(context->device, image, trouble);
    if (ret != CUDA_SUCCESS)
        return ret;
    *module = calloc(1, sizeof **module);
    if (!*module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*module)->context = context;
    ret = read_entries(*module, image);
    if (ret != CUDA_SUCCESS)
        free(*module);
    return ret;
}
API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    const char *trouble;
    return load(module, image, &trouble);
}
API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int many, CUjit_option *options,
                                void **values)
{
    const char *trouble = "";
    char *log = NULL;
    size_t size = 0;
    unsigned at;
    CUresult ret = load(module, image, &trouble);

    for (at = 0; at < many; at++)
        if (options[at] == CU_JIT_ERROR_LOG_BUFFER)
            log = values[at];
        else if (options[at] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            size = (size_t)(uintptr_t)values[at];
    if (log && size)
        snprintf(log, size, "%s", ret == CUDA_SUCCESS ? "" : trouble);
    return ret;
}
API CUresult cuModuleUnload(CUmodule module)
{
    CUcontext context;
    CUresult ret = enter(&context);

    if (ret == CUDA_SUCCESS && !module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (ret == CUDA_SUCCESS)
        free(module);
    return ret;
}
API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUcontext context;
    CUresult ret = enter(&context);
    const struct kernel *known;
    int at;

    if (ret != CUDA_SUCCESS)
        return ret;
    if (!module || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (at = 0; at < module->entries && strcmp(module->functions[at].name, name); at++)
        ;
    if (at == module->entries)
        return CUDA_ERROR_NOT_FOUND;
    known = kernel_of(name);
    if (!known || strcmp(known->parameters, module->functions[at].parameters)) {
        fprintf(stderr, "libcuda (simulated): kernel %s(%s) is not one that the lab computes%s%s\n", name,
                module->functions[at].parameters, known ? ", which takes " : "", known ? known->parameters : "");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *function = &module->functions[at];
    return CUDA_SUCCESS;
}

/* --- launches --- */

/* Exceptions of a kernel show after the launch, whatever else cannot be done shows at once. */
static int is_exception(CUresult code)
{
    return code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_ILLEGAL_ADDRESS ||
           code == CUDA_ERROR_LAUNCH_TIMEOUT || (code >= CUDA_ERROR_ASSERT && code <= CUDA_ERROR_LAUNCH_FAILED);
}

static CUresult run(CUcontext context, struct launch *launch, const struct kernel *kernel)
{
    CUresult ret = (CUresult)lookup_number(context->device->index, "cuda_launch", 0);

    if (ret != CUDA_SUCCESS && !is_exception(ret))
        return ret;
    context->hung |= lookup_number(context->device->index, "cuda_hang", 0) != 0;
    if (ret == CUDA_SUCCESS && context->pending == CUDA_SUCCESS)
        ret = kernel->run(launch);
    if (!is_exception(ret))
        return ret;
    if (context->pending == CUDA_SUCCESS)
        context->pending = ret;
    return CUDA_SUCCESS;
}
API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                            unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                            CUstream stream, void **parameters, void **extra)
{
    struct launch launch = {.grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}};
    unsigned long long threads = (unsigned long long)block_x * block_y * block_z;
    const struct kernel *kernel;
    CUcontext context;
    CUresult ret = enter(&context);
    int at;

    if (ret == CUDA_SUCCESS)
        ret = stream_of(context, stream, &launch.stream);
    if (ret != CUDA_SUCCESS)
        return ret;
    if (!function || function->module->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!grid_x || !grid_y || !grid_z || !threads || threads > THREADS || shared > SHARED || grid_y > 65535 ||
        grid_z > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    kernel = kernel_of(function->name);
    if (extra || (*kernel->parameters && !parameters))
        return extra ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    launch.context = context;
    for (at = 0; kernel->parameters[at]; at++)
        memcpy(&launch.values[at], parameters[at], kernel->parameters[at] == 'l' ? 8 : 4);
    return run(context, &launch, kernel);
}
