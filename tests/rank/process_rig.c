#include "process_rig.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stores/object.h"

void story_wrong(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s (%s)\n", file, line, what, fby_last_error());
    _exit(1);
}

/* ---- Channel ----------------------------------------------------------------------------------------------------- */

bool packet_send(int channel, packet_kind_t kind, const void *bytes, size_t length, int descriptor)
{
    uint32_t head = kind;
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec pieces[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)bytes, length}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
        *passed =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(passed), &descriptor, sizeof(descriptor));
    }
    CHECK(length <= PACKET_BYTES);
    ssize_t sent = sendmsg(channel, &message, MSG_NOSIGNAL);
    CHECK(sent == (ssize_t)(sizeof(head) + length) || errno == EPIPE || errno == ECONNRESET);
    return sent >= 0;
}

bool packet_receive(int channel, packet_t *packet)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec pieces[2] = {{&packet->kind, sizeof(packet->kind)}, {packet->bytes, sizeof(packet->bytes)}};
    struct msghdr message = {
        .msg_iov = pieces, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof(control)};
    struct pollfd wait = {.fd = channel, .events = POLLIN};
    ssize_t got;
    do {
        CHECK(poll(&wait, 1, PATIENCE_MS) == 1);
        got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == ECONNRESET); /* said once, before what the peer sent while it lived */
    if (got == 0) {
        return false;
    }
    CHECK(got >= (ssize_t)sizeof(packet->kind) && (message.msg_flags & MSG_TRUNC) == 0);
    packet->length = (size_t)got - sizeof(packet->kind);
    packet->descriptor = -1;
    const struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    if (passed != NULL && passed->cmsg_type == SCM_RIGHTS) {
        memcpy(&packet->descriptor, CMSG_DATA(passed), sizeof(packet->descriptor));
    }
    return true;
}

/* ---- What all agree on ------------------------------------------------------------------------------------------- */

void story_engine(const story_t *story, uint32_t rank, rig_engine_t *engine)
{
    uint64_t common = story->seed, own = story->seed * 31 + rank;
    memset(engine, 0, sizeof(*engine));
    engine->layout.kind = story->layout;
    engine->layout.layers = 1 + unit_below(&common, 4);
    engine->layout.blocks = RIG_BLOCKS;
    engine->layout.rows = 1 + unit_below(&common, 5);
    engine->layout.row_bytes = 1 + unit_below(&common, 600);
    rig_engine_make(engine, &own);
}

uint64_t story_shard_offset(const story_t *story, uint32_t rank, uint64_t shard_bytes)
{
    return story->layout == FBY_LAYOUT_MLA ? 0 : rank * shard_bytes;
}

uint64_t story_payload_bytes(const story_t *story, uint64_t shard_bytes)
{
    return story->layout == FBY_LAYOUT_MLA ? shard_bytes : story->ranks * shard_bytes;
}

void story_content(const story_t *story, uint32_t rank, uint64_t block, uint8_t *out, uint64_t shard_bytes)
{
    uint64_t random = story->seed + 1000 * block + (story->layout == FBY_LAYOUT_MLA ? 0 : rank);
    for (uint64_t i = 0; i < shard_bytes; i++) {
        out[i] = (uint8_t)unit_random(&random);
    }
}

uint64_t story_random(void)
{
    uint64_t random = 0;
    while (random == 0) {
        CHECK(getrandom(&random, sizeof(random), 0) == sizeof(random));
    }
    return random;
}

/* ---- A rank ------------------------------------------------------------------------------------------------------ */

typedef struct member {
    const story_t *story;
    uint32_t rank;
    int channel;
    bool restarted, held;
    rig_engine_t engine;
    uint64_t shard_bytes;
    fby_rank_t *attached;
    fby_follower_t *follower;
    farewell_t farewell;
    packet_t packet;
} member_t;

static bool is_odd(const member_t *member, story_kind_t kind)
{
    return member->story->kind == kind && member->rank == member->story->odd && !member->restarted;
}

static void show_card(const member_t *member)
{
    fby_card_t *card = NULL;
    uint8_t bytes[4096];
    size_t needed = 0;
    const uint32_t token_table[] = {1, 2, 3};
    CHECK(fby_card_create(member->rank, member->story->ranks, story_random(), &card) == 0);
    CHECK(fby_card_set(card, "model.kv_dtype", is_odd(member, STORY_MISMATCH) ? "f16" : "bf16", 0) == 0);
    CHECK(fby_card_set(card, "model.layout", fby_layout_name(member->story->layout), 0) == 0);
    CHECK(fby_card_set_number(card, "rank.shard_bytes", member->shard_bytes, 0) == 0);
    CHECK(fby_card_set_number(card, "device.ordinal", member->rank, FBY_CARD_PER_RANK) == 0);
    CHECK(fby_card_set_digest(card, "tokens.digest", token_table, sizeof(token_table), 0) == 0);
    CHECK(fby_card_encode(card, bytes, sizeof(bytes), &needed) == 0);
    CHECK(packet_send(member->channel, PACKET_CARD, bytes, needed, -1));
    fby_card_free(card);
}

