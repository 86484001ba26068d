/* group.c - groups, from the first card to the last rank's end. */
#include "server/group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- Telling ---------------------------------------------------------------------------------------------------- */

void fby_member_signal(fby_member_t *member)
{
    fby_event_fds_end(member->events);
    member->events = NULL;
    member->event_count = 0;
}

void fby_group_signal(fby_group_t *group)
{
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        if (group->member[rank] != NULL) {
            fby_member_signal(group->member[rank]);
        }
    }
}

int fby_group_event_fd(fby_peer_t *peer)
{
    fby_member_t *member = peer->member;
    fby_event_fd_t *ours;
    int theirs;
    if (member == NULL) {
        fby_error_set("this client has not joined a group");
        return FBY_E_STATE;
    }
    if (member->event_count == FBY_GROUP_EVENTS) {
        fby_member_signal(member); /* given up by those who waited, or they ask again */
    }
    int rc = fby_event_fd_create(&ours, &theirs);
    if (rc != 0) {
        return rc;
    }
    ours->next = member->events;
    member->events = ours;
    member->event_count++;
    return theirs;
}

/* ---- Mail ------------------------------------------------------------------------------------------------------- */

static void bytes_unref(fby_group_bytes_t *message)
{
    if (message != NULL && --message->refs == 0) {
        free(message);
    }
}

bool fby_member_post(fby_member_t *member, fby_group_bytes_t *message, uint32_t lost)
{
    fby_group_mail_t *mail = malloc(sizeof(*mail));
    if (mail == NULL) {
        return false;
    }
    *mail = (fby_group_mail_t){.message = message, .lost = lost};
    if (message != NULL) {
        message->refs++;
        member->mail_bytes += FBY_GROUP_MAIL + message->count;
    }
    *member->mail_end = mail;
    member->mail_end = &mail->next;
    return true;
}

void fby_member_read(fby_member_t *member)
{
    fby_group_mail_t *mail = member->mail;
    member->mail = mail->next;
    member->mail_end = member->mail == NULL ? &member->mail : member->mail_end;
    member->mail_bytes -= mail->message != NULL ? FBY_GROUP_MAIL + mail->message->count : 0;
    bytes_unref(mail->message);
    free(mail);
}

static void mail_drop(fby_member_t *member)
{
    while (member->mail != NULL) {
        fby_member_read(member);
    }
}

/* ---- Verdicts --------------------------------------------------------------------------------------------------- */

fby_verdict_t *fby_group_verdict_of(fby_group_t *group, uint64_t number, int *code)
{
    size_t place = number % FBY_GROUP_VERDICTS;
    if (number + FBY_GROUP_VERDICTS <= group->highest) {
        fby_error_set("decision %llu: the verdicts on the last %d are kept", (unsigned long long)number,
                      FBY_GROUP_VERDICTS);
        *code = -ENOENT;
        return NULL;
    }
    if (group->verdict[place] != NULL && group->number[place] == number) {
        return group->verdict[place];
    }
    fby_verdict_t *made;
    *code = fby_verdict_create(&group->formed, number, &made);
    if (*code != 0) {
        return NULL;
    }
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        if (group->lost[rank]) {
            (void)fby_verdict_lost(made, rank);
        }
    }
    fby_verdict_free(group->verdict[place]);
    group->verdict[place] = made;
    group->number[place] = number;
    group->highest = FBY_MAX(group->highest, number);
    return made;
}

static void verdicts_drop(fby_group_t *group)
{
    for (size_t i = 0; i < FBY_GROUP_VERDICTS; i++) {
        fby_verdict_free(group->verdict[i]);
        group->verdict[i] = NULL;
    }
    group->highest = 0;
}

/* ---- Groups and members ----------------------------------------------------------------------------------------- */

static fby_group_t *group_find(const fby_server_t *server, const char name[FBY_MSG_NAME])
{
    fby_group_t *group = server->groups;
    while (group != NULL && strncmp(group->name, name, FBY_MSG_NAME) != 0) {
        group = group->next;
    }
    return group;
}

static fby_group_t *group_make(fby_server_t *server, const fby_msg_join_t *join)
{
    fby_group_t *group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return NULL;
    }
    group->member = calloc(join->ranks, sizeof(fby_member_t *));
    group->lost = calloc(join->ranks, 1);
    if (group->member == NULL || group->lost == NULL) {
        free(group->member);
        free(group->lost);
        free(group);
        return NULL;
    }
    memcpy(group->name, join->group, sizeof(group->name));
    group->ranks = join->ranks;
    group->next = server->groups;
    server->groups = group;
    return group;
}

