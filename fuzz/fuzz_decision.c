/*
 * fuzz_decision.c - any bytes as a message between leader and ranks: what is taken in is written to the same bytes
 * again.
 *
 * Input: a message. Few inputs guess magic, length and checksum: they are put right, and then the message is read once
 * more as its type says.
 */
#include <stdlib.h>
#include <string.h>

#include "rank/card.h"
#include "rank/result.h"
#include "stores/object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { WINDOW = 256, MOST_BYTES = 1 << 16 };

static uint8_t again[2 * MOST_BYTES];

static void check_same(const uint8_t *data, size_t size, int rc, size_t needed)
{
    CHECK(rc == 0 && needed == size && memcmp(again, data, size) == 0);
}

static void try_card(const uint8_t *data, size_t size)
{
    static fby_card_t read;
    fby_card_t *made = NULL;
    uint8_t protocol;
    size_t needed = 0;
    char text[256];
    const void *cards[2] = {data, data};
    const size_t lengths[2] = {size, size};
    (void)fby_cards_compare(cards, lengths, 1, NULL, text, sizeof(text));
    CHECK(fby_cards_compare(cards, lengths, 2, NULL, text, sizeof(text)) == FBY_E_CONFIG);
    if (fby_card_decode(data, size, &read, &protocol) != 0 || protocol != FBY_GROUP_PROTOCOL ||
        fby_card_create(read.rank, read.ranks, read.incarnation, &made) != 0) {
        return;
    }
    for (uint32_t i = read.fields; i > 0; i--) {
        CHECK(fby_card_set(made, read.field[i - 1].name, read.field[i - 1].value, read.field[i - 1].flags) == 0);
    }
    int rc = fby_card_encode(made, again, sizeof(again), &needed);
    check_same(data, size, rc, needed);
    fby_card_free(made);
}

/* Gives out what the follower took and decides it once more. True: all of the message. */
static bool replay(fby_follower_t *follower, fby_leader_t *leader, uint64_t count)
{
    fby_decision_t decision = {.size = sizeof(decision)};
    for (uint64_t i = 0; i < count; i++) {
        int rc = fby_follower_next(follower, &decision);
        if (rc == FBY_E_STATE) { /* an `end` before the end */
            return false;
        }
        CHECK(rc == 0 && fby_leader_decide(leader, &decision, NULL) == 0);
    }
    return true;
}

static void try_decisions(const fby_ranks_t *ranks, const fby_message_t *head, const uint8_t *data, size_t size)
{
    fby_follower_t *follower = NULL;
    fby_leader_t *leader = NULL;
    size_t needed = 0;
    if (fby_follower_create(ranks, &follower) != 0 || fby_leader_create(ranks, &leader) != 0) {
        fby_follower_free(follower);
        return;
    }
    int rc = fby_follower_receive(follower, data, size);
    if (rc == 0 && head->type == FBY_MESSAGE_DECISIONS) {
        CHECK(fby_follower_receive(follower, data, size) == 0);
        if (replay(follower, leader, head->count)) {
            rc = fby_leader_encode(leader, head->number, again, sizeof(again), &needed, NULL);
            check_same(data, size, rc, needed);
        }
    }
    fby_leader_free(leader);
    fby_follower_free(follower);
}

static void try_ending(const fby_ranks_t *ranks, const uint8_t *data, size_t size, uint32_t type)
{
    fby_message_t head;
    fby_reader_t body;
    fby_ending_t ending;
    size_t needed = 0;
    if (fby_message_accept(ranks, data, size, type, &head, &body) != 0 ||
        fby_ending_decode(ranks, &head, &body, &ending) != 0) {
        return;
    }
    int rc = fby_ending_encode(ranks, type, head.rank, head.number, &ending, again, sizeof(again), &needed);
    check_same(data, size, rc, needed);
    fby_ending_free(&ending);
}

static void try_all(const uint8_t *data, size_t size)
{
    fby_message_t head = {.size = sizeof(head)};
    fby_leader_t *leader = NULL;
    fby_verdict_t *verdict = NULL;
    if (fby_message_parse(data, size, &head) != 0) {
        return;
    }
    const fby_ranks_t ranks = {
        .size = sizeof(ranks),
        .ranks = head.ranks,
        .window = WINDOW,
        .incarnation = head.incarnation,
        .first_number = head.number,
    };
    try_card(data, size);
    try_decisions(&ranks, &head, data, size);
    try_ending(&ranks, data, size, FBY_MESSAGE_REPORT);
    try_ending(&ranks, data, size, FBY_MESSAGE_VERDICT);
    if (fby_leader_create(&ranks, &leader) == 0) {
        (void)fby_leader_receive(leader, data, size, NULL, NULL);
    }
    if (fby_verdict_create(&ranks, head.number, &verdict) == 0) {
        (void)fby_verdict_receive(verdict, data, size);
    }
    fby_verdict_free(verdict);
    fby_leader_free(leader);
}

static void put_le(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_all(data, size);
    if (size < FBY_MESSAGE_FRAME || size > MOST_BYTES) {
        return 0;
    }
    uint8_t *message = malloc(size);
    CHECK(message != NULL);
    memcpy(message, data, size);
    put_le(message, UINT64_C(0x0147594246), 5); /* "FBYG", protocol 1 */
    put_le(message + 6, 0, 2);
    put_le(message + 8, size, 4);
    put_le(message + size - 8, fby_checksum_segment(message, size - 8), 8);
    try_all(message, size);
    free(message);
    return 0;
}
