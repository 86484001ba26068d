#include "group_rig.h"

#include "stores/object.h"

void rig_message_free(rig_message_t *message)
{
    free(message->bytes);
    *message = (rig_message_t){0};
}

rig_message_t rig_message_copy(const void *bytes, size_t length)
{
    rig_message_t message = {.bytes = malloc(length > 0 ? length : 1), .length = length};
    assert_non_null(message.bytes);
    if (length > 0) {
        memcpy(message.bytes, bytes, length);
    }
    return message;
}

void rig_message_seal(rig_message_t *message)
{
    const uint64_t sum = fby_checksum_segment(message->bytes, message->length - 8);
    for (unsigned i = 0; i < 8; i++) {
        message->bytes[message->length - 8 + i] = (uint8_t)(sum >> 8 * i);
    }
}

fby_ranks_t rig_ranks(uint32_t rank, uint32_t ranks)
{
    return (fby_ranks_t){.size = sizeof(fby_ranks_t), .rank = rank, .ranks = ranks, .incarnation = 0xABCDEF};
}

static rig_message_t room(size_t length)
{
    rig_message_t message = {.bytes = malloc(length > 0 ? length : 1), .length = length};
    assert_non_null(message.bytes);
    return message;
}

rig_message_t rig_card_message(const fby_card_t *card)
{
    size_t needed = 0;
    assert_int_equal(fby_card_encode(card, NULL, 0, &needed), -ENOSPC);
    rig_message_t message = room(needed);
    assert_int_equal(fby_card_encode(card, message.bytes, message.length, &needed), 0);
    assert_int_equal(needed, message.length);
    return message;
}

rig_message_t rig_decisions(const fby_leader_t *leader, uint64_t from)
{
    size_t needed = 0;
    uint64_t next = 0;
    int rc = fby_leader_encode(leader, from, NULL, 0, &needed, &next);
    if (rc == 0) {
        assert_int_equal(needed, 0);
        return room(0);
    }
    assert_int_equal(rc, -ENOSPC);
    rig_message_t message = room(needed);
    assert_int_equal(fby_leader_encode(leader, from, message.bytes, message.length, &needed, &next), 0);
    assert_int_equal(needed, message.length);
    assert_int_equal(next, fby_leader_next(leader));
    return message;
}

