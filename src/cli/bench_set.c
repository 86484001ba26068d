#include "cli/bench_set.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/replay_payload.h"
#include "keys/keys.h"
#include "stores/object.h"

#define STORE_LIMIT_S 300.0
#define SET_BYTES (UINT64_C(1) << 30) /* of all prompts; more when the least number of them is larger */
enum { SLOT_ALIGNMENT = 4096, WORD_BYTES = 8 };

static int out_of_memory(void)
{
    fby_error_set("out of memory");
    return -ENOMEM;
}

static uint32_t prompts_of(uint64_t prompt_bytes)
{
    uint64_t fit = FBY_MIN(SET_BYTES / prompt_bytes, (uint64_t)FBY_BENCH_PROMPTS_MOST);
    return (uint32_t)FBY_MAX(fit, (uint64_t)FBY_BENCH_PROMPTS_LEAST);
}

int fby_bench_set_init(fby_bench_set_t *set, uint32_t blocks, uint32_t block_tokens, uint32_t block_bytes)
{
    *set = (fby_bench_set_t){
        .prompts = prompts_of((uint64_t)blocks * block_bytes),
        .blocks = blocks,
        .block_tokens = block_tokens,
        .object_bytes = block_bytes,
        .payload_bytes = block_bytes - FBY_TRAILER_BYTES,
        .slot_bytes = (uint32_t)fby_align_up(block_bytes, SLOT_ALIGNMENT),
    };
    size_t all = (size_t)set->prompts * blocks;
    set->keys = calloc(all, sizeof(*set->keys));
    set->marks = calloc(all, sizeof(*set->marks));
    return set->keys != NULL && set->marks != NULL ? 0 : out_of_memory();
}

void fby_bench_set_free(fby_bench_set_t *set)
{
    free(set->keys);
    free(set->marks);
    *set = (fby_bench_set_t){0};
}

int fby_bench_set_sequence(const fby_bench_set_t *set, fby_cache_t *cache, uint32_t prompt, uint32_t blocks,
                           fby_seq_t **out)
{
    size_t tokens = (size_t)blocks * set->block_tokens + 1;
    uint32_t *ids = malloc(tokens * sizeof(*ids));
    if (ids == NULL) {
        return out_of_memory();
    }
    for (size_t i = 0; i < tokens; i++) {
        ids[i] = (uint32_t)((i * 7919 + prompt * UINT64_C(104729)) % 128000);
    }
    int status = fby_seq_create(cache, ids, tokens, NULL, 0, out);
    free(ids);
    return status;
}

static void remember(fby_bench_mark_t *mark, const uint8_t *payload, uint32_t bytes, const fby_hash_t *hash)
{
    uint64_t place = hash->w[0];
    mark->checksum = fby_checksum_segment(payload, bytes);
    for (size_t i = 0; i < FBY_BENCH_SAMPLES; i++) {
        uint32_t last = bytes - WORD_BYTES;
        mark->at[i] = i == 0   ? 0
                      : i == 1 ? last
                               : (uint32_t)((place = place * 25214903917 + 11) % (last + UINT64_C(1)));
        memcpy(&mark->word[i], payload + mark->at[i], WORD_BYTES);
    }
}

/* Fills one staged block: an engine would copy from its device. */
static int fill(fby_bench_set_t *set, const fby_seq_t *seq, uint32_t prompt, uint64_t block, void *slot)
{
    size_t at = (size_t)prompt * set->blocks + block;
    fby_hash_t hash;
    uint32_t group;
    int status = fby_seq_key(seq, block, 0, set->keys[at], sizeof(set->keys[at]));
    if (status == 0 && !fby_key_parse(set->keys[at], &hash, &group)) {
        fby_error_set("key %s of block %" PRIu64 " cannot be read back", set->keys[at], block);
        status = FBY_E_FORMAT;
    }
    if (status == 0) {
        fby_payload_fill(slot, set->payload_bytes, &hash, 0);
        remember(&set->marks[at], slot, set->payload_bytes, &hash);
    }
    return status;
}

