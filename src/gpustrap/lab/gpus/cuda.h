/* What the parts of the stand-in for libcuda.so.1 share. */
#ifndef LAB_CUDA_H
#define LAB_CUDA_H
#include "cuda_types.h"
#include "simulated.h"

#include <stdint.h>
#include <sys/types.h>

#define API __attribute__((visibility("default")))
/* The name that a function had before it got a number, where both do the same. */
#define ALSO(old, function) \
    extern __typeof__(function) also_##old __asm__(#old) __attribute__((alias(#function), visibility("default")));
#define DEVICES 64
#define MIB(n) ((size_t)(n) << 20)
#define PAGE 4096

/* A GPU, or an instance of one, that this process sees. */
struct device {
    CUdevice ordinal;
    int index; /* in the state file */
    int instance; /* GPU instance of MIG, or -1 */
    int sms, major, minor, domain, bus, slot, memory_bus;
    double clock, memory_clock; /* Hz */
    size_t memory, taken; /* bytes; taken: by the driver itself */
    char name[96], uuid[64];
    struct CUctx_st *primary;
    struct allocation *first; /* in the order of addresses */
    unsigned long products; /* matrix products so far */
};
struct CUstream_st { struct CUctx_st *context; double time; }; /* time: simulated seconds of work so far */
struct CUctx_st {
    struct device *device;
    struct CUstream_st stream; /* the default one */
    int references, destroyed;
    CUresult broken; /* what every call ends with, once a kernel failed */
    CUresult pending; /* what the next call that waits will end with */
    int hung;
    uint64_t peers; /* devices by ordinal, whose memory this context may use */
};
/* Memory of a device: `host` holds what it holds, but for chunks that are only promised, see cuda_pattern.c. Addresses
 * are the device's own: the host cannot use them. */
struct allocation {
    struct allocation *next;
    struct chunk *chunks;
    struct device *device;
    CUcontext context;
    CUdeviceptr address;
    size_t size;
    char *host;
};

/* The device with an ordinal; NULL before cuInit, and where there is none. */
struct device *device_of(CUdevice ordinal);
int device_count(void);
/* CUDA of the library's branch, as cuDriverGetVersion has it: 13020. */
int cuda_of_library(void);
/* The current context, and whether its GPU answers at all: it hangs, is lost, or a kernel failed before. */
CUresult enter(CUcontext *context);
CUresult enter_device(const struct device *device);
/* Waits for what was launched in a context. */
CUresult finish(CUcontext context);
CUresult stream_of(CUcontext context, CUstream handle, CUstream *stream);

/* The allocation that all of [address, address + size) is in; NULL where there is none. */
struct allocation *find(CUdeviceptr address, size_t size);
/* As a kernel in this context sees it: its own device's memory, or that of a peer. */
struct allocation *find_for_kernel(CUcontext context, CUdeviceptr address, size_t size);
/* The same memory on the host: what was promised is there, bits that are stuck are. */
char *host_of(CUdeviceptr address, size_t size);
char *kernel_memory(CUcontext context, CUdeviceptr address, size_t size);
char *read_memory(struct allocation *where, size_t offset, size_t size);
void make_real(struct allocation *where, size_t offset, size_t size);
/* The offset in an allocation of a word with a bit that is stuck, in that part of it; -1 where there is none. */
ssize_t stuck_word(const struct allocation *where, size_t offset, size_t size, uint32_t *mask);
void release_memory(CUcontext context);

/* How fast things are, derived from the board; a fault makes them slower. */
double seconds_of_product(const struct device *device, double operations);
double seconds_of_memory(const struct device *device, double bytes);
double seconds_of_pcie(const struct device *device, double bytes);
double seconds_between(const struct device *one, const struct device *two, double bytes, int direct);
int peers_possible(const struct device *one, const struct device *two);
#endif
