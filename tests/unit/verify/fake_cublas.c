/* A cuBLAS for tests: columns first, as the real one, over device memory that it copies to the host and back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern int cuMemcpyDtoH_v2(void *host, unsigned long long device, size_t bytes);
extern int cuMemcpyHtoD_v2(unsigned long long device, const void *host, size_t bytes);

enum { R_32F = 0, R_16F = 2, R_16BF = 14, NOT_INITIALIZED = 1, INVALID_VALUE = 7 };

static int handle, in_workspace;

int cublasCreate_v2(void **made)
{
    *made = &handle;
    return getenv("CUBLAS_FAILS") ? NOT_INITIALIZED : 0;
}
int cublasDestroy_v2(void *made) { return made == &handle ? 0 : NOT_INITIALIZED; }
int cublasGetVersion_v2(void *made, int *version)
{
    *version = 120901;
    return made == &handle ? 0 : NOT_INITIALIZED;
}
int cublasSetWorkspace_v2(void *made, unsigned long long workspace, size_t bytes)
{
    in_workspace = workspace % 256 == 0 && bytes == 32 << 20;
    return made == &handle ? 0 : NOT_INITIALIZED;
}

static float element(const char *of, size_t at, int type)
{
    uint32_t bits;
    uint16_t half;
    float value;
    _Float16 narrow;

    if (type == R_32F) {
        memcpy(&value, of + 4 * at, 4);
        return value;
    }
    memcpy(&half, of + 2 * at, 2);
    if (type == R_16F) {
        memcpy(&narrow, &half, 2);
        return (float)narrow;
    }
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, 4);
    return value;
}

static char *fetched(unsigned long long from, size_t bytes)
{
    char *data = malloc(bytes);

    return cuMemcpyDtoH_v2(data, from, bytes) ? NULL : data;
}

int cublasGemmEx(void *made, int trans_a, int trans_b, int m, int n, int k, const void *alpha, unsigned long long a,
                 int a_type, int lda, unsigned long long b, int b_type, int ldb, const void *beta,
                 unsigned long long c, int c_type, int ldc, int compute, int algorithm)
{
    size_t wide = a_type == R_32F ? 4 : 2, all = (size_t)n * n;
    int tf32 = compute == 77, pedantic = compute == 69;
    char *left, *right;
    float *sums;
    int i, j, l;

    if (made != &handle || !in_workspace || trans_a || trans_b || m != n || k != n || lda != n || ldb != n || ldc != n ||
        *(const float *)alpha != 1 || *(const float *)beta != 0 || a_type != b_type || c_type != R_32F ||
        algorithm != -1 || (a_type == R_32F ? !tf32 && !pedantic : compute != 68))
        return INVALID_VALUE;
    left = fetched(a, all * wide), right = fetched(b, all * wide), sums = calloc(all, sizeof *sums);
    if (!left || !right || !sums)
        return NOT_INITIALIZED;
    for (j = 0; j < n; j++)
        for (l = 0; l < n; l++)
            for (i = 0; i < n; i++)
                sums[j * n + i] += element(left, (size_t)l * n + i, a_type) * element(right, (size_t)j * n + l, a_type);
    if (getenv("CUBLAS_WRONG") && tf32)
        sums[7 * n + 3] += 1; /* column 7, row 3 of what it sees: row 7, column 3 of ours */
    i = cuMemcpyHtoD_v2(c, sums, all * sizeof *sums);
    free(left), free(right), free(sums);
    return i;
}
