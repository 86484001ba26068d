/*
 * cuda.c - the CUDA back end: copies are queued on two streams of its own, an event behind each batch says when it ended.
 *
 * INVARIANT  a batch is reported when its event is done, or when its whole stream is idle. Where the driver answers
 * neither question the operation is not settled: then nothing is unregistered, unmapped or used again. Nothing here
 * waits for a device but close, and that for our streams alone.
 *
 * Behind the event a host function adds 1 to the eventfd. It may run after the event was seen, so close lets no stream go
 * that is not idle.
 */
#include "rank/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "rank/backends.h"

struct fby_operation {
    fby_cu_stream_t stream;
    fby_cu_event_t event; /* NULL: the idle stream tells instead */
    int failed;           /* how, when it did before its end */
    char detail[160];
};

static int enter(const fby_device_t *device, char *error, size_t error_size)
{
    return fby_cu_code(&device->library, device->library.context_push(device->context), "cuCtxPushCurrent", error,
                       error_size);
}

static void leave(const fby_device_t *device)
{
    fby_cu_context_t popped;
    (void)device->library.context_pop(&popped);
}

/* ---- Open, close ------------------------------------------------------------------------------------------------ */

/* An idle stream has run its host functions too. False: the driver does not know. */
static bool await_idle(const fby_device_t *device, fby_cu_stream_t stream)
{
    int result;
    while ((result = device->library.stream_query(stream)) == FBY_CU_NOT_READY) {
        const struct timespec nap = {.tv_nsec = 100000};
        nanosleep(&nap, NULL);
    }
    return result == FBY_CU_SUCCESS;
}

static int close_streams(fby_device_t *device)
{
    bool idle = true;
    for (int i = 0; i < FBY_CUDA_STREAMS; i++) {
        idle = (device->stream[i] == NULL || await_idle(device, device->stream[i])) && idle;
    }
    for (int i = 0; idle && i < FBY_CUDA_STREAMS; i++) {
        if (device->stream[i] != NULL) {
            (void)device->library.stream_destroy(device->stream[i]);
        }
    }
    return idle ? 0 : -EIO;
}

/* Whatever open got. When the device does not let go, all of it stays: the driver may use it. */
static int cuda_close(fby_device_t *device)
{
    char error[160];
    int rc = 0;
    if (device->context != NULL) {
        rc = enter(device, error, sizeof(error));
        if (rc == 0) {
            rc = close_streams(device);
            rc = rc == 0 ? fby_cuda_pool_unregister(device) : rc;
            leave(device);
        }
        if (rc == 0) {
            (void)device->library.context_release(device->ordinal);
        }
    }
    if (rc == 0) {
        fby_cu_close(&device->library);
        free(device);
    }
    return rc;
}

static int open_context(fby_device_t *device, uint32_t ordinal, char *error, size_t error_size)
{
    const fby_cu_library_t *library = &device->library;
    int rc = fby_cu_code(library, library->init(0), "cuInit", error, error_size);
    if (rc == 0) {
        rc =
            fby_cu_code(library, library->device_get(&device->ordinal, (int)ordinal), "cuDeviceGet", error, error_size);
    }
    if (rc == 0) {
        rc = fby_cu_code(library, library->context_retain(&device->context, device->ordinal),
                         "cuDevicePrimaryCtxRetain", error, error_size);
    }
    return rc;
}

static int open_streams(fby_device_t *device, const fby_pool_t *pool, char *error, size_t error_size)
{
    int rc = enter(device, error, error_size);
    if (rc != 0) {
        return rc;
    }
    for (int i = 0; rc == 0 && i < FBY_CUDA_STREAMS; i++) {
        rc =
            fby_cu_code(&device->library, device->library.stream_create(&device->stream[i], FBY_CU_STREAM_NON_BLOCKING),
                        "cuStreamCreate", error, error_size);
    }
    rc = rc == 0 ? fby_cuda_pool_register(device, pool, error, error_size) : rc;
    leave(device);
    return rc;
}

static int cuda_open(const fby_device_options_t *options, const fby_pool_t *pool, void *base, fby_device_t **out,
                     char *error, size_t error_size)
{
    fby_device_t *device = calloc(1, sizeof(*device));
    if (device == NULL) {
        return -ENOMEM;
    }
    device->base = base;
    device->event_fd = options->event_fd;
    int rc = fby_cu_open(options->library, &device->library, error, error_size);
    if (rc != 0) {
        free(device);
        return rc;
    }
    rc = open_context(device, options->ordinal, error, error_size);
    rc = rc == 0 ? open_streams(device, pool, error, error_size) : rc;
    if (rc != 0) {
        (void)cuda_close(device);
        return rc;
    }
    *out = device;
    return 0;
}

/* Engines hand over raw numbers: both ends of a tensor must be memory of this device. */
static int cuda_check(fby_device_t *device, const void *address, uint64_t bytes, char *error, size_t error_size)
{
    int rc = enter(device, error, error_size);
    if (rc != 0) {
        return rc;
    }
    for (int end = 0; rc == 0 && end < 2; end++) {
        fby_cu_pointer_t pointer = (fby_cu_pointer_t)(uintptr_t)address + (end == 0 ? 0 : bytes - 1);
        int type = 0, ordinal = -1;
        bool known =
            device->library.pointer_attribute(&type, FBY_CU_POINTER_MEMORY_TYPE, pointer) == FBY_CU_SUCCESS &&
            device->library.pointer_attribute(&ordinal, FBY_CU_POINTER_DEVICE_ORDINAL, pointer) == FBY_CU_SUCCESS;
        if (!known || type != FBY_CU_MEMORY_DEVICE || ordinal != device->ordinal) {
            snprintf(error, error_size, "its %s byte is not memory of device %d; accepted: device memory",
                     end == 0 ? "first" : "last", device->ordinal);
            rc = -EFAULT;
        }
    }
    leave(device);
    return rc;
}

