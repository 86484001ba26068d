/* test_metrics_http.c - metrics.listen: pages over loopback, many at once, and the end of it all. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/call.h"
#include "api/metrics_page.h"
#include "api/metrics_text.h"
#include "api/rig.h"

enum { SCRAPERS = 8, SCRAPES = 10, ANSWER_BYTES = 256 * 1024 };

static int dial(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct timeval patience = {.tv_sec = (time_t)RIG_PATIENCE_S};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Everything until the other side closes. */
static size_t read_all(int fd, char *out, size_t capacity)
{
    size_t length = 0;
    ssize_t n;
    while (length < capacity - 1 && (n = read(fd, out + length, capacity - 1 - length)) > 0) {
        length += (size_t)n;
    }
    out[length] = '\0';
    return length;
}

/* Status of the answer; *body (may be NULL) is malloc'ed. */
static int request(uint16_t port, const char *method, const char *path, char **body)
{
    char line[256];
    int fd = dial(port);
    assert_true(fd >= 0);
    int n =
        snprintf(line, sizeof(line), "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method, path);
    assert_int_equal(write(fd, line, (size_t)n), n);
    char *answer = malloc(ANSWER_BYTES);
    assert_non_null(answer);
    read_all(fd, answer, ANSWER_BYTES);
    close(fd);
    int status = 0;
    assert_int_equal(sscanf(answer, "HTTP/1.1 %d", &status), 1);
    const char *content = strstr(answer, "\r\n\r\n");
    assert_non_null(content);
    if (body != NULL) {
        *body = strdup(content + 4);
    }
    free(answer);
    return status;
}

static uint16_t port_of(const rig_t *rig)
{
    assert_non_null(rig->cache->page);
    return fby_metrics_page_port(rig->cache->page);
}

static void the_page_is_the_text_of_the_api(void **state)
{
    rig_t rig;
    char *body;
    RIG_OPEN(&rig, "metrics.listen=127.0.0.1:0");
    assert_int_not_equal(port_of(&rig), 0);
    assert_int_equal(request(port_of(&rig), "GET", "/metrics", &body), 200);
    metrics_text_t *text = metrics_parse(body);
    assert_int_equal(metrics_value(text, "forebay_healthy", ""), 1);
    assert_int_equal(metrics_value(text, "forebay_pool_slots", "group=\"0\",state=\"free\""), RIG_POOL_BLOCKS);
    free(text);
    free(body);
    rig_close(&rig);
}

static void other_pages_and_methods_are_refused(void **state)
{
    rig_t rig;
    char *body;
    RIG_OPEN(&rig, "metrics.listen=:0");
    uint16_t port = port_of(&rig);
    assert_int_equal(request(port, "GET", "/", &body), 404);
    assert_string_equal(body, "pages: /metrics, /health\n");
    free(body);
    assert_int_equal(request(port, "GET", "/metrics/more", NULL), 404);
    assert_int_equal(request(port, "POST", "/metrics", NULL), 405);
    assert_int_equal(request(port, "HEAD", "/metrics", &body), 200);
    assert_string_equal(body, "");
    free(body);
    rig_close(&rig);
}

static void health_says_what_is_wrong(void **state)
{
    rig_t rig;
    char *body;
    fby_actions_t actions;
    RIG_OPEN(&rig, "metrics.listen=localhost:0");
    assert_int_equal(request(port_of(&rig), "GET", "/health", &body), 200);
    assert_string_equal(body, "healthy\n");
    free(body);
    (void)fby_enter(rig.cache->runtime, &actions);
    fby_runtime_poison(rig.cache->runtime, "V0 for the test");
    fby_leave(rig.cache->runtime, &actions);
    assert_int_equal(request(port_of(&rig), "GET", "/health", &body), 503);
    assert_string_equal(body, "poisoned: V0 for the test\n");
    free(body);
    rig_close(&rig);
}

static void *scraper(void *arg)
{
    const rig_t *rig = arg;
    uintptr_t good = 0;
    for (int i = 0; i < SCRAPES; i++) {
        good += request(port_of(rig), "GET", i % 2 == 0 ? "/metrics" : "/health", NULL) == 200;
    }
    return (void *)good;
}

static void many_scrape_at_once_while_sessions_run(void **state)
{
    rig_t rig;
    pthread_t thread[SCRAPERS];
    RIG_OPEN(&rig, "metrics.listen=127.0.0.1:0");
    fby_seq_t *seq = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, seq, 0, 32);
    for (int i = 0; i < SCRAPERS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, scraper, &rig), 0);
    }
    for (int i = 0; i < 20; i++) {
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        rig_take_and_verify(&rig, (rig_wait(&rig, session), session), seq, 32);
    }
    for (int i = 0; i < SCRAPERS; i++) {
        void *good;
        assert_int_equal(pthread_join(thread[i], &good), 0);
        assert_int_equal((uintptr_t)good, SCRAPES);
    }
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* One connection has asked for half a page, another has never asked. */
static void close_ends_connections_that_are_open(void **state)
{
    rig_t rig;
    char rest[256];
    RIG_OPEN(&rig, "metrics.listen=127.0.0.1:0");
    uint16_t port = port_of(&rig);
    assert_int_equal(request(port, "GET", "/health", NULL), 200);
    int half = dial(port), silent = dial(port);
    assert_true(half >= 0 && silent >= 0);
    assert_int_equal(write(half, "GET /metr", 9), 9);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
    assert_null(rig.cache->page);
    assert_int_equal(read_all(half, rest, sizeof(rest)), 0);
    assert_int_equal(read_all(silent, rest, sizeof(rest)), 0);
    close(half);
    close(silent);
    assert_int_equal(dial(port), -1);
    rig_close(&rig);
}

