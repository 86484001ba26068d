/* test_server.c - what a client may ask, and what it is told. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/call.h"
#include "wire.h"

/* ---- Hello ------------------------------------------------------------------------------------------------------ */

static void a_client_is_told_the_model_and_gets_pool_and_board(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_model_t model = {.size = sizeof(model)};
    assert_int_equal(fby_cache_model(served.rig.cache, &model), 0);
    assert_int_equal(wire->welcome.client, 1);
    assert_true(wire->welcome.secret != 0);
    assert_memory_equal(&wire->welcome.model, &model, sizeof(model));
    assert_int_equal(wire->welcome.keyring.epoch, 1);
    assert_int_equal(wire->welcome.verify, 1);
    assert_int_equal(wire->welcome.pool.descriptor, -1);
    assert_true(fby_board_is_kept(wire->board));
    fby_server_info_t info = served_info(&served);
    assert_int_equal(info.clients, 1);
    assert_int_equal(info.accepted, 1);
    assert_int_equal(info.refused, 0);
    assert_int_equal(info.pid, getpid());
    assert_string_equal(info.version, fby_version());
    wire_close(wire);
    served_close(&served);
}

static void a_name_is_shown_as_text(void **state)
{
    served_t served;
    fby_server_info_t info = {.size = sizeof(info)};
    fby_server_client_t client;
    size_t count;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_open(served.path);
    fby_msg_hello_t hello = {.snapshot_bytes = sizeof(fby_snapshot_t), .struct_bytes = FBY_MSG_STRUCT_BYTES};
    memset(hello.name, 'n', sizeof(hello.name));
    memcpy(hello.name, "\x1b[2J\n", 5);
    assert_int_equal(wire_call(wire, FBY_REQUEST_HELLO, &hello, NULL, 0), 0);
    close(wire->fd[0]);
    close(wire->fd[1]);
    assert_int_equal(fby_server_describe(served.server, &info, &client, 1, &count), 0);
    assert_string_equal(client.name, "?[2J?nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn");
    wire_close(wire);
    served_close(&served);
}

static void the_board_is_kept_for_as_long_as_it_is_served(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    served_stop(&served, 0);
    assert_false(fby_board_is_kept(wire->board));
    wire_await_end(wire);
    served_serve(&served);
    assert_true(fby_board_is_kept(wire->board));
    wire_close(wire);
    served_close(&served);
}

static void another_version_hears_why_and_is_let_go(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_open(served.path);
    fby_msg_head_t head = {FBY_MSG_MAGIC, FBY_MSG_VERSION + 1, FBY_REQUEST_HELLO, 20, 5};
    uint8_t hello[20] = {0};
    memcpy(hello, &head, sizeof(head));
    wire_send(wire, hello, sizeof(hello));
    ssize_t n = fby_message_receive(wire->socket, wire->in, sizeof(wire->in), wire->fd, &wire->fds, 0);
    assert_true(n > 0);
    assert_true(fby_answer_parse(FBY_REQUEST_HELLO, wire->in, (size_t)n, &wire->answer));
    assert_int_equal(wire->answer.code, FBY_E_FORMAT);
    assert_int_equal(wire->answer.serial, 5);
    assert_memory_equal(wire->answer.text, "the client speaks version 2; accepted: 1", wire->answer.text_bytes);
    wire_await_end(wire);
    wire_close(wire);
    fby_server_info_t info = served_info(&served);
    assert_int_equal(info.refused, 1);
    assert_int_equal(info.clients, 0);
    assert_int_equal(info.violations, 0);
    assert_int_equal(fby_server_refused(served.server, FBY_SERVER_REFUSED_VERSION), 1);
    served_close(&served);
}

static void other_structs_are_another_version(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_open(served.path);
    fby_msg_hello_t hello = {.snapshot_bytes = sizeof(fby_snapshot_t), .struct_bytes = FBY_MSG_STRUCT_BYTES + 8};
    assert_int_equal(wire_call(wire, FBY_REQUEST_HELLO, &hello, NULL, 0), FBY_E_FORMAT);
    wire_await_end(wire);
    wire_close(wire);
    served_close(&served);
}

