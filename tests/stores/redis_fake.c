#include "redis_fake.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct peer {
    int fd;
    char bytes[65536];
    size_t at, end;
    char word[128]; /* the last one of the command */
} peer_t;

/* One more byte of the stream, or -1 at its end. */
static int peer_byte(peer_t *peer)
{
    if (peer->at == peer->end) {
        ssize_t n = recv(peer->fd, peer->bytes, sizeof(peer->bytes), 0);
        if (n <= 0) {
            return -1;
        }
        peer->at = 0;
        peer->end = (size_t)n;
    }
    return (unsigned char)peer->bytes[peer->at++];
}

/* The number of a line such as "*3" or "$44"; -1 at the end of the stream. */
static long peer_number(peer_t *peer)
{
    char line[32];
    size_t length = 0;
    int byte;
    while ((byte = peer_byte(peer)) != '\n') {
        if (byte < 0 || length == sizeof(line) - 1) {
            return -1;
        }
        line[length++] = (char)byte;
    }
    line[length] = '\0';
    return length > 0 ? strtol(line + 1, NULL, 10) : -1;
}

/* Reads one whole command; false at the end of the stream. */
static bool peer_command(peer_t *peer)
{
    long words = peer_number(peer);
    for (long i = 0; i < words; i++) {
        long bytes = peer_number(peer);
        memset(peer->word, 0, sizeof(peer->word));
        for (long k = 0; k < bytes + 2; k++) {
            int byte = bytes < 0 ? -1 : peer_byte(peer);
            if (byte < 0) {
                return false;
            }
            if (k < bytes && k < (long)sizeof(peer->word) - 1) {
                peer->word[k] = (char)byte;
            }
        }
    }
    return words > 0;
}

static void peer_send(const peer_t *peer, const fake_step_t *step)
{
    size_t piece = step->one_by_one ? 1 : step->length;
    for (size_t at = 0; at < step->length; at += piece) {
        if (send(peer->fd, step->bytes + at, piece, MSG_NOSIGNAL) < 0) {
            return;
        }
    }
}

static void serve(fake_t *fake, peer_t *peer)
{
    static const fake_step_t usual = FAKE_TEXT(":0\r\n");
    while (peer_command(peer)) {
        /* Of the keys that open tries, the first alone takes a step. */
        const char *tried = strstr(peer->word, ":open");
        bool is_usual = fake->steps->bytes == NULL || (tried != NULL && strcmp(tried, ":open0") != 0);
        const fake_step_t *step = is_usual ? &usual : fake->steps++;
        peer_send(peer, step);
        while (step->stalls && peer_byte(peer) >= 0) {}
        if (step->stalls || step->closes) {
            return;
        }
    }
}

static void *run(void *arg)
{
    static peer_t peer;
    fake_t *fake = arg;
    const int on = 1;
    while ((peer.fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        setsockopt(peer.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        fake->connections++;
        peer.at = peer.end = 0;
        serve(fake, &peer);
        close(peer.fd);
    }
    return NULL;
}

void fake_start(fake_t *fake, const fake_step_t *steps)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    *fake = (fake_t){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .steps = steps};
    assert_true(fake->listener >= 0);
    assert_int_equal(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fake->listener, 16), 0);
    assert_int_equal(getsockname(fake->listener, (struct sockaddr *)&address, &length), 0);
    fake->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&fake->thread, NULL, run, fake), 0);
}

void fake_stop(fake_t *fake)
{
    shutdown(fake->listener, SHUT_RDWR); /* ends accept */
    pthread_join(fake->thread, NULL);
    close(fake->listener);
}
