#include "cli/trace_build.h"

#include <errno.h>
#include <stdlib.h>

int fby_grow(void **array, uint64_t *capacity, uint64_t wanted, size_t element_bytes)
{
    if (wanted <= *capacity) {
        return 0;
    }
    uint64_t larger = FBY_MAX(wanted, *capacity * 2 + 1024);
    void *grown = reallocarray(*array, larger, element_bytes);
    if (grown == NULL) {
        return -ENOMEM;
    }
    *array = grown;
    *capacity = larger;
    return 0;
}

int fby_trace_add_id(fby_trace_builder_t *builder, uint32_t id, uint32_t parent)
{
    fby_trace_t *trace = &builder->trace;
    int status = fby_grow((void **)&trace->ids, &builder->id_capacity, trace->block_refs + 1, sizeof(*trace->ids));
    if (status == 0 && id == trace->unique_blocks) {
        status = fby_grow((void **)&trace->parent, &builder->parent_capacity, trace->unique_blocks + UINT64_C(1),
                          sizeof(*trace->parent));
    }
    if (status != 0) {
        return status;
    }
    if (id == trace->unique_blocks) {
        trace->parent[trace->unique_blocks++] = parent;
    }
    trace->ids[trace->block_refs++] = id;
    return 0;
}

int fby_trace_add_request(fby_trace_builder_t *builder, const fby_trace_request_t *request)
{
    fby_trace_t *trace = &builder->trace;
    int status =
        fby_grow((void **)&trace->request, &builder->request_capacity, trace->requests + UINT64_C(1), sizeof(*request));
    if (status == 0) {
        trace->request[trace->requests++] = *request;
    }
    return status;
}

void fby_trace_free(fby_trace_t *trace)
{
    free(trace->request);
    free(trace->ids);
    free(trace->parent);
    *trace = (fby_trace_t){0};
}
