/* process_lead.c - the leader's process of a story. */
#include "process_rig.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

enum { MOST_MESSAGES = 64, SAVE_AT = 3, LOAD_AT = 7, ABSENCE_MS = 300 };

/* ---- Cache -------------------------------------------------------------------------------------------------- */

typedef struct lead {
    const story_t *story;
    int channel[MOST_RANKS], spare; /* spare: of the process that takes the odd rank's place */
    bool gone[MOST_RANKS];
    uint64_t shard_bytes, random;
    fby_cache_t *cache;
    fby_seq_t *seq;
    fby_leader_t *leader;
    fby_ranks_t group;
    fby_verdict_t *verdict[MOST_MESSAGES]; /* by number */
    uint64_t released;                     /* readers of the hold */
    fby_hold_t hold;
    struct {
        uint8_t bytes[4096];
        size_t length;
    } message[MOST_MESSAGES];
    uint32_t messages, sent; /* decisions encoded, and how many of them went out */
    uint64_t stale;          /* messages of the group before this one that were sent again */
    packet_t packet;
} lead_t;

static void set(fby_config_t *config, const char *key, const char *value)
{
    CHECK(fby_config_set(config, key, value) == 0);
}

static void open_cache(lead_t *lead)
{
    static const char *const keys[][2] = {
        {"model.id", "story"},      {"model.revision", "1"},      {"model.kv_dtype", "bf16"},
        {"model.layer_set", "all"}, {"model.weights_epoch", "1"}, {"model.block_tokens", "16"},
        {"model.cp_size", "1"},     {"model.pp_size", "1"},       {"store.driver", "mem"},
        {"store.host", "inline"},   {"pool.bytes", "8MiB"},       {"log.level", "error"},
    };
    fby_config_t *config = NULL;
    char text[64];
    uint32_t tokens[STORY_BLOCKS * STORY_TOKENS + 1];
    CHECK(fby_config_create(&config) == 0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        set(config, keys[i][0], keys[i][1]);
    }
    snprintf(text, sizeof(text), "full:%llu:all",
             (unsigned long long)story_payload_bytes(lead->story, lead->shard_bytes));
    set(config, "model.groups", text);
    snprintf(text, sizeof(text), "%u", lead->story->ranks);
    set(config, "model.tp_size", text);
    set(config, "model.layout", fby_layout_name(lead->story->layout));
    CHECK(fby_cache_open(config, &lead->cache) == 0);
    fby_config_free(config);
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        tokens[i] = (uint32_t)(lead->story->seed + i);
    }
    CHECK(fby_seq_create(lead->cache, tokens, sizeof(tokens) / sizeof(tokens[0]), NULL, 0, &lead->seq) == 0);
}

static void close_cache(lead_t *lead)
{
    fby_stats_t stats = {.size = sizeof(stats)};
    CHECK(fby_cache_stats(lead->cache, &stats) == 0);
    CHECK(stats.holds_gauge == 0 && stats.puts_gauge == 0 && stats.hold_bytes_gauge == 0);
    CHECK(fby_cache_check(lead->cache) == 0);
    fby_seq_unref(lead->seq);
    CHECK(fby_cache_close(lead->cache, 10, NULL) == 0);
}

static void to_all(lead_t *lead, packet_kind_t kind, const void *bytes, size_t length, int descriptor)
{
    for (uint32_t rank = 0; rank < lead->story->ranks; rank++) {
        if (!lead->gone[rank]) {
            (void)packet_send(lead->channel[rank], kind, bytes, length, descriptor);
        }
    }
}

/* ---- Cards ------------------------------------------------------------------------------------------------------- */

/* A card, or nothing within the time limit. */
static size_t take_card(lead_t *lead, uint32_t rank)
{
    const bool absent = lead->story->kind == STORY_ABSENT && rank == lead->story->odd;
    struct pollfd wait = {.fd = lead->channel[rank], .events = POLLIN};
    if (poll(&wait, 1, absent ? ABSENCE_MS : PATIENCE_MS) == 0) {
        CHECK(absent);
        return 0;
    }
    do {
        CHECK(packet_receive(lead->channel[rank], &lead->packet));
    } while (lead->packet.kind == PACKET_LOG); /* to the group before this one, and late */
    CHECK(lead->packet.kind == PACKET_CARD);
    return lead->packet.length;
}