/* Compares the cards of all; what it thinks of them goes to the leader. */
static bool compare_cards(member_t *member, fby_ranks_t *group)
{
    const void *card[MOST_RANKS] = {NULL};
    size_t length[MOST_RANKS] = {0}, at = 0;
    char text[1024];
    CHECK(packet_receive(member->channel, &member->packet) && member->packet.kind == PACKET_CARDS);
    for (uint32_t i = 0; i < member->story->ranks; i++) {
        uint32_t bytes;
        memcpy(&bytes, member->packet.bytes + at, sizeof(bytes));
        at += sizeof(bytes);
        card[i] = bytes > 0 ? member->packet.bytes + at : NULL;
        length[i] = bytes;
        at += bytes;
    }
    int rc = fby_cards_compare(card, length, member->story->ranks, group, text, sizeof(text));
    CHECK(rc == 0 || rc == FBY_E_CONFIG);
    CHECK(packet_send(member->channel, PACKET_TEXT, text, strlen(text) + 1, -1));
    return rc == 0;
}

static void attach(member_t *member)
{
    fby_pool_t pool;
    const fby_rank_config_t config = {
        .size = sizeof(config), .rank = member->rank, .ranks = member->story->ranks, .threads = 1 + member->rank % 2};
    const fby_shard_t shard = {.size = sizeof(shard),
                               .offset = story_shard_offset(member->story, member->rank, member->shard_bytes),
                               .bytes = member->shard_bytes};
    CHECK(packet_receive(member->channel, &member->packet) && member->packet.kind == PACKET_POOL);
    CHECK(member->packet.length == sizeof(pool) && member->packet.descriptor >= 0);
    memcpy(&pool, member->packet.bytes, sizeof(pool));
    pool.descriptor = member->packet.descriptor;
    CHECK(fby_rank_attach(&pool, &config, &member->attached) == 0);
    CHECK(fby_rank_register(member->attached, &shard, &member->engine.layout) == 0);
    close(pool.descriptor);
}

/* False: the cards differ. */
static bool join(member_t *member)
{
    fby_ranks_t group = {.size = sizeof(group), .rank = member->rank, .window = STORY_WINDOW};
    if (!is_odd(member, STORY_ABSENT)) {
        show_card(member);
    }
    if (!compare_cards(member, &group)) {
        return false;
    }
    attach(member);
    CHECK(fby_follower_create(&group, &member->follower) == 0);
    member->farewell = (farewell_t){0};
    member->held = is_odd(member, STORY_SLOW);
    return true;
}

static void leave(member_t *member)
{
    fby_follower_free(member->follower);
    CHECK(fby_rank_detach(member->attached, -1) == 0);
    member->follower = NULL;
    member->attached = NULL;
}

/* ---- Decisions --------------------------------------------------------------------------------------------------- */

/* What the rank's model of its tensors says after the blocks of the range were written. */
static void expect_blocks(const member_t *member, const fby_block_range_t *range)
{
    uint8_t *content = malloc(member->shard_bytes);
    CHECK(content != NULL);
    for (uint64_t i = 0; i < range->blocks; i++) {
        story_content(member->story, member->rank, range->first_block + i, content, member->shard_bytes);
        rig_model_load(&member->engine, content, range->device_block[i]);
    }
    free(content);
}

static void copy_range(member_t *member, const fby_decision_t *decision, const fby_block_range_t *range)
{
    fby_copy_list_t list = {.size = sizeof(list),
                            .group = range->group,
                            .blocks = range->blocks,
                            .place = range->place,
                            .device_block = range->device_block};
    rig_paint(&member->engine, decision->number + 77); /* nothing is left of what was there before */
    expect_blocks(member, range);
    if (decision->kind == FBY_DECISION_SAVE) {
        memcpy(member->engine.arena, member->engine.shadow, member->engine.bytes);
        CHECK(fby_rank_save(member->attached, &list, NULL) == 0);
    } else {
        list.flags = FBY_COPY_VERIFY;
        CHECK(fby_rank_load(member->attached, &list, NULL) == 0);
    }
    CHECK(memcmp(member->engine.arena, member->engine.shadow, member->engine.bytes) == 0);
}

