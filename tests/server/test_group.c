/* test_group.c - ranks over the server: cards, messages in order, reports folded, what is granted, and ranks that die. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "api/call.h"
#include "forebay/group.h"
#include "wire.h"

enum { MOST = 4, SLOT = RIG_PAYLOAD + 64 };
#define LIMIT_NS UINT64_C(20000000000)

static int join(wire_t *wire, uint32_t rank, uint32_t ranks, const char *dtype, uint64_t limit_ns)
{
    uint8_t bytes[4096];
    size_t needed;
    fby_card_t *card;
    fby_msg_join_t about = {.rank = rank, .ranks = ranks, .limit_ns = limit_ns, .group = "g"};
    assert_int_equal(fby_card_create(rank, ranks, 77 + rank, &card), 0);
    assert_int_equal(fby_card_set(card, "model.kv_dtype", dtype, 0), 0);
    assert_int_equal(fby_card_encode(card, bytes, sizeof(bytes), &needed), 0);
    fby_card_free(card);
    return wire_call(wire, FBY_REQUEST_GROUP_JOIN, &about, bytes, (uint32_t)needed);
}

static int joined(wire_t *wire)
{
    return wire_call(wire, FBY_REQUEST_GROUP_JOINED, NULL, NULL, 0);
}

/* The answer, as soon as there is another one than -EAGAIN. */
static int await(wire_t *wire, fby_request_t type, uint64_t handle)
{
    for (;;) {
        assert_int_equal(wire_object(wire, FBY_REQUEST_EVENT, 0, 0, 0, FBY_EVENT_OF_GROUP), 0);
        struct pollfd event = {.fd = wire->fd[0], .events = POLLIN};
        const fby_msg_object_t object = {.handle = handle};
        int code = wire_call(wire, type, &object, NULL, 0);
        if (code == -EAGAIN) {
            assert_int_equal(poll(&event, 1, 20000), 1);
        }
        close(event.fd);
        if (code != -EAGAIN) {
            return code;
        }
    }
}

static void assert_text(const wire_t *wire, const char *text)
{
    char said[2048];
    snprintf(said, sizeof(said), "%.*s", (int)wire->answer.text_bytes, wire->answer.text);
    assert_string_equal(said, text);
}

/* All ranks of a served cache, joined. */
typedef struct team {
    served_t served;
    wire_t *wire[MOST];
    uint32_t ranks;
    fby_ranks_t formed;
} team_t;

static void team_open(team_t *team, uint32_t ranks)
{
    const void *cards[MOST];
    size_t lengths[MOST];
    uint8_t bytes[MOST][4096];
    SERVED_OPEN(&team->served, NULL);
    team->ranks = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        fby_card_t *card;
        team->wire[r] = wire_connect(team->served.path);
        assert_int_equal(join(team->wire[r], r, ranks, "bf16", LIMIT_NS), 0);
        assert_int_equal(fby_card_create(r, ranks, 77 + r, &card), 0);
        assert_int_equal(fby_card_set(card, "model.kv_dtype", "bf16", 0), 0);
        assert_int_equal(fby_card_encode(card, bytes[r], sizeof(bytes[r]), &lengths[r]), 0);
        fby_card_free(card);
        cards[r] = bytes[r];
    }
    for (uint32_t r = 0; r < ranks; r++) {
        assert_int_equal(joined(team->wire[r]), 0);
    }
    team->formed = (fby_ranks_t){.size = sizeof(team->formed)};
    assert_int_equal(fby_cards_compare(cards, lengths, ranks, &team->formed, NULL, 0), 0);
    for (uint32_t r = 0; r < ranks; r++) {
        const fby_msg_numbers_t *numbers = team->wire[r]->answer.body;
        assert_int_equal(numbers->number[0], team->formed.incarnation);
    }
}

static void team_close(team_t *team)
{
    for (uint32_t r = 0; r < team->ranks; r++) {
        if (team->wire[r] != NULL) {
            wire_close(team->wire[r]);
        }
    }
    served_close(&team->served);
}

static void rank_dies(team_t *team, uint32_t rank)
{
    uint32_t before = served_info(&team->served).clients;
    wire_close(team->wire[rank]);
    team->wire[rank] = NULL;
    RIG_AWAIT(served_info(&team->served).clients == before - 1);
}

