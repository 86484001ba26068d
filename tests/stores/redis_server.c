#include "redis_server.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stores/redis_hiredis.h"

enum { STARTS = 2000, PAUSE_MS = 5 }; /* ten seconds to come up */

void redis_server_needed(void)
{
    if (system("command -v redis-server >/dev/null 2>&1") != 0) {
        printf("skipped: there is no redis-server\n");
        exit(77);
    }
}

uint32_t redis_server_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* ---- Asking it ---- */

static redisContext *connect_to(const redis_server_t *server)
{
    const struct timeval limit = {.tv_sec = 10};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", (int)server->port, limit);
    if (context == NULL || context->err != 0) {
        redisFree(context);
        return NULL;
    }
    redisSetTimeout(context, limit);
    if (server->password != NULL) {
        freeReplyObject(redisCommand(context, "AUTH %s", server->password));
    }
    return context;
}

static redisReply *ask(const redis_server_t *server, const char *command)
{
    redisContext *context = connect_to(server);
    if (context == NULL) {
        fail_msg("no connection for '%s'", command);
    }
    redisReply *reply = redisCommand(context, command); /* no '%' in what tests ask */
    if (reply == NULL) {
        fail_msg("no reply to '%s'", command);
    }
    redisFree(context);
    return reply;
}

int64_t redis_server_ask(const redis_server_t *server, const char *format, ...)
{
    char command[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    redisReply *reply = ask(server, command);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("'%s': %s", command, reply->str);
    }
    int64_t result = reply->type == REDIS_REPLY_INTEGER ? reply->integer : (int64_t)reply->len;
    freeReplyObject(reply);
    return result;
}

const char *redis_server_text(const redis_server_t *server, const char *format, ...)
{
    static char text[16384];
    char command[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    redisReply *reply = ask(server, command);
    snprintf(text, sizeof(text), "%s", reply->str != NULL ? reply->str : "");
    freeReplyObject(reply);
    return text;
}

void redis_server_set(const redis_server_t *server, uint64_t i, const void *bytes, size_t length)
{
    char key[FBY_KEY_BYTES];
    fixture_key(i, 0, key);
    redisContext *context = connect_to(server);
    assert_non_null(context);
    redisReply *reply = redisCommand(context, "SET fby:%s %b", key, bytes, length);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_STATUS);
    freeReplyObject(reply);
    redisFree(context);
}

/* ---- Starting and ending it ---- */

static void child(const redis_server_t *server, pid_t parent)
{
    char port[16], tls_port[16], bus_port[16];
    const char *argv[REDIS_SERVER_ARGUMENTS + 24] = {
        "redis-server", "--port",         port,     "--bind",     "127.0.0.1", "--save",     "",       "--appendonly",
        "no",           "--dir",          NULL,     "--tls-port", tls_port,    "--loglevel", "notice", "--logfile",
        "log",          "--cluster-port", bus_port,
    };
    size_t count = 19;
    argv[10] = server->directory;
    snprintf(port, sizeof(port), "%u", server->port);
    snprintf(tls_port, sizeof(tls_port), "%u", server->tls_port);
    snprintf(bus_port, sizeof(bus_port), "%u", server->bus_port);
    for (size_t i = 0; server->arguments[i] != NULL; i++) {
        argv[count++] = server->arguments[i];
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) {
        execvp(argv[0], (char *const *)(uintptr_t)argv);
    }
    _exit(127);
}

/* Anything but LOADING will do: a server with a password answers NOAUTH. */
static bool is_ready(const redis_server_t *server)
{
    redisContext *context = connect_to(server);
    if (context == NULL) {
        return false;
    }
    redisReply *reply = redisCommand(context, "PING");
    bool ready = reply != NULL && (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "LOADING", 7) != 0);
    freeReplyObject(reply);
    redisFree(context);
    return ready;
}

void redis_server_again(redis_server_t *server)
{
    pid_t parent = getpid();
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        child(server, parent);
    }
    for (int i = 0; i < STARTS; i++) {
        const struct timespec pause = {0, PAUSE_MS * 1000000};
        if (is_ready(server)) {
            return;
        }
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            fail_msg("redis-server ended at its start; its log is in %s", server->directory);
        }
        nanosleep(&pause, NULL);
    }
    fail_msg("redis-server does not come up");
}

void redis_server_start(redis_server_t *server, ...)
{
    size_t count = 0;
    va_list args;
    *server = (redis_server_t){.port = redis_server_free_port(), .directory = fixture_directory()};
    va_start(args, server);
    while ((server->arguments[count] = va_arg(args, const char *)) != NULL) {
        if (strcmp(server->arguments[count], "--tls-cert-file") == 0) {
            server->tls_port = redis_server_free_port();
        } else if (strcmp(server->arguments[count], "--cluster-enabled") == 0) {
            server->bus_port = redis_server_free_port();
        } else if (strcmp(server->arguments[count], "--requirepass") == 0) {
            server->password = va_arg(args, const char *);
            server->arguments[++count] = server->password;
        }
        assert_true(++count < REDIS_SERVER_ARGUMENTS);
    }
    va_end(args);
    redis_server_again(server);
}

void redis_server_signal(const redis_server_t *server, int signal)
{
    assert_true(server->pid > 0);
    assert_int_equal(kill(server->pid, signal), 0);
}

void redis_server_kill(redis_server_t *server)
{
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

void redis_server_stop(redis_server_t *server)
{
    redis_server_kill(server);
    if (server->directory != NULL) {
        fixture_remove_directory(server->directory);
        server->directory = NULL;
    }
}

const char *redis_option(const char *name, uint64_t number)
{
    static char options[8][64];
    static unsigned next;
    char *option = options[next++ % 8];
    snprintf(option, sizeof(options[0]), "%s=%llu", name, (unsigned long long)number);
    return option;
}