static void group_free(fby_server_t *server, fby_group_t *group)
{
    fby_group_t **at = &server->groups;
    while (*at != NULL && *at != group) {
        at = &(*at)->next;
    }
    if (*at == group) {
        *at = group->next;
    }
    verdicts_drop(group);
    free(group->member);
    free(group->lost);
    free(group);
}

static void member_state(fby_member_t *member, fby_member_state_t state)
{
    member->group->waiting -= member->state == FBY_MEMBER_WAITING;
    member->group->waiting += state == FBY_MEMBER_WAITING;
    member->state = state;
}

static void member_free(fby_member_t *member)
{
    fby_group_t *group = member->group;
    member_state(member, FBY_MEMBER_OUT);
    group->member[member->rank] = NULL;
    group->members--;
    member->peer->member = NULL;
    fby_member_signal(member);
    mail_drop(member);
    free(member->card);
    free(member);
}

/* The join is over, or everything is. */
static void member_out(fby_member_t *member, int code, const char *text)
{
    member_state(member, FBY_MEMBER_OUT);
    member->code = code;
    snprintf(member->text, sizeof(member->text), "%s", text);
    mail_drop(member);
    fby_member_signal(member);
}

/* ---- Lost ------------------------------------------------------------------------------------------------------- */

/* A rank that was IN is gone: nobody waits for its reports, and everybody hears of it. */
static void rank_lost(fby_group_t *group, uint32_t lost)
{
    group->lost[lost] = 1;
    group->broken_by = lost;
    for (size_t i = 0; i < FBY_GROUP_VERDICTS; i++) {
        if (group->verdict[i] != NULL) {
            (void)fby_verdict_lost(group->verdict[i], lost);
        }
    }
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        fby_member_t *member = group->member[rank];
        if (member != NULL && member->state == FBY_MEMBER_IN && !fby_member_post(member, NULL, lost)) {
            member_out(member, -ECONNRESET, "a rank is lost");
        }
    }
    fby_group_signal(group);
}

void fby_group_leave(fby_peer_t *peer)
{
    fby_member_t *member = peer->member;
    if (member == NULL) {
        return;
    }
    fby_group_t *group = member->group;
    uint32_t rank = member->rank;
    bool was_in = member->state == FBY_MEMBER_IN;
    member_free(member);
    if (was_in) {
        rank_lost(group, rank);
    }
    if (group->members == 0) {
        group_free(peer->server, group);
    }
}

/* ---- Join ------------------------------------------------------------------------------------------------------- */

/* Somebody begins again: whoever was IN has to, too. */
static void group_break(fby_group_t *group, uint32_t by)
{
    char text[96];
    snprintf(text, sizeof(text), "rank %u of the group joined again: join, too", by);
    group->broken_by = by;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        fby_member_t *member = group->member[rank];
        if (member != NULL && member->state == FBY_MEMBER_IN) {
            member_out(member, -ECONNRESET, text);
        }
    }
    verdicts_drop(group);
    memset(group->lost, 0, group->ranks);
}

static void group_form(fby_group_t *group)
{
    char text[FBY_GROUP_TEXT] = "";
    const void **cards = calloc(group->ranks, sizeof(*cards));
    size_t *lengths = calloc(group->ranks, sizeof(*lengths));
    int code = cards != NULL && lengths != NULL ? 0 : -ENOMEM;
    for (uint32_t rank = 0; rank < group->ranks && code == 0; rank++) {
        cards[rank] = group->member[rank]->card;
        lengths[rank] = group->member[rank]->card_bytes;
    }
    group->formed = (fby_ranks_t){.size = sizeof(group->formed)};
    code = code == 0 ? fby_cards_compare(cards, lengths, group->ranks, &group->formed, text, sizeof(text)) : code;
    free(cards);
    free(lengths);
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        if (code != 0) {
            member_out(group->member[rank], code, text);
        } else {
            member_state(group->member[rank], FBY_MEMBER_IN);
            group->member[rank]->code = 0;
        }
    }
    fby_group_signal(group);
}

