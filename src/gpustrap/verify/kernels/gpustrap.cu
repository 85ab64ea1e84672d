// Kernels of `gpustrap verify`: README.md says what each does, generate.py makes the PTX of it.
//
// Compiled by NVRTC for compute_75 and compute_50, so that one source serves every GPU since Maxwell. No headers: fp16 is
// read by PTX's own conversion, and tensor cores are asked for by PTX's own instructions, in the form that sm_70 brought.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define TILE 64    // rows and columns of C that a block computes
#define STEP 16    // columns of A and rows of B that it has in shared memory at a time
#define THREADS 256
#define RECORDS 64 // mismatches that are told one by one

struct Record { u64 index; u32 got, want; };
struct Report { u64 count; Record records[RECORDS]; };

__device__ __forceinline__ float value(float element) { return element; }
__device__ __forceinline__ float value(u16 element)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(element));
    return wide;
}

// C = A x B with FMA: each thread has 4 x 4 elements of C, 16 apart, and adds their products with k ascending.
template <typename Element>
__device__ __forceinline__ void multiply(const Element *a, const Element *b, float *c, u32 n)
{
    __shared__ float rows[TILE][STEP + 1], columns[STEP][TILE];
    const u32 x = threadIdx.x % 16, y = threadIdx.x / 16;
    const u64 left = (u64)blockIdx.x * TILE, top = (u64)blockIdx.y * TILE;
    float sum[4][4] = {};

    for (u32 start = 0; start < n; start += STEP) {
        for (u32 at = threadIdx.x; at < TILE * STEP; at += THREADS) {
            rows[at / STEP][at % STEP] = value(a[(top + at / STEP) * n + start + at % STEP]);
            columns[at / TILE][at % TILE] = value(b[(u64)(start + at / TILE) * n + left + at % TILE]);
        }
        __syncthreads();
        for (u32 k = 0; k < STEP; k++)
            for (u32 i = 0; i < 4; i++)
                for (u32 j = 0; j < 4; j++)
                    sum[i][j] = __fmaf_rn(rows[y + 16 * i][k], columns[k][x + 16 * j], sum[i][j]);
        __syncthreads();
    }
    for (u32 i = 0; i < 4; i++)
        for (u32 j = 0; j < 4; j++)
            c[(top + y + 16 * i) * n + left + x + 16 * j] = sum[i][j];
}

extern "C" __global__ void gpustrap_gemm_f32(const float *a, const float *b, float *c, u32 n)
{
    multiply(a, b, c, n);
}

#if __CUDA_ARCH__ >= 700

// C = A x B on tensor cores: each of the 8 warps has two tiles of 16 x 16 beside each other.
extern "C" __global__ void gpustrap_gemm_f16(const u16 *a, const u16 *b, float *c, u32 n)
{
    const u32 warp = threadIdx.x / 32;
    const u64 top = (u64)blockIdx.y * TILE + warp / 2 * 16, left = (u64)blockIdx.x * TILE + warp % 2 * 32;
    float sum[2][8] = {};

    for (u32 k = 0; k < n; k += 16) {
        u32 row[8], column[8];

        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
                     : "=r"(row[0]), "=r"(row[1]), "=r"(row[2]), "=r"(row[3]), "=r"(row[4]), "=r"(row[5]),
                       "=r"(row[6]), "=r"(row[7])
                     : "l"(__cvta_generic_to_global(a + top * n + k)), "r"(n) : "memory");
        for (u32 j = 0; j < 2; j++) {
            asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.global.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
                         : "=r"(column[0]), "=r"(column[1]), "=r"(column[2]), "=r"(column[3]), "=r"(column[4]),
                           "=r"(column[5]), "=r"(column[6]), "=r"(column[7])
                         : "l"(__cvta_generic_to_global(b + (u64)k * n + left + 16 * j)), "r"(n) : "memory");
            asm volatile("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, "
                         "{%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19,%20,%21,%22,%23}, "
                         "{%0,%1,%2,%3,%4,%5,%6,%7};"
                         : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3]), "+f"(sum[j][4]),
                           "+f"(sum[j][5]), "+f"(sum[j][6]), "+f"(sum[j][7])
                         : "r"(row[0]), "r"(row[1]), "r"(row[2]), "r"(row[3]), "r"(row[4]), "r"(row[5]), "r"(row[6]),
                           "r"(row[7]), "r"(column[0]), "r"(column[1]), "r"(column[2]), "r"(column[3]),
                           "r"(column[4]), "r"(column[5]), "r"(column[6]), "r"(column[7]));
        }
    }
    for (u32 j = 0; j < 2; j++)
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8}, %9;"
                     : : "l"(__cvta_generic_to_global(c + top * n + left + 16 * j)), "f"(sum[j][0]), "f"(sum[j][1]),
                         "f"(sum[j][2]), "f"(sum[j][3]), "f"(sum[j][4]), "f"(sum[j][5]), "f"(sum[j][6]),
                         "f"(sum[j][7]), "r"(n) : "memory");
}

#else

extern "C" __global__ void gpustrap_gemm_f16(const u16 *a, const u16 *b, float *c, u32 n)
{
    multiply(a, b, c, n);
}

#endif

__device__ __forceinline__ u32 pattern(u64 index, u32 seed)
{
    u32 x = (u32)index ^ (u32)(index >> 32) * 0x9E3779B1u ^ seed;

    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

__device__ __forceinline__ u64 first_word() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 all_threads() { return (u64)gridDim.x * blockDim.x; }

__device__ __forceinline__ void tell(Report *report, u64 index, u32 got, u32 want)
{
    if (got == want)
        return;
    const u64 at = atomicAdd(&report->count, 1ull);
    if (at < RECORDS) {
        report->records[at].index = index;
        report->records[at].got = got;
        report->records[at].want = want;
    }
}

extern "C" __global__ void gpustrap_fill(u32 *out, u64 words, u64 first, u32 seed, u32 flip)
{
    for (u64 at = first_word(); at < words; at += all_threads())
        out[at] = pattern(first + at, seed) ^ flip;
}

extern "C" __global__ void gpustrap_check(const u32 *in, u64 words, u64 first, u32 seed, u32 flip, Report *report)
{
    for (u64 at = first_word(); at < words; at += all_threads())
        tell(report, at, in[at], pattern(first + at, seed) ^ flip);
}

extern "C" __global__ void gpustrap_compare(const u32 *got, const u32 *want, u64 words, Report *report)
{
    for (u64 at = first_word(); at < words; at += all_threads())
        tell(report, at, got[at], want[at]);
}