/* Gathers cards, hands all of them to all, and hears what they think. True: all agree that all is equal. */
static bool exchange(lead_t *lead)
{
    static uint8_t all[PACKET_BYTES];
    const void *card[MOST_RANKS];
    size_t length[MOST_RANKS], at = 0;
    char text[1024];
    for (uint32_t rank = 0; rank < lead->story->ranks; rank++) {
        const uint32_t bytes = (uint32_t)take_card(lead, rank);
        memcpy(all + at, &bytes, sizeof(bytes));
        memcpy(all + at + sizeof(bytes), lead->packet.bytes, bytes);
        card[rank] = bytes > 0 ? all + at + sizeof(bytes) : NULL;
        length[rank] = bytes;
        at += sizeof(bytes) + bytes;
    }
    to_all(lead, PACKET_CARDS, all, at, -1);
    lead->group = (fby_ranks_t){.size = sizeof(lead->group), .window = STORY_WINDOW};
    int rc = fby_cards_compare(card, length, lead->story->ranks, &lead->group, text, sizeof(text));
    for (uint32_t rank = 0; rank < lead->story->ranks; rank++) {
        CHECK(packet_receive(lead->channel[rank], &lead->packet) && lead->packet.kind == PACKET_TEXT);
        CHECK(strcmp((const char *)lead->packet.bytes, text) == 0);
    }
    CHECK((rc == 0) == (text[0] == '\0'));
    return rc == 0;
}

static void say_what_differs(const story_t *story, char *out)
{
    if (story->kind == STORY_ABSENT) {
        sprintf(out, "no readable card of rank %u: 1 missing", story->odd);
        return;
    }
    size_t used = (size_t)sprintf(out, "model.kv_dtype:");
    for (uint32_t rank = 0; rank < story->ranks; rank++) {
        used += (size_t)sprintf(out + used, "%s rank %u %s", rank > 0 ? "," : "", rank,
                                rank == story->odd ? "f16" : "bf16");
    }
}

static void begin_group(lead_t *lead)
{
    fby_pool_t pool = {.size = sizeof(pool)};
    CHECK(fby_cache_pool(lead->cache, &pool) == 0);
    to_all(lead, PACKET_POOL, &pool, sizeof(pool), pool.descriptor);
    close(pool.descriptor);
    CHECK(fby_leader_create(&lead->group, &lead->leader) == 0);
    lead->messages = lead->sent = 0;
}

static void end_group(lead_t *lead)
{
    fby_leader_free(lead->leader);
    for (uint32_t i = 0; i < MOST_MESSAGES; i++) {
        fby_verdict_free(lead->verdict[i]);
        lead->verdict[i] = NULL;
    }
}

/* ---- Decisions --------------------------------------------------------------------------------------------------- */

static int try_to_decide(lead_t *lead, const fby_decision_t *decision)
{
    uint64_t number = 0;
    int rc = fby_leader_decide(lead->leader, decision, &number);
    if (rc != 0) {
        return rc;
    }
    CHECK(lead->messages < MOST_MESSAGES);
    CHECK(fby_leader_encode(lead->leader, number, lead->message[lead->messages].bytes, sizeof(lead->message[0].bytes),
                            &lead->message[lead->messages].length, NULL) == 0);
    lead->messages++;
    if (decision->kind == FBY_DECISION_LOAD || decision->kind == FBY_DECISION_SAVE) {
        CHECK(fby_verdict_create(&lead->group, number, &lead->verdict[number]) == 0);
    }
    return 0;
}

static void send_scrambled(lead_t *lead);
static void listen_once(lead_t *lead);

/* When the window is full, waits until the slowest rank has more of it. */
static int decide(lead_t *lead, const fby_decision_t *decision)
{
    int rc;
    while ((rc = try_to_decide(lead, decision)) == FBY_E_BUDGET) {
        send_scrambled(lead);
        listen_once(lead);
    }
    return rc;
}

static int decide_kind(lead_t *lead, uint32_t kind, uint64_t tag)
{
    const fby_decision_t decision = {.size = sizeof(decision), .kind = kind, .tag = tag};
    return decide(lead, &decision);
}

