#include "rig.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "stores/object.h"

static fby_rank_t *attach(const rig_pool_t *rig, uint32_t rank, uint32_t ranks, uint32_t threads)
{
    fby_rank_t *out = NULL;
    const fby_rank_config_t config = {.size = sizeof(config), .rank = rank, .ranks = ranks, .threads = threads};
    if (fby_rank_attach(&rig->pool, &config, &out) != 0) {
        fail_msg("attach: %s", fby_last_error());
    }
    return out;
}

/* The cut that this layout allows: a layer's piece, or none. */
static uint32_t segment_of(const rig_engine_t *engine)
{
    uint64_t segment = rig_shard_bytes(engine) / engine->layout.layers;
    return segment >= 64 ? (uint32_t)segment : 0;
}

static fby_copy_list_t list_of(uint64_t n, const uint64_t *place, const uint64_t *block)
{
    return (fby_copy_list_t){.size = sizeof(fby_copy_list_t), .blocks = n, .place = place, .device_block = block};
}

static void sums_are(const uint64_t *sums, const uint8_t *shard, uint64_t bytes, uint32_t segment)
{
    for (uint64_t at = 0; at < bytes; at += segment) {
        assert_true(*sums++ == fby_checksum_segment(shard + at, FBY_MIN(segment, bytes - at)));
    }
}

/* One random layout, one random shard: a load, then a save of other bytes to other slots. */
static void round_trip(fby_layout_kind_t kind, uint32_t threads, uint64_t *random)
{
    rig_pool_t rig;
    rig_engine_t engine;
    uint64_t slot[RIG_SLOTS], block[RIG_BLOCKS], place[RIG_SLOTS], sums[RIG_BLOCKS * RIG_MOST_TENSORS];
    rig_engine_random(&engine, kind, random);
    uint64_t bytes = rig_shard_bytes(&engine);
    uint32_t segment = unit_below(random, 2) == 0 ? segment_of(&engine) : 0;
    uint64_t before = kind == FBY_LAYOUT_MLA ? 0 : (segment ? segment : 77) * unit_below(random, 3);
    uint64_t after = kind == FBY_LAYOUT_MLA ? 0 : unit_below(random, 500);
    rig_pool_open(&rig, (uint32_t)(before + bytes + after), unit_below(random, 2) ? 64 : 4096);
    fby_rank_t *rank = attach(&rig, 0, 3, threads);
    rig_register(rank, &engine, before, segment);
    uint64_t n = rig_pairs(random, RIG_BLOCKS, slot, block);
    for (uint64_t i = 0; i < n; i++) {
        place[i] = rig_place(&rig, (uint32_t)slot[i]);
        rig_fill_slot(&rig, (uint32_t)slot[i], slot[i] + 1, segment != 0 ? segment : 65536, true);
        rig_model_load(&engine, rig.region.base + place[i] + before, block[i]);
    }
    fby_copy_list_t list = list_of(n, place, block);
    list.flags = unit_below(random, 2) ? FBY_COPY_VERIFY : 0;
    list.sums = segment != 0 ? sums : NULL;
    assert_int_equal(fby_rank_load(rank, &list, NULL), 0);
    assert_memory_equal(engine.arena, engine.shadow, engine.bytes);
    for (uint64_t i = 0; segment != 0 && i < n; i++) {
        sums_are(sums + i * engine.layout.layers, rig.region.base + place[i] + before, bytes, segment);
    }

    uint8_t *pool = malloc(rig.region.bytes);
    rig_paint(&engine, 99);
    for (uint64_t i = 0; i < n; i++) {
        place[i] = rig_place(&rig, (uint32_t)(slot[i] + 5) % RIG_SLOTS);
    }
    memcpy(pool, rig.region.base, rig.region.bytes);
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t byte = 0; byte < bytes; byte++) {
            pool[place[i] + before + byte] = *rig_device_byte(&engine, block[i], byte);
        }
    }
    list.flags = 0;
    assert_int_equal(fby_rank_save(rank, &list, NULL), 0);
    assert_memory_equal(rig.region.base, pool, rig.region.bytes);
    assert_memory_equal(engine.arena, engine.shadow, engine.bytes);
    for (uint64_t i = 0; segment != 0 && i < n; i++) {
        sums_are(sums + i * engine.layout.layers, pool + place[i] + before, bytes, segment);
    }
    free(pool);
    assert_int_equal(fby_rank_detach(rank, -1), 0);
    rig_engine_free(&engine);
    rig_pool_close(&rig);
}

