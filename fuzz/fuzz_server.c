/*
 * fuzz_server.c - any bytes as traffic of clients: the parsers take nothing that is not of its exact shape, and whatever two
 * clients ask of a small cache, in any order and with any handles, its invariants hold and all comes back when they go.
 *
 * Input: a byte that says what the rest is: 0 a message for both parsers, else a list of requests for the dispatcher, without
 * sockets. A request is a byte for the client, a byte for the type, a byte for the elements, and then its body, of which
 * handles are picked from what the clients have when their first byte is odd.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/call.h"
#include "forebay/group.h"
#include "server/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { CLIENTS = 2, MOST_REQUESTS = 64, MOST_KEPT = 16 };

static _Alignas(8) uint8_t message[FBY_MSG_MOST + 8], back[FBY_MSG_MOST];

/* ---- Parsers ---------------------------------------------------------------------------------------------------- */

static void try_request(size_t length)
{
    fby_request_view_t view;
    if (!fby_request_parse(message, length, &view)) {
        return;
    }
    const fby_request_shape_t *shape = fby_request_shape(view.type);
    CHECK(shape != NULL && view.count <= shape->most);
    CHECK((const uint8_t *)view.elements + (size_t)view.count * shape->element == message + length);
    size_t again = fby_request_build(view.type, view.serial, view.body, view.elements, view.count, back);
    CHECK(again == length && memcmp(back, message, length) == 0);
}

static void try_answer(size_t length)
{
    for (uint32_t type = 0; type <= FBY_REQUEST_COUNT; type++) {
        fby_answer_view_t view;
        if (!fby_answer_parse((fby_request_t)type, message, length, &view)) {
            continue;
        }
        const fby_request_shape_t *shape = fby_request_shape(type);
        CHECK(shape != NULL && view.count <= shape->answer_most);
        CHECK(view.text == NULL || (const uint8_t *)view.text + view.text_bytes == message + length);
        CHECK(view.body == NULL ||
              (const uint8_t *)view.elements + (size_t)view.count * shape->answer_element == message + length);
    }
}

static void try_message(const uint8_t *data, size_t size)
{
    size_t length = FBY_MIN(size, sizeof(message));
    memcpy(message, data, length);
    try_request(length);
    try_answer(length);
    if (length >= sizeof(fby_msg_head_t)) { /* as far as the head goes, a message */
        fby_msg_head_t head;
        memcpy(&head, message, sizeof(head));
        head.magic = FBY_MSG_MAGIC;
        head.version = FBY_MSG_VERSION;
        head.type = (uint16_t)(head.type % (FBY_REQUEST_COUNT + 1));
        head.bytes = (uint32_t)length;
        memcpy(message, &head, sizeof(head));
        try_request(length);
        try_answer(length);
    }
}

/* ---- Dispatcher ------------------------------------------------------------------------------------------------- */

typedef struct world {
    fby_cache_t *cache;
    fby_server_t *server;
    fby_peer_t *peer[CLIENTS];
    uint64_t kept[MOST_KEPT]; /* handles that somebody was given */
    uint32_t kept_count;
} world_t;

static const char *const settings[] = {
    "model.id",
    "fuzz",
    "model.revision",
    "1",
    "model.kv_dtype",
    "f16",
    "model.layer_set",
    "all",
    "model.layout",
    "plain",
    "model.block_tokens",
    "4",
    "model.tp_size",
    "1",
    "model.cp_size",
    "1",
    "model.pp_size",
    "1",
    "model.groups",
    "full:64:all",
    "model.weights_epoch",
    "1",
    "pool.bytes",
    "4096",
    "store.driver",
    "mem",
    "log.level",
    "error",
    "server.client_sessions",
    "4",
    "server.client_holds",
    "4",
    "server.client_puts",
    "2",
    "server.client_sequence_bytes",
    "1MiB",
    "prefetch.max_sessions",
    "4",
    "server.allow_check",
    "true",
};

