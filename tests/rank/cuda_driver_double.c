#include "cuda_driver_double.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rank/cuda_library.h"

enum { MOST_OPS = 4096, MOST_STREAMS = 8, MOST_REGIONS = 256, INVALID_VALUE = 1, INVALID_CONTEXT = 201 };

/* All events that were ever made, so that none is freed under a copy that is still to record it. */
struct fby_cu_event {
    bool done;
    fby_cu_event_t next;
};
typedef enum op_kind { OP_COPY, OP_RECORD, OP_WAIT, OP_CALL } op_kind_t;
typedef struct op {
    op_kind_t kind;
    uint8_t *to;
    const uint8_t *from;
    size_t to_pitch, from_pitch, width, height;
    fby_cu_event_t event;
    fby_cu_host_fn *function;
    void *arg;
} op_t;
struct fby_cu_stream {
    op_t op[MOST_OPS];
    uint32_t head, tail;
};

static double_control_t control;
static fby_cu_event_t events;
static fby_cu_stream_t streams[MOST_STREAMS];
static struct {
    const uint8_t *base;
    size_t bytes;
} regions[MOST_REGIONS];

double_control_t *double_control(void);
int double_step(void);
void *double_gate(void);
void double_fire(void *gate);
#define FBY_X(member, symbol, parameters) fby_cu_result_t member##_entry parameters __asm__(symbol);
FBY_CU_MAP(FBY_X)
#undef FBY_X

double_control_t *double_control(void)
{
    return &control;
}

static uint32_t random_below(uint32_t n)
{
    control.seed = control.seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((control.seed >> 33) % n);
}

static int injected(const char *symbol)
{
    if (control.fail_call == 0 || strcmp(symbol, control.fail_symbol) != 0 || --control.fail_call > 0) {
        return 0;
    }
    control.failures++;
    return control.fail_result;
}

/* At the head of each entry point. */
#define BEGIN(symbol)                                                                                                  \
    int injected_result = injected(symbol);                                                                            \
    if (injected_result != 0) {                                                                                        \
        return injected_result;                                                                                        \
    }
#define BEGIN_INSIDE(symbol)                                                                                           \
    BEGIN(symbol)                                                                                                      \
    if (control.depth == 0) {                                                                                          \
        return INVALID_CONTEXT;                                                                                        \
    }

/* ---- The device ------------------------------------------------------------------------------------------------- */

static bool blocked(const struct fby_cu_stream *stream)
{
    const op_t *op = &stream->op[stream->head % MOST_OPS];
    return stream->head == stream->tail || (op->kind == OP_WAIT && !op->event->done);
}

static void step_stream(fby_cu_stream_t stream)
{
    op_t *op = &stream->op[stream->head % MOST_OPS];
    if (op->kind == OP_COPY) {
        memcpy(op->to, op->from, op->width);
        op->to += op->to_pitch;
        op->from += op->from_pitch;
        control.rows_copied++;
        if (--op->height > 0) {
            return;
        }
    } else if (op->kind == OP_RECORD) {
        op->event->done = true;
    } else if (op->kind == OP_CALL) {
        op->function(op->arg);
    }
    stream->head++;
}

int double_step(void)
{
    uint32_t begin = random_below(MOST_STREAMS);
    for (uint32_t i = 0; i < MOST_STREAMS; i++) {
        fby_cu_stream_t stream = streams[(begin + i) % MOST_STREAMS];
        if (stream != NULL && !blocked(stream)) {
            step_stream(stream);
            return 1;
        }
    }
    return 0;
}

static int progress(void)
{
    for (uint32_t steps = random_below(control.most_steps + 1); steps > 0; steps--) {
        double_step();
    }
    return control.broken;
}

static op_t *push(fby_cu_stream_t stream, op_kind_t kind)
{
    if (stream == NULL || stream->tail - stream->head == MOST_OPS) {
        return NULL;
    }
    op_t *op = &stream->op[stream->tail++ % MOST_OPS];
    *op = (op_t){.kind = kind};
    return op;
}

static bool is_device(fby_cu_pointer_t pointer, size_t bytes)
{
    uintptr_t base = (uintptr_t)control.memory;
    return pointer >= base && bytes <= control.memory_bytes && pointer - base <= control.memory_bytes - bytes;
}

/* Pinned, and within one registration. */
static bool is_pinned(const void *address, size_t bytes)
{
    for (size_t i = 0; i < MOST_REGIONS; i++) {
        const uint8_t *at = address;
        if (regions[i].base != NULL && at >= regions[i].base && at + bytes <= regions[i].base + regions[i].bytes) {
            return true;
        }
    }
    return false;
}

