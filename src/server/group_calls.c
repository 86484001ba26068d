/* group_calls.c - requests of ranks that have joined: messages, reports, verdicts, and what they may touch. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core/handle.h"
#include "server/group.h"

/* The peer's rank, IN. NULL with *code: it never joined, is still waiting, or has to join again. */
static fby_member_t *member_in(const fby_peer_t *peer, bool leader, int *code)
{
    fby_member_t *member = peer->member;
    *code = FBY_E_STATE;
    if (member == NULL || member->state == FBY_MEMBER_WAITING) {
        fby_error_set("this client has not joined a group");
        return NULL;
    }
    if (member->state == FBY_MEMBER_OUT) {
        fby_error_set("%s", member->text);
        *code = member->code == -ECONNRESET ? -ECONNRESET : FBY_E_STATE;
        return NULL;
    }
    if (leader && member->rank != 0) {
        fby_error_set("this is rank %u; the leader is rank 0", member->rank);
        return NULL;
    }
    return member;
}

/* ---- Messages --------------------------------------------------------------------------------------------------- */

/* The leader need not read what it sent itself: then the oldest of it goes, and a follower of its own sees a gap. */
static bool has_room(fby_group_t *group, uint32_t bytes)
{
    uint64_t count = FBY_GROUP_MAIL + (uint64_t)bytes;
    for (uint32_t rank = 1; rank < group->ranks; rank++) {
        const fby_member_t *member = group->member[rank];
        if (member != NULL && member->state == FBY_MEMBER_IN && member->mail_bytes + count > FBY_GROUP_BACKLOG) {
            fby_error_set("rank %u has %llu bytes of messages still to read; accepted: up to %d", rank,
                          (unsigned long long)member->mail_bytes, FBY_GROUP_BACKLOG);
            return false;
        }
    }
    fby_member_t *leader = group->member[0];
    while (leader->mail != NULL && leader->mail_bytes + count > FBY_GROUP_BACKLOG) {
        fby_member_read(leader);
    }
    return true;
}

int fby_call_GROUP_SEND(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    int code;
    fby_member_t *leader = member_in(peer, true, &code);
    if (leader == NULL) {
        return code;
    }
    fby_group_t *group = leader->group;
    if (!has_room(group, request->count)) {
        return -ENOSPC;
    }
    fby_group_bytes_t *message = malloc(sizeof(*message) + request->count);
    if (message == NULL) {
        return -ENOMEM;
    }
    message->refs = 1;
    message->count = request->count;
    memcpy(message->bytes, request->elements, request->count);
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        fby_member_t *member = group->member[rank];
        if (member != NULL && member->state == FBY_MEMBER_IN) {
            /* without memory this rank has a gap, which its follower sees and asks about */
            (void)fby_member_post(member, message, 0);
            fby_member_signal(member);
        }
    }
    if (--message->refs == 0) {
        free(message);
    }
    return 0;
}

int fby_call_GROUP_RECEIVE(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    int code;
    fby_member_t *member = member_in(peer, false, &code);
    if (member == NULL) {
        if (code == -ECONNRESET) {
            reply->body.numbers.number[0] = peer->member->group->broken_by;
            return FBY_GROUP_LOST;
        }
        return code;
    }
    fby_group_mail_t *mail = member->mail;
    if (mail == NULL) {
        return -EAGAIN;
    }
    if (mail->message != NULL) {
        memcpy(reply->elements, mail->message->bytes, mail->message->count);
        reply->count = mail->message->count;
        code = 0;
    } else {
        reply->body.numbers.number[0] = mail->lost;
        code = FBY_GROUP_LOST;
    }
    fby_member_read(member);
    return code;
}

/* ---- Reports ---------------------------------------------------------------------------------------------------- */

