/* The check of the index sees what it is there for: each test breaks one thing, expects to hear of it, and mends it. */
#include "rig.h"

enum { SLOTS = 32 };

typedef struct broken {
    rig_t rig;
    uint32_t deep; /* node of block 5 of a chain of 6; block 3 is held, block 1 has a payload */
    uint32_t held, root;
} broken_t;

static void open_with(broken_t *broken, fby_eviction_t eviction)
{
    static const rig_trailing_t trailing[] = {{1, 4}, {0, 0}};
    fby_hash_t hashes[6];
    rig_open(&broken->rig, eviction, SLOTS, trailing);
    rig_chain(1, hashes, 6);
    broken->deep = rig_publish(&broken->rig, hashes, 6);
    broken->held = fby_index_find(broken->rig.index, &hashes[3]);
    broken->root = fby_index_find(broken->rig.index, &hashes[0]);
    rig_attach(&broken->rig, broken->deep, 1);
    fby_index_pin(broken->rig.index, broken->held, FBY_PIN_HOLD);
    rig_check(&broken->rig);
}

static int setup(void **state)
{
    broken_t *broken = test_calloc(1, sizeof(*broken));
    open_with(broken, FBY_EVICT_LRU);
    *state = broken;
    return 0;
}

static int teardown(void **state)
{
    broken_t *broken = *state;
    rig_check(&broken->rig);
    rig_close(&broken->rig);
    test_free(broken);
    return 0;
}

static void expect(const broken_t *broken, const char *reason)
{
    char why[256] = "nothing";
    assert_false(fby_index_check(broken->rig.index, why, sizeof(why)));
    if (strstr(why, reason) == NULL) {
        fail_msg("expected \"%s\", the check says \"%s\"", reason, why);
    }
}

/* Adds `by`, expects the reason, takes it away. */
#define EXPECT_IF_CHANGED(field, by, reason)                                                                           \
    do {                                                                                                               \
        (field) += (by);                                                                                               \
        expect(broken, reason);                                                                                        \
        (field) -= (by);                                                                                               \
    } while (0)

static void it_recomputes_the_counts_of_nodes(void **state)
{
    broken_t *broken = *state;
    fby_node_t *node = &broken->rig.index->nodes[broken->root];
    EXPECT_IF_CHANGED(node->refs[FBY_REF_HOLD], 1, "refs[1] is 2, recomputed 1");
    EXPECT_IF_CHANGED(node->refs[FBY_REF_SESSION], -1, "refs[0] is -1");
    EXPECT_IF_CHANGED(node->refs[FBY_REF_PROTECT], 1, "refs[2]");
    EXPECT_IF_CHANGED(node->pins[FBY_PIN_WRITE], 1, "refs[2]");
    EXPECT_IF_CHANGED(node->children, 1, "2 children");
    EXPECT_IF_CHANGED(node->walkers, 1, "1 walkers");
    EXPECT_IF_CHANGED(node->block, 1, "no parent");
    EXPECT_IF_CHANGED(broken->rig.index->nodes[broken->deep].block, 1, "under block 4");
}

static void it_sees_an_orphan(void **state)
{
    broken_t *broken = *state;
    fby_node_t *root = &broken->rig.index->nodes[broken->root];
    root->state = FBY_NODE_FREE;
    expect(broken, "");
    root->state = FBY_NODE_INDEXED;
    root->generation++;
    expect(broken, "");
    root->generation--;
}

static void it_sees_a_node_that_cannot_be_found(void **state)
{
    broken_t *broken = *state;
    fby_node_t *node = &broken->rig.index->nodes[broken->deep];
    EXPECT_IF_CHANGED(node->hash.w[0], UINT64_C(1) << 62, "not found by its hash");
    uint32_t *bucket = &broken->rig.index->buckets[fby_table_bucket(broken->rig.index, &node->hash)];
    uint32_t first = *bucket;
    *bucket = 0;
    expect(broken, "not found by its hash");
    *bucket = first;
}

