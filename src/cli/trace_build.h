/* trace_build.h - growing a trace. Checks nothing: the reader does, and the generator is right by construction. */
#ifndef FBY_CLI_TRACE_BUILD_H
#define FBY_CLI_TRACE_BUILD_H

#include "cli/trace.h"

typedef struct fby_trace_builder {
    fby_trace_t trace; /* taken over by the caller when done, or freed with fby_trace_free() */
    uint64_t request_capacity, id_capacity, parent_capacity;
} fby_trace_builder_t;

/* Makes *array hold at least `wanted` elements. -ENOMEM; the array stays valid. */
int fby_grow(void **array, uint64_t *capacity, uint64_t wanted, size_t element_bytes);
/* Appends an id to the request that is being built; one that equals unique_blocks is new and gets this parent. */
int fby_trace_add_id(fby_trace_builder_t *builder, uint32_t id, uint32_t parent);
int fby_trace_add_request(fby_trace_builder_t *builder, const fby_trace_request_t *request);

#endif