static void every_layout_copies_exactly_its_bytes(void **state)
{
    (void)state;
    uint64_t random = 2026;
    for (uint32_t turn = 0; turn < 60; turn++) {
        for (uint32_t kind = 0; kind < FBY_LAYOUT_COUNT; kind++) {
            round_trip((fby_layout_kind_t)kind, turn % 4 == 3 ? 4 : 1, &random);
        }
    }
}

/* A pool with two contiguous layers, for the stories below: segment = a layer's K and V. */
typedef struct plain {
    rig_pool_t rig;
    rig_engine_t engine;
    fby_rank_t *rank;
    uint64_t place[4], block[4];
} plain_t;

enum { PLAIN_ROW = 512, PLAIN_ROWS = 4, PLAIN_SEGMENT = 2 * PLAIN_ROW * PLAIN_ROWS, PLAIN_SHARD = 2 * PLAIN_SEGMENT };

static void plain_open(plain_t *plain, fby_layout_kind_t kind, uint32_t rank, uint32_t ranks)
{
    uint64_t random = 7;
    bool mla = kind == FBY_LAYOUT_MLA;
    memset(plain, 0, sizeof(*plain));
    plain->engine.layout = (fby_layout_t){.kind = kind, .layers = 2, .blocks = RIG_BLOCKS, .rows = PLAIN_ROWS};
    plain->engine.layout.row_bytes = mla ? 2 * PLAIN_ROW : PLAIN_ROW;
    rig_engine_make(&plain->engine, &random);
    rig_pool_open(&plain->rig, PLAIN_SHARD * (mla ? 1 : ranks), 4096);
    plain->rank = attach(&plain->rig, rank, ranks, 1);
    rig_register(plain->rank, &plain->engine, mla ? 0 : rank * PLAIN_SHARD, PLAIN_SEGMENT);
    for (uint32_t i = 0; i < 4; i++) {
        plain->place[i] = rig_place(&plain->rig, i);
        plain->block[i] = 9 - i;
        rig_fill_slot(&plain->rig, i, i, PLAIN_SEGMENT, true);
    }
}

static void plain_close(plain_t *plain)
{
    assert_int_equal(fby_rank_detach(plain->rank, -1), 0);
    rig_engine_free(&plain->engine);
    rig_pool_close(&plain->rig);
}

static void a_wrong_block_is_found_on_load(uint32_t rank, uint32_t ranks, uint64_t wrong_byte, uint32_t segment)
{
    plain_t plain;
    int32_t results[4];
    fby_copy_t copy;
    fby_copy_status_t status = {.size = sizeof(status)};
    plain_open(&plain, FBY_LAYOUT_SPLIT, rank, ranks);
    rig_fill_slot(&plain.rig, 2, 2, segment, true);
    plain.rig.region.base[plain.place[2] + wrong_byte] ^= 0x10;
    fby_copy_list_t list = list_of(4, plain.place, plain.block);
    list.flags = FBY_COPY_VERIFY;
    list.results = results;
    assert_int_equal(fby_rank_load(plain.rank, &list, &copy), 0);
    assert_int_equal(fby_rank_poll(plain.rank, copy, &status), 0);
    assert_int_equal(status.error, FBY_E_CHECKSUM);
    assert_int_equal(status.blocks_failed, 1);
    assert_int_equal(status.settled, 1);
    assert_int_equal(status.bytes, 3 * PLAIN_SHARD);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
    assert_int_equal(results[2], FBY_E_CHECKSUM);
    assert_int_equal(results[3], 0);
    assert_non_null(strstr(fby_last_error(), "checksum"));
    assert_int_equal(fby_rank_poll(plain.rank, copy, &status), FBY_E_STALE);
    list.flags = 0;
    assert_int_equal(fby_rank_load(plain.rank, &list, NULL), 0); /* nobody asked */
    plain_close(&plain);
}

