/* Reaching a server: addresses, and what an HTTP answer may look like. Every server is a thread on loopback. */
#include "cli/doctor_net.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit.h"

static void expect_address(const char *text, const char *host, const char *port)
{
    fby_net_address_t address;
    assert_true(fby_net_address_parse(text, &address));
    assert_string_equal(address.host, host);
    assert_string_equal(address.port, port);
}

static void addresses_are_a_host_and_a_port(void **state)
{
    fby_net_address_t address;
    expect_address("127.0.0.1:6379", "127.0.0.1", "6379");
    expect_address("[::1]:50051", "::1", "50051");
    expect_address("master.example:1", "master.example", "1");
    static const char *const wrong[] = {"", "host", "host:", ":1", "host:port", "host:1234567", "[]:1", "host:1x"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(wrong); i++) {
        assert_false(fby_net_address_parse(wrong[i], &address));
    }
}

static void loopback_is_told_from_others(void **state)
{
    assert_true(fby_net_is_loopback("127.0.0.1"));
    assert_true(fby_net_is_loopback("127.9.9.9"));
    assert_true(fby_net_is_loopback("::1"));
    assert_true(fby_net_is_loopback("localhost"));
    assert_false(fby_net_is_loopback("192.0.2.1"));
    assert_false(fby_net_is_loopback("0.0.0.0"));
    assert_false(fby_net_is_loopback("2001:db8::1"));
}

/* ---- One answer to one request ---- */

typedef struct server {
    int fd;
    const char *answer;
    char request[256];
    fby_net_address_t address;
    pthread_t thread;
} server_t;

static void *serve(void *arg)
{
    server_t *server = arg;
    int fd = accept(server->fd, NULL, NULL);
    ssize_t got = recv(fd, server->request, sizeof(server->request) - 1, 0);
    server->request[got > 0 ? got : 0] = '\0';
    send(fd, server->answer, strlen(server->answer), MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void server_start(server_t *server, const char *answer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    *server = (server_t){.fd = socket(AF_INET, SOCK_STREAM, 0), .answer = answer};
    assert_int_equal(bind(server->fd, (const struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(server->fd, 1), 0);
    assert_int_equal(getsockname(server->fd, (struct sockaddr *)&address, &length), 0);
    snprintf(server->address.host, sizeof(server->address.host), "127.0.0.1");
    snprintf(server->address.port, sizeof(server->address.port), "%u", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_end(server_t *server)
{
    pthread_join(server->thread, NULL);
    close(server->fd);
}

static int get(server_t *server, const char *answer, char *body, size_t bytes, char why[FBY_NET_WHY_BYTES])
{
    server_start(server, answer);
    int status = fby_net_get(&server->address, "/health", body, bytes, why);
    server_end(server);
    return status;
}

static void a_page_is_fetched(void **state)
{
    server_t server;
    char body[256], why[FBY_NET_WHY_BYTES];
    assert_int_equal(get(&server, "HTTP/1.1 200 OK\r\nA: b\r\n\r\none\ntwo", body, sizeof(body), why), 200);
    assert_string_equal(body, "one\ntwo");
    assert_memory_equal(server.request, "GET /health HTTP/1.0\r\nHost: 127.0.0.1:", 38);
    assert_int_equal(get(&server, "HTTP/1.0 503 Busy\r\n\r\n", body, sizeof(body), why), 503);
    assert_string_equal(body, "");
}

static void a_long_page_is_cut(void **state)
{
    server_t server;
    char body[32], why[FBY_NET_WHY_BYTES];
    assert_int_equal(get(&server, "HTTP/1.1 200 OK\r\n\r\n0123456789abcdefghij", body, sizeof(body), why), 200);
    assert_string_equal(body, "0123456789ab");
}

static void what_is_not_http_is_refused(void **state)
{
    static const char *const answers[] = {"", "+PONG\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/2 200\r\n\r\n",
                                          "HTTP/1.1 x\r\n\r\n"};
    server_t server;
    char body[256], why[FBY_NET_WHY_BYTES];
    for (size_t i = 0; i < FBY_ARRAY_LEN(answers); i++) {
        assert_int_equal(get(&server, answers[i], body, sizeof(body), why), -1);
        assert_string_equal(why, "the answer is not HTTP");
    }
}

static void a_port_where_nobody_listens(void **state)
{
    server_t server;
    char body[256], why[FBY_NET_WHY_BYTES];
    assert_int_equal(get(&server, "", body, sizeof(body), why), -1); /* its port is free now */
    assert_int_equal(fby_net_connect(&server.address, why), -1);
    assert_string_equal(why, "Connection refused");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_a_host_and_a_port),
        cmocka_unit_test(loopback_is_told_from_others),
        cmocka_unit_test(a_page_is_fetched),
        cmocka_unit_test(a_long_page_is_cut),
        cmocka_unit_test(what_is_not_http_is_refused),
        cmocka_unit_test(a_port_where_nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
