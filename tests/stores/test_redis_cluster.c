/* test_redis_cluster.c - three real nodes, keys that move between them, and a node that dies. */
#include "redis_server.h"

#include <signal.h>
#include <time.h>

#include "stores/redis.h"

#define DRIVER (&fby_store_redis)
#define BYTES (4096 + 64)

enum { NODES = 3, OBJECTS = 300, WAITS = 4000, PAUSE_MS = 5 };

static redis_server_t nodes[NODES];
static fby_store_spec_t spec;
static fby_store_t *store;

static const uint32_t first_slot[NODES + 1] = {0, 5461, 10923, 16384};

/* ---- The rules, without a server ---- */

static uint32_t slot_of(const char *key)
{
    return fby_redis_slot(key, strlen(key));
}

static void slots_are_those_of_the_specification(void **state)
{
    assert_int_equal(slot_of("123456789"), 0x31C3 % 16384); /* the check value of CRC-16/XMODEM */
    assert_int_equal(slot_of("foo"), 12182);
    assert_int_equal(slot_of("{user1000}.following"), slot_of("user1000"));
    assert_int_equal(slot_of("foo{}{bar}"), 8363); /* an empty tag is none */
    assert_int_equal(slot_of("foo{{bar}}zap"), slot_of("{bar"));
    assert_int_equal(slot_of("foo{bar}{zap}"), slot_of("bar"));
    assert_int_equal(slot_of("foo{bar"), fby_redis_slot("foo{bar", 7));
    assert_int_equal(slot_of(""), 0);
}

static void redirections_are_understood(void **state)
{
    const fby_redis_endpoint_t said_by = {"10.0.0.1", 6379};
    fby_redis_endpoint_t to;
    uint32_t slot;
    assert_true(fby_redis_redirect_parse("MOVED 3999 127.0.0.1:6381", &said_by, &slot, &to));
    assert_int_equal(slot, 3999);
    assert_string_equal(to.host, "127.0.0.1");
    assert_int_equal(to.port, 6381);
    assert_true(fby_redis_redirect_parse("ASK 16383 :6382", &said_by, &slot, &to));
    assert_string_equal(to.host, "10.0.0.1");
    assert_int_equal(to.port, 6382);
    assert_true(fby_redis_redirect_parse("MOVED 1 2001:db8::7:6383", &said_by, &slot, &to));
    assert_string_equal(to.host, "2001:db8::7");
    assert_int_equal(to.port, 6383);
}

static void redirections_that_make_no_sense_are_refused(void **state)
{
    static const char *const wrong[] = {
        "MOVED",           "MOVED 3999",     "MOVED 16384 a:1", "MOVED x a:1", "MOVED 1 a:0",
        "MOVED 1 a:65536", "MOVED 1 a:port", "MOVED -1 a:6379", "MOVED 1 a",   "MOVED  a:1",
    };
    const fby_redis_endpoint_t said_by = {"10.0.0.1", 6379};
    fby_redis_endpoint_t to;
    uint32_t slot;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(fby_redis_redirect_parse(wrong[i], &said_by, &slot, &to));
    }
}

/* ---- Real nodes ---- */

static uint32_t slot_of_object(uint64_t i)
{
    char key[FBY_KEY_BYTES], whole[64];
    fixture_key(i, 0, key);
    snprintf(whole, sizeof(whole), "fby:%s", key);
    return slot_of(whole);
}

static uint32_t node_of_object(uint64_t i)
{
    uint32_t slot = slot_of_object(i), node = 0;
    while (slot >= first_slot[node + 1]) {
        node++;
    }
    return node;
}

/* The first object after `after` that lives on this node. */
static uint64_t object_on(uint32_t node, uint64_t after)
{
    uint64_t i = after + 1;
    while (node_of_object(i) != node) {
        i++;
    }
    return i;
}

/* The id of a node; static storage, four at a time. */
static const char *id_of(uint32_t node)
{
    static char ids[4][64];
    static unsigned next;
    char *id = ids[next++ % 4];
    snprintf(id, sizeof(ids[0]), "%s", redis_server_text(&nodes[node], "CLUSTER MYID"));
    return id;
}

