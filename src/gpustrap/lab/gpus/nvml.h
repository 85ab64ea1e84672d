/* What the parts of the stand-in for libnvidia-ml.so.1 share. Names and codes are those of NVIDIA's public nvml.h. */
#ifndef LAB_NVML_H
#define LAB_NVML_H
#include <stddef.h>

typedef int nvmlReturn_t;
typedef struct { int index; } *nvmlDevice_t;
typedef unsigned int uint;
typedef unsigned long long ull;

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, LIB_RM_VERSION_MISMATCH = 18, VERSION_MISMATCH = 25, UNKNOWN = 999
};
#define API __attribute__((visibility("default")))
#define LINE 512
#define MIB(n) ((ull)(n) << 20)

/* Whether a device answers at all: it hangs, is lost, or is none. */
nvmlReturn_t reach(nvmlDevice_t device);
/* A device's value of a key of the state file, as text and as numbers. */
nvmlReturn_t text(nvmlDevice_t device, const char *key, char *value, size_t size);
nvmlReturn_t number(nvmlDevice_t device, const char *key, uint *value);
nvmlReturn_t big(nvmlDevice_t device, const char *key, ull *value);

#define TEXT(name, key) \
    API nvmlReturn_t name(nvmlDevice_t device, char *value, uint size) { return text(device, key, value, size); }
#define NUMBER(name, key) \
    API nvmlReturn_t name(nvmlDevice_t device, uint *value) { return number(device, key, value); }
#define BIG(name, key) \
    API nvmlReturn_t name(nvmlDevice_t device, ull *value) { return big(device, key, value); }
#define PAIR(name, first, second) \
    API nvmlReturn_t name(nvmlDevice_t device, uint *one, uint *two) \
    { \
        nvmlReturn_t ret = number(device, first, one); \
        return ret == SUCCESS ? number(device, second, two) : ret; \
    }
#define FIXED(name, type, constant) \
    API nvmlReturn_t name(nvmlDevice_t device, type *value) { *value = constant; return reach(device); }
#endif