static int send_message(wire_t *wire, const char *text)
{
    return wire_call(wire, FBY_REQUEST_GROUP_SEND, NULL, text, (uint32_t)strlen(text));
}

static void assert_receives(wire_t *wire, const char *text)
{
    assert_int_equal(await(wire, FBY_REQUEST_GROUP_RECEIVE, 0), 0);
    assert_int_equal(wire->answer.count, strlen(text));
    assert_memory_equal(wire->answer.elements, text, strlen(text));
}

static void assert_hears_of_loss(wire_t *wire, uint32_t rank)
{
    assert_int_equal(await(wire, FBY_REQUEST_GROUP_RECEIVE, 0), FBY_GROUP_LOST);
    assert_int_equal(((const fby_msg_numbers_t *)wire->answer.body)->number[0], rank);
}

/* ---- Join ------------------------------------------------------------------------------------------------------- */

static void ranks_wait_for_each_other(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *first = wire_connect(served.path), *second = wire_connect(served.path);
    assert_int_equal(joined(first), FBY_E_STATE);
    assert_int_equal(join(first, 0, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(joined(first), -EAGAIN);
    assert_int_equal(send_message(first, "early"), FBY_E_STATE);
    assert_int_equal(join(second, 0, 2, "bf16", LIMIT_NS), -EEXIST);
    assert_int_equal(join(second, 1, 3, "bf16", LIMIT_NS), FBY_E_CONFIG);
    assert_text(second, "group g: rank 1 says that it has 3 ranks, others 2");
    assert_int_equal(join(second, 1, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(joined(second), 0);
    assert_int_equal(await(first, FBY_REQUEST_GROUP_JOINED, 0), 0);
    wire_close(first);
    wire_close(second);
    served_close(&served);
}

static void cards_that_differ_are_the_same_answer_to_all(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *first = wire_connect(served.path), *second = wire_connect(served.path);
    assert_int_equal(join(first, 0, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(join(second, 1, 2, "f16", LIMIT_NS), 0);
    assert_int_equal(await(first, FBY_REQUEST_GROUP_JOINED, 0), FBY_E_CONFIG);
    assert_text(first, "model.kv_dtype: rank 0 bf16, rank 1 f16");
    assert_int_equal(joined(second), FBY_E_CONFIG);
    assert_text(second, "model.kv_dtype: rank 0 bf16, rank 1 f16");
    /* mended, they join */
    assert_int_equal(join(second, 1, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(join(first, 0, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(joined(first), 0);
    assert_int_equal(joined(second), 0);
    wire_close(first);
    wire_close(second);
    served_close(&served);
}

static void who_is_missing_at_the_limit_is_named(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *first = wire_connect(served.path), *second = wire_connect(served.path);
    assert_int_equal(join(second, 2, 4, "bf16", LIMIT_NS), 0);
    assert_int_equal(join(first, 0, 4, "bf16", 1000000), 0);
    assert_int_equal(await(first, FBY_REQUEST_GROUP_JOINED, 0), -ETIMEDOUT);
    assert_text(first, "group g: missing of 4 ranks: 1 3");
    assert_int_equal(joined(second), -EAGAIN);
    wire_close(first);
    wire_close(second);
    served_close(&served);
}

/* ---- Messages --------------------------------------------------------------------------------------------------- */

static void messages_come_to_all_in_order(void **state)
{
    team_t team;
    char text[16];
    team_open(&team, 3);
    assert_int_equal(send_message(team.wire[1], "not the leader"), FBY_E_STATE);
    for (int i = 0; i < 50; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        assert_int_equal(send_message(team.wire[0], text), 0);
    }
    for (uint32_t r = 0; r < 3; r++) {
        for (int i = 0; i < 50; i++) {
            snprintf(text, sizeof(text), "message %d", i);
            assert_receives(team.wire[r], text);
        }
        assert_int_equal(wire_call(team.wire[r], FBY_REQUEST_GROUP_RECEIVE, NULL, NULL, 0), -EAGAIN);
    }
    team_close(&team);
}

static void a_rank_that_does_not_read_stops_the_leader(void **state)
{
    team_t team;
    uint8_t large[FBY_MSG_BYTES] = {0};
    int code = 0, sent = 0;
    team_open(&team, 2);
    while ((code = wire_call(team.wire[0], FBY_REQUEST_GROUP_SEND, NULL, large, sizeof(large))) == 0) {
        sent++;
    }
    assert_int_equal(code, -ENOSPC);
    assert_int_equal(sent, (1 << 20) / FBY_MSG_BYTES);
    assert_int_equal(wire_call(team.wire[1], FBY_REQUEST_GROUP_RECEIVE, NULL, NULL, 0), 0);
    assert_int_equal(wire_call(team.wire[0], FBY_REQUEST_GROUP_SEND, NULL, large, sizeof(large)), 0);
    team_close(&team);
}

static void messages_without_bytes_are_counted_too(void **state)
{
    team_t team;
    int code = 0, sent = 0;
    team_open(&team, 2);
    while (sent < 1 << 20 && (code = wire_call(team.wire[0], FBY_REQUEST_GROUP_SEND, NULL, NULL, 0)) == 0) {
        sent++;
    }
    assert_int_equal(code, -ENOSPC);
    assert_int_equal(sent, (1 << 20) / 64);
    assert_int_equal(wire_call(team.wire[1], FBY_REQUEST_GROUP_RECEIVE, NULL, NULL, 0), 0);
    assert_int_equal(wire_call(team.wire[0], FBY_REQUEST_GROUP_SEND, NULL, NULL, 0), 0);
    team_close(&team);
}

/* ---- Reports ---------------------------------------------------------------------------------------------------- */

/* A load under way on one rank, as bytes of its report. */
static size_t report_of(const team_t *team, uint32_t rank, uint64_t number, int code, uint8_t *out, size_t capacity)
{
    fby_ranks_t ranks = team->formed;
    fby_leader_t *leader;
    fby_follower_t *follower;
    uint8_t bytes[4096];
    size_t n;
    const uint64_t place[1] = {0}, device[1] = {0};
    const fby_block_range_t range = {.blocks = 1, .place = place, .device_block = device};
    fby_decision_t decision = {.size = sizeof(decision), .kind = FBY_DECISION_LOAD, .ranges = 1, .range = &range};
    fby_result_t result = {.size = sizeof(result), .code = code, .number = number};
    ranks.rank = rank;
    ranks.first_number = number;
    assert_int_equal(fby_leader_create(&ranks, &leader), 0);
    assert_int_equal(fby_leader_decide(leader, &decision, NULL), 0);
    assert_int_equal(fby_leader_encode(leader, number, bytes, sizeof(bytes), &n, NULL), 0);
    assert_int_equal(fby_follower_create(&ranks, &follower), 0);
    assert_int_equal(fby_follower_receive(follower, bytes, n), 0);
    assert_int_equal(fby_follower_next(follower, &decision), 0);
    assert_int_equal(fby_follower_report(follower, &result, out, capacity, &n), 0);
    fby_follower_free(follower);
    fby_leader_free(leader);
    return n;
}

static int report(team_t *team, uint32_t rank, uint64_t number, int code)
{
    uint8_t bytes[4096];
    size_t n = report_of(team, rank, number, code, bytes, sizeof(bytes));
    return wire_call(team->wire[rank], FBY_REQUEST_GROUP_REPORT, NULL, bytes, (uint32_t)n);
}

static void reports_are_folded_into_one_verdict(void **state)
{
    team_t team;
    uint8_t bytes[4096];
    fby_message_t about = {.size = sizeof(about)};
    const fby_msg_object_t first = {.handle = 1};
    team_open(&team, 3);
    assert_int_equal(report(&team, 0, 5000000, 0), -EINVAL); /* then no other would count any more */
    assert_int_equal(report(&team, 0, 1, 0), 0);
    assert_int_equal(report(&team, 2, 1, -EIO), 0);
    assert_int_equal(wire_call(team.wire[1], FBY_REQUEST_GROUP_VERDICT, &first, NULL, 0), -EAGAIN);
    size_t n = report_of(&team, 1, 1, 0, bytes, sizeof(bytes));
    assert_int_equal(wire_call(team.wire[2], FBY_REQUEST_GROUP_REPORT, NULL, bytes, (uint32_t)n), -EINVAL);
    bytes[n / 2] ^= 1;
    assert_int_equal(wire_call(team.wire[1], FBY_REQUEST_GROUP_REPORT, NULL, bytes, (uint32_t)n), FBY_E_CHECKSUM);
    assert_int_equal(report(&team, 1, 1, 0), 0);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(await(team.wire[r], FBY_REQUEST_GROUP_VERDICT, 1), 0);
        assert_int_equal(fby_message_parse(team.wire[r]->answer.elements, team.wire[r]->answer.count, &about), 0);
        assert_int_equal(about.type, FBY_MESSAGE_VERDICT);
        assert_int_equal(about.number, 1);
    }
    team_close(&team);
}

static void verdicts_are_kept_for_the_last_1024_decisions(void **state)
{
    team_t team;
    const fby_msg_object_t first = {.handle = 1}, second = {.handle = 2};
    team_open(&team, 1);
    for (uint64_t number = 1; number <= 1025; number++) {
        assert_int_equal(report(&team, 0, number, 0), 0);
    }
    assert_int_equal(wire_call(team.wire[0], FBY_REQUEST_GROUP_VERDICT, &first, NULL, 0), -ENOENT);
    assert_int_equal(wire_call(team.wire[0], FBY_REQUEST_GROUP_VERDICT, &second, NULL, 0), 0);
    team_close(&team);
}

/* ---- Death ------------------------------------------------------------------------------------------------------ */

static void a_lost_rank_is_heard_of_and_not_waited_for(void **state)
{
    team_t team;
    team_open(&team, 3);
    assert_int_equal(send_message(team.wire[0], "before"), 0);
    assert_int_equal(report(&team, 0, 1, 0), 0);
    assert_int_equal(report(&team, 1, 1, 0), 0);
    rank_dies(&team, 2);
    assert_int_equal(await(team.wire[0], FBY_REQUEST_GROUP_VERDICT, 1), 0);
    assert_int_equal(report(&team, 0, 2, 0), 0);
    assert_int_equal(report(&team, 1, 2, 0), 0);
    assert_int_equal(await(team.wire[1], FBY_REQUEST_GROUP_VERDICT, 2), 0);
    for (uint32_t r = 0; r < 2; r++) {
        assert_receives(team.wire[r], "before");
        assert_hears_of_loss(team.wire[r], 2);
    }
    assert_int_equal(send_message(team.wire[0], "after"), 0);
    assert_receives(team.wire[1], "after");
    team_close(&team);
}

static void when_a_rank_joins_again_all_have_to(void **state)
{
    team_t team;
    const fby_msg_object_t first = {.handle = 1};
    team_open(&team, 2);
    rank_dies(&team, 1);
    team.wire[1] = wire_connect(team.served.path);
    assert_int_equal(join(team.wire[1], 1, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(send_message(team.wire[0], "late"), -ECONNRESET);
    assert_text(team.wire[0], "rank 1 of the group joined again: join, too");
    assert_int_equal(wire_call(team.wire[0], FBY_REQUEST_GROUP_VERDICT, &first, NULL, 0), -ECONNRESET);
    assert_hears_of_loss(team.wire[0], 1);
    assert_int_equal(joined(team.wire[1]), -EAGAIN);
    assert_int_equal(join(team.wire[0], 0, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(joined(team.wire[0]), 0);
    assert_int_equal(joined(team.wire[1]), 0);
    assert_int_equal(send_message(team.wire[0], "again"), 0);
    assert_receives(team.wire[1], "again");
    team_close(&team);
}

static void a_dead_leader_is_heard_of(void **state)
{
    team_t team;
    team_open(&team, 2);
    rank_dies(&team, 0);
    assert_hears_of_loss(team.wire[1], 0);
    team_close(&team);
}

/* ---- Grants ----------------------------------------------------------------------------------------------------- */

static void a_hold_is_free_when_the_last_rank_is_done_or_dead(void **state)
{
    team_t team;
    fby_hold_t hold;
    uint64_t tokens;
    team_open(&team, 3);
    fby_seq_t *seq = rig_seq(&team.served.rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&team.served.rig, seq, 32);
    assert_int_equal(wire_lookup(team.wire[0], seq, 1, 0, &hold, &tokens), 0);
    assert_int_equal(wire_object(team.wire[1], FBY_REQUEST_GROUP_GRANT, hold, 0, 0, 0), FBY_E_STATE);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_GROUP_GRANT, hold, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_HOLD_RELEASE, hold, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_HOLD_INFO, hold, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(rig_stats(&team.served.rig).holds_gauge, 1);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_GROUP_DONE, hold, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[1], FBY_REQUEST_GROUP_DONE, hold, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[1], FBY_REQUEST_GROUP_DONE, hold, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(rig_stats(&team.served.rig).holds_gauge, 1);
    rank_dies(&team, 2);
    assert_int_equal(rig_stats(&team.served.rig).holds_gauge, 0);
    fby_seq_unref(seq);
    team_close(&team);
}

static void a_granted_put_is_committed_when_all_ranks_are_done(void **state)
{
    team_t team;
    fby_put_t put;
    uint64_t from, end;
    team_open(&team, 2);
    fby_seq_t *seq = rig_seq(&team.served.rig, 1, 16 * 8 + 1);
    assert_int_equal(wire_put(team.wire[0], seq, 1, 8, &put, &from, &end), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_GROUP_GRANT, put, 0, 0, 0), 0);
    wire_fill(team.wire[0], put, seq, 0, 8);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_COMMIT, put, 129, 0, 0), FBY_E_STATE);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_GROUP_DONE, put, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_COMMIT, put, 129, 0, 0), FBY_E_STATE);
    assert_int_equal(wire_object(team.wire[1], FBY_REQUEST_GROUP_DONE, put, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_COMMIT, put, 129, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_END, put, 0, 0, 0), 0);
    rig_quiet(&team.served.rig);
    assert_int_equal(rig_lookup(&team.served.rig, seq), 8);
    fby_seq_unref(seq);
    team_close(&team);
}

static void an_ended_put_waits_for_its_ranks(void **state)
{
    team_t team;
    fby_put_t put;
    uint64_t from, end;
    team_open(&team, 2);
    fby_seq_t *seq = rig_seq(&team.served.rig, 1, 16 * 8 + 1);
    assert_int_equal(wire_put(team.wire[0], seq, 1, 8, &put, &from, &end), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_GROUP_GRANT, put, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_END, put, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_END, put, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(served_info(&team.served).fenced_bytes, 8 * SLOT);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_GROUP_DONE, put, 0, 0, 0), 0);
    assert_int_equal(rig_stats(&team.served.rig).free_blocks_gauge, RIG_POOL_BLOCKS - 8);
    assert_int_equal(wire_object(team.wire[1], FBY_REQUEST_GROUP_DONE, put, 0, 0, 0), 0);
    assert_int_equal(rig_stats(&team.served.rig).free_blocks_gauge, RIG_POOL_BLOCKS);
    assert_int_equal(served_info(&team.served).fenced_bytes, 0);
    rig_quiet(&team.served.rig);
    fby_seq_unref(seq);
    team_close(&team);
}

/* ---- Ranks that are processes ----------------------------------------------------------------------------------- */

static void be_rank_one(wire_t *wire)
{
    assert_int_equal(join(wire, 1, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(await(wire, FBY_REQUEST_GROUP_JOINED, 0), 0);
    assert_int_equal(await(wire, FBY_REQUEST_GROUP_RECEIVE, 0), 0);
    wire_say("g", 1); /* granted */
}

static void be_rank_one_and_hang_up(wire_t *wire)
{
    assert_int_equal(join(wire, 1, 2, "bf16", LIMIT_NS), 0);
    assert_int_equal(await(wire, FBY_REQUEST_GROUP_JOINED, 0), 0);
    assert_int_equal(await(wire, FBY_REQUEST_GROUP_RECEIVE, 0), 0);
    close(wire->socket);
    wire_say("h", 1);
}

static const wire_story_t stories[] = {{"rank", be_rank_one}, {"hang_up", be_rank_one_and_hang_up}};

static void slots_wait_for_the_process_of_a_rank(void **state)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(stories); i++) {
        served_t served;
        fby_put_t put;
        uint64_t from, end;
        char said;
        SERVED_OPEN(&served, NULL);
        wire_t *leader = wire_connect(served.path);
        fby_seq_t *seq = rig_seq(&served.rig, 1, 16 * 8 + 1);
        wire_child_t child = wire_child(served.path, stories[i].name);
        assert_int_equal(join(leader, 0, 2, "bf16", LIMIT_NS), 0);
        assert_int_equal(await(leader, FBY_REQUEST_GROUP_JOINED, 0), 0);
        assert_int_equal(wire_put(leader, seq, 1, 8, &put, &from, &end), 0);
        assert_int_equal(wire_object(leader, FBY_REQUEST_GROUP_GRANT, put, 0, 0, 0), 0);
        assert_int_equal(send_message(leader, "save"), 0);
        wire_child_hear(&child, &said, 1);
        assert_int_equal(wire_object(leader, FBY_REQUEST_GROUP_DONE, put, 0, 0, 0), 0);
        assert_int_equal(wire_object(leader, FBY_REQUEST_PUT_END, put, 0, 0, 0), 0);
        if (i == 1) {
            assert_receives(leader, "save");
            assert_hears_of_loss(leader, 1); /* the socket is closed: it is lost */
        }
        assert_int_equal(served_info(&served).fenced_bytes, 8 * SLOT);
        assert_int_equal(rig_stats(&served.rig).free_blocks_gauge, RIG_POOL_BLOCKS - 8);
        wire_child_kill(&child);
        RIG_AWAIT(served_info(&served).fenced_bytes == 0);
        assert_int_equal(rig_stats(&served.rig).free_blocks_gauge, RIG_POOL_BLOCKS);
        rig_quiet(&served.rig);
        fby_seq_unref(seq);
        wire_close(leader);
        served_close(&served);
    }
}

/* Its connection ended, its process did not: what it was granted it can still say it is done with. */
static void a_rank_that_comes_back_may_say_that_it_is_done(void **state)
{
    team_t team;
    fby_put_t put;
    uint64_t from, end;
    team_open(&team, 2);
    fby_seq_t *seq = rig_seq(&team.served.rig, 1, 16 * 8 + 1);
    assert_int_equal(wire_put(team.wire[0], seq, 1, 8, &put, &from, &end), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_GROUP_GRANT, put, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_GROUP_DONE, put, 0, 0, 0), 0);
    wire_t *again = wire_open(team.served.path);
    again->welcome.client = team.wire[1]->welcome.client;
    again->welcome.secret = team.wire[1]->welcome.secret;
    wire_close(team.wire[1]);
    assert_int_equal(wire_hello(again), 0);
    team.wire[1] = again;
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_COMMIT, put, 0, 0, 0), FBY_E_STATE);
    assert_int_equal(wire_object(again, FBY_REQUEST_GROUP_DONE, put, 0, 0, 0), 0);
    assert_int_equal(wire_object(again, FBY_REQUEST_GROUP_DONE, put, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_COMMIT, put, 0, 0, 0), 0);
    assert_int_equal(wire_object(team.wire[0], FBY_REQUEST_PUT_END, put, 0, 0, 0), 0);
    fby_seq_unref(seq);
    team_close(&team);
}

int main(int argc, char **argv)
{
    wire_main(argc, argv, stories, FBY_ARRAY_LEN(stories));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_wait_for_each_other),
        cmocka_unit_test(cards_that_differ_are_the_same_answer_to_all),
        cmocka_unit_test(who_is_missing_at_the_limit_is_named),
        cmocka_unit_test(messages_come_to_all_in_order),
        cmocka_unit_test(a_rank_that_does_not_read_stops_the_leader),
        cmocka_unit_test(messages_without_bytes_are_counted_too),
        cmocka_unit_test(reports_are_folded_into_one_verdict),
        cmocka_unit_test(verdicts_are_kept_for_the_last_1024_decisions),
        cmocka_unit_test(a_lost_rank_is_heard_of_and_not_waited_for),
        cmocka_unit_test(when_a_rank_joins_again_all_have_to),
        cmocka_unit_test(a_dead_leader_is_heard_of),
        cmocka_unit_test(a_hold_is_free_when_the_last_rank_is_done_or_dead),
        cmocka_unit_test(a_granted_put_is_committed_when_all_ranks_are_done),
        cmocka_unit_test(an_ended_put_waits_for_its_ranks),
        cmocka_unit_test(slots_wait_for_the_process_of_a_rank),
        cmocka_unit_test(a_rank_that_comes_back_may_say_that_it_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
