/* test_redis_tools.c - health, visit and gc, on a real server that holds other people's keys too. */
#include "redis_server.h"

#define DRIVER (&fby_store_redis)
#define BYTES (4096 + 64)

static redis_server_t server;
static fby_store_spec_t spec;
static fby_store_t *store;

static int setup(void **state)
{
    spec = fixture_spec(4096);
    redis_server_ask(&server, "FLUSHALL");
    store = fixture_open(DRIVER, &spec, redis_port(&server), "timeout_ms=400", NULL);
    return 0;
}

static int teardown(void **state)
{
    DRIVER->close(store);
    return 0;
}

static void health_names_the_server_and_its_connections(void **state)
{
    char text[256], expected[256];
    assert_int_equal(DRIVER->health(store, text, sizeof(text)), 0);
    snprintf(expected, sizeof(expected), "ok: 127.0.0.1:%u answers, 1 of 16 connections open", server.port);
    assert_string_equal(text, expected);
    redis_server_kill(&server);
    assert_int_equal(DRIVER->health(store, text, sizeof(text)), FBY_E_CONNECTION);
    snprintf(expected, sizeof(expected), "127.0.0.1:%u cannot be reached: Connection refused", server.port);
    assert_string_equal(text, expected);
    redis_server_again(&server);
    assert_int_equal(DRIVER->health(store, text, sizeof(text)), 0);
}

typedef struct seen {
    int objects, unreadable, most;
} seen_t;

static int count_visit(void *arg, const char *key, uint32_t bytes, const void *trailer)
{
    seen_t *seen = arg;
    seen->objects++;
    seen->unreadable += bytes != BYTES || memcmp(trailer, "FBY1", 4) != 0;
    return seen->objects == seen->most ? 7 : 0;
}

static void a_visit_sees_each_object_once_and_nothing_else(void **state)
{
    enum { OBJECTS = 1500 };
    seen_t seen = {0};
    for (uint64_t i = 0; i < OBJECTS; i++) {
        fixture_put(DRIVER, store, &spec, i);
    }
    redis_server_ask(&server, "SET other value");
    redis_server_ask(&server, "SET fby:note value");
    redis_server_ask(&server, "LPUSH fby:list value");
    assert_int_equal(DRIVER->visit(store, count_visit, &seen), 0);
    assert_int_equal(seen.objects, OBJECTS);
    assert_int_equal(seen.unreadable, 0);
}

static void a_visit_may_end_early_and_shows_what_cannot_be_read(void **state)
{
    seen_t seen = {.most = 2};
    for (uint64_t i = 0; i < 5; i++) {
        fixture_put(DRIVER, store, &spec, i);
    }
    assert_int_equal(DRIVER->visit(store, count_visit, &seen), 7);
    assert_int_equal(seen.objects, 2);
    redis_server_ask(&server, "FLUSHALL");
    redis_server_set(&server, 1, "short", 5);
    seen = (seen_t){0};
    assert_int_equal(DRIVER->visit(store, count_visit, &seen), 0);
    assert_int_equal(seen.objects, 1);
    assert_int_equal(seen.unreadable, 1);
}

static void a_prefix_with_signs_of_a_pattern_is_itself(void **state)
{
    seen_t seen = {0};
    fby_store_t *odd = fixture_open(DRIVER, &spec, redis_port(&server), "prefix=a*[b]?\\:", NULL);
    fixture_put(DRIVER, store, &spec, 1);
    fixture_put(DRIVER, odd, &spec, 2);
    assert_int_equal(DRIVER->visit(odd, count_visit, &seen), 0);
    assert_int_equal(seen.objects, 1);
    DRIVER->close(odd);
}

static void gc_removes_what_has_no_readable_trailer_of_its_key(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 1);
    uint64_t freed = 0;
    char text[256], key[FBY_KEY_BYTES];
    fixture_put(DRIVER, store, &spec, 1);
    redis_server_set(&server, 2, "short", 5);
    fixture_fill(&spec, 4, 0, buffer);
    redis_server_set(&server, 3, buffer, BYTES); /* another object's */
    buffer[BYTES - 20] ^= 1;
    redis_server_set(&server, 4, buffer, BYTES); /* damaged */
    redis_server_ask(&server, "SET fby:note value");
    fixture_key(5, 0, key);
    redis_server_ask(&server, "LPUSH fby:%s value", key);
    assert_int_equal(DRIVER->gc(store, &freed, text, sizeof(text)), 0);
    assert_int_equal(freed, 5 + 2 * BYTES);
    assert_string_equal(text, "3 of 4 objects had no readable trailer of their key and were removed");
    assert_int_equal(redis_server_ask(&server, "DBSIZE"), 3); /* the good one, the note, the list */
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
    free(buffer);
}

static void a_server_that_went_away_is_told_by_its_code(void **state)
{
    uint64_t freed = 1;
    char text[256];
    seen_t seen = {0};
    redis_server_kill(&server);
    assert_int_equal(DRIVER->visit(store, count_visit, &seen), FBY_E_CONNECTION);
    assert_int_equal(DRIVER->gc(store, &freed, text, sizeof(text)), FBY_E_CONNECTION);
    assert_int_equal(freed, 0);
    redis_server_again(&server);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static int start(void **state)
{
    redis_server_start(&server, NULL);
    return 0;
}

static int stop(void **state)
{
    redis_server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(health_names_the_server_and_its_connections),
        STORY(a_visit_sees_each_object_once_and_nothing_else),
        STORY(a_visit_may_end_early_and_shows_what_cannot_be_read),
        STORY(a_prefix_with_signs_of_a_pattern_is_itself),
        STORY(gc_removes_what_has_no_readable_trailer_of_its_key),
        STORY(a_server_that_went_away_is_told_by_its_code),
    };
    redis_server_needed();
    return cmocka_run_group_tests(tests, start, stop);
}
