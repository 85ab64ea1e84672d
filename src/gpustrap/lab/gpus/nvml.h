/* What the parts of the stand-in for libnvidia-ml.so.1 share. Names and codes are those of NVIDIA's public nvml.h. */
#ifndef LAB_NVML_H
#define LAB_NVML_H
#include "simulated.h"

typedef int nvmlReturn_t;
typedef struct { int index; } *nvmlDevice_t;
typedef unsigned int uint;
typedef unsigned long long ull;

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, LIB_RM_VERSION_MISMATCH = 18, IN_USE = 19, VERSION_MISMATCH = 25,
    UNKNOWN = 999
};
#define API __attribute__((visibility("default")))
#define NO_INSTANCE 0xFFFFFFFFU
#define MIB(n) ((ull)(n) << 20)

/* Whether a device answers at all: it hangs, is lost, or is none. */
nvmlReturn_t reach(nvmlDevice_t device);
/* A device's value of a key of the state file, as text and as numbers. */
nvmlReturn_t text(nvmlDevice_t device, const char *key, char *value, size_t size);
nvmlReturn_t number(nvmlDevice_t device, const char *key, uint *value);
nvmlReturn_t big(nvmlDevice_t device, const char *key, ull *value);
/* Changes a number of the state file, for root; where that file is. */
nvmlReturn_t put(nvmlDevice_t device, const char *key, uint value);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(uint index, nvmlDevice_t *device);

/* MIG: the GPU instance of a handle, NO_INSTANCE of a whole GPU; and what differs from the GPU's own answer. */
uint mig_id(nvmlDevice_t device);
uint mig_index(nvmlDevice_t device);
int mig_instances(nvmlDevice_t device);
nvmlReturn_t mig_text(nvmlDevice_t device, int uuid, char *value, size_t size);
nvmlReturn_t mig_memory(nvmlDevice_t device, int bar1, uint *mib);
nvmlReturn_t mig_by_uuid(nvmlDevice_t device, const char *uuid, nvmlDevice_t *found);
/* Fields about NVLink; field 91 is the count of links. */
nvmlReturn_t link_field(nvmlDevice_t device, uint field, uint link, uint *value);

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