static void beyond_max_clients_nobody_is_taken_until_one_goes(void **state)
{
    served_t served;
    SERVED_OPEN(&served, "server.max_clients=2");
    wire_t *first = wire_connect(served.path), *second = wire_connect(served.path), *third = wire_open(served.path);
    assert_int_equal(wire_hello(third), -EUSERS);
    assert_memory_equal(third->answer.text, "server.max_clients is 2: as many are connected", third->answer.text_bytes);
    wire_await_end(third);
    wire_close(third);
    wire_close(first);
    RIG_AWAIT(served_info(&served).clients == 1);
    third = wire_connect(served.path);
    assert_int_equal(third->welcome.client, 3);
    assert_int_equal(fby_server_refused(served.server, FBY_SERVER_REFUSED_NUMBER), 1);
    wire_close(second);
    wire_close(third);
    served_close(&served);
}

/* ---- Sequences -------------------------------------------------------------------------------------------------- */

static void an_unknown_sequence_is_asked_for_from_the_start(void **state)
{
    served_t served;
    fby_session_t session;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    assert_int_equal(wire_start(wire, seq, 5, 32, &session), FBY_MSG_E_RESEND);
    assert_int_equal(((const fby_msg_numbers_t *)wire->answer.body)->number[0], 0);
    fby_msg_seq_t part = wire_seq(seq, 5, 0);
    part.count = 10;
    part.blocks = 10;
    part.tokens = 160;
    assert_int_equal(wire_call(wire, FBY_REQUEST_SEQ, &part, fby_seq_hashes(seq), 10), 0);
    assert_int_equal(wire_start(wire, seq, 5, 32, &session), FBY_MSG_E_RESEND);
    assert_int_equal(((const fby_msg_numbers_t *)wire->answer.body)->number[0], 10);
    assert_int_equal(wire_start(wire, seq, 5, 10, &session), 0);
    assert_int_equal(wire_start(wire, seq, 5, 32, &session), 0); /* all of it is known now */
    const uint64_t id = 5;
    assert_int_equal(wire_call(wire, FBY_REQUEST_SEQ_DROP, NULL, &id, 1), 0);
    assert_int_equal(wire_call(wire, FBY_REQUEST_SEQ_DROP, NULL, &id, 1), 0);
    assert_int_equal(wire_start(wire, seq, 5, 32, &session), FBY_MSG_E_RESEND);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

static void a_sequence_of_another_epoch_is_stale(void **state)
{
    served_t served;
    fby_session_t session;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    assert_int_equal(wire_start(wire, seq, 5, 0, &session), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_RESET, 0, 0, 0, 1), FBY_RESET_DONE);
    assert_int_equal(((const fby_msg_keyring_t *)wire->answer.body)->epoch, 2);
    assert_int_equal(wire_start(wire, seq, 5, 32, &session), FBY_E_STALE);
    assert_int_equal(wire_start(wire, seq, 6, 0, &session), FBY_E_STALE);
    fby_seq_unref(seq);
    seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    assert_int_equal(wire_start(wire, seq, 7, 0, &session), 0);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

static void the_least_recently_used_sequences_go_first(void **state)
{
    served_t served;
    fby_hold_t hold;
    uint64_t tokens;
    enum { BLOCKS = 2000, FIT = 32 }; /* 2,000 hashes and what goes with them: 32 of those are 1 MiB, 33 are more */
    SERVED_OPEN(&served, "server.client_sequence_bytes=1MiB");
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, BLOCKS * RIG_BLOCK_TOKENS);
    for (uint64_t id = 1; id <= FIT; id++) {
        assert_int_equal(wire_lookup(wire, seq, id, FBY_LOOKUP_ADVISORY, &hold, &tokens), 0);
    }
    fby_msg_seq_t first = wire_seq(seq, 1, BLOCKS);
    assert_int_equal(wire_call(wire, FBY_REQUEST_SEQ, &first, NULL, 0), 0); /* used again */
    assert_int_equal(wire_lookup(wire, seq, FIT + 1, FBY_LOOKUP_ADVISORY, &hold, &tokens), 0);
    assert_int_equal(wire_call(wire, FBY_REQUEST_SEQ, &first, NULL, 0), 0);
    fby_msg_seq_t second = wire_seq(seq, 2, BLOCKS);
    assert_int_equal(wire_call(wire, FBY_REQUEST_SEQ, &second, NULL, 0), FBY_MSG_E_RESEND);
    fby_msg_seq_t endless = {.id = 99, .epoch = 1, .blocks = 65536, .tokens = 65536 * 16};
    assert_int_equal(wire_call(wire, FBY_REQUEST_SEQ, &endless, NULL, 0), FBY_E_BUDGET);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

/* Named, and never sent: what the server keeps for that counts as well. */
static void sequences_without_hashes_count_too(void **state)
{
    served_t served;
    fby_server_info_t info = {.size = sizeof(info)};
    fby_server_client_t client[1];
    size_t n;
    SERVED_OPEN(&served, "server.client_sequence_bytes=1MiB");
    wire_t *wire = wire_connect(served.path);
    for (uint64_t id = 1; id <= 6000; id++) {
        const fby_msg_seq_t unsent = {.id = id, .epoch = 1, .tokens = 32, .blocks = 2, .from = 2};
        assert_int_equal(wire_call(wire, FBY_REQUEST_SEQ, &unsent, NULL, 0), FBY_MSG_E_RESEND);
    }
    assert_int_equal(fby_server_describe(served.server, &info, client, 1, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(client[0].sequences, 4096);
    assert_int_equal(client[0].sequence_bytes, 1 << 20);
    wire_close(wire);
    served_close(&served);
}

/* ---- Sessions, holds, puts -------------------------------------------------------------------------------------- */

static void a_session_is_polled_on_the_board_and_its_hold_read_in_the_pool(void **state)
{
    served_t served;
    fby_session_t session;
    uint8_t expected[RIG_PAYLOAD];
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&served.rig, seq, 0, 32);
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    fby_snapshot_t snapshot = wire_await_answer(wire, session);
    assert_int_equal(snapshot.outcome, FBY_OUTCOME_COMPLETE);
    assert_int_equal(snapshot.delivered_blocks, 32);
    assert_int_equal(wire_object(wire, FBY_REQUEST_TAKE, session, 0, 0, 0), 0);
    fby_hold_t hold = ((const fby_msg_numbers_t *)wire->answer.body)->number[0];
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_INFO, hold, 0, 0, 0), 0);
    const fby_msg_numbers_t *numbers = wire->answer.body;
    assert_int_equal(numbers->number[0], 512);
    assert_int_equal(numbers->number[1], 32);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_PLACES, hold, 0, 32, 0), 0);
    assert_int_equal(wire->answer.count, 32);
    for (uint32_t block = 0; block < 32; block++) {
        uint64_t place;
        memcpy(&place, (const uint64_t *)wire->answer.elements + block, sizeof(place));
        rig_content(seq, block, 0, expected, sizeof(expected));
        assert_memory_equal(wire->pool + place, expected, sizeof(expected));
    }
    assert_int_equal(rig_stats(&served.rig).tokens_consumed, 512);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_RELEASE, hold, 0, 0, 0), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_RELEASE, hold, 0, 0, 0), FBY_E_STALE);
    rig_quiet(&served.rig);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

