/* The part of the stand-in for libcuda.so.1 that computes: each kernel of verify by its name, on the host.
 *
 * Sums are made as the kernels make them: in FP32, one rounding a step, k ascending. Of the tensor cores' sums nobody
 * says the order; over integers that fit, every order gives the same. */
#include "cuda_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILE 64
#define BLOCK 256
#define WORD sizeof(uint32_t)
#define OF_TENSOR_CORES 2 /* times what the FP32 units do: no board of the lab has less */
enum { ROWS = 4, COLUMNS = 16 };
#ifdef __x86_64__
#define FAST __attribute__((optimize("O3"), target_clones("avx512f", "fma", "default")))
#else
#define FAST __attribute__((optimize("O3")))
#endif

/* --- matrix products --- */

FAST static void multiply(size_t n, const float *a, const float *b, float *c)
{
    size_t row, column, k;
    int i, j;

    for (column = 0; column < n; column += COLUMNS)
        for (row = 0; row < n; row += ROWS) {
            float sum[ROWS][COLUMNS] = {{0}};
            for (k = 0; k < n; k++)
                for (i = 0; i < ROWS; i++)
                    for (j = 0; j < COLUMNS; j++)
                        sum[i][j] = __builtin_fmaf(a[(row + i) * n + k], b[k * n + column + j], sum[i][j]);
            for (i = 0; i < ROWS; i++)
                memcpy(c + (row + i) * n + column, sum[i], sizeof sum[i]);
        }
}

/* The last product is kept: a test that repeats one costs this machine a comparison. */
static struct { size_t n; float *a, *b, *c; } last;

