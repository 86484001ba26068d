/* The pool across processes: what a rank elsewhere copies is what the cache holds, and what it saves is published. */
#include "rig.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "forebay/rank.h"
#include "stores/object.h"

enum {
    BLOCKS = 4,
    ROWS = 16,
    LAYERS = 2,
    RANKS = 2,
    SHARD = RIG_PAYLOAD / RANKS,
    ROW = SHARD / ROWS / LAYERS,
    TENSOR = BLOCKS * ROWS * ROW
};

/* What passes between the processes. */
typedef struct decision {
    fby_pool_t pool;
    uint64_t from[BLOCKS], to[BLOCKS], device_block[BLOCKS];
} decision_t;

/* In a child: loads its half of each block into tensors, and saves it inverted. */
static int be_a_rank(uint32_t rank, const decision_t *decision)
{
    static uint8_t memory[LAYERS * TENSOR];
    fby_tensor_t tensor[LAYERS] = {{.base = memory, .bytes = TENSOR}, {.base = memory + TENSOR, .bytes = TENSOR}};
    const fby_layout_t layout = {.size = sizeof(layout),
                                 .kind = FBY_LAYOUT_PACKED,
                                 .layers = LAYERS,
                                 .tensors = LAYERS,
                                 .tensor = tensor,
                                 .blocks = BLOCKS,
                                 .row_bytes = ROW,
                                 .rows = ROWS};
    const fby_shard_t shard = {.size = sizeof(shard), .offset = rank * SHARD, .bytes = SHARD};
    const fby_rank_config_t config = {.size = sizeof(config), .rank = rank, .ranks = RANKS};
    fby_copy_list_t list = {.size = sizeof(list),
                            .flags = FBY_COPY_VERIFY,
                            .blocks = BLOCKS,
                            .place = decision->from,
                            .device_block = decision->device_block};
    fby_rank_t *attached = NULL;
    int rc = fby_rank_attach(&decision->pool, &config, &attached);
    rc = rc == 0 ? fby_rank_register(attached, &shard, &layout) : rc;
    rc = rc == 0 ? fby_rank_load(attached, &list, NULL) : rc;
    for (size_t i = 0; i < sizeof(memory); i++) {
        memory[i] = (uint8_t)~memory[i];
    }
    list.flags = 0;
    list.place = decision->to;
    rc = rc == 0 ? fby_rank_save(attached, &list, NULL) : rc;
    rc = rc == 0 ? fby_rank_detach(attached, -1) : rc;
    if (rc != 0) {
        fprintf(stderr, "rank %u: %s\n", rank, fby_last_error());
    }
    return rc;
}

static void run_ranks(const decision_t *decision)
{
    pid_t child[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        child[rank] = fork();
        assert_true(child[rank] >= 0);
        if (child[rank] == 0) {
            _exit(be_a_rank(rank, decision) == 0 ? 0 : 1);
        }
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        int status = 0;
        assert_int_equal(waitpid(child[rank], &status, 0), child[rank]);
        assert_int_equal(status, 0);
    }
}

static void ranks_copy_from_a_hold_and_into_a_put(void **state)
{
    (void)state;
    rig_t rig;
    fby_hold_t hold;
    fby_put_t put;
    fby_put_result_t result = {.size = sizeof(result)};
    uint8_t content[RIG_PAYLOAD];
    const void *slot[BLOCKS];
    decision_t decision = {.pool = {.size = sizeof(fby_pool_t)}, .device_block = {2, 0, 3, 1}};
    RIG_OPEN(&rig, "pool.paint=false");
    fby_seq_t *old = rig_seq(&rig, 1, BLOCKS * RIG_BLOCK_TOKENS + 1);
    fby_seq_t *new = rig_seq(&rig, 2, BLOCKS * RIG_BLOCK_TOKENS + 1);
    rig_put_stored(&rig, old, BLOCKS);
    assert_int_equal(fby_lookup(rig.cache, old, 0, &hold, NULL), 0);
    assert_int_equal(fby_hold_readers(rig.cache, hold, RANKS - 1), 0);
    assert_int_equal(fby_put_begin(rig.cache, new, 0, BLOCKS, &put, NULL, NULL, NULL), 0);
    assert_int_equal(fby_hold_places(rig.cache, hold, 0, 0, BLOCKS, decision.from), 0);
    assert_int_equal(fby_put_places(rig.cache, put, 0, 0, BLOCKS, decision.to), 0);
    assert_int_equal(fby_cache_pool(rig.cache, &decision.pool), 0);
    run_ranks(&decision);
    close(decision.pool.descriptor);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    }
    assert_int_equal(fby_put_commit(rig.cache, put, BLOCKS * RIG_BLOCK_TOKENS, &result), 0);
    assert_int_equal(result.published, BLOCKS);
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    assert_int_equal(fby_lookup(rig.cache, new, 0, &hold, NULL), 0);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 0, BLOCKS, slot), 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        rig_content(old, i, 0, content, sizeof(content));
        for (size_t byte = 0; byte < sizeof(content); byte++) {
            assert_int_equal(((const uint8_t *)slot[i])[byte], (uint8_t)~content[byte]);
        }
    }
    assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    fby_seq_unref(old);
    fby_seq_unref(new);
    rig_quiet(&rig);
    rig_close(&rig);
}

static void the_description_is_that_of_the_pool(void **state)
{
    (void)state;
    rig_t rig;
    fby_pool_t pool = {.size = 0};
    RIG_OPEN(&rig, "pool.paint=false");
    assert_int_equal(fby_cache_pool(rig.cache, NULL), -EINVAL);
    assert_int_equal(fby_cache_pool(rig.cache, &pool), -EINVAL);
    pool.size = sizeof(pool);
    assert_int_equal(fby_cache_pool(rig.cache, &pool), 0);
    assert_int_equal(pool.groups, 1);
    assert_int_equal(pool.group[0].payload_bytes, RIG_PAYLOAD);
    assert_int_equal(pool.group[0].slot_bytes, RIG_PAYLOAD + FBY_TRAILER_BYTES);
    assert_int_equal(pool.group[0].slots, RIG_POOL_BLOCKS);
    assert_int_equal(pool.group[0].offset, 0);
    close(pool.descriptor);
    uint64_t place[2];
    assert_int_equal(fby_hold_places(rig.cache, 0, 0, 0, 2, place), FBY_E_STALE);
    assert_int_equal(fby_hold_places(rig.cache, 0, 0, 2, 1, place), -EINVAL);
    assert_int_equal(fby_put_places(rig.cache, 0, 0, 0, 2, NULL), -EINVAL);
    rig_close(&rig);
}

static void the_same_process_attaches_without_a_descriptor(void **state)
{
    (void)state;
    rig_t rig;
    fby_rank_t *rank = NULL;
    const fby_rank_config_t config = {.size = sizeof(config), .ranks = 1, .threads = 2};
    RIG_OPEN(&rig, "pool.paint=false");
    assert_int_equal(fby_rank_attach_cache(rig.cache, &config, &rank), 0);
    assert_int_equal(fby_rank_detach(rank, -1), 0);
    assert_int_equal(fby_rank_attach_cache(rig.cache, NULL, &rank), -EINVAL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_copy_from_a_hold_and_into_a_put),
        cmocka_unit_test(the_description_is_that_of_the_pool),
        cmocka_unit_test(the_same_process_attaches_without_a_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