static void a_put_is_filled_and_sealed_by_the_client(void **state)
{
    served_t served;
    fby_put_t put;
    uint64_t from, end;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    assert_int_equal(wire_put(wire, seq, 1, 32, &put, &from, &end), 0);
    assert_int_equal(from, 0);
    assert_int_equal(end, 32);
    wire_fill(wire, put, seq, from, end);
    assert_int_equal(wire_object(wire, FBY_REQUEST_PUT_COMMIT, put, RIG_P32_TOKENS, 0, 0), 0);
    assert_int_equal(((const fby_put_result_t *)wire->answer.body)->published, 32);
    assert_int_equal(wire_object(wire, FBY_REQUEST_EVENT, put, 0, 0, FBY_EVENT_OF_PUT), 0);
    struct pollfd event = {.fd = wire->fd[0], .events = POLLIN};
    assert_int_equal(poll(&event, 1, 20000), 1);
    close(wire->fd[0]);
    assert_int_equal(wire_object(wire, FBY_REQUEST_PUT_STORED, put, 0, 0, 0), 0);
    assert_int_equal(((const fby_msg_numbers_t *)wire->answer.body)->number[0], 32);
    assert_int_equal(wire_object(wire, FBY_REQUEST_PUT_END, put, 0, 0, 0), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_PUT_END, put, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(rig_lookup(&served.rig, seq), 32);
    assert_int_equal(fby_cache_reset(served.rig.cache, 1, 0), FBY_RESET_DONE);
    /* what the client sealed is what the store gives back */
    rig_take_and_verify(
        &served.rig,
        (rig_wait(&served.rig, rig_start(&served.rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1))).handle, seq,
        32);
    rig_quiet(&served.rig);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

static void a_put_goes_on_range_by_range(void **state)
{
    served_t served;
    fby_put_t put;
    uint64_t from, end;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    assert_int_equal(wire_put(wire, seq, 1, 8, &put, &from, &end), 0);
    wire_fill(wire, put, seq, from, end);
    assert_int_equal(wire_object(wire, FBY_REQUEST_PUT_COMMIT, put, 8 * 16, 0, 0), 0);
    fby_msg_put_t next = {.seq = wire_seq(seq, 1, 32), .put = put, .from = 8, .to = 16};
    assert_int_equal(wire_call(wire, FBY_REQUEST_PUT_BEGIN, &next, NULL, 0), 0);
    const fby_msg_numbers_t *numbers = wire->answer.body;
    assert_int_equal(numbers->number[0], put);
    assert_int_equal(numbers->number[1], 8);
    assert_int_equal(numbers->number[2], 8);
    assert_int_equal(numbers->number[3], 16);
    assert_int_equal(wire_object(wire, FBY_REQUEST_PUT_END, put, 0, 0, 0), 0);
    rig_quiet(&served.rig);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

static void a_pass_of_demands_is_one_message(void **state)
{
    served_t served;
    enum { MANY = 40 };
    fby_msg_demand_t demands[MANY];
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    rig_needs_process();
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&served.rig, seq, 0, 32);
    rig_script(&served.rig, "exists:*:hang");
    for (int i = 0; i < MANY; i++) {
        fby_msg_start_t start = {
            .seq = wire_seq(seq, 1, 0),
            .policy = FBY_POLICY_BEST_EFFORT,
            .stop_mode = FBY_STOP_RECALL,
            .timeout_budget_s = -1,
            .min_tokens = UINT64_MAX,
        };
        assert_int_equal(wire_call(wire, FBY_REQUEST_START, &start, fby_seq_hashes(seq), start.seq.count), 0);
        demands[i].session = ((const fby_msg_numbers_t *)wire->answer.body)->number[0];
    }
    fby_session_t left_alone = demands[MANY - 1].session;
    demands[MANY - 1].session = 12345; /* unknown ones do no harm */
    assert_int_equal(wire_call(wire, FBY_REQUEST_PROGRESS, NULL, demands, MANY), 0);
    for (int i = 0; i < MANY - 1; i++) {
        fby_snapshot_t snapshot;
        assert_int_equal(fby_board_poll(wire->board, 1, demands[i].session, &snapshot), 0);
        assert_int_equal(snapshot.reason, FBY_REASON_DEMAND);
    }
    fby_snapshot_t snapshot;
    assert_int_equal(fby_board_poll(wire->board, 1, left_alone, &snapshot), 0);
    assert_int_equal(snapshot.reason, FBY_REASON_NONE);
    served_unhang(&served);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

/* ---- The rest --------------------------------------------------------------------------------------------------- */

static void events_come_in_batches(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    assert_int_equal(wire_object(wire, FBY_REQUEST_SUBSCRIBE, 0, 0, 0, 0), -EINVAL);
    assert_int_equal(wire_object(wire, FBY_REQUEST_SUBSCRIBE, 0, 1000, 0, 0), 0);
    uint64_t id = ((const fby_msg_numbers_t *)wire->answer.body)->number[0];
    struct pollfd waiting = {.fd = wire->fd[0], .events = POLLIN};
    assert_int_equal(wire_object(wire, FBY_REQUEST_EVENTS, id, 0, 0, 0), 0);
    assert_int_equal(wire->answer.count, 0);
    assert_int_equal(poll(&waiting, 1, 0), 0);
    rig_put_stored(&served.rig, seq, 32);
    assert_int_equal(poll(&waiting, 1, 20000), 1);
    assert_int_equal(wire_object(wire, FBY_REQUEST_EVENTS, id, 0, 0, 0), 0);
    assert_int_equal(wire->answer.count, 32);
    for (uint32_t i = 0; i < 32; i++) {
        fby_event_t event;
        memcpy(&event, (const fby_event_t *)wire->answer.elements + i, sizeof(event));
        assert_int_equal(event.type, FBY_EVENT_PUBLISHED);
        assert_int_equal(event.block, i);
    }
    assert_int_equal(poll(&waiting, 1, 0), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_EVENTS, id + 1, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(wire_object(wire, FBY_REQUEST_UNSUBSCRIBE, id, 0, 0, 0), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_UNSUBSCRIBE, id, 0, 0, 0), FBY_E_STALE);
    close(waiting.fd);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

static void figures_are_those_of_the_cache(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_stats_t stats = rig_stats(&served.rig);
    assert_int_equal(wire_call(wire, FBY_REQUEST_STATS, NULL, NULL, 0), 0);
    assert_memory_equal(wire->answer.body, &stats, sizeof(stats));
    assert_int_equal(wire_call(wire, FBY_REQUEST_HEALTH, NULL, NULL, 0), 0);
    assert_int_equal(((const fby_health_t *)wire->answer.body)->healthy, 1);
    assert_int_equal(wire_call(wire, FBY_REQUEST_CHECK, NULL, NULL, 0), 0);
    assert_int_equal(wire_call(wire, FBY_REQUEST_KEYRING, NULL, NULL, 0), 0);
    assert_int_equal(((const fby_msg_keyring_t *)wire->answer.body)->epoch, 1);
    assert_int_equal(wire_call(wire, FBY_REQUEST_METRICS, NULL, NULL, 0), 0);
    uint64_t bytes = ((const fby_msg_numbers_t *)wire->answer.body)->number[0];
    char *text = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, wire->fd[0], 0);
    assert_ptr_not_equal(text, MAP_FAILED);
    assert_memory_equal(text, "# HELP", 6);
    assert_int_equal(text[bytes - 1], '\n');
    assert_int_equal(ftruncate(wire->fd[0], 1), -1); /* nobody changes it any more */
    munmap(text, bytes);
    close(wire->fd[0]);
    wire_close(wire);
    served_close(&served);
}

static void *ask_about_server(void *cache)
{
    fby_server_info_t info = {.size = sizeof(info)};
    fby_server_client_t clients[4];
    size_t count;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(fby_server_info(cache, &info, clients, 4, &count), 0);
        assert_int_equal(count, 1);
    }
    return NULL;
}

/* Both ways lead through the lock of the cache and that of the server. */
static void its_own_process_and_a_client_ask_at_once(void **state)
{
    rig_t rig;
    pthread_t asker;
    char directory[] = "/tmp/fby-served-XXXXXX", path[64], setting[96];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/s", directory);
    snprintf(setting, sizeof(setting), "server.listen=%s", path);
    RIG_OPEN(&rig, setting);
    wire_t *wire = wire_connect(path);
    assert_int_equal(pthread_create(&asker, NULL, ask_about_server, rig.cache), 0);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(wire_call(wire, FBY_REQUEST_METRICS, NULL, NULL, 0), 0);
        close(wire->fd[0]);
    }
    assert_int_equal(pthread_join(asker, NULL), 0);
    rig_close(&rig); /* with a client there */
    wire_await_end(wire);
    wire_close(wire);
    assert_int_equal(rmdir(directory), 0);
}

static void a_check_needs_leave(void **state)
{
    served_t served;
    SERVED_OPEN(&served, "server.allow_check=false");
    wire_t *wire = wire_connect(served.path);
    assert_int_equal(wire_call(wire, FBY_REQUEST_CHECK, NULL, NULL, 0), -EPERM);
    wire_close(wire);
    served_close(&served);
}

static void info_has_what_each_client_has(void **state)
{
    served_t served;
    fby_hold_t hold;
    fby_session_t session;
    fby_put_t put;
    uint64_t tokens, from, end;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path), *other = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS), *fresh = rig_seq(&served.rig, 2, 16 * 8 + 1);
    rig_put_stored(&served.rig, seq, 32);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &hold, &tokens), 0);
    assert_int_equal(tokens, 512);
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    (void)wire_await_answer(wire, session);
    assert_int_equal(wire_put(wire, fresh, 2, 8, &put, &from, &end), 0);
    assert_int_equal(wire_call(other, FBY_REQUEST_INFO, NULL, NULL, 0), 0);
    fby_server_client_t clients[2];
    assert_int_equal(other->answer.count, 2);
    memcpy(clients, other->answer.elements, sizeof(clients));
    assert_int_equal(clients[0].client, 1);
    assert_int_equal(clients[0].pid, getpid());
    assert_int_equal(clients[0].uid, getuid());
    assert_int_equal(clients[0].sessions, 1);
    assert_int_equal(clients[0].holds, 1);
    assert_int_equal(clients[0].puts, 1);
    assert_int_equal(clients[0].sequences, 2);
    assert_int_equal(clients[0].pinned_bytes, 32 * (RIG_PAYLOAD + 64));
    assert_int_equal(clients[0].calls, 5);
    assert_string_equal(clients[0].name, "wire");
    assert_int_equal(clients[1].client, 2);
    assert_int_equal(clients[1].sessions, 0);
    fby_seq_unref(seq);
    fby_seq_unref(fresh);
    wire_close(wire);
    wire_close(other);
    served_close(&served);
}