static int join_check(const fby_peer_t *peer, const fby_msg_join_t *join, const fby_group_t *group)
{
    if (peer->pidfd < 0 && peer->pid != FBY_PEER_OF_TEST) {
        fby_error_set("the server cannot watch this process: it needs its PID namespace, or Linux 6.5");
        return -EOPNOTSUPP;
    }
    if (group != NULL && join->ranks != group->ranks) {
        fby_error_set("group %.47s: rank %u says that it has %u ranks, others %u", group->name, join->rank, join->ranks,
                      group->ranks);
        return FBY_E_CONFIG;
    }
    const fby_member_t *there = group != NULL ? group->member[join->rank] : NULL;
    if (there != NULL && there->peer != peer) {
        fby_error_set("group %.47s: rank %u is there, process %d", group->name, join->rank, (int)there->peer->pid);
        return -EEXIST;
    }
    return 0;
}

/* The peer's member of the group, waiting. NULL: out of memory. */
static fby_member_t *member_make(fby_peer_t *peer, fby_group_t *group, const fby_msg_join_t *join, const void *card,
                                 size_t bytes)
{
    fby_member_t *member = calloc(1, sizeof(*member));
    void *copy = malloc(FBY_MAX(bytes, 1));
    if (member == NULL || copy == NULL) {
        free(member);
        free(copy);
        return NULL;
    }
    memcpy(copy, card, bytes);
    member->group = group;
    member->peer = peer;
    member->rank = join->rank;
    member->state = FBY_MEMBER_WAITING;
    member->deadline = fby_add_sat(fby_clock_now(&fby_clock_monotonic), join->limit_ns);
    member->card = copy;
    member->card_bytes = bytes;
    member->mail_end = &member->mail;
    group->waiting++;
    group->member[join->rank] = member;
    group->members++;
    peer->member = member;
    return member;
}

int fby_call_GROUP_JOIN(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_join_t *join = request->body;
    if (join->ranks == 0 || join->ranks > FBY_MOST_RANKS || join->rank >= join->ranks || join->group[0] == '\0' ||
        memchr(join->group, '\0', sizeof(join->group)) == NULL) {
        return FBY_CALL_VIOLATION;
    }
    fby_group_t *group = group_find(peer->server, join->group);
    int rc = join_check(peer, join, group);
    if (rc != 0) {
        return rc;
    }
    if (group != NULL) {
        group->members++; /* it stays, even if this peer was its last */
    }
    fby_group_leave(peer);
    if (group != NULL) {
        group->members--;
    } else {
        group = group_make(peer->server, join);
    }
    if (group == NULL) {
        return -ENOMEM;
    }
    group_break(group, join->rank);
    if (member_make(peer, group, join, request->elements, request->count) == NULL) {
        if (group->members == 0) {
            group_free(peer->server, group);
        }
        return -ENOMEM;
    }
    if (group->waiting == group->ranks) {
        group_form(group);
    }
    return 0;
}

int fby_call_GROUP_JOINED(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_member_t *member = peer->member;
    if (member == NULL || member->state == FBY_MEMBER_WAITING) {
        return member == NULL ? FBY_E_STATE : -EAGAIN;
    }
    fby_error_set("%s", member->state == FBY_MEMBER_OUT ? member->text : "");
    reply->body.numbers.number[0] = member->group->formed.incarnation;
    return member->code;
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

static void join_late(fby_member_t *member)
{
    fby_group_t *group = member->group;
    char text[FBY_GROUP_TEXT];
    int length = snprintf(text, sizeof(text), "group %.47s: missing of %u ranks:", group->name, group->ranks);
    for (uint32_t rank = 0; rank < group->ranks && length < FBY_GROUP_TEXT - 16; rank++) {
        const fby_member_t *other = group->member[rank];
        if (other == NULL || other->state != FBY_MEMBER_WAITING) {
            length += snprintf(text + length, sizeof(text) - (size_t)length, " %u", rank);
        }
    }
    member_out(member, -ETIMEDOUT, text);
}

uint64_t fby_groups_tick(fby_server_t *server, uint64_t now)
{
    uint64_t next = FBY_NEVER;
    for (fby_group_t *group = server->groups; group != NULL; group = group->next) {
        for (uint32_t rank = 0; rank < group->ranks && group->waiting > 0; rank++) {
            fby_member_t *member = group->member[rank];
            if (member == NULL || member->state != FBY_MEMBER_WAITING) {
                continue;
            }
            if (member->deadline <= now) {
                join_late(member);
            } else {
                next = FBY_MIN(next, member->deadline);
            }
        }
    }
    return next;
}