static void world_open(world_t *world)
{
    fby_config_t *config;
    CHECK(fby_config_create(&config) == 0);
    for (size_t i = 0; i < FBY_ARRAY_LEN(settings); i += 2) {
        CHECK(fby_config_set(config, settings[i], settings[i + 1]) == 0);
    }
    CHECK(fby_cache_open(config, &world->cache) == 0);
    fby_config_free(config);
    CHECK(fby_server_create(world->cache, world->cache->runtime, &world->server) == 0);
}

static void keep(world_t *world, uint64_t handle)
{
    world->kept[world->kept_count++ % MOST_KEPT] = handle;
}

static void call(world_t *world, fby_peer_t *peer, const fby_request_view_t *request)
{
    fby_reply_t reply;
    memset(&reply, 0, sizeof(reply));
    reply.elements = world->server->elements;
    pthread_mutex_lock(&world->server->lock);
    int code = fby_peer_call(peer, request, &reply);
    pthread_mutex_unlock(&world->server->lock);
    const fby_request_shape_t *shape = fby_request_shape(request->type);
    CHECK(reply.fds <= FBY_MSG_FDS && (code >= 0 || reply.fds == 0));
    for (size_t i = 0; i < reply.fds; i++) {
        close(reply.fd[i]);
    }
    if (code == FBY_CALL_VIOLATION) {
        return;
    }
    CHECK(reply.count <= shape->answer_most);
    CHECK(code < 0 ||
          fby_answer_build(request->type, 1, code, &reply.body, reply.elements, reply.count, NULL, back) > 0);
    if (code == 0 && shape->answer_body == sizeof(fby_msg_numbers_t)) {
        keep(world, reply.body.numbers.number[0]);
    }
    if (request->type == FBY_REQUEST_HELLO && code == 0) {
        peer->state = FBY_PEER_OPEN;
        world->server->waiting--;
    }
}

static void hello(world_t *world, uint32_t i)
{
    const fby_msg_hello_t body = {.snapshot_bytes = sizeof(fby_snapshot_t), .struct_bytes = FBY_MSG_STRUCT_BYTES};
    const fby_request_view_t request = {.type = FBY_REQUEST_HELLO, .body = &body};
    world->peer[i] = fby_peer_create(world->server, -1, -1, FBY_PEER_OF_TEST, 0);
    CHECK(world->peer[i] != NULL);
    world->peer[i]->allowed = true;
    call(world, world->peer[i], &request);
    CHECK(world->peer[i]->state == FBY_PEER_OPEN);
}

/* Bytes alone would hardly ever be a sequence of this cache: these fields are made to fit as far as their bits say. */
static void mend_sequence(fby_msg_seq_t *seq, uint32_t count)
{
    seq->id = seq->id % 4 + (seq->id % 64 != 0);
    seq->epoch = seq->epoch % 8 != 0 ? 1 : seq->epoch;
    seq->from %= 8;
    seq->count = count;
    seq->blocks = seq->blocks % 8 != 0 ? seq->from + count : seq->blocks;
    seq->tokens = seq->tokens % 8 != 0 ? (uint64_t)seq->blocks * 4 + seq->tokens % 4 : seq->tokens;
}

static void mend(world_t *world, fby_request_t type, void *body, uint32_t count)
{
    fby_msg_object_t *object = body;
    switch (type) {
    case FBY_REQUEST_SEQ:
    case FBY_REQUEST_START:
    case FBY_REQUEST_LOOKUP:
    case FBY_REQUEST_PUT_BEGIN:
        mend_sequence(body, count);
        break;
    default:
        break;
    }
    if (type == FBY_REQUEST_GROUP_JOIN) {
        fby_msg_join_t *join = body;
        join->rank %= 2;
        join->ranks %= 3;
        join->group[1] = '\0';
    }
    if (type == FBY_REQUEST_SUBSCRIBE) {
        object->from %= 64;
    }
    if (type == FBY_REQUEST_PUT_BEGIN) {
        fby_msg_put_t *put = body;
        put->put = put->put % 2 == 0 ? 0 : world->kept[put->put / 2 % MOST_KEPT];
        put->from %= 8;
        put->to %= 16;
    } else if (fby_request_shape(type)->body == sizeof(*object) && object->handle % 2 != 0) {
        object->handle = world->kept[object->handle / 2 % MOST_KEPT];
        object->from %= 16;
        object->to %= 16;
        object->group %= 2;
    }
    if (type == FBY_REQUEST_RESET) {
        object->flags = 0; /* the epoch is raised on another thread */
    }
}

