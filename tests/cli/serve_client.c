/*
 * serve_client.c - a client of a server, for the stories of `forebay serve`, `stat` and `top`: does what stdin says, one
 * line each, and answers with one line.
 *
 *   serve_client SOCKET NAME
 *     put         publishes the prompt (8 blocks) and waits until the store has it: "put STORED"
 *     forget      "forget": the cache forgets it, the store does not
 *     hold        looks the prompt up and keeps a hold: "hold TOKENS"
 *     start       starts a session: "start"
 *     answer      waits for it, takes and releases what came: "answer OUTCOME TOKENS"
 *     connected   "connected 0|1"
 */
#include <stdio.h>
#include <string.h>

#include "forebay/server.h"

enum { BLOCKS = 8, BLOCK_TOKENS = 16, TOKENS = BLOCKS * BLOCK_TOKENS + 1 };

#define LIMIT_S 30.0

typedef struct client {
    fby_cache_t *cache;
    uint32_t tokens[TOKENS];
    fby_session_t session;
} client_t;

static int say_error(const char *what, int status)
{
    printf("%s %s: %s\n", what, fby_errname(status), fby_last_error());
    return 0;
}

static int put(client_t *client, fby_seq_t *seq)
{
    fby_model_t model = {.size = sizeof(model)};
    void *slot[BLOCKS];
    uint64_t from, to, stored = 0;
    fby_put_t handle;
    int status = fby_cache_model(client->cache, &model);
    status = status == 0 ? fby_put_begin(client->cache, seq, 0, BLOCKS, &handle, NULL, &from, &to) : status;
    if (status != 0) {
        return say_error("put", status);
    }
    status = fby_put_slots(client->cache, handle, 0, from, to, slot);
    for (uint64_t i = from; i < to && status == 0; i++) {
        memset(slot[i - from], (int)i, model.group[0].payload_bytes);
    }
    status = status == 0 ? fby_put_commit(client->cache, handle, TOKENS - 1, NULL) : status;
    status = status == 0 ? fby_put_wait_store(client->cache, handle, LIMIT_S, &stored, NULL) : status;
    fby_put_release(client->cache, handle);
    return status == 0 ? printf("put %d\n", (int)stored) : say_error("put", status);
}

static int hold(client_t *client, fby_seq_t *seq)
{
    fby_hold_t handle;
    uint64_t tokens = 0;
    int status = fby_lookup(client->cache, seq, 0, &handle, &tokens);
    return status == 0 ? printf("hold %d\n", (int)tokens) : say_error("hold", status);
}

static int start(client_t *client, fby_seq_t *seq)
{
    int status = fby_session_start(client->cache, seq, NULL, &client->session);
    return status == 0 ? printf("start\n") : say_error("start", status);
}

static int answer(client_t *client, fby_seq_t *seq)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    fby_hold_t handle;
    int status = fby_session_wait(client->cache, client->session, LIMIT_S, &snapshot);
    status = status == 0 ? fby_session_take(client->cache, client->session, &handle) : status;
    if (status != 0) {
        return say_error("answer", status);
    }
    fby_hold_release(client->cache, handle);
    return printf("answer %s %d\n", fby_outcome_name(snapshot.outcome), (int)snapshot.delivered_tokens);
}

static int forget(client_t *client, fby_seq_t *seq)
{
    int status = fby_cache_reset(client->cache, LIMIT_S, 0);
    return status == 0 ? printf("forget\n") : say_error("forget", status);
}

static int connected(client_t *client, fby_seq_t *seq)
{
    return printf("connected %d\n", fby_cache_connected(client->cache));
}

static const struct {
    const char *word;
    int (*act)(client_t *client, fby_seq_t *seq);
} acts[] = {{"put\n", put},     {"forget\n", forget}, {"hold\n", hold},
            {"start\n", start}, {"answer\n", answer}, {"connected\n", connected}};

static void obey(client_t *client, const char *line)
{
    fby_seq_t *seq = NULL;
    int status = fby_seq_create(client->cache, client->tokens, TOKENS, NULL, 0, &seq);
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        if (strcmp(acts[i].word, line) == 0) {
            if (status == 0) {
                acts[i].act(client, seq);
            } else {
                say_error("seq", status);
            }
        }
    }
    fby_seq_unref(seq);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    client_t client = {.session = 0};
    char line[64];
    if (argc != 3) {
        return 2;
    }
    options.name = argv[2];
    options.reconnect_s = 0.01;
    int status = fby_connect(argv[1], &options, &client.cache);
    if (status != 0) {
        say_error("connect", status);
        return 1;
    }
    for (uint32_t i = 0; i < TOKENS; i++) {
        client.tokens[i] = i;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        obey(&client, line);
    }
    fby_cache_close(client.cache, 0, NULL);
    return 0;
}
