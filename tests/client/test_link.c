/* test_link.c - connecting: what is there, what is not, and what is no server of ours. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "client/served.h"
#include "server/protocol.h"

typedef struct place {
    char folder[40], path[56];
} place_t;

static void place_open(place_t *place)
{
    snprintf(place->folder, sizeof(place->folder), "/tmp/forebay-client-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    snprintf(place->path, sizeof(place->path), "%s/socket", place->folder);
}

static void place_close(place_t *place)
{
    unlink(place->path);
    assert_int_equal(rmdir(place->folder), 0);
}

/* Fails with this code and a detail that names the path. */
static void connect_gives(const char *path, double call_timeout_s, int code)
{
    fby_cache_t *cache = NULL;
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    options.call_timeout_s = call_timeout_s;
    assert_int_equal(fby_connect(path, &options, &cache), code);
    assert_non_null(strstr(fby_last_error(), path));
    assert_null(cache);
}

static int listen_at(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static void where_nobody_listens_is_no_server(void **state)
{
    (void)state;
    place_t place;
    place_open(&place);
    connect_gives(place.path, 5, -ENOENT);
    close(listen_at(place.path, SOCK_SEQPACKET));
    connect_gives(place.path, 5, -ECONNREFUSED);
    unlink(place.path);
    int fd = listen_at(place.path, SOCK_STREAM);
    connect_gives(place.path, 5, FBY_E_FORMAT);
    close(fd);
    place_close(&place);
}

/* Root may use every socket: then somebody else tries. */
static void a_socket_that_is_not_ours_to_use_is_refused(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    place_t place;
    int status;
    place_open(&place);
    int fd = listen_at(place.path, SOCK_SEQPACKET);
    assert_int_equal(chmod(place.path, 0), 0);
    pid_t child = fork();
    if (child == 0) {
        fby_cache_t *cache;
        if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) {
            _exit(2);
        }
        _exit(fby_connect(place.path, NULL, &cache) == -EACCES && strstr(fby_last_error(), place.path) != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(fd);
    place_close(&place);
}

static void who_does_not_answer_is_given_up(void **state)
{
    (void)state;
    place_t place;
    place_open(&place);
    int fd = listen_at(place.path, SOCK_SEQPACKET);
    connect_gives(place.path, 0.05, -ETIMEDOUT); /* accepted by the kernel alone */
    connect_gives(place.path, 0.05, -ETIMEDOUT);
    connect_gives(place.path, 0.05, -ETIMEDOUT); /* not even that: the queue is full */
    close(fd);
    place_close(&place);
}

/* ---- Somebody else answers -------------------------------------------------------------------------------------- */

typedef struct impostor {
    int fd;
    const void *answer;
    size_t bytes;
    int fds; /* that come along: standard input */
} impostor_t;

static void *answer_once(void *arg)
{
    const impostor_t *impostor = arg;
    char request[FBY_MSG_MOST];
    const int along[] = {STDIN_FILENO, STDIN_FILENO};
    int peer = accept4(impostor->fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(recv(peer, request, sizeof(request), 0) > 0);
    if (impostor->bytes > 0) {
        assert_true(fby_message_send(peer, impostor->answer, impostor->bytes, along, (size_t)impostor->fds, 0) > 0);
    }
    close(peer);
    return NULL;
}

static void answered_with(const void *answer, size_t bytes, int fds, int code)
{
    place_t place;
    pthread_t thread;
    place_open(&place);
    impostor_t impostor = {listen_at(place.path, SOCK_SEQPACKET), answer, bytes, fds};
    assert_int_equal(pthread_create(&thread, NULL, answer_once, &impostor), 0);
    connect_gives(place.path, RIG_PATIENCE_S, code);
    pthread_join(thread, NULL);
    close(impostor.fd);
    place_close(&place);
}

static unsigned descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct stat about;
        count += fstat(fd, &about) == 0;
    }
    return count;
}

/* What a welcome may not be: each field that is used later. */
static void an_answer_that_is_no_welcome_is_refused(void **state)
{
    (void)state;
    static _Alignas(8) uint8_t bytes[FBY_MSG_MOST];
    unsigned before = descriptors();
    const fby_msg_welcome_t nothing = {.client = 1};
    fby_msg_welcome_t welcome = {
        .client = 1,
        .model = {.size = sizeof(welcome.model), .block_tokens = 16, .groups = 1, .group = {{.payload_bytes = 4096}}},
        .pool = {.size = sizeof(welcome.pool),
                 .bytes = 4160,
                 .groups = 1,
                 .group = {{.slot_bytes = 4160, .payload_bytes = 4096, .slots = 1}}},
    };
    answered_with("hello", 5, 0, FBY_E_FORMAT);
    answered_with(NULL, 0, 0, -ECONNREFUSED);
    size_t n = fby_answer_build(FBY_REQUEST_HELLO, 0, 0, &nothing, NULL, 0, NULL, bytes);
    answered_with(bytes, n, 0, FBY_E_FORMAT); /* without descriptors */
    answered_with(bytes, n, 1, FBY_E_FORMAT);
    answered_with(bytes, n, 2, FBY_E_FORMAT); /* its pool cannot be */
    answered_with(bytes, n - 1, 2, FBY_E_FORMAT);
    welcome.pool.group[0].slots = 2; /* beyond the pool */
    n = fby_answer_build(FBY_REQUEST_HELLO, 0, 0, &welcome, NULL, 0, NULL, bytes);
    answered_with(bytes, n, 2, FBY_E_FORMAT);
    n = fby_answer_build(FBY_REQUEST_HELLO, 0, -EUSERS, NULL, NULL, 0, "server.max_clients is 1", bytes);
    answered_with(bytes, n, 0, -EUSERS);
    assert_non_null(strstr(fby_last_error(), "server.max_clients is 1"));
    assert_int_equal(descriptors(), before);
}

/* ---- Options, limits -------------------------------------------------------------------------------------------- */

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    fby_cache_t *cache = NULL;
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    char path[256];
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(fby_connect(NULL, NULL, &cache), -EINVAL);
    assert_int_equal(fby_connect("x", NULL, NULL), -EINVAL);
    assert_int_equal(fby_connect("", NULL, &cache), -EINVAL);
    assert_int_equal(fby_connect(path, NULL, &cache), -EINVAL);
    assert_non_null(strstr(fby_last_error(), "path is 255 bytes"));
    static const double wrong[] = {0, -1, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < FBY_ARRAY_LEN(wrong); i++) {
        options = (fby_connect_options_t)FBY_CONNECT_OPTIONS_INIT;
        options.call_timeout_s = wrong[i];
        assert_int_equal(fby_connect("x", &options, &cache), -EINVAL);
        assert_non_null(strstr(fby_last_error(), "call_timeout_s"));
        options = (fby_connect_options_t)FBY_CONNECT_OPTIONS_INIT;
        options.reconnect_s = wrong[i];
        assert_int_equal(fby_connect("x", &options, &cache), -EINVAL);
        assert_non_null(strstr(fby_last_error(), "reconnect_s"));
    }
    options.size = 0;
    assert_int_equal(fby_connect("x", &options, &cache), -EINVAL);
    assert_null(cache);
}

