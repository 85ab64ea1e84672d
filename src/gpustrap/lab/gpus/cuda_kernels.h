/* The kernels that the stand-in for libcuda.so.1 computes: those of gpustrap's own verify, see the README of them. */
#ifndef LAB_CUDA_KERNELS_H
#define LAB_CUDA_KERNELS_H
#include "cuda.h"

#define MOST_PARAMETERS 16
#define RECORDS 64

/* A parameter as the kernel gets it: 8 or 4 bytes. */
union value { uint64_t l; uint32_t i; };
struct launch {
    CUcontext context;
    CUstream stream;
    unsigned grid[3], block[3];
    union value values[MOST_PARAMETERS];
};
/* parameters: one letter each: l of 64 bits (an address, a size), i of 32 bits. */
struct kernel {
    const char *name, *parameters;
    CUresult (*run)(struct launch *launch);
};
const struct kernel *kernel_of(const char *name);

/* What a kernel that compares leaves behind. */
struct report { uint64_t count; struct { uint64_t index; uint32_t got, want; } records[RECORDS]; };
void add_to_report(struct report *report, uint64_t index, uint32_t got, uint32_t want);

struct pattern { uint64_t first; uint32_t seed, flip; };
CUresult fill_pattern(struct allocation *where, size_t offset, uint64_t words, const struct pattern *is);
void check_pattern(struct allocation *where, size_t offset, uint64_t words, const struct pattern *is,
                   struct report *report);
#endif