static void verification_finds_what_is_wrong(void **state)
{
    (void)state;
    a_wrong_block_is_found_on_load(0, 1, 5, PLAIN_SEGMENT);                    /* its own bytes */
    a_wrong_block_is_found_on_load(0, 1, PLAIN_SHARD - 1, 1000);               /* a trailer that cuts otherwise */
    a_wrong_block_is_found_on_load(1, 3, PLAIN_SHARD + 9, PLAIN_SEGMENT);      /* own bytes among three ranks' */
    a_wrong_block_is_found_on_load(1, 3, 2 * PLAIN_SHARD + 9, PLAIN_SEGMENT);  /* another rank's */
    a_wrong_block_is_found_on_load(2, 3, 3 * PLAIN_SHARD + 48, PLAIN_SEGMENT); /* the trailer */
}

static void other_faults_of_a_trailer_have_names(void **state)
{
    (void)state;
    plain_t plain;
    plain_open(&plain, FBY_LAYOUT_PACKED, 0, 2);
    fby_copy_list_t list = list_of(4, plain.place, plain.block);
    list.flags = FBY_COPY_VERIFY;
    assert_int_equal(fby_rank_load(plain.rank, &list, NULL), 0);
    rig_pool_t other = plain.rig;
    other.pool.fingerprint[3] ^= 1;
    rig_fill_slot(&other, 1, 1, PLAIN_SEGMENT, true);
    assert_int_equal(fby_rank_load(plain.rank, &list, NULL), FBY_E_CHECKSUM);
    assert_non_null(strstr(fby_last_error(), "wrong fingerprint"));
    rig_fill_slot(&plain.rig, 1, 1, PLAIN_SEGMENT, false); /* without a checksum: unverified, usable */
    plain.rig.region.base[plain.place[1]] ^= 1;
    assert_int_equal(fby_rank_load(plain.rank, &list, NULL), 0);
    plain_close(&plain);
}

static void one_rank_saves_a_shared_copy_for_all(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        plain_t plain;
        uint64_t sums[8];
        plain_open(&plain, FBY_LAYOUT_MLA, rank, 2);
        memset(sums, 0xFF, sizeof(sums));
        fby_copy_list_t list = list_of(4, plain.place, plain.block);
        list.sums = sums;
        memset(plain.rig.region.base, 0xEE, plain.rig.region.bytes);
        assert_int_equal(fby_rank_save(plain.rank, &list, NULL), 0);
        for (uint32_t i = 0; i < PLAIN_SHARD; i++) {
            uint8_t expected = rank == 0 ? *rig_device_byte(&plain.engine, 9, i) : 0xEE;
            assert_int_equal(plain.rig.region.base[i], expected);
        }
        assert_int_equal(sums[7] != 0, rank == 0);
        plain_close(&plain);
    }
}

typedef struct caller {
    pthread_t thread;
    plain_t *plain;
    uint32_t first;
    int wrong;
} caller_t;

static void *load_again_and_again(void *arg)
{
    caller_t *caller = arg;
    const fby_copy_list_t list = list_of(2, caller->plain->place + caller->first, caller->plain->block + caller->first);
    for (uint32_t turn = 0; turn < 200; turn++) {
        fby_copy_t copy = 0;
        fby_copy_status_t status = {.size = sizeof(status)};
        caller->wrong += fby_rank_load(caller->plain->rank, &list, &copy) != 0;
        caller->wrong += fby_rank_wait(caller->plain->rank, copy, -1, &status) != 0 || status.error != 0;
    }
    return NULL;
}

static void threads_share_one_rank(void **state)
{
    (void)state;
    plain_t plain;
    plain_open(&plain, FBY_LAYOUT_SPLIT, 0, 1);
    assert_int_equal(fby_rank_detach(plain.rank, -1), 0);
    plain.rank = attach(&plain.rig, 0, 1, 3);
    rig_register(plain.rank, &plain.engine, 0, PLAIN_SEGMENT);
    caller_t caller[2] = {{.plain = &plain}, {.plain = &plain, .first = 2}};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&caller[i].thread, NULL, load_again_and_again, &caller[i]), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(caller[i].thread, NULL);
        assert_int_equal(caller[i].wrong, 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        rig_model_load(&plain.engine, plain.rig.region.base + plain.place[i], plain.block[i]);
    }
    assert_memory_equal(plain.engine.arena, plain.engine.shadow, plain.engine.bytes);
    plain_close(&plain);
}