static void wait_until_all_say(const char *field)
{
    for (uint32_t node = 0, waits = 0; node < NODES;) {
        const struct timespec pause = {0, PAUSE_MS * 1000000};
        if (strstr(redis_server_text(&nodes[node], "CLUSTER INFO"), field) != NULL) {
            node++;
            continue;
        }
        if (++waits > WAITS) {
            fail_msg("node %u never said %s", node, field);
        }
        nanosleep(&pause, NULL);
    }
}

static void assign(uint32_t slot, uint32_t owner)
{
    for (uint32_t node = 0; node < NODES; node++) {
        redis_server_ask(&nodes[(owner + node) % NODES], "CLUSTER SETSLOT %u NODE %s", slot, id_of(owner));
    }
}

static int start(void **state)
{
    for (uint32_t node = 0; node < NODES; node++) {
        redis_server_start(&nodes[node], "--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
                           "--cluster-require-full-coverage", "no", NULL);
        redis_server_ask(&nodes[node], "CLUSTER ADDSLOTSRANGE %u %u", first_slot[node], first_slot[node + 1] - 1);
        redis_server_ask(&nodes[node], "CLUSTER SET-CONFIG-EPOCH %u", node + 1);
    }
    for (uint32_t node = 1; node < NODES; node++) {
        redis_server_ask(&nodes[0], "CLUSTER MEET 127.0.0.1 %u %u", nodes[node].port, nodes[node].bus_port);
    }
    wait_until_all_say("cluster_known_nodes:3");
    wait_until_all_say("cluster_slots_ok:16384");
    wait_until_all_say("cluster_state:ok");
    return 0;
}

static int stop(void **state)
{
    for (uint32_t node = 0; node < NODES; node++) {
        redis_server_stop(&nodes[node]);
    }
    return 0;
}

static int setup(void **state)
{
    spec = fixture_spec(4096);
    for (uint32_t node = 0; node < NODES; node++) {
        redis_server_ask(&nodes[node], "FLUSHALL");
    }
    store = fixture_open(DRIVER, &spec, redis_port(&nodes[0]), "cluster=on", "timeout_ms=2000", NULL);
    return 0;
}

static int teardown(void **state)
{
    DRIVER->close(store);
    return 0;
}

static void a_batch_goes_to_all_nodes(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, OBJECTS);
    static fby_store_op_t ops[OBJECTS];
    int64_t on_node[NODES] = {0};
    for (uint32_t i = 0; i < OBJECTS; i++) {
        ops[i] = fixture_op(&spec, i, 0, buffer + (size_t)i * spec.slot_bytes[0]);
        fixture_fill(&spec, i, 0, ops[i].buffer);
        on_node[node_of_object(i)]++;
    }
    assert_int_equal(DRIVER->put(store, ops, OBJECTS), 0);
    memset(buffer, 0xEE, (size_t)spec.slot_bytes[0] * OBJECTS);
    for (uint32_t node = 0; node < NODES; node++) {
        assert_true(on_node[node] > 0);
        assert_int_equal(redis_server_ask(&nodes[node], "DBSIZE"), on_node[node]);
    }
    assert_int_equal(DRIVER->get(store, ops, OBJECTS), 0);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(ops[i].result, BYTES);
        assert_true(fixture_holds(&spec, i, 0, ops[i].buffer));
    }
    assert_int_equal(DRIVER->remove(store, ops, OBJECTS), 0);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(ops[i].result, 1);
    }
    free(buffer);
}

static void any_node_of_the_seeds_will_do(void **state)
{
    char seeds[128];
    snprintf(seeds, sizeof(seeds), "seeds=127.0.0.1:%u+127.0.0.1:%u", redis_server_free_port(), nodes[2].port);
    fby_store_t *other = fixture_open(DRIVER, &spec, seeds, "cluster=on", NULL);
    char text[256];
    fixture_put(DRIVER, store, &spec, 1);
    assert_int_equal(fixture_get(DRIVER, other, &spec, 1), BYTES);
    assert_int_equal(DRIVER->health(other, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "ok: 3 nodes answer"));
    DRIVER->close(other);
}

