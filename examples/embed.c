/*
 * embed.c - Forebay in another program: store a prefix, lose it from CPU memory, prefetch it back, check every byte.
 *
 *   cc embed.c $(pkg-config --cflags --libs forebay) -o embed && ./embed DIRECTORY
 */
#include <forebay/forebay.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_TOKENS = 16, BLOCK_BYTES = 4096, BLOCKS = 32, TOKENS = BLOCKS * BLOCK_TOKENS + 1 };

static void must(int rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, fby_strerror(rc), fby_last_error());
        exit(1);
    }
}

static fby_cache_t *open_cache(const char *directory)
{
    static const char *const settings[][2] = {
        {"model.id", "example"},      {"model.revision", "1"},         {"model.kv_dtype", "f16"},
        {"model.layer_set", "all"},   {"model.layout", "plain"},       {"model.weights_epoch", "0"},
        {"model.block_tokens", "16"}, {"model.tp_size", "1"},          {"model.cp_size", "1"},
        {"model.pp_size", "1"},       {"model.groups", "kv:4096:all"}, {"pool.bytes", "16MiB"},
        {"store.driver", "file"},     {"prefetch.enabled", "true"},    {"prefetch.policy", "best_effort"},
    };
    fby_config_t *config;
    fby_cache_t *cache;
    must(fby_config_create(&config), "configuration");
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        must(fby_config_set(config, settings[i][0], settings[i][1]), settings[i][0]);
    }
    must(fby_config_set(config, "store.options.dir", directory), "directory");
    must(fby_cache_open(config, &cache), "open");
    fby_config_free(config);
    return cache;
}

/* What block i holds, byte by byte. */
static unsigned char content(size_t block, size_t byte)
{
    return (unsigned char)(block * 31 + byte * 7 + byte / 256);
}

static void store_prefix(fby_cache_t *cache, fby_seq_t *seq)
{
    fby_put_t put;
    void *slots[BLOCKS];
    uint64_t stored, failed;
    must(fby_put_begin(cache, seq, 0, BLOCKS, &put, NULL, NULL, NULL), "put");
    must(fby_put_slots(cache, put, 0, 0, BLOCKS, slots), "slots");
    for (size_t i = 0; i < (size_t)BLOCKS * BLOCK_BYTES; i++) {
        ((unsigned char *)slots[i / BLOCK_BYTES])[i % BLOCK_BYTES] = content(i / BLOCK_BYTES, i % BLOCK_BYTES);
    }
    must(fby_put_commit(cache, put, TOKENS, NULL), "commit");
    must(fby_put_wait_store(cache, put, 30, &stored, &failed), "store");
    must(fby_put_release(cache, put), "release");
    printf("stored %d blocks\n", (int)stored);
}

int main(int argc, char **argv)
{
    uint32_t tokens[TOKENS];
    const void *slots[BLOCKS];
    fby_snapshot_t result;
    fby_session_t session;
    fby_seq_t *seq;
    fby_hold_t hold;
    fby_cache_t *cache = open_cache(argc > 1 ? argv[1] : "embed-store");
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * 17 + 3;
    }
    must(fby_seq_create(cache, tokens, TOKENS, NULL, 0, &seq), "sequence");
    store_prefix(cache, seq);
    result.size = sizeof(result);
    must(fby_cache_reset(cache, 30, 0), "reset"); /* CPU memory is empty now */

    must(fby_session_start(cache, seq, NULL, &session), "start"); /* while the request waits in its queue ... */
    must(fby_session_wait(cache, session, 30, &result), "wait");
    must(fby_session_take(cache, session, &hold), "take");
    must(fby_hold_slots(cache, hold, 0, 0, result.delivered_tokens / BLOCK_TOKENS, slots), "slots");
    for (size_t i = 0; i < result.delivered_tokens / BLOCK_TOKENS * BLOCK_BYTES; i++) {
        if (((const unsigned char *)slots[i / BLOCK_BYTES])[i % BLOCK_BYTES] !=
            content(i / BLOCK_BYTES, i % BLOCK_BYTES)) {
            fprintf(stderr, "byte %zu is wrong\n", i);
            return 1;
        }
    }
    printf("prefetched %d of %d tokens, every byte as stored\n", (int)result.delivered_tokens, TOKENS);
    must(fby_hold_release(cache, hold), "release");
    fby_seq_unref(seq);
    must(fby_cache_close(cache, 10, NULL), "close");
    return result.delivered_tokens == BLOCKS * BLOCK_TOKENS ? 0 : 1;
}