static int push_copy(const fby_cu_copy2d_t *copy, fby_cu_stream_t stream)
{
    bool load = copy->src_type == FBY_CU_MEMORY_HOST;
    const void *host = load ? copy->src_host : copy->dst_host;
    fby_cu_pointer_t device = load ? copy->dst_device : copy->src_device;
    size_t host_pitch = load ? copy->src_pitch : copy->dst_pitch;
    size_t device_pitch = load ? copy->dst_pitch : copy->src_pitch;
    if (copy->width == 0 || copy->height == 0 || host_pitch < copy->width || device_pitch < copy->width ||
        copy->dst_type != (load ? FBY_CU_MEMORY_DEVICE : FBY_CU_MEMORY_HOST) ||
        !is_pinned(host, (copy->height - 1) * host_pitch + copy->width) ||
        !is_device(device, (copy->height - 1) * device_pitch + copy->width)) {
        return INVALID_VALUE;
    }
    op_t *op = push(stream, OP_COPY);
    if (op == NULL) {
        return INVALID_VALUE;
    }
    uint8_t *device_at = (uint8_t *)(uintptr_t)device;
    op->to = load ? device_at : copy->dst_host;
    op->from = load ? copy->src_host : device_at;
    op->to_pitch = copy->dst_pitch;
    op->from_pitch = copy->src_pitch;
    op->width = copy->width;
    op->height = copy->height;
    control.copies_queued++;
    return 0;
}

void *double_gate(void)
{
    return calloc(1, sizeof(struct fby_cu_event));
}

void double_fire(void *gate)
{
    ((fby_cu_event_t)gate)->done = true;
}

/* ---- Entry points ----------------------------------------------------------------------------------------------- */

fby_cu_result_t init_entry(unsigned flags)
{
    BEGIN("cuInit")
    return flags == 0 ? 0 : INVALID_VALUE;
}

fby_cu_result_t device_get_entry(fby_cu_device_t *device, int ordinal)
{
    BEGIN("cuDeviceGet")
    *device = ordinal;
    return ordinal == control.ordinal ? 0 : 101;
}

fby_cu_result_t context_retain_entry(fby_cu_context_t *context, fby_cu_device_t device)
{
    BEGIN("cuDevicePrimaryCtxRetain")
    control.contexts++;
    *context = (fby_cu_context_t)(void *)&control;
    return 0;
}

fby_cu_result_t context_release_entry(fby_cu_device_t device)
{
    BEGIN("cuDevicePrimaryCtxRelease_v2")
    control.contexts--;
    return 0;
}

fby_cu_result_t context_push_entry(fby_cu_context_t context)
{
    BEGIN("cuCtxPushCurrent_v2")
    control.depth++;
    return 0;
}

fby_cu_result_t context_pop_entry(fby_cu_context_t *context)
{
    BEGIN("cuCtxPopCurrent_v2")
    control.depth--;
    *context = (fby_cu_context_t)(void *)&control;
    return 0;
}

fby_cu_result_t host_register_entry(void *base, size_t bytes, unsigned flags)
{
    BEGIN_INSIDE("cuMemHostRegister_v2")
    for (size_t i = 0; i < MOST_REGIONS && (uintptr_t)base % 4096 == 0; i++) {
        if (regions[i].base == NULL) {
            regions[i].base = base;
            regions[i].bytes = bytes;
            control.regions++;
            return 0;
        }
    }
    return INVALID_VALUE;
}

fby_cu_result_t host_unregister_entry(void *base)
{
    BEGIN_INSIDE("cuMemHostUnregister")
    for (size_t i = 0; i < MOST_REGIONS; i++) {
        if (regions[i].base == base) {
            regions[i].base = NULL;
            control.regions--;
            return 0;
        }
    }
    return INVALID_VALUE;
}

fby_cu_result_t pointer_attribute_entry(void *out, int attribute, fby_cu_pointer_t pointer)
{
    BEGIN_INSIDE("cuPointerGetAttribute")
    if (!is_device(pointer, 1)) {
        return INVALID_VALUE;
    }
    *(int *)out = attribute == FBY_CU_POINTER_MEMORY_TYPE ? FBY_CU_MEMORY_DEVICE : control.ordinal;
    return 0;
}

fby_cu_result_t stream_create_entry(fby_cu_stream_t *stream, unsigned flags)
{
    BEGIN_INSIDE("cuStreamCreate")
    for (size_t i = 0; i < MOST_STREAMS; i++) {
        if (streams[i] == NULL) {
            *stream = streams[i] = calloc(1, sizeof(*streams[i]));
            control.streams++;
            return flags == FBY_CU_STREAM_NON_BLOCKING ? 0 : INVALID_VALUE;
        }
    }
    return 2;
}

fby_cu_result_t stream_destroy_entry(fby_cu_stream_t stream)
{
    BEGIN_INSIDE("cuStreamDestroy_v2")
    for (size_t i = 0; i < MOST_STREAMS; i++) {
        if (streams[i] == stream) {
            streams[i] = NULL;
        }
    }
    free(stream);
    control.streams--;
    return 0;
}

fby_cu_result_t stream_query_entry(fby_cu_stream_t stream)
{
    BEGIN_INSIDE("cuStreamQuery")
    int broken = progress();
    return broken != 0 ? broken : stream->head == stream->tail ? 0 : FBY_CU_NOT_READY;
}

fby_cu_result_t stream_wait_event_entry(fby_cu_stream_t stream, fby_cu_event_t event, unsigned flags)
{
    BEGIN_INSIDE("cuStreamWaitEvent")
    op_t *op = push(stream, OP_WAIT);
    if (op == NULL) {
        return INVALID_VALUE;
    }
    op->event = event;
    control.waits++;
    return 0;
}

