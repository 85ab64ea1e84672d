/* What CUDA's driver API is made of, as NVIDIA's documentation of it says: types, result codes, device attributes.
 *
 * A test compiles the library with NVIDIA's own cuda.h in place of these (LAB_CUDA_HEADER), so that a name, a signature
 * or a number that differs is an error. */
#ifndef LAB_CUDA_TYPES_H
#define LAB_CUDA_TYPES_H
#include <stddef.h>

/* E(code, name, words): what cuGetErrorName and cuGetErrorString say. */
#define RESULTS(E) \
    E(0, CUDA_SUCCESS, "no error") \
    E(1, CUDA_ERROR_INVALID_VALUE, "invalid argument") \
    E(2, CUDA_ERROR_OUT_OF_MEMORY, "out of memory") \
    E(3, CUDA_ERROR_NOT_INITIALIZED, "initialization error") \
    E(4, CUDA_ERROR_DEINITIALIZED, "driver shutting down") \
    E(34, CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library") \
    E(46, CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable") \
    E(100, CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected") \
    E(101, CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal") \
    E(102, CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license") \
    E(200, CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid") \
    E(201, CUDA_ERROR_INVALID_CONTEXT, "invalid device context") \
    E(209, CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device") \
    E(214, CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered") \
    E(217, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices") \
    E(218, CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed") \
    E(220, CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution") \
    E(221, CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found") \
    E(222, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain.") \
    E(400, CUDA_ERROR_INVALID_HANDLE, "invalid resource handle") \
    E(401, CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state") \
    E(500, CUDA_ERROR_NOT_FOUND, "named symbol not found") \
    E(600, CUDA_ERROR_NOT_READY, "device not ready") \
    E(700, CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered") \
    E(701, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch") \
    E(702, CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated") \
    E(704, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled") \
    E(705, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled") \
    E(709, CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed") \
    E(710, CUDA_ERROR_ASSERT, "device-side assert triggered") \
    E(714, CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error") \
    E(715, CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered") \
    E(716, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address") \
    E(717, CUDA_ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space") \
    E(718, CUDA_ERROR_INVALID_PC, "invalid program counter") \
    E(719, CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure") \
    E(800, CUDA_ERROR_NOT_PERMITTED, "operation not permitted") \
    E(801, CUDA_ERROR_NOT_SUPPORTED, "operation not supported") \
    E(802, CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized") \
    E(803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination") \
    E(804, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW") \
    E(999, CUDA_ERROR_UNKNOWN, "unknown error")

/* A(number, name, value): attributes of a device that are equal for all of ours, or are worked out in `value`. */
#define ATTRIBUTES(A) \
    A(1, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, THREADS) \
    A(2, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024) \
    A(3, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024) \
    A(4, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64) \
    A(5, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647) \
    A(6, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535) \
    A(7, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535) \
    A(8, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED) \
    A(10, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32) \
    A(12, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536) \
    A(13, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, (int)(device->clock / 1e3)) \
    A(15, CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1) \
    A(16, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->sms) \
    A(17, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0) \
    A(18, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0) \
    A(19, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0) \
    A(20, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0) \
    A(31, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1) \
    A(32, CU_DEVICE_ATTRIBUTE_ECC_ENABLED, (int)lookup_number(device->index, "ecc", 0)) \
    A(33, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device->bus) \
    A(34, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device->slot) \
    A(35, CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0) \
    A(36, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, (int)(device->memory_clock / 1e3)) \
    A(37, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device->memory_bus) \
    A(40, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2) \
    A(41, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1) \
    A(50, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device->domain) \
    A(75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->major) \
    A(76, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->minor) \
    A(83, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0)
#define THREADS 1024
#define SHARED 49152

#ifdef LAB_CUDA_HEADER
#include LAB_CUDA_HEADER
#define SAME_NUMBER(number, name, ...) _Static_assert(name == number, #name " has another number");
RESULTS(SAME_NUMBER)
ATTRIBUTES(SAME_NUMBER)
#else
typedef enum {
#define NAMED(number, name, ...) name = number,
    RESULTS(NAMED)
} CUresult;
typedef enum { ATTRIBUTES(NAMED) CU_DEVICE_ATTRIBUTE_MAX = 1000 } CUdevice_attribute;
typedef enum {
    CU_JIT_INFO_LOG_BUFFER = 3, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
} CUjit_option;
typedef enum { CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED = 2 } CUdevice_P2PAttribute;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct { char bytes[16]; } CUuuid;
typedef struct CUctxCreateParams_st CUctxCreateParams;
#endif
#endif