static void bye_ends_everything_before_its_answer(void **state)
{
    served_t served;
    fby_put_t put;
    fby_session_t session;
    uint64_t from, end;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    assert_int_equal(wire_put(wire, seq, 1, 32, &put, &from, &end), 0);
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    assert_int_equal(wire_call(wire, FBY_REQUEST_BYE, NULL, NULL, 0), 0);
    rig_quiet(&served.rig);
    wire_await_end(wire);
    assert_int_equal(served_info(&served).deaths, 0);
    assert_int_equal(served_info(&served).clients, 0);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_is_told_the_model_and_gets_pool_and_board),
        cmocka_unit_test(a_name_is_shown_as_text),
        cmocka_unit_test(the_board_is_kept_for_as_long_as_it_is_served),
        cmocka_unit_test(another_version_hears_why_and_is_let_go),
        cmocka_unit_test(other_structs_are_another_version),
        cmocka_unit_test(beyond_max_clients_nobody_is_taken_until_one_goes),
        cmocka_unit_test(an_unknown_sequence_is_asked_for_from_the_start),
        cmocka_unit_test(a_sequence_of_another_epoch_is_stale),
        cmocka_unit_test(the_least_recently_used_sequences_go_first),
        cmocka_unit_test(sequences_without_hashes_count_too),
        cmocka_unit_test(a_session_is_polled_on_the_board_and_its_hold_read_in_the_pool),
        cmocka_unit_test(a_put_is_filled_and_sealed_by_the_client),
        cmocka_unit_test(a_put_goes_on_range_by_range),
        cmocka_unit_test(a_pass_of_demands_is_one_message),
        cmocka_unit_test(events_come_in_batches),
        cmocka_unit_test(figures_are_those_of_the_cache),
        cmocka_unit_test(its_own_process_and_a_client_ask_at_once),
        cmocka_unit_test(a_check_needs_leave),
        cmocka_unit_test(info_has_what_each_client_has),
        cmocka_unit_test(bye_ends_everything_before_its_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