fby_cu_result_t event_create_entry(fby_cu_event_t *event, unsigned flags)
{
    BEGIN_INSIDE("cuEventCreate")
    *event = calloc(1, sizeof(**event));
    (*event)->next = events;
    events = *event;
    control.events++;
    return flags == FBY_CU_EVENT_DISABLE_TIMING ? 0 : INVALID_VALUE;
}

fby_cu_result_t event_destroy_entry(fby_cu_event_t event)
{
    BEGIN_INSIDE("cuEventDestroy_v2")
    control.events--;
    return 0;
}

fby_cu_result_t event_record_entry(fby_cu_event_t event, fby_cu_stream_t stream)
{
    BEGIN_INSIDE("cuEventRecord")
    op_t *op = push(stream, OP_RECORD);
    if (op == NULL) {
        return INVALID_VALUE;
    }
    op->event = event;
    return 0;
}

fby_cu_result_t event_query_entry(fby_cu_event_t event)
{
    BEGIN_INSIDE("cuEventQuery")
    int broken = progress();
    return broken != 0 ? broken : event->done ? 0 : FBY_CU_NOT_READY;
}

fby_cu_result_t copy_to_device_entry(fby_cu_pointer_t to, const void *from, size_t bytes, fby_cu_stream_t stream)
{
    BEGIN_INSIDE("cuMemcpyHtoDAsync_v2")
    const fby_cu_copy2d_t copy = {.src_type = FBY_CU_MEMORY_HOST,
                                  .src_host = from,
                                  .src_pitch = bytes,
                                  .dst_type = FBY_CU_MEMORY_DEVICE,
                                  .dst_device = to,
                                  .dst_pitch = bytes,
                                  .width = bytes,
                                  .height = 1};
    return push_copy(&copy, stream);
}

fby_cu_result_t copy_to_host_entry(void *to, fby_cu_pointer_t from, size_t bytes, fby_cu_stream_t stream)
{
    BEGIN_INSIDE("cuMemcpyDtoHAsync_v2")
    const fby_cu_copy2d_t copy = {.src_type = FBY_CU_MEMORY_DEVICE,
                                  .src_device = from,
                                  .src_pitch = bytes,
                                  .dst_type = FBY_CU_MEMORY_HOST,
                                  .dst_host = to,
                                  .dst_pitch = bytes,
                                  .width = bytes,
                                  .height = 1};
    return push_copy(&copy, stream);
}

fby_cu_result_t copy_2d_entry(const fby_cu_copy2d_t *copy, fby_cu_stream_t stream)
{
    BEGIN_INSIDE("cuMemcpy2DAsync_v2")
    return push_copy(copy, stream);
}

fby_cu_result_t host_call_entry(fby_cu_stream_t stream, fby_cu_host_fn *function, void *arg)
{
    BEGIN_INSIDE("cuLaunchHostFunc")
    op_t *op = push(stream, OP_CALL);
    if (op == NULL) {
        return INVALID_VALUE;
    }
    op->function = function;
    op->arg = arg;
    return 0;
}

/* What tests use in an engine's place: one piece of memory at a time. */
fby_cu_result_t allocate_entry(fby_cu_pointer_t *memory, size_t bytes) __asm__("cuMemAlloc_v2");
fby_cu_result_t release_entry(fby_cu_pointer_t memory) __asm__("cuMemFree_v2");
fby_cu_result_t upload_entry(fby_cu_pointer_t to, const void *from, size_t bytes) __asm__("cuMemcpyHtoD_v2");
fby_cu_result_t download_entry(void *to, fby_cu_pointer_t from, size_t bytes) __asm__("cuMemcpyDtoH_v2");

fby_cu_result_t allocate_entry(fby_cu_pointer_t *memory, size_t bytes)
{
    BEGIN_INSIDE("cuMemAlloc_v2")
    control.memory = malloc(bytes);
    control.memory_bytes = bytes;
    *memory = (uintptr_t)control.memory;
    return control.memory != NULL ? 0 : 2;
}

fby_cu_result_t release_entry(fby_cu_pointer_t memory)
{
    BEGIN_INSIDE("cuMemFree_v2")
    free((void *)(uintptr_t)memory);
    control.memory = NULL;
    control.memory_bytes = 0;
    return 0;
}

fby_cu_result_t upload_entry(fby_cu_pointer_t to, const void *from, size_t bytes)
{
    BEGIN_INSIDE("cuMemcpyHtoD_v2")
    memcpy((void *)(uintptr_t)to, from, bytes);
    return is_device(to, bytes) ? 0 : INVALID_VALUE;
}

fby_cu_result_t download_entry(void *to, fby_cu_pointer_t from, size_t bytes)
{
    BEGIN_INSIDE("cuMemcpyDtoH_v2")
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return is_device(from, bytes) ? 0 : INVALID_VALUE;
}

fby_cu_result_t error_name_entry(fby_cu_result_t result, const char **name)
{
    BEGIN("cuGetErrorName")
    *name = result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FROM_THE_DOUBLE";
    return 0;
}