static void an_ended_copy_is_told_by_the_descriptor(void **state)
{
    (void)state;
    plain_t plain;
    fby_copy_t copy = 0;
    fby_copy_status_t status = {.size = sizeof(status)};
    plain_open(&plain, FBY_LAYOUT_SPLIT, 0, 1);
    struct pollfd ready = {.fd = fby_rank_event_fd(plain.rank), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 0), 0);
    fby_copy_list_t list = list_of(2, plain.place, plain.block);
    assert_int_equal(fby_rank_load(plain.rank, &list, &copy), 0);
    assert_int_equal(poll(&ready, 1, 0), 1);
    assert_int_equal(fby_rank_wait(plain.rank, copy, 0, &status), 0);
    assert_int_equal(status.error, 0);
    assert_int_equal(status.bytes, 2 * PLAIN_SHARD);
    assert_int_equal(fby_rank_wait(plain.rank, copy, 0, &status), FBY_E_STALE);
    assert_int_equal(fby_rank_poll(plain.rank, 0, &status), FBY_E_STALE);
    plain_close(&plain);
}

static void copies_that_nobody_polls_have_an_end(void **state)
{
    (void)state;
    plain_t plain;
    fby_copy_t copy = 0;
    plain_open(&plain, FBY_LAYOUT_SPLIT, 0, 1);
    fby_copy_list_t list = list_of(0, NULL, NULL);
    for (uint32_t i = 0; i < 1024; i++) {
        assert_int_equal(fby_rank_load(plain.rank, &list, &copy), 0);
    }
    assert_int_equal(fby_rank_load(plain.rank, &list, &copy), -EBUSY);
    assert_int_equal(fby_rank_wait(plain.rank, copy, -1, NULL), 0);
    assert_int_equal(fby_rank_load(plain.rank, &list, &copy), 0);
    plain_close(&plain);
}

#define REFUSED(list, call, text)                                                                                      \
    do {                                                                                                               \
        assert_int_equal(call(plain.rank, &(list), NULL), -EINVAL);                                                    \
        assert_non_null(strstr(fby_last_error(), text));                                                               \
    } while (0)

static void wrong_lists_are_refused_by_name(void **state)
{
    (void)state;
    plain_t plain;
    plain_open(&plain, FBY_LAYOUT_SPLIT, 0, 1);
    const fby_copy_list_t good = list_of(4, plain.place, plain.block);
    fby_copy_list_t list = good;
    list.size = 8;
    REFUSED(list, fby_rank_load, "list.size is 8");
    list = good;
    list.group = 1;
    REFUSED(list, fby_rank_load, "list.group is 1");
    list = good;
    list.flags = 2;
    REFUSED(list, fby_rank_load, "list.flags is 2; accepted: 0 or FBY_COPY_VERIFY");
    list.flags = FBY_COPY_VERIFY;
    REFUSED(list, fby_rank_save, "list.flags is 1; accepted: 0");
    list = good;
    list.place = NULL;
    REFUSED(list, fby_rank_load, "list.place is 0");
    list = good;
    list.blocks = RIG_SLOTS + 1;
    REFUSED(list, fby_rank_load, "list.blocks is 25");
    list = good;
    plain.place[3] = FBY_NO_PLACE;
    REFUSED(list, fby_rank_load, "list.place[3] is 18446744073709551615");
    plain.place[3] = plain.place[2] + 1;
    REFUSED(list, fby_rank_save, "list.place[3]");
    plain.place[3] = rig_place(&plain.rig, RIG_SLOTS);
    REFUSED(list, fby_rank_load, "list.place[3]");
    plain.place[3] = plain.place[2];
    plain.block[1] = RIG_BLOCKS;
    REFUSED(list, fby_rank_load, "list.device_block[1] is 10; accepted: below layout.blocks 10");
    plain_close(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_copies_exactly_its_bytes),
        cmocka_unit_test(verification_finds_what_is_wrong),
        cmocka_unit_test(other_faults_of_a_trailer_have_names),
        cmocka_unit_test(one_rank_saves_a_shared_copy_for_all),
        cmocka_unit_test(threads_share_one_rank),
        cmocka_unit_test(an_ended_copy_is_told_by_the_descriptor),
        cmocka_unit_test(copies_that_nobody_polls_have_an_end),
        cmocka_unit_test(wrong_lists_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