static int fill_all(fby_bench_set_t *set, fby_cache_t *cache, fby_put_t put, const fby_seq_t *seq, uint32_t prompt)
{
    void **slots = calloc(set->blocks, sizeof(*slots));
    int status = slots != NULL ? fby_put_slots(cache, put, 0, 0, set->blocks, slots) : out_of_memory();
    for (uint64_t i = 0; i < set->blocks && status == 0; i++) {
        status = fill(set, seq, prompt, i, slots[i]);
    }
    free(slots);
    return status;
}

static int put_prompt(fby_bench_set_t *set, fby_cache_t *cache, fby_seq_t *seq, uint32_t prompt)
{
    uint64_t from = 0, to = 0, stored = 0, failed = 0;
    fby_put_t put;
    int status = fby_put_begin(cache, seq, 0, set->blocks, &put, NULL, &from, &to);
    if (status != 0) {
        return status;
    }
    if (from != 0 || to != set->blocks) {
        fby_error_set("the pool staged blocks %" PRIu64 " to %" PRIu64 " of %" PRIu32, from, to, set->blocks);
        status = FBY_E_BUDGET;
    }
    status = status == 0 ? fill_all(set, cache, put, seq, prompt) : status;
    status = status == 0 ? fby_put_commit(cache, put, fby_seq_tokens(seq), NULL) : status;
    status = status == 0 ? fby_put_wait_store(cache, put, STORE_LIMIT_S, &stored, &failed) : status;
    fby_put_release(cache, put);
    if (status == 0 && stored < set->blocks) {
        fby_error_set("the store took %" PRIu64 " of the %" PRIu32 " blocks of prompt %" PRIu32 " of %" PRIu32
                      "; it needs room for %" PRIu64 " MiB",
                      stored, set->blocks, prompt + 1, set->prompts,
                      ((uint64_t)set->prompts * set->blocks * set->object_bytes >> 20) + 1);
        return FBY_E_FULL;
    }
    return status;
}

int fby_bench_set_store(fby_bench_set_t *set, fby_cache_t *cache, uint32_t prompt)
{
    fby_seq_t *seq = NULL;
    int status = fby_bench_set_sequence(set, cache, prompt, set->blocks, &seq);
    status = status == 0 ? put_prompt(set, cache, seq, prompt) : status;
    fby_seq_unref(seq);
    return status;
}

static bool is_right(const fby_bench_mark_t *mark, const uint8_t *payload, uint32_t bytes, bool checks_all)
{
    uint64_t differs = 0;
    if (checks_all) {
        return fby_checksum_segment(payload, bytes) == mark->checksum;
    }
    for (size_t i = 0; i < FBY_BENCH_SAMPLES; i++) {
        uint64_t word;
        memcpy(&word, payload + mark->at[i], WORD_BYTES);
        differs |= word ^ mark->word[i];
    }
    return differs == 0;
}

uint64_t fby_bench_set_check(const fby_bench_set_t *set, uint32_t prompt, const void *const *blocks, uint64_t n,
                             bool checks_all)
{
    const fby_bench_mark_t *marks = set->marks + (size_t)prompt * set->blocks;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) {
        wrong += blocks[i] == NULL || !is_right(&marks[i], blocks[i], set->payload_bytes, checks_all);
    }
    return wrong;
}

void fby_bench_set_scrub(const fby_bench_set_t *set, uint32_t prompt, void *const *blocks)
{
    const fby_bench_mark_t *marks = set->marks + (size_t)prompt * set->blocks;
    for (uint64_t i = 0; i < set->blocks; i++) {
        for (size_t k = 0; k < FBY_BENCH_SAMPLES; k++) {
            uint64_t other = ~marks[i].word[k];
            memcpy((uint8_t *)blocks[i] + marks[i].at[k], &other, WORD_BYTES);
        }
    }
}