/* Blocks [from, to) between places and device blocks that lie `step` apart. */
static int decide_copy(lead_t *lead, uint32_t kind, uint64_t tag, const uint64_t *place, uint64_t from, uint64_t to,
                       uint64_t step)
{
    uint64_t device_block[STORY_BLOCKS];
    for (uint64_t i = from; i < to; i++) {
        device_block[i] = (step * i + 1) % RIG_BLOCKS;
    }
    const fby_block_range_t range = {
        .first_block = from, .blocks = to - from, .place = place + from, .device_block = device_block + from};
    const fby_decision_t decision = {.size = sizeof(decision),
                                     .kind = kind,
                                     .tag = tag,
                                     .tokens = to * STORY_TOKENS,
                                     .object = lead->hold,
                                     .ranges = 1,
                                     .range = &range};
    return decide(lead, &decision);
}

/* What was decided since the last time, to each rank in another order, some of it twice. */
static void send_scrambled(lead_t *lead)
{
    const uint32_t n = lead->messages - lead->sent;
    for (uint32_t rank = 0; rank < lead->story->ranks; rank++) {
        uint32_t order[MOST_MESSAGES] = {0};
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t j = unit_below(&lead->random, i + 1);
            order[i] = order[j];
            order[j] = lead->sent + i;
        }
        for (uint32_t i = 0; i < n && !lead->gone[rank]; i++) {
            for (uint32_t times = 1 + unit_below(&lead->random, 2); times > 0; times--) {
                (void)packet_send(lead->channel[rank], PACKET_LOG, lead->message[order[i]].bytes,
                                  lead->message[order[i]].length, -1);
            }
        }
    }
    lead->sent = lead->messages;
}

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

static void release_one(lead_t *lead)
{
    if (lead->hold != 0) {
        CHECK(fby_hold_release(lead->cache, lead->hold) == 0);
        lead->released++;
    }
}

static void rank_is_gone(lead_t *lead, uint32_t rank)
{
    CHECK(rank == lead->story->odd && (lead->story->kind == STORY_KILLED || lead->story->kind == STORY_RESTARTED));
    lead->gone[rank] = true;
    CHECK(fby_leader_lost(lead->leader, rank) == 0);
    for (uint32_t i = 0; i < MOST_MESSAGES; i++) {
        CHECK(lead->verdict[i] == NULL || fby_verdict_lost(lead->verdict[i], rank) == 0);
    }
    release_one(lead); /* the process is gone, so nothing of it reads the slots */
}

static void take_from_rank(lead_t *lead, uint32_t rank)
{
    fby_message_t about = {.size = sizeof(about)};
    if (!packet_receive(lead->channel[rank], &lead->packet)) {
        rank_is_gone(lead, rank);
        return;
    }
    CHECK(lead->packet.kind == PACKET_LOG);
    CHECK(fby_message_parse(lead->packet.bytes, lead->packet.length, &about) == 0 && about.rank == rank);
    if (about.type == FBY_MESSAGE_REPORT) {
        CHECK(fby_verdict_receive(lead->verdict[about.number], lead->packet.bytes, lead->packet.length) == 0);
        release_one(lead);
    } else {
        CHECK(fby_leader_receive(lead->leader, lead->packet.bytes, lead->packet.length, NULL, NULL) == 0);
    }
}

/* Waits for whoever says something next. */
static void listen_once(lead_t *lead)
{
    struct pollfd wait[MOST_RANKS];
    for (uint32_t rank = 0; rank < lead->story->ranks; rank++) {
        wait[rank] = (struct pollfd){.fd = lead->gone[rank] ? -1 : lead->channel[rank], .events = POLLIN};
    }
    CHECK(poll(wait, lead->story->ranks, PATIENCE_MS) > 0);
    for (uint32_t rank = 0; rank < lead->story->ranks; rank++) {
        if (wait[rank].revents != 0) {
            take_from_rank(lead, rank);
        }
    }
}

/* Until the verdict on decision `number` stands; then everybody gets it. */
static void settle(lead_t *lead, uint64_t number, int code)
{
    fby_result_t result = {.size = sizeof(result)};
    uint8_t bytes[256];
    size_t needed = 0;
    while (fby_verdict_result(lead->verdict[number], &result) == -EAGAIN) {
        listen_once(lead);
    }
    CHECK(result.code == code);
    CHECK(result.rank == (code == 0 ? FBY_NO_RANK : lead->story->odd));
    CHECK(fby_verdict_encode(lead->verdict[number], bytes, sizeof(bytes), &needed) == 0);
    to_all(lead, PACKET_LOG, bytes, needed, -1);
}

