#include "cuda_kernels.h"
const struct kernel *kernel_of(const char *name) { (void)name; return NULL; }