static void it_recomputes_the_counters(void **state)
{
    broken_t *broken = *state;
    fby_index_t *index = broken->rig.index;
    EXPECT_IF_CHANGED(index->unprotected, 1, "unprotected");
    EXPECT_IF_CHANGED(index->in_use, 1, "counters");
    EXPECT_IF_CHANGED(index->old_nodes, 1, "counters");
    EXPECT_IF_CHANGED(index->stats.nodes, 1, "counters");
    EXPECT_IF_CHANGED(index->charged[FBY_REF_HOLD], 1, "class 1: 5 blocks charged, recomputed 4");
    EXPECT_IF_CHANGED(index->flat_bytes[FBY_PIN_WRITE], 1, "flat bytes");
    EXPECT_IF_CHANGED(index->pending_blocks[FBY_REF_HOLD], 1, "provisional");
    EXPECT_IF_CHANGED(index->stats.resident[0], 1, "resident");
    EXPECT_IF_CHANGED(index->payloads[1].unpinned, 1, "unpinned");
}

static void it_compares_with_the_slots(void **state)
{
    broken_t *broken = *state;
    fby_index_t *index = broken->rig.index;
    uint32_t slot = fby_index_slot(index, broken->deep, 0);
    EXPECT_IF_CHANGED(broken->rig.slots.slot[slot].owner, 1, "does not own slot");
    EXPECT_IF_CHANGED(index->slot_of[0][broken->deep], 1, "does not own slot");
    EXPECT_IF_CHANGED(broken->rig.slots.in_state[0][FBY_SLOT_RESIDENT], 1, "nodes own 6 resident");
    uint32_t payload = index->slot_of[1][broken->deep];
    index->slot_of[1][broken->deep] = FBY_NONE;
    expect(broken, "wrong list");
    index->slot_of[1][broken->deep] = payload;
}

static void it_sees_lists_out_of_order(void **state)
{
    broken_t *broken = *state;
    fby_index_t *index = broken->rig.index;
    uint32_t head = index->config.max_nodes + 1;
    fby_list_remove(index->links, broken->deep);
    expect(broken, "nodes listed");
    fby_list_push_front(index->links, head, broken->deep);
    expect(broken, "goes after its parent");
    fby_list_remove(index->links, broken->deep);
    fby_list_push_back(index->links, head, broken->deep);
    fby_list_push_front(index->links, head, broken->held);
    expect(broken, "does not belong where it is listed");
    fby_list_remove(index->links, broken->held);
    index->nodes[broken->deep].flags |= FBY_NODE_COLD;
    expect(broken, "does not belong where it is listed");
    index->nodes[broken->deep].flags &= (uint8_t)~FBY_NODE_COLD;
}

static void it_sees_a_heap_out_of_order(void **state)
{
    broken_t *with_lists = *state;
    (void)with_lists;
    broken_t heap, *broken = &heap;
    open_with(broken, FBY_EVICT_LFU);
    fby_index_t *index = broken->rig.index;
    uint64_t key = index->heap.keys[broken->deep];
    fby_heap_remove(&index->heap, broken->deep);
    expect(broken, "candidate and heap disagree");
    fby_heap_set(&index->heap, broken->held, 1);
    fby_heap_set(&index->heap, broken->deep, key);
    expect(broken, "candidate and heap disagree");
    fby_heap_remove(&index->heap, broken->held);
    rig_check(&broken->rig);
    fby_hash_t other = rig_hash(NULL, 8);
    rig_publish(&broken->rig, &other, 1);
    uint32_t top = index->heap.ids[0];
    EXPECT_IF_CHANGED(index->heap.keys[top], UINT64_C(1) << 63, "out of order");
    rig_close(&broken->rig);
}

static void it_sees_a_free_node_in_use(void **state)
{
    broken_t *broken = *state;
    fby_index_t *index = broken->rig.index;
    uint32_t head = index->free_head;
    index->free_head = broken->deep;
    expect(broken, "free nodes");
    index->free_head = head;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(it_recomputes_the_counts_of_nodes),   TEST(it_sees_an_orphan),
        TEST(it_sees_a_node_that_cannot_be_found), TEST(it_recomputes_the_counters),
        TEST(it_compares_with_the_slots),          TEST(it_sees_lists_out_of_order),
        TEST(it_sees_a_heap_out_of_order),         TEST(it_sees_a_free_node_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