/* ---- Acts -------------------------------------------------------------------------------------------------------- */

/* All ranks' shards of all blocks, byte for byte. */
static void check_slots(const lead_t *lead, const void *const *slot)
{
    uint8_t *content = malloc(lead->shard_bytes);
    CHECK(content != NULL);
    for (uint64_t block = 0; block < STORY_BLOCKS; block++) {
        for (uint32_t rank = 0; rank < lead->story->ranks; rank++) {
            const uint64_t offset = story_shard_offset(lead->story, rank, lead->shard_bytes);
            story_content(lead->story, rank, block, content, lead->shard_bytes);
            CHECK(memcmp((const uint8_t *)slot[block] + offset, content, lead->shard_bytes) == 0);
        }
    }
    free(content);
}

/* The ranks fill a put, in two decisions among others. */
static void save_all(lead_t *lead)
{
    uint64_t place[STORY_BLOCKS], staged_to = 0;
    fby_put_t put = 0;
    fby_put_result_t result = {.size = sizeof(result)};
    CHECK(fby_put_begin(lead->cache, lead->seq, 0, STORY_BLOCKS, &put, NULL, NULL, &staged_to) == 0);
    CHECK(staged_to == STORY_BLOCKS);
    CHECK(fby_put_places(lead->cache, put, 0, 0, STORY_BLOCKS, place) == 0);
    const uint64_t first = fby_leader_next(lead->leader);
    CHECK(decide_copy(lead, FBY_DECISION_SAVE, TAG_SAVE, place, 0, 2, SAVE_AT) == 0);
    CHECK(decide_kind(lead, FBY_DECISION_STOP, TAG_NOTHING) == 0);
    CHECK(decide_copy(lead, FBY_DECISION_SAVE, TAG_SAVE, place, 2, STORY_BLOCKS, SAVE_AT) == 0);
    CHECK(decide_kind(lead, FBY_DECISION_STOP, TAG_NOTHING) == 0);
    send_scrambled(lead);
    settle(lead, first, 0);
    settle(lead, first + 2, 0);
    CHECK(fby_put_commit(lead->cache, put, STORY_BLOCKS * STORY_TOKENS, &result) == 0);
    CHECK(result.published == STORY_BLOCKS);
    CHECK(fby_put_release(lead->cache, put) == 0);
}

/* The ranks load a hold, which has one reader per rank and ends with the last of them. */
static void begin_load(lead_t *lead, uint64_t tag)
{
    uint64_t place[STORY_BLOCKS], tokens = 0;
    const void *slot[STORY_BLOCKS];
    CHECK(fby_lookup(lead->cache, lead->seq, 0, &lead->hold, &tokens) == 0);
    CHECK(tokens == STORY_BLOCKS * STORY_TOKENS);
    CHECK(fby_hold_readers(lead->cache, lead->hold, lead->story->ranks - 1) == 0);
    CHECK(fby_hold_slots(lead->cache, lead->hold, 0, 0, STORY_BLOCKS, slot) == 0);
    check_slots(lead, slot);
    CHECK(fby_hold_places(lead->cache, lead->hold, 0, 0, STORY_BLOCKS, place) == 0);
    lead->released = 0;
    CHECK(decide_kind(lead, FBY_DECISION_STOP, TAG_NOTHING) == 0);
    CHECK(decide_copy(lead, FBY_DECISION_LOAD, tag, place, 0, STORY_BLOCKS, LOAD_AT) == 0);
    send_scrambled(lead);
}

static void load_all(lead_t *lead, uint64_t tag, int code)
{
    begin_load(lead, tag);
    settle(lead, fby_leader_next(lead->leader) - 1, code);
    CHECK(lead->released == lead->story->ranks);
    CHECK(fby_hold_release(lead->cache, lead->hold) == FBY_E_STALE);
    lead->hold = 0;
}