/* A card that its group can read; its length. */
static uint32_t make_card(const fby_msg_join_t *join, uint8_t *out, size_t capacity)
{
    fby_card_t *card;
    size_t bytes = 0;
    if (fby_card_create(join->rank, join->ranks, 1 + join->rank, &card) != 0) {
        return 0;
    }
    CHECK(fby_card_encode(card, out, capacity, &bytes) == 0);
    fby_card_free(card);
    return (uint32_t)bytes;
}

/* One request from the input; how much of it that took. */
static size_t step(world_t *world, const uint8_t *data, size_t size)
{
    static _Alignas(8) uint8_t body[256], elements[1024];
    uint32_t which = data[0] % CLIENTS;
    const fby_request_t type = (fby_request_t)(1 + data[1] % (FBY_REQUEST_COUNT - 1));
    const fby_request_shape_t *shape = fby_request_shape(type);
    uint32_t count = shape->element > 0 ? FBY_MIN((uint32_t)data[2] % 8, shape->most) : 0;
    size_t used = FBY_MIN(size - 3, (size_t)shape->body);
    CHECK(shape->body <= sizeof(body) && (size_t)count * shape->element <= sizeof(elements));
    memset(body, 0, sizeof(body));
    memcpy(body, data + 3, used);
    memset(elements, data[2], sizeof(elements)); /* few different blocks: so that they meet */
    mend(world, type, body, count);
    if (type == FBY_REQUEST_GROUP_JOIN && data[2] % 2 == 0) {
        count = make_card((const fby_msg_join_t *)(const void *)body, elements, sizeof(elements));
    }
    const fby_request_view_t request = {.type = type, .count = count, .body = body, .elements = elements};
    fby_peer_t *peer = world->peer[which];
    call(world, peer, &request);
    if (peer->state != FBY_PEER_OPEN || data[0] == 0xff) { /* it said goodbye, or hung up */
        fby_peer_end(peer);
        fby_peers_reap(world->server);
        hello(world, which);
    }
    return used + 3;
}

static void world_close(world_t *world)
{
    fby_stats_t stats = {.size = sizeof(stats)};
    for (uint32_t i = 0; i < CLIENTS; i++) {
        fby_peer_end(world->peer[i]);
    }
    fby_peers_reap(world->server);
    CHECK(world->server->first == NULL && world->server->groups == NULL);
    CHECK(atomic_load(&world->server->counts.fenced_bytes) == 0);
    CHECK(fby_cache_check(world->cache) == 0);
    CHECK(fby_cache_stats(world->cache, &stats) == 0);
    CHECK(stats.holds_gauge == 0 && stats.puts_gauge == 0 && stats.quarantine_bytes_gauge == 0);
    fby_server_free(world->server);
    CHECK(fby_cache_close(world->cache, 10, NULL) == 0);
}

static void try_requests(const uint8_t *data, size_t size)
{
    world_t world = {.kept_count = 0};
    world_open(&world);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        hello(&world, i);
    }
    for (int i = 0; i < MOST_REQUESTS && size > 3; i++) {
        size_t used = step(&world, data, size);
        data += used;
        size -= used;
    }
    world_close(&world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 0) {
        try_message(data + 1, size - 1);
    } else if (size > 0) {
        try_requests(data + 1, size - 1);
    }
    return 0;
}