/* The smallest capacity that is enough for something holds one decision. */
rig_message_t rig_one_decision(const fby_leader_t *leader, uint64_t number)
{
    size_t needed = 0;
    uint64_t next = 0;
    rig_message_t all = rig_decisions(leader, number);
    size_t low = 1, high = all.length;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (fby_leader_encode(leader, number, all.bytes, middle, &needed, &next) == 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    assert_int_equal(fby_leader_encode(leader, number, all.bytes, high, &needed, &next), 0);
    assert_int_equal(next, number + 1);
    assert_int_equal(needed, high);
    rig_message_t one = rig_message_copy(all.bytes, needed);
    rig_message_free(&all);
    return one;
}

rig_message_t rig_report(fby_follower_t *follower, const fby_result_t *result)
{
    size_t needed = 0;
    assert_int_equal(fby_follower_report(follower, result, NULL, 0, &needed), -ENOSPC);
    rig_message_t message = room(needed);
    assert_int_equal(fby_follower_report(follower, result, message.bytes, message.length, &needed), 0);
    assert_int_equal(needed, message.length);
    return message;
}

rig_message_t rig_verdict(const fby_verdict_t *verdict)
{
    size_t needed = 0;
    assert_int_equal(fby_verdict_encode(verdict, NULL, 0, &needed), -ENOSPC);
    rig_message_t message = room(needed);
    assert_int_equal(fby_verdict_encode(verdict, message.bytes, message.length, &needed), 0);
    return message;
}

/* ---- Decisions --------------------------------------------------------------------------------------------------- */

static uint64_t any_number(uint64_t *random)
{
    return unit_random(random) >> unit_below(random, 64); /* of any length */
}

static void random_range(fby_block_range_t *range, uint64_t *words, uint32_t kind, uint64_t *random)
{
    const bool copy = kind == FBY_DECISION_LOAD || kind == FBY_DECISION_SAVE;
    const bool places = copy || unit_below(random, 2) == 0, devices = copy || unit_below(random, 2) == 0;
    *range = (fby_block_range_t){
        .group = unit_below(random, FBY_MAX_GROUPS),
        .first_block = any_number(random) / 2,
        .blocks = unit_below(random, 40),
    };
    for (uint64_t i = 0; i < 2 * range->blocks; i++) {
        words[i] = any_number(random) / 2;
    }
    range->place = places ? words : NULL;
    range->device_block = devices ? words + range->blocks : NULL;
}

void rig_decision_random(rig_decision_t *out, uint64_t *random)
{
    out->decision = (fby_decision_t){
        .size = sizeof(out->decision),
        .kind = FBY_DECISION_LOAD + unit_below(random, FBY_DECISION_RESET),
        .tag = any_number(random),
        .tokens = any_number(random),
        .object = any_number(random),
        .ranges = unit_below(random, 5) == 0 ? unit_below(random, FBY_DECISION_RANGES + 1) : unit_below(random, 4),
        .extra_bytes = unit_below(random, 4) == 0 ? unit_below(random, FBY_DECISION_EXTRA + 1) : 0,
    };
    out->words = calloc((size_t)out->decision.ranges * 80 + 1, sizeof(*out->words));
    assert_non_null(out->words);
    for (uint32_t i = 0; i < out->decision.ranges; i++) {
        random_range(&out->range[i], out->words + (size_t)i * 80, out->decision.kind, random);
    }
    for (uint32_t i = 0; i < out->decision.extra_bytes; i++) {
        out->extra[i] = (uint8_t)unit_random(random);
    }
    out->decision.range = out->decision.ranges > 0 ? out->range : NULL;
    out->decision.extra = out->decision.extra_bytes > 0 ? out->extra : NULL;
}

void rig_decision_free(rig_decision_t *decision)
{
    free(decision->words);
    decision->words = NULL;
}

static void lists_equal(const uint64_t *a, const uint64_t *b, uint64_t n)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a != NULL && n > 0) {
        assert_memory_equal(a, b, n * sizeof(*a));
    }
}

void rig_decisions_equal(const fby_decision_t *a, const fby_decision_t *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->tag, b->tag);
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->object, b->object);
    assert_int_equal(a->ranges, b->ranges);
    assert_int_equal(a->extra_bytes, b->extra_bytes);
    for (uint32_t i = 0; i < a->ranges; i++) {
        assert_int_equal(a->range[i].group, b->range[i].group);
        assert_int_equal(a->range[i].first_block, b->range[i].first_block);
        assert_int_equal(a->range[i].blocks, b->range[i].blocks);
        lists_equal(a->range[i].place, b->range[i].place, a->range[i].blocks);
        lists_equal(a->range[i].device_block, b->range[i].device_block, a->range[i].blocks);
    }
    if (a->extra_bytes > 0) {
        assert_memory_equal(a->extra, b->extra, a->extra_bytes);
    }
}

uint64_t rig_decide(fby_leader_t *leader, uint32_t kind, uint64_t tag)
{
    static const uint64_t place[2] = {4096, 8192}, device_block[2] = {7, 5};
    const fby_block_range_t range = {.first_block = 3, .blocks = 2, .place = place, .device_block = device_block};
    const fby_decision_t decision = {.size = sizeof(decision),
                                     .kind = kind,
                                     .tag = tag,
                                     .tokens = 80,
                                     .object = 99,
                                     .ranges = 1,
                                     .range = &range,
                                     .extra = "engine",
                                     .extra_bytes = 6};
    uint64_t number = 0;
    assert_int_equal(fby_leader_decide(leader, &decision, &number), 0);
    return number;
}