static void a_slot_that_moved_is_followed_and_remembered(void **state)
{
    uint64_t i = object_on(0, 0);
    uint32_t slot = slot_of_object(i);
    assert_int_equal(fixture_exists(DRIVER, store, i), 0); /* the map is known */
    assign(slot, 1);
    wait_until_all_say("cluster_state:ok");
    assert_int_equal(fixture_put(DRIVER, store, &spec, i), BYTES);
    assert_int_equal(redis_server_ask(&nodes[1], "DBSIZE"), 1);
    assert_int_equal(redis_server_ask(&nodes[0], "CONFIG RESETSTAT"), 2);
    assert_int_equal(fixture_get(DRIVER, store, &spec, i), BYTES);
    assert_null(strstr(redis_server_text(&nodes[0], "INFO commandstats"), "cmdstat_get:")); /* not asked again */
    DRIVER->remove(store, &(fby_store_op_t){0}, 0);
    redis_server_ask(&nodes[1], "FLUSHALL");
    assign(slot, 0);
}

static void keys_on_the_way_are_asked_for_where_they_are(void **state)
{
    uint64_t i = object_on(0, 0);
    uint32_t slot = slot_of_object(i);
    char key[FBY_KEY_BYTES];
    fixture_key(i, 0, key);
    assert_int_equal(fixture_put(DRIVER, store, &spec, i), BYTES);
    redis_server_ask(&nodes[2], "CLUSTER SETSLOT %u IMPORTING %s", slot, id_of(0));
    redis_server_ask(&nodes[0], "CLUSTER SETSLOT %u MIGRATING %s", slot, id_of(2));
    assert_int_equal(fixture_get(DRIVER, store, &spec, i), BYTES); /* still at the old place */
    redis_server_ask(&nodes[0], "MIGRATE 127.0.0.1 %u fby:%s 0 5000", nodes[2].port, key);
    redis_server_ask(&nodes[2], "CONFIG RESETSTAT");
    assert_int_equal(fixture_get(DRIVER, store, &spec, i), BYTES); /* the old place says ASK */
    assert_non_null(strstr(redis_server_text(&nodes[2], "INFO commandstats"), "cmdstat_asking:calls=1"));
    assert_int_equal(fixture_exists(DRIVER, store, i), 1);
    assert_int_equal(fixture_put(DRIVER, store, &spec, i), FBY_E_EXISTS);
    uint8_t *buffer = fixture_buffer(&spec, 3);
    uint64_t beside = object_on(1, 0);
    fixture_put(DRIVER, store, &spec, beside);
    fby_store_op_t ops[] = {
        fixture_op(&spec, i, 0, buffer),
        fixture_op(&spec, beside, 0, buffer + spec.slot_bytes[0]),
        fixture_op(&spec, i, 0, buffer + spec.slot_bytes[0] * 2),
    };
    assert_int_equal(DRIVER->get(store, ops, 3), 0); /* one batch, redirected in part */
    assert_int_equal(ops[0].result, BYTES);
    assert_int_equal(ops[1].result, BYTES);
    assert_int_equal(ops[2].result, BYTES);
    assert_true(fixture_holds(&spec, i, 0, buffer + spec.slot_bytes[0] * 2));
    free(buffer);
    assign(slot, 2);
    assert_int_equal(fixture_get(DRIVER, store, &spec, i), BYTES); /* MOVED, now for good */
    assert_int_equal(fixture_remove(DRIVER, store, i), 1);
    assign(slot, 0);
}

static void a_user_needs_two_more_commands_in_a_cluster(void **state)
{
    char text[256];
    for (uint32_t node = 0; node < NODES; node++) {
        redis_server_ask(&nodes[node], "ACL SETUSER forebay reset on >word ~fby:* +ping +strlen +get +getrange +set "
                                       "+unlink +scan +asking +cluster|slots");
    }
    fby_store_t *user =
        fixture_open(DRIVER, &spec, redis_port(&nodes[0]), "cluster=on", "username=forebay", "password=word", NULL);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(fixture_put(DRIVER, user, &spec, i), BYTES);
        assert_int_equal(fixture_get(DRIVER, user, &spec, i), BYTES);
    }
    assert_int_equal(DRIVER->health(user, text, sizeof(text)), 0);
    DRIVER->close(user);
    redis_server_ask(&nodes[0], "ACL SETUSER forebay -cluster|slots");
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "CLUSTER SLOTS: NOPERM", redis_port(&nodes[0]), "cluster=on",
                    "username=forebay", "password=word", NULL);
}