/* The slow rank lags a whole window behind; the log waits, says for whom, and goes on when it may. */
static void wait_for_the_slow(lead_t *lead)
{
    const fby_decision_t stop = {.size = sizeof(stop), .kind = FBY_DECISION_STOP, .tag = TAG_NOTHING};
    char text[64];
    int rc = 0;
    for (uint32_t i = 0; i <= STORY_WINDOW && rc == 0; i++) {
        rc = try_to_decide(lead, &stop);
    }
    snprintf(text, sizeof(text), "rank %u acknowledged up to 0 of %u", lead->story->odd, STORY_WINDOW);
    send_scrambled(lead);
    while (rc == FBY_E_BUDGET && strstr(fby_last_error(), text) == NULL) {
        listen_once(lead); /* the others' acknowledgements are on their way */
        rc = try_to_decide(lead, &stop);
    }
    CHECK(rc == FBY_E_BUDGET);
    CHECK(packet_send(lead->channel[lead->story->odd], PACKET_GO, NULL, 0, -1));
    CHECK(decide(lead, &stop) == 0);
}

/* Cards again, with a process that is new; then what is left of the old group's log is sent to everybody. */
static void start_again(lead_t *lead)
{
    const uint32_t odd = lead->story->odd;
    const uint64_t before = lead->group.incarnation;
    to_all(lead, PACKET_AGAIN, NULL, 0, -1);
    close(lead->channel[odd]);
    lead->channel[odd] = lead->spare;
    lead->spare = -1;
    lead->gone[odd] = false;
    end_group(lead);
    CHECK(exchange(lead));
    CHECK(lead->group.incarnation != before);
    const uint32_t old = lead->messages;
    begin_group(lead);
    for (uint32_t i = 0; i < old; i++) {
        to_all(lead, PACKET_LOG, lead->message[i].bytes, lead->message[i].length, -1);
    }
    lead->stale = old;
}

/* The end of the log; all ranks that are left saw the same one. */
static void say_farewell(lead_t *lead, uint64_t lost)
{
    farewell_t first = {0}, one;
    bool any = false;
    CHECK(decide_kind(lead, FBY_DECISION_RELEASE, TAG_NOTHING) == 0);
    CHECK(decide_kind(lead, FBY_DECISION_END, TAG_NOTHING) == 0);
    send_scrambled(lead);
    for (uint32_t rank = 0; rank < lead->story->ranks; rank++) {
        while (!lead->gone[rank] && packet_receive(lead->channel[rank], &lead->packet) &&
               lead->packet.kind == PACKET_LOG) { /* acknowledgements */
        }
        if (!lead->gone[rank]) {
            CHECK(lead->packet.kind == PACKET_BYE && lead->packet.length == sizeof(one));
            memcpy(&one, lead->packet.bytes, sizeof(one));
            CHECK(one.applied == lead->messages && one.stale == lead->stale && one.lost == lost);
            CHECK(!any || memcmp(&first, &one, sizeof(one)) == 0);
            first = one;
            any = true;
        }
    }
}

static void lead_story(lead_t *lead)
{
    const story_kind_t kind = lead->story->kind;
    begin_group(lead);
    if (kind == STORY_SLOW) {
        wait_for_the_slow(lead);
    }
    save_all(lead);
    load_all(lead, TAG_LOAD, 0);
    if (kind == STORY_LEADER_DEAD) {
        begin_load(lead, TAG_FATAL);
        raise(SIGKILL);
    }
    if (kind == STORY_KILLED || kind == STORY_RESTARTED) {
        load_all(lead, TAG_FATAL, -ECONNRESET);
        CHECK(decide_kind(lead, FBY_DECISION_LOAD, TAG_LOAD) == -ECONNRESET);
    }
    if (kind == STORY_RESTARTED) {
        start_again(lead);
        load_all(lead, TAG_LOAD, 0);
    }
    say_farewell(lead, kind == STORY_KILLED);
    end_group(lead);
}

void story_lead(const story_t *story, const int *channel, int spare)
{
    static lead_t lead;
    rig_engine_t engine;
    lead = (lead_t){.story = story, .spare = spare, .random = story->seed};
    memcpy(lead.channel, channel, sizeof(lead.channel));
    story_engine(story, 0, &engine);
    lead.shard_bytes = rig_shard_bytes(&engine);
    rig_engine_free(&engine);
    const bool differ = story->kind == STORY_MISMATCH || story->kind == STORY_ABSENT;
    if (exchange(&lead)) {
        CHECK(!differ);
        open_cache(&lead); /* nobody pays for a cache whose ranks do not fit each other */
        lead_story(&lead);
        close_cache(&lead);
    } else {
        char text[512];
        say_what_differs(story, text);
        CHECK(differ && strcmp(fby_last_error(), text) == 0);
    }
    _exit(0);
}