static void report(member_t *member, uint64_t number)
{
    uint8_t bytes[256];
    size_t needed = 0;
    const fby_result_t result = {.size = sizeof(result), .number = number};
    CHECK(fby_follower_report(member->follower, &result, bytes, sizeof(bytes), &needed) == 0);
    (void)packet_send(member->channel, PACKET_LOG, bytes, needed, -1); /* a dead leader is seen when it is read from */
}

static void apply(member_t *member, const fby_decision_t *decision)
{
    const uint64_t parts[5] = {member->farewell.log, decision->number, decision->kind, decision->tag, decision->tokens};
    member->farewell.log = fby_checksum_fold(parts, 5);
    member->farewell.applied++;
    CHECK(decision->number == member->farewell.applied);
    if (decision->kind != FBY_DECISION_LOAD && decision->kind != FBY_DECISION_SAVE) {
        return;
    }
    if (decision->tag == TAG_FATAL && (is_odd(member, STORY_KILLED) || is_odd(member, STORY_RESTARTED))) {
        raise(SIGKILL);
    }
    for (uint32_t i = 0; i < decision->ranges; i++) {
        copy_range(member, decision, &decision->range[i]);
    }
    report(member, decision->number);
}

static void take_results(member_t *member)
{
    fby_result_t result = {.size = sizeof(result)};
    while (fby_follower_result(member->follower, &result) == 0) {
        const bool lost = result.code == -ECONNRESET && result.rank == member->story->odd;
        CHECK(result.code == 0 || (lost && result.tag == TAG_FATAL));
        CHECK(result.failed_count == 0);
        member->farewell.ended++;
        member->farewell.lost += lost;
    }
}

/* Applies what is next. True: the log ended. */
static bool apply_all(member_t *member)
{
    uint8_t bytes[64];
    size_t needed = 0;
    fby_decision_t decision = {.size = sizeof(decision)};
    int rc = 0;
    while (!member->held && (rc = fby_follower_next(member->follower, &decision)) == 0) {
        apply(member, &decision);
    }
    CHECK(rc == 0 || rc == -EAGAIN || rc == -ENODATA || rc == FBY_E_STATE);
    take_results(member);
    if (!member->held) {
        CHECK(fby_follower_acknowledge(member->follower, bytes, sizeof(bytes), &needed) == 0);
        if (needed > 0) {
            (void)packet_send(member->channel, PACKET_LOG, bytes, needed, -1);
        }
    }
    return rc == FBY_E_STATE;
}

static void leader_is_gone(member_t *member)
{
    fby_result_t result = {.size = sizeof(result)};
    fby_decision_t decision = {.size = sizeof(decision)};
    CHECK(member->story->kind == STORY_LEADER_DEAD);
    CHECK(fby_follower_leader_lost(member->follower) == 0);
    CHECK(fby_follower_result(member->follower, &result) == 0);
    CHECK(result.code == -EOWNERDEAD && result.tag == TAG_FATAL && result.kind == FBY_DECISION_LOAD);
    CHECK(fby_follower_result(member->follower, &result) == -EAGAIN);
    CHECK(fby_follower_next(member->follower, &decision) == -EOWNERDEAD);
    leave(member);
    rig_engine_free(&member->engine);
    _exit(0);
}

static void take_message(member_t *member)
{
    int rc = fby_follower_receive(member->follower, member->packet.bytes, member->packet.length);
    CHECK(rc == 0 || rc == FBY_E_STALE);
    if (rc == FBY_E_STALE) {
        CHECK(strstr(fby_last_error(), "decisions of the leader is of incarnation") != NULL);
        member->farewell.stale++;
    }
}

/* Until the log ended (false) or cards are to be exchanged again (true). */
static bool follow(member_t *member)
{
    while (packet_receive(member->channel, &member->packet)) {
        switch (member->packet.kind) {
        case PACKET_AGAIN:
            leave(member);
            return true;
        case PACKET_GO:
            member->held = false;
            break;
        default:
            CHECK(member->packet.kind == PACKET_LOG);
            take_message(member);
        }
        if (apply_all(member)) {
            CHECK(packet_send(member->channel, PACKET_BYE, &member->farewell, sizeof(member->farewell), -1));
            return false;
        }
    }
    leader_is_gone(member);
    return false;
}

void story_rank(const story_t *story, uint32_t rank, int channel, bool restarted)
{
    static member_t member;
    member = (member_t){.story = story, .rank = rank, .channel = channel, .restarted = restarted};
    story_engine(story, rank, &member.engine);
    member.shard_bytes = rig_shard_bytes(&member.engine);
    while (join(&member)) {
        if (!follow(&member)) {
            leave(&member);
            break;
        }
    }
    rig_engine_free(&member.engine);
    _exit(0);
}