static void a_full_server_says_so(void **state)
{
    (void)state;
    served_t served;
    rig_t rig, next;
    SERVED_OPEN(&served, "server.max_clients=1");
    served_connect(&served, &rig, RIG_PATIENCE_S);
    connect_gives(served.path, RIG_PATIENCE_S, -EUSERS);
    assert_int_equal(fby_cache_close(rig.cache, 0, NULL), 0);
    fby_cache_t *cache = NULL;
    RIG_AWAIT(fby_connect(served.path, NULL, &cache) == 0);
    next = (rig_t){.cache = cache};
    assert_int_equal(rig_stats(&next).sessions, 0);
    fby_cache_close(cache, 0, NULL);
    served_close(&served);
}

static void the_server_knows_its_clients_by_name(void **state)
{
    (void)state;
    served_t served;
    fby_cache_t *first, *second;
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    fby_server_info_t info = {.size = sizeof(info)};
    fby_server_client_t clients[4];
    size_t count = 9;
    SERVED_OPEN(&served, NULL);
    options.name = "an engine with a name that is much longer than what goes into it";
    assert_int_equal(fby_connect(served.path, &options, &first), 0);
    assert_int_equal(fby_connect(served.path, NULL, &second), 0);
    assert_int_equal(fby_server_info(first, &info, clients, 4, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(info.clients, 2);
    assert_int_equal(info.pid, served.pid);
    assert_int_equal(clients[0].pid, getpid());
    assert_string_equal(clients[0].name, "an engine with a name that is much longer than ");
    assert_string_equal(clients[1].name, "test_client_link");
    assert_int_equal(fby_server_info(first, &info, NULL, 1, NULL), -EINVAL);
    assert_int_equal(fby_cache_close(first, 0, NULL), 0);
    assert_int_equal(fby_server_info(first, &info, NULL, 0, NULL), FBY_E_CLOSED);
    assert_int_equal(fby_cache_connected(first), FBY_E_CLOSED);
    RIG_AWAIT(fby_server_info(second, &info, NULL, 0, NULL) == 0 && info.clients == 1);
    assert_int_equal(info.deaths, 0);
    fby_cache_close(second, 0, NULL);
    served_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_nobody_listens_is_no_server),
        cmocka_unit_test(a_socket_that_is_not_ours_to_use_is_refused),
        cmocka_unit_test(who_does_not_answer_is_given_up),
        cmocka_unit_test(an_answer_that_is_no_welcome_is_refused),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_full_server_says_so),
        cmocka_unit_test(the_server_knows_its_clients_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