static CUresult product_of(size_t n, const float *a, const float *b, float *c)
{
    size_t size = n * n * sizeof *a;

    if (last.n != n) {
        free(last.a);
        last.a = calloc(3, size);
        last.b = last.a + n * n, last.c = last.b + n * n;
        last.n = last.a ? n : 0;
        if (!last.a)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (memcmp(last.a, a, size) || memcmp(last.b, b, size)) {
        memcpy(last.a, a, size), memcpy(last.b, b, size);
        multiply(n, a, b, last.c);
    }
    memcpy(c, last.c, size);
    return CUDA_SUCCESS;
}

/* PRODUCT,ROW,COLUMN,BIT of the fault wrong-bit. */
static void spoil(struct device *device, size_t n, float *c)
{
    unsigned long product, row, column;
    unsigned bit;
    uint32_t word;
    char words[LINE];

    device->products++;
    if (lookup(device->index, "cuda_flip", words, sizeof words) != FOUND ||
        sscanf(words, "%lu,%lu,%lu,%u", &product, &row, &column, &bit) != 4)
        return;
    if ((product && product != device->products) || row >= n || column >= n)
        return;
    memcpy(&word, c + row * n + column, WORD);
    word ^= 1U << bit;
    memcpy(c + row * n + column, &word, WORD);
}

static float of_half(uint16_t half)
{
    int sign = half >> 15, exponent = half >> 10 & 31, fraction = half & 1023;
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent ? ldexpf((float)(fraction | 1024), exponent - 25) : ldexpf((float)fraction, -24);

    return sign ? -value : value;
}

/* Every matrix as floats; one of halves is converted first. */
static const float *operand(CUcontext context, CUdeviceptr address, size_t many, int halves, float **room)
{
    const char *memory = kernel_memory(context, address, many * (halves ? 2 : 4));
    size_t at;

    if (!memory || !halves)
        return (const float *)(const void *)memory;
    *room = malloc(many * sizeof **room);
    for (at = 0; *room && at < many; at++) {
        uint16_t half;
        memcpy(&half, memory + at * 2, 2);
        (*room)[at] = of_half(half);
    }
    return *room;
}
static CUresult product(struct launch *launch, int halves)
{
    struct device *device = launch->context->device;
    size_t n = launch->values[3].i;
    float *left = NULL, *right = NULL;
    const float *a = operand(launch->context, launch->values[0].l, n * n, halves, &left);
    const float *b = operand(launch->context, launch->values[1].l, n * n, halves, &right);
    float *c = (float *)(void *)kernel_memory(launch->context, launch->values[2].l, n * n * sizeof *c);
    CUresult ret = a && b && c ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    int faster = halves && device->major >= 7 ? OF_TENSOR_CORES : 1;

    if (n % TILE || launch->grid[0] != n / TILE || launch->grid[1] != n / TILE || launch->block[0] != BLOCK)
        ret = CUDA_ERROR_NOT_SUPPORTED; /* what part of C that would be, the README does not say */
    if (ret == CUDA_SUCCESS)
        ret = product_of(n, a, b, c);
    if (ret == CUDA_SUCCESS) {
        spoil(device, n, c);
        launch->stream->time += seconds_of_product(device, 2.0 * (double)(n * n * n) / faster);
    }
    free(left);
    free(right);
    return ret;
}
static CUresult gemm_f32(struct launch *launch) { return product(launch, 0); }
static CUresult gemm_f16(struct launch *launch) { return product(launch, 1); }

/* --- memory --- */

void add_to_report(struct report *report, uint64_t index, uint32_t got, uint32_t want)
{
    if (report->count < RECORDS) {
        report->records[report->count].index = index;
        report->records[report->count].got = got;
        report->records[report->count].want = want;
    }
    report->count++;
}
static struct report *report_at(struct launch *launch, int parameter)
{
    return (struct report *)(void *)kernel_memory(launch->context, launch->values[parameter].l, sizeof(struct report));
}
static struct pattern pattern_in(const struct launch *launch)
{
    return (struct pattern){launch->values[2].l, launch->values[3].i, launch->values[4].i};
}
static struct allocation *words_at(struct launch *launch, size_t *offset)
{
    struct allocation *found = find_for_kernel(launch->context, launch->values[0].l, launch->values[1].l * WORD);

    if (found)
        *offset = launch->values[0].l - found->address;
    return found;
}
static CUresult fill(struct launch *launch)
{
    size_t offset = 0;
    struct allocation *where = words_at(launch, &offset);
    struct pattern is = pattern_in(launch);

    if (!where)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (launch->values[0].l % WORD)
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    launch->stream->time += seconds_of_memory(launch->context->device, (double)launch->values[1].l * WORD);
    return fill_pattern(where, offset, launch->values[1].l, &is);
}
static CUresult check(struct launch *launch)
{
    size_t offset = 0;
    struct allocation *where = words_at(launch, &offset);
    struct report *report = report_at(launch, 5);
    struct pattern is = pattern_in(launch);

    if (!where || !report)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (launch->values[0].l % WORD)
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    launch->stream->time += seconds_of_memory(launch->context->device, (double)launch->values[1].l * WORD);
    check_pattern(where, offset, launch->values[1].l, &is, report);
    return CUDA_SUCCESS;
}
static CUresult compare(struct launch *launch)
{
    size_t at, words = launch->values[2].l;
    const char *got = kernel_memory(launch->context, launch->values[0].l, words * WORD);
    const char *want = kernel_memory(launch->context, launch->values[1].l, words * WORD);
    struct report *report = report_at(launch, 3);
    uint32_t one, two;

    if (!got || !want || !report)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (at = 0; at < words; at++) {
        memcpy(&one, got + at * WORD, WORD);
        memcpy(&two, want + at * WORD, WORD);
        if (one != two)
            add_to_report(report, at, one, two);
    }
    launch->stream->time += seconds_of_memory(launch->context->device, 2 * (double)words * WORD);
    return CUDA_SUCCESS;
}

const struct kernel *kernel_of(const char *name)
{
    static const struct kernel kernels[] = {
        {"gpustrap_gemm_f32", "llli", gemm_f32}, {"gpustrap_gemm_f16", "llli", gemm_f16},
        {"gpustrap_fill", "lllii", fill}, {"gpustrap_check", "llliil", check}, {"gpustrap_compare", "llll", compare},
    };
    size_t at;

    for (at = 0; at < sizeof kernels / sizeof *kernels; at++)
        if (!strcmp(kernels[at].name, name))
            return &kernels[at];
    return NULL;
}
