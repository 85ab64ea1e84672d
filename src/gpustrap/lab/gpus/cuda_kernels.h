/* The kernels that the stand-in for libcuda.so.1 computes: those of gpustrap's own verify, see their README. */
#ifndef LAB_CUDA_KERNELS_H
#define LAB_CUDA_KERNELS_H
#include "cuda.h"

#define MOST_PARAMETERS 16

/* A parameter as the kernel gets it: 8 or 4 bytes. */
union value { uint64_t l; uint32_t i; float f; };
struct launch {
    CUcontext context;
    CUstream stream;
    unsigned grid[3], block[3];
    union value values[MOST_PARAMETERS];
};
/* parameters: one letter each: l of 64 bits (a pointer, a size), i of 32 bits, f a float. */
struct kernel {
    const char *name, *parameters;
    CUresult (*run)(struct launch *launch);
};
const struct kernel *kernel_of(const char *name);
#endif