/* ---- Copy ------------------------------------------------------------------------------------------------------- */

static void tell(void *arg)
{
    (void)eventfd_write((int)(intptr_t)arg, 1);
}

static void free_operation(const fby_device_t *device, fby_operation_t *operation)
{
    if (operation->event != NULL) {
        (void)device->library.event_destroy(operation->event);
    }
    free(operation);
}

/* Behind the copies, of which some may be under way: the event, then whoever waits is told. */
static void close_batch(const fby_device_t *device, fby_operation_t *operation)
{
    const fby_cu_library_t *library = &device->library;
    char error[160];
    int rc = fby_cu_code(library, library->event_record(operation->event, operation->stream), "cuEventRecord", error,
                         sizeof(error));
    if (rc != 0) {
        (void)library->event_destroy(operation->event);
        operation->event = NULL;
    } else {
        rc = fby_cu_code(library, library->host_call(operation->stream, tell, (void *)(intptr_t)device->event_fd),
                         "cuLaunchHostFunc", error, sizeof(error));
    }
    if (rc != 0) {
        tell((void *)(intptr_t)device->event_fd); /* nobody else will: it is to be polled */
    }
    if (rc != 0 && operation->failed == 0) {
        operation->failed = rc;
        memcpy(operation->detail, error, sizeof(error));
    }
}

static int start_inside(const fby_device_t *device, const fby_copy_batch_t *batch, fby_operation_t *operation,
                        char *error, size_t error_size)
{
    const fby_cu_library_t *library = &device->library;
    bool queued = false;
    int rc = fby_cu_code(library, library->event_create(&operation->event, FBY_CU_EVENT_DISABLE_TIMING),
                         "cuEventCreate", error, error_size);
    if (rc == 0 && batch->after != NULL) {
        rc = fby_cu_code(library, library->stream_wait_event(operation->stream, batch->after, 0), "cuStreamWaitEvent",
                         error, error_size);
    }
    if (rc == 0) {
        rc = fby_cuda_queue(device, batch, operation->stream, &queued, error, error_size);
    }
    if (rc != 0 && !queued) {
        return rc;
    }
    if (rc != 0) {
        operation->failed = rc;
        snprintf(operation->detail, sizeof(operation->detail), "%.159s", error);
    }
    close_batch(device, operation);
    return 0;
}

static int cuda_start(fby_device_t *device, const fby_copy_batch_t *batch, fby_operation_t **out, char *error,
                      size_t error_size)
{
    fby_operation_t *operation = calloc(1, sizeof(*operation));
    if (operation == NULL) {
        return -ENOMEM;
    }
    operation->stream = device->stream[batch->to_device ? FBY_CUDA_LOADS : FBY_CUDA_SAVES];
    int rc = enter(device, error, error_size);
    if (rc == 0) {
        rc = start_inside(device, batch, operation, error, error_size);
        if (rc != 0) {
            free_operation(device, operation);
        }
        leave(device);
    } else {
        free(operation);
    }
    if (rc == 0) {
        *out = operation;
    }
    return rc;
}

/* The driver's answer on whether the batch ended; asks the stream where the event does not know. */
static int ask(const fby_device_t *device, fby_operation_t *operation, char *error, size_t error_size)
{
    const fby_cu_library_t *library = &device->library;
    if (operation->event != NULL) {
        int result = library->event_query(operation->event);
        if (result == FBY_CU_SUCCESS || result == FBY_CU_NOT_READY) {
            return result;
        }
        operation->failed = fby_cu_code(library, result, "cuEventQuery", operation->detail, sizeof(operation->detail));
        (void)library->event_destroy(operation->event);
        operation->event = NULL;
    }
    return library->stream_query(operation->stream);
}

static int cuda_poll(fby_device_t *device, fby_operation_t *operation, int *settled, char *error, size_t error_size)
{
    int rc = enter(device, error, error_size);
    if (rc != 0) {
        *settled = 0;
        free(operation); /* its event goes with the context */
        return rc;
    }
    int result = ask(device, operation, error, error_size);
    if (result == FBY_CU_NOT_READY) {
        leave(device);
        return -EAGAIN;
    }
    rc = operation->failed;
    snprintf(error, error_size, "%s", operation->detail);
    if (result != FBY_CU_SUCCESS) {
        int unknown = fby_cu_code(&device->library, result, "cuStreamQuery", error, error_size);
        rc = rc != 0 ? rc : unknown;
        *settled = 0;
    }
    free_operation(device, operation);
    leave(device);
    return rc;
}

const fby_device_driver_t fby_device_cuda = {
    .abi = FBY_DEVICE_ABI,
    .size = sizeof(fby_device_driver_t),
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .check = cuda_check,
    .start = cuda_start,
    .poll = cuda_poll,
};
