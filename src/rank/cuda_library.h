/*
 * cuda_library.h - the entry points of the CUDA driver that are used, found at run time: nothing of CUDA is needed to
 * build. Types and numbers are those of the driver's stable interface.
 */
#ifndef FBY_RANK_CUDA_LIBRARY_H
#define FBY_RANK_CUDA_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

typedef int fby_cu_result_t;
typedef int fby_cu_device_t;
typedef unsigned long long fby_cu_pointer_t; /* of device memory */
typedef struct fby_cu_context *fby_cu_context_t;
typedef struct fby_cu_stream *fby_cu_stream_t;
typedef struct fby_cu_event *fby_cu_event_t;
typedef void fby_cu_host_fn(void *arg);

/* CUresult. X(name, number, code of ours) */
#define FBY_CU_ERROR_MAP(X)                                                                                            \
    X(INVALID_VALUE, 1, -EINVAL)                                                                                       \
    X(OUT_OF_MEMORY, 2, -ENOMEM)                                                                                       \
    X(NOT_INITIALIZED, 3, -ENODEV)                                                                                     \
    X(DEINITIALIZED, 4, -ENODEV)                                                                                       \
    X(NO_DEVICE, 100, -ENODEV)                                                                                         \
    X(INVALID_DEVICE, 101, -ENODEV)                                                                                    \
    X(DEVICE_UNAVAILABLE, 46, -EBUSY)                                                                                  \
    X(INVALID_CONTEXT, 201, -ENODEV)                                                                                   \
    X(SYSTEM_NOT_READY, 802, -ENODEV)                                                                                  \
    X(SYSTEM_DRIVER_MISMATCH, 803, -ENODEV)                                                                            \
    X(NOT_PERMITTED, 800, -EPERM)

enum { FBY_CU_SUCCESS = 0, FBY_CU_NOT_READY = 600 };
enum { FBY_CU_STREAM_NON_BLOCKING = 1, FBY_CU_EVENT_DISABLE_TIMING = 2, FBY_CU_HOST_REGISTER_PORTABLE = 1 };
enum { FBY_CU_MEMORY_HOST = 1, FBY_CU_MEMORY_DEVICE = 2 };
enum { FBY_CU_POINTER_MEMORY_TYPE = 2, FBY_CU_POINTER_DEVICE_ORDINAL = 9 };

/* CUDA_MEMCPY2D. */
typedef struct fby_cu_copy2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    fby_cu_pointer_t src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    fby_cu_pointer_t dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
} fby_cu_copy2d_t;

/* X(member, symbol, parameters) */
#define FBY_CU_MAP(X)                                                                                                  \
    X(init, "cuInit", (unsigned flags))                                                                                \
    X(device_get, "cuDeviceGet", (fby_cu_device_t * device, int ordinal))                                              \
    X(context_retain, "cuDevicePrimaryCtxRetain", (fby_cu_context_t * context, fby_cu_device_t device))                \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (fby_cu_device_t device))                                       \
    X(context_push, "cuCtxPushCurrent_v2", (fby_cu_context_t context))                                                 \
    X(context_pop, "cuCtxPopCurrent_v2", (fby_cu_context_t * context))                                                 \
    X(host_register, "cuMemHostRegister_v2", (void *base, size_t bytes, unsigned flags))                               \
    X(host_unregister, "cuMemHostUnregister", (void *base))                                                            \
    X(pointer_attribute, "cuPointerGetAttribute", (void *out, int attribute, fby_cu_pointer_t pointer))                \
    X(stream_create, "cuStreamCreate", (fby_cu_stream_t * stream, unsigned flags))                                     \
    X(stream_destroy, "cuStreamDestroy_v2", (fby_cu_stream_t stream))                                                  \
    X(stream_query, "cuStreamQuery", (fby_cu_stream_t stream))                                                         \
    X(stream_wait_event, "cuStreamWaitEvent", (fby_cu_stream_t stream, fby_cu_event_t event, unsigned flags))          \
    X(event_create, "cuEventCreate", (fby_cu_event_t * event, unsigned flags))                                         \
    X(event_destroy, "cuEventDestroy_v2", (fby_cu_event_t event))                                                      \
    X(event_record, "cuEventRecord", (fby_cu_event_t event, fby_cu_stream_t stream))                                   \
    X(event_query, "cuEventQuery", (fby_cu_event_t event))                                                             \
    X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                                          \
      (fby_cu_pointer_t to, const void *from, size_t bytes, fby_cu_stream_t stream))                                   \
    X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *to, fby_cu_pointer_t from, size_t bytes, fby_cu_stream_t stream))   \
    X(copy_2d, "cuMemcpy2DAsync_v2", (const fby_cu_copy2d_t *copy, fby_cu_stream_t stream))                            \
    X(host_call, "cuLaunchHostFunc", (fby_cu_stream_t stream, fby_cu_host_fn * function, void *arg))                   \
    X(error_name, "cuGetErrorName", (fby_cu_result_t result, const char **name))

typedef struct fby_cu_library {
    void *handle;
#define FBY_X(member, symbol, parameters) fby_cu_result_t(*member) parameters;
    FBY_CU_MAP(FBY_X)
#undef FBY_X
} fby_cu_library_t;

/* Loads the library at `path` (NULL: libcuda.so.1) and finds every entry point. -ENODEV, -ENOSYS; with text. */
int fby_cu_open(const char *path, fby_cu_library_t *library, char *error, size_t error_size);
void fby_cu_close(fby_cu_library_t *library);
/* Code of ours for a result, with "symbol: NAME" as text. 0 for success. */
int fby_cu_code(const fby_cu_library_t *library, fby_cu_result_t result, const char *symbol, char *error,
                size_t error_size);

#endif