int fby_call_GROUP_REPORT(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    fby_message_t about = {.size = sizeof(about)};
    int code;
    fby_member_t *member = member_in(peer, false, &code);
    if (member == NULL) {
        return code;
    }
    int rc = fby_message_parse(request->elements, request->count, &about);
    if (rc != 0) {
        return rc;
    }
    if (about.type != FBY_MESSAGE_REPORT || about.rank != member->rank) {
        fby_error_set("a %s of rank %u; accepted: a report of rank %u", fby_message_name(about.type), about.rank,
                      member->rank);
        return -EINVAL;
    }
    if (about.number > member->group->highest + FBY_GROUP_VERDICTS) {
        fby_error_set("a report on decision %llu; accepted: at most %d beyond the last that was reported, %llu",
                      (unsigned long long)about.number, FBY_GROUP_VERDICTS, (unsigned long long)member->group->highest);
        return -EINVAL;
    }
    fby_verdict_t *verdict = fby_group_verdict_of(member->group, about.number, &rc);
    if (verdict == NULL) {
        return rc;
    }
    rc = fby_verdict_receive(verdict, request->elements, request->count);
    fby_result_t result = {.size = sizeof(result)};
    if (rc == 0 && fby_verdict_result(verdict, &result) == 0) {
        fby_group_signal(member->group);
    }
    return rc;
}

int fby_call_GROUP_VERDICT(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    size_t needed = 0;
    int code;
    fby_member_t *member = member_in(peer, false, &code);
    if (member == NULL) {
        return code;
    }
    if (object->handle > member->group->highest + FBY_GROUP_VERDICTS) {
        return -EAGAIN; /* far ahead of anything that was reported */
    }
    fby_verdict_t *verdict = fby_group_verdict_of(member->group, object->handle, &code);
    if (verdict == NULL) {
        return code;
    }
    int rc = fby_verdict_encode(verdict, reply->elements, FBY_MSG_BYTES, &needed);
    reply->count = rc == 0 ? (uint32_t)needed : 0;
    return rc;
}

/* ---- Grants ----------------------------------------------------------------------------------------------------- */

static uint32_t members_in(const fby_group_t *group)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        n += group->member[rank] != NULL && group->member[rank]->state == FBY_MEMBER_IN;
    }
    return n;
}

static void grants_free(fby_grant_t *list)
{
    for (fby_grant_t *next; list != NULL; list = next) {
        next = list->next;
        free(list);
    }
}

/* n of them, for one handle. NULL: out of memory, or n is 0. */
static fby_grant_t *grants_make(uint32_t n, uint64_t handle)
{
    fby_grant_t *list = NULL;
    for (uint32_t i = 0; i < n; i++) {
        fby_grant_t *grant = malloc(sizeof(*grant));
        if (grant == NULL) {
            grants_free(list);
            return NULL;
        }
        *grant = (fby_grant_t){list, handle};
        list = grant;
    }
    return list;
}

/* One to each member; the list has as many. */
static void grants_give(fby_group_t *group, fby_grant_t *list)
{
    for (uint32_t rank = 0; rank < group->ranks && list != NULL; rank++) {
        fby_member_t *member = group->member[rank];
        if (member != NULL && member->state == FBY_MEMBER_IN) {
            fby_grant_t *grant = list;
            list = grant->next;
            grant->next = member->peer->grants;
            member->peer->grants = grant;
        }
    }
    grants_free(list);
}

int fby_call_GROUP_GRANT(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_server_t *server = peer->server;
    bool is_hold = fby_handle_type(object->handle) == FBY_HANDLE_HOLD;
    int code;
    fby_member_t *leader = member_in(peer, true, &code);
    if (leader == NULL) {
        return code;
    }
    fby_owned_t *owned = fby_owned_find(is_hold ? &server->holds : &server->puts, object->handle, peer->number);
    if (owned == NULL || owned->abandoned) {
        return fby_call_stale(is_hold ? "hold" : "put", object->handle);
    }
    uint32_t n = members_in(leader->group);
    fby_grant_t *list = grants_make(n, object->handle);
    if (list == NULL) {
        return -ENOMEM;
    }
    int rc = is_hold ? fby_hold_readers(server->cache, object->handle, n) : 0;
    if (rc != 0) {
        grants_free(list);
        return rc;
    }
    owned->writers += is_hold ? 0 : n;
    grants_give(leader->group, list);
    return 0;
}

int fby_call_GROUP_DONE(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_grant_t **at = &peer->grants;
    while (*at != NULL && (*at)->handle != object->handle) {
        at = &(*at)->next;
    }
    fby_grant_t *grant = *at;
    if (grant == NULL) {
        return fby_call_stale("granted object", object->handle);
    }
    *at = grant->next;
    free(grant);
    if (fby_handle_type(object->handle) == FBY_HANDLE_HOLD) {
        return fby_hold_release(peer->server->cache, object->handle);
    }
    fby_server_put_writer_done(peer->server, object->handle);
    return 0;
}