static int count_visit(void *arg, const char *key, uint32_t bytes, const void *trailer)
{
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(trailer, "FBY1", 4);
    ++*(int *)arg;
    return 0;
}

static void a_visit_sees_the_objects_of_all_nodes(void **state)
{
    int seen = 0;
    for (uint64_t i = 0; i < 30; i++) {
        fixture_put(DRIVER, store, &spec, i);
    }
    assert_int_equal(DRIVER->visit(store, count_visit, &seen), 0);
    assert_int_equal(seen, 30);
}

static void a_dead_node_costs_its_own_keys_only(void **state)
{
    uint64_t there = object_on(0, 0), gone = object_on(1, 0);
    uint8_t *buffer = fixture_buffer(&spec, 2);
    fixture_put(DRIVER, store, &spec, there);
    fixture_put(DRIVER, store, &spec, gone);
    redis_server_kill(&nodes[1]);
    fby_store_op_t ops[] = {fixture_op(&spec, gone, 0, buffer),
                            fixture_op(&spec, there, 0, buffer + spec.slot_bytes[0])};
    assert_int_equal(DRIVER->get(store, ops, 2), 0);
    assert_int_equal(ops[0].result, FBY_E_CONNECTION);
    assert_int_equal(ops[1].result, BYTES);
    redis_server_again(&nodes[1]); /* its part of the map lies in its directory */
    wait_until_all_say("cluster_state:ok");
    assert_int_equal(fixture_put(DRIVER, store, &spec, gone), BYTES);
    free(buffer);
}

static void a_stopped_node_is_a_timeout_of_its_own_keys_only(void **state)
{
    uint64_t there = object_on(0, 0), stuck = object_on(2, 0);
    uint8_t *buffer = fixture_buffer(&spec, 2);
    fby_store_t *hasty = fixture_open(DRIVER, &spec, redis_port(&nodes[0]), "cluster=on", "timeout_ms=1500", NULL);
    fixture_put(DRIVER, hasty, &spec, there);
    fixture_put(DRIVER, hasty, &spec, stuck);
    redis_server_signal(&nodes[2], SIGSTOP);
    fby_store_op_t ops[] = {fixture_op(&spec, stuck, 0, buffer),
                            fixture_op(&spec, there, 0, buffer + spec.slot_bytes[0])};
    assert_int_equal(DRIVER->get(hasty, ops, 2), 0);
    redis_server_signal(&nodes[2], SIGCONT);
    assert_int_equal(ops[0].result, FBY_E_TIMEOUT);
    assert_int_equal(ops[1].result, BYTES);
    wait_until_all_say("cluster_state:ok");
    assert_int_equal(fixture_get(DRIVER, hasty, &spec, stuck), BYTES);
    DRIVER->close(hasty);
    free(buffer);
}

static void the_wrong_setting_of_cluster_is_told_at_open(void **state)
{
    redis_server_t single;
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "(a cluster: option cluster=on)", redis_port(&nodes[2]), NULL);
    redis_server_start(&single, NULL);
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "is no cluster; accepted: cluster=off", redis_port(&single),
                    "cluster=on", NULL);
    redis_server_stop(&single);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest rules[] = {
        cmocka_unit_test(slots_are_those_of_the_specification),
        cmocka_unit_test(redirections_are_understood),
        cmocka_unit_test(redirections_that_make_no_sense_are_refused),
    };
    const struct CMUnitTest stories[] = {
        STORY(a_batch_goes_to_all_nodes),
        STORY(any_node_of_the_seeds_will_do),
        STORY(a_slot_that_moved_is_followed_and_remembered),
        STORY(keys_on_the_way_are_asked_for_where_they_are),
        STORY(a_user_needs_two_more_commands_in_a_cluster),
        STORY(a_visit_sees_the_objects_of_all_nodes),
        STORY(a_dead_node_costs_its_own_keys_only),
        STORY(a_stopped_node_is_a_timeout_of_its_own_keys_only),
        STORY(the_wrong_setting_of_cluster_is_told_at_open),
    };
    int failed = cmocka_run_group_tests(rules, NULL, NULL);
    redis_server_needed();
    return failed + cmocka_run_group_tests(stories, start, stop);
}
