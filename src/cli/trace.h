/*
 * trace.h - request traces in Mooncake's format: JSON lines with timestamp (ms), input_length, output_length (tokens) and
 * hash_ids (one integer per block of 512 tokens, the last may be partial).
 *
 * INVARIANTS of a trace that was read
 *   requests are sorted by time; a request has ceil(input_tokens / 512) ids; ids are dense and numbered in order of first
 *   appearance; each id has one parent. So the ids form a forest, and a prefix of ids names a prefix of tokens.
 */
#ifndef FBY_CLI_TRACE_H
#define FBY_CLI_TRACE_H

#include <stdio.h>

#include "base/base.h"

#define FBY_TRACE_BLOCK_TOKENS 512u
#define FBY_TRACE_MOST_TOKENS (UINT64_C(1) << 24) /* of one request */
#define FBY_TRACE_MOST_MS (UINT64_C(1) << 40)     /* 34 years */

typedef struct fby_trace_request {
    uint64_t timestamp_ms;
    uint32_t input_tokens, output_tokens;
    uint64_t first_id; /* into ids */
    uint32_t blocks;
} fby_trace_request_t;

typedef struct fby_trace {
    fby_trace_request_t *request;
    uint32_t *ids;    /* of all requests, one after the other */
    uint32_t *parent; /* by id; FBY_NONE for a first block */
    uint32_t requests, unique_blocks;
    uint64_t block_refs;
} fby_trace_t;

/* Reads a whole file. FBY_E_FORMAT, -errno, -ENOMEM, each with the detail set; *out is touched on success only. */
int fby_trace_load(const char *path, fby_trace_t *out);
/* The same from memory; `name` stands in messages. */
int fby_trace_parse(const char *text, size_t length, const char *name, fby_trace_t *out);
void fby_trace_free(fby_trace_t *trace);
/* Writes it as it would be read. */
void fby_trace_write(const fby_trace_t *trace, FILE *out);

static inline const uint32_t *fby_trace_ids(const fby_trace_t *trace, uint32_t request)
{
    return trace->ids + trace->request[request].first_id;
}

/* What an infinite cache would answer: leading blocks of each request that some earlier request had. */
typedef struct fby_trace_hits {
    uint64_t blocks, tokens;             /* hit */
    uint64_t total_blocks, total_tokens; /* asked for */
} fby_trace_hits_t;
/* Adds one request of which the first hit_blocks were there. */
void fby_trace_count_hit(const fby_trace_request_t *request, uint32_t hit_blocks, fby_trace_hits_t *hits);
void fby_trace_infinite_hits(const fby_trace_t *trace, fby_trace_hits_t *out);
/* What a cache of `capacity` blocks answers, made of Forebay's own index under `lru`: each request is matched, then
   published whole. -ENOMEM. */
int fby_trace_lru_hits(const fby_trace_t *trace, uint32_t capacity, fby_trace_hits_t *out);

/* A synthetic trace of conversations: prompts grow by what was said, users share a system prompt. */
typedef struct fby_trace_recipe {
    uint64_t requests, seed;
    double rate_per_s;          /* arrivals of all requests together, on average */
    uint64_t shared_tokens;     /* system prompt that all conversations begin with */
    double turns;               /* turns of a conversation on average, at least 1 */
    double think_s;             /* pause between turns on average */
    uint64_t input_tokens;      /* new tokens of a turn on average */
    uint64_t output_tokens;     /* answer of a turn on average */
    uint64_t most_input_tokens; /* a conversation ends before its prompt passes this */
} fby_trace_recipe_t;
#define FBY_TRACE_RECIPE_INIT                                                                                          \
    {                                                                                                                  \
        1000, 1, 4.0, 1024, 4.0, 30.0, 2000, 350, 131072                                                               \
    }
/* The same recipe gives the same trace on every machine of one C library. -ENOMEM. */
int fby_trace_generate(const fby_trace_recipe_t *recipe, fby_trace_t *out);

#endif
