/*
 * trace_gen.c - synthetic conversations.
 *
 * Conversations begin as a Poisson stream; each has a geometric number of turns with exponential pauses. A turn's prompt
 * is the one before, the answer to it, and new tokens; only whole blocks of a prompt can be shared with the next one, so
 * the partial last block gets an id of its own each time. Events are taken in order of time, which numbers the ids by
 * first appearance by itself.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/heap.h"
#include "cli/trace.h"
#include "cli/trace_build.h"

typedef struct conversation {
    uint64_t context_tokens; /* said so far, by both sides */
    uint64_t begun;          /* turns done */
    uint32_t *ids;           /* whole blocks of the last prompt */
    uint64_t id_count, id_capacity;
} conversation_t;

typedef struct generator {
    const fby_trace_recipe_t *recipe;
    uint64_t random;
    fby_trace_builder_t builder;
    conversation_t *conversations; /* by number; one more than requests may be planned */
    fby_heap_t next_turn;          /* conversation -> ns of its next turn */
    void *heap_memory;
    uint32_t *shared; /* ids of the system prompt's whole blocks, FBY_NONE until they appear */
    uint64_t shared_count;
} generator_t;

/* SplitMix64. */
static uint64_t random_bits(generator_t *generator)
{
    uint64_t z = (generator->random += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* In [0, 1). */
static double random_share(generator_t *generator)
{
    return (double)(random_bits(generator) >> 11) * 0x1p-53;
}

static double random_exponential(generator_t *generator, double mean)
{
    return -log1p(-random_share(generator)) * mean;
}

static uint64_t random_pause_ns(generator_t *generator, double mean_s)
{
    return (uint64_t)(random_exponential(generator, mean_s) * 1e9);
}

/* At least 1, `mean` on average. */
static uint64_t random_tokens(generator_t *generator, uint64_t mean)
{
    return 1 + (uint64_t)random_exponential(generator, (double)mean - 0.5);
}

/* The id of block b of a prompt whose first `known` blocks have ids; a new one otherwise. */
static uint32_t id_of(generator_t *generator, const conversation_t *conversation, uint64_t b)
{
    if (b < conversation->id_count) {
        return conversation->ids[b];
    }
    if (b < generator->shared_count && generator->shared[b] != FBY_NONE) {
        return generator->shared[b];
    }
    return generator->builder.trace.unique_blocks;
}

/* Keeps the id of a whole block for the next turn and, inside the system prompt, for everybody. */
static int keep_id(generator_t *generator, conversation_t *conversation, uint64_t b, uint32_t id)
{
    if (b < conversation->id_count) {
        return 0;
    }
    int status = fby_grow((void **)&conversation->ids, &conversation->id_capacity, b + 1, sizeof(uint32_t));
    if (status == 0) {
        conversation->ids[conversation->id_count++] = id;
        if (b < generator->shared_count) {
            generator->shared[b] = id;
        }
    }
    return status;
}

static int emit_request(generator_t *generator, conversation_t *conversation, uint64_t now_ns, uint64_t input,
                        uint64_t output)
{
    uint64_t blocks = (input + FBY_TRACE_BLOCK_TOKENS - 1) / FBY_TRACE_BLOCK_TOKENS;
    uint32_t parent = FBY_NONE;
    fby_trace_request_t request = {
        .timestamp_ms = now_ns / FBY_MS,
        .input_tokens = (uint32_t)input,
        .output_tokens = (uint32_t)output,
        .first_id = generator->builder.trace.block_refs,
        .blocks = (uint32_t)blocks,
    };
    int status = 0;
    for (uint64_t b = 0; b < blocks && status == 0; b++) {
        bool is_whole = (b + 1) * FBY_TRACE_BLOCK_TOKENS <= input;
        uint32_t id = is_whole ? id_of(generator, conversation, b) : generator->builder.trace.unique_blocks;
        status = fby_trace_add_id(&generator->builder, id, parent);
        status = status == 0 && is_whole ? keep_id(generator, conversation, b, id) : status;
        parent = id;
    }
    return status == 0 ? fby_trace_add_request(&generator->builder, &request) : status;
}

static void end_conversation(conversation_t *conversation)
{
    free(conversation->ids);
    *conversation = (conversation_t){0};
}

/* One turn: its request, and when the conversation speaks again. */
static int take_turn(generator_t *generator, uint32_t number, uint64_t now_ns)
{
    const fby_trace_recipe_t *recipe = generator->recipe;
    conversation_t *conversation = &generator->conversations[number];
    bool is_first = conversation->begun++ == 0;
    if (is_first) {
        double between_s = recipe->turns / recipe->rate_per_s;
        conversation->context_tokens = recipe->shared_tokens;
        fby_heap_set(&generator->next_turn, number + 1, now_ns + random_pause_ns(generator, between_s));
    }
    uint64_t input = conversation->context_tokens + random_tokens(generator, recipe->input_tokens);
    uint64_t output = FBY_MIN(random_tokens(generator, recipe->output_tokens), FBY_TRACE_MOST_TOKENS);
    bool is_last = random_share(generator) * recipe->turns < 1.0;
    fby_heap_remove(&generator->next_turn, number);
    if (input > recipe->most_input_tokens && !is_first) {
        end_conversation(conversation);
        return 0;
    }
    input = FBY_MIN(input, recipe->most_input_tokens);
    int status = emit_request(generator, conversation, now_ns, input, output);
    conversation->context_tokens = input + output;
    if (is_last) {
        end_conversation(conversation);
    } else {
        fby_heap_set(&generator->next_turn, number, now_ns + random_pause_ns(generator, recipe->think_s));
    }
    return status;
}

static int generator_init(generator_t *generator, const fby_trace_recipe_t *recipe)
{
    uint32_t most = (uint32_t)recipe->requests + 1;
    *generator = (generator_t){
        .recipe = recipe, .random = recipe->seed, .shared_count = recipe->shared_tokens / FBY_TRACE_BLOCK_TOKENS};
    generator->conversations = calloc(most, sizeof(*generator->conversations));
    generator->heap_memory = malloc(fby_heap_bytes(most));
    generator->shared = malloc((generator->shared_count + 1) * sizeof(*generator->shared));
    if (generator->conversations == NULL || generator->heap_memory == NULL || generator->shared == NULL) {
        return -ENOMEM;
    }
    memset(generator->shared, 0xFF, generator->shared_count * sizeof(*generator->shared)); /* FBY_NONE */
    fby_heap_init(&generator->next_turn, most, generator->heap_memory);
    fby_heap_set(&generator->next_turn, 0, 0);
    return 0;
}

static void generator_free(generator_t *generator)
{
    for (uint64_t i = 0; generator->conversations != NULL && i <= generator->recipe->requests; i++) {
        free(generator->conversations[i].ids);
    }
    free(generator->conversations);
    free(generator->heap_memory);
    free(generator->shared);
}

int fby_trace_generate(const fby_trace_recipe_t *recipe, fby_trace_t *out)
{
    generator_t generator;
    int status = generator_init(&generator, recipe);
    while (status == 0 && generator.builder.trace.requests < recipe->requests) {
        uint64_t now_ns = fby_heap_top_key(&generator.next_turn);
        status = take_turn(&generator, fby_heap_top(&generator.next_turn), now_ns);
    }
    generator_free(&generator);
    if (status != 0) {
        fby_trace_free(&generator.builder.trace);
        return status;
    }
    *out = generator.builder.trace;
    return 0;
}