static void a_busy_port_refuses_to_open(void **state)
{
    rig_t first, second = {.name = "busy"};
    char value[64], expected[256];
    fby_cache_t *cache = NULL;
    RIG_OPEN(&first, "metrics.listen=127.0.0.1:0");
    unsigned threads = rig_threads();
    snprintf(value, sizeof(value), "metrics.listen=127.0.0.1:%u", port_of(&first));
    fby_config_t *config = rig_config(&second, (const char *const[]){value, NULL});
    assert_int_equal(fby_cache_open(config, &cache), -EADDRINUSE);
    assert_null(cache);
    snprintf(expected, sizeof(expected),
             "metrics.listen: 127.0.0.1:%u cannot be listened on: Address already in use; accepted: an address of this "
             "machine whose port is free",
             port_of(&first));
    assert_string_equal(fby_last_error(), expected);
    assert_int_equal(rig_threads(), threads);
    /* the same port is free once the first cache is closed */
    rig_close(&first);
    assert_int_equal(fby_cache_open(config, &cache), 0);
    assert_int_equal(fby_cache_close(cache, RIG_PATIENCE_S, NULL), 0);
    fby_config_free(config);
}

/* A child of fork() has a copy of the socket, and nobody who answers on it. */
static void a_child_of_fork_does_not_keep_the_port(void **state)
{
    rig_t rig;
    char value[64];
    int gate[2];
    RIG_OPEN(&rig, "metrics.listen=127.0.0.1:0");
    snprintf(value, sizeof(value), "metrics.listen=127.0.0.1:%u", port_of(&rig));
    assert_int_equal(pipe(gate), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char byte;
        close(gate[1]);
        _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(gate[0]);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
    rig_reopen(&rig, (const char *const[]){value, NULL});
    assert_int_equal(request(port_of(&rig), "GET", "/health", NULL), 200);
    close(gate[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rig_close(&rig);
}

static void the_log_says_which_port_the_kernel_chose(void **state)
{
    rig_t rig;
    char expected[64], line[512];
    int out[2], stderr_kept = dup(STDERR_FILENO);
    assert_true(stderr_kept >= 0);
    assert_int_equal(pipe(out), 0);
    assert_true(dup2(out[1], STDERR_FILENO) >= 0);
    RIG_OPEN(&rig, "metrics.listen=127.0.0.1:0", "log.level=info");
    assert_true(dup2(stderr_kept, STDERR_FILENO) >= 0);
    close(stderr_kept);
    close(out[1]);
    snprintf(expected, sizeof(expected), "event=metrics_listen address=127.0.0.1:%u\n", port_of(&rig));
    rig_close(&rig);
    read_all(out[0], line, sizeof(line));
    assert_non_null(strstr(line, expected));
    close(out[0]);
}

static void off_makes_no_thread(void **state)
{
    rig_t rig;
    unsigned before = rig_threads();
    RIG_OPEN(&rig, "prefetch.enabled=false");
    assert_null(rig.cache->page);
    assert_int_equal(rig_threads(), before);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_is_the_text_of_the_api),
        cmocka_unit_test(other_pages_and_methods_are_refused),
        cmocka_unit_test(health_says_what_is_wrong),
        cmocka_unit_test(many_scrape_at_once_while_sessions_run),
        cmocka_unit_test(close_ends_connections_that_are_open),
        cmocka_unit_test(a_busy_port_refuses_to_open),
        cmocka_unit_test(a_child_of_fork_does_not_keep_the_port),
        cmocka_unit_test(the_log_says_which_port_the_kernel_chose),
        cmocka_unit_test(off_makes_no_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
