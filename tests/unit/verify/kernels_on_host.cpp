// Runs the kernels' source on the processor, a thread for each of a block's: that of sm_50, as tensor cores are the GPU's.
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

struct Place { unsigned x, y; };
static thread_local Place threadIdx;
static Place blockIdx, gridDim, blockDim = {256, 1};
static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static // of the one block that runs
#define __CUDA_ARCH__ 500
static void __syncthreads() { pthread_barrier_wait(&barrier); }
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
template <typename T> static T atomicAdd(T *at, T more)
{
    pthread_mutex_lock(&mutex);
    T before = *at;
    *at += more;
    pthread_mutex_unlock(&mutex);
    return before;
}
static void half_to_float(float *wide, unsigned short bits)
{
    _Float16 half;
    memcpy(&half, &bits, 2);
    *wide = (float)half;
}

#include KERNELS

struct Work { void (*run)(void *); void *with; unsigned thread; };
static void *thread(void *given)
{
    Work *work = (Work *)given;
    threadIdx.x = work->thread;
    work->run(work->with);
    return nullptr;
}
static void launch(unsigned x, unsigned y, void (*run)(void *), void *with)
{
    pthread_t threads[256];
    Work work[256];
    gridDim = {x, y};
    pthread_barrier_init(&barrier, nullptr, 256);
    for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++) {
            for (unsigned at = 0; at < 256; at++) {
                work[at] = {run, with, at};
                pthread_create(&threads[at], nullptr, thread, &work[at]);
            }
            for (unsigned at = 0; at < 256; at++)
                pthread_join(threads[at], nullptr);
        }
    pthread_barrier_destroy(&barrier);
}

struct Product { const void *a, *b; float *c; unsigned n; };
struct Words { uint32_t *one; const uint32_t *other; u64 words, first; u32 seed, flip; Report *report; };

extern "C" void host_gemm_f32(const void *a, const void *b, float *c, unsigned n)
{
    Product p = {a, b, c, n};
    launch(n / 64, n / 64, [](void *w) { auto p = (Product *)w; gpustrap_gemm_f32((const float *)p->a, (const float *)p->b, p->c, p->n); }, &p);
}
extern "C" void host_gemm_f16(const void *a, const void *b, float *c, unsigned n)
{
    Product p = {a, b, c, n};
    launch(n / 64, n / 64, [](void *w) { auto p = (Product *)w; gpustrap_gemm_f16((const u16 *)p->a, (const u16 *)p->b, p->c, p->n); }, &p);
}
extern "C" void host_fill(uint32_t *out, u64 words, u64 first, u32 seed, u32 flip)
{
    Words w = {out, nullptr, words, first, seed, flip, nullptr};
    launch(2, 1, [](void *g) { auto w = (Words *)g; gpustrap_fill(w->one, w->words, w->first, w->seed, w->flip); }, &w);
}
extern "C" void host_check(uint32_t *in, u64 words, u64 first, u32 seed, u32 flip, Report *report)
{
    Words w = {in, nullptr, words, first, seed, flip, report};
    launch(2, 1, [](void *g) { auto w = (Words *)g; gpustrap_check(w->one, w->words, w->first, w->seed, w->flip, w->report); }, &w);
}
extern "C" void host_compare(uint32_t *got, const uint32_t *want, u64 words, Report *report)
{
    Words w = {got, want, words, 0, 0, 0, report};
    launch(2, 1, [](void *g) { auto w = (Words *)g; gpustrap_compare(w->one, w->other, w->words, w->report); }, &w);
}
