/*
 * fuzz_trace.c - any text as a trace: it is refused with a message, or it is a forest, and what is written of it reads
 * back the same.
 *
 * The reader belongs to the command, which no library holds: its files are compiled in here.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/trace.c"       /* NOLINT(bugprone-suspicious-include) */
#include "cli/trace_build.c" /* NOLINT(bugprone-suspicious-include) */
#include "cli/trace_hits.c"  /* NOLINT(bugprone-suspicious-include) */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static void check_forest(const fby_trace_t *trace)
{
    uint64_t refs = 0;
    for (uint32_t i = 0; i < trace->requests; i++) {
        const fby_trace_request_t *request = &trace->request[i];
        const uint32_t *ids = fby_trace_ids(trace, i);
        CHECK(request->first_id == refs);
        CHECK(request->blocks == (request->input_tokens + FBY_TRACE_BLOCK_TOKENS - 1) / FBY_TRACE_BLOCK_TOKENS);
        for (uint32_t b = 0; b < request->blocks; b++) {
            CHECK(ids[b] < trace->unique_blocks && trace->parent[ids[b]] == (b > 0 ? ids[b - 1] : FBY_NONE));
        }
        refs += request->blocks;
    }
    CHECK(refs == trace->block_refs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fby_trace_t trace, again;
    fby_trace_hits_t hits;
    char *text = NULL;
    size_t length = 0;
    int status = fby_trace_parse((const char *)data, size, "input", &trace);
    if (status != 0) {
        CHECK(status == FBY_E_FORMAT && *fby_error_get() != '\0');
        return 0;
    }
    check_forest(&trace);
    fby_trace_infinite_hits(&trace, &hits);
    CHECK(hits.blocks <= hits.total_blocks && hits.tokens <= hits.total_tokens);
    FILE *out = open_memstream(&text, &length);
    CHECK(out != NULL);
    fby_trace_write(&trace, out);
    CHECK(fclose(out) == 0 && fby_trace_parse(text, length, "again", &again) == 0);
    CHECK(again.requests == trace.requests && again.block_refs == trace.block_refs);
    CHECK(memcmp(again.ids, trace.ids, trace.block_refs * sizeof(*trace.ids)) == 0);
    free(text);
    fby_trace_free(&trace);
    fby_trace_free(&again);
    return 0;
}
