/* card.c - making, encoding and reading the card of one rank. */
#include "rank/card.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/log.h"

#define NAME_ACCEPTED "1 to 63 of A-Z, a-z, 0-9, '.', '_', '-'"
#define VALUE_ACCEPTED "at most 255 bytes without control characters"

_Static_assert(FBY_CARD_FIELDS *(3 + FBY_CARD_NAME_BYTES + FBY_CARD_VALUE_BYTES) + FBY_MESSAGE_FRAME <= FBY_CARD_BYTES,
               "a full card fits");

/* ---- Making ------------------------------------------------------------------------------------------------------ */

int fby_card_create(uint32_t rank, uint32_t ranks, uint64_t incarnation, fby_card_t **out)
{
    if (out == NULL) {
        return fby_group_refuse("out", 0, "a place for the card");
    }
    if (ranks == 0 || ranks > FBY_MOST_RANKS) {
        return fby_group_refuse("ranks", ranks, "1 to 65536");
    }
    if (rank >= ranks) {
        return fby_group_refuse("rank", rank, "below ranks");
    }
    if (incarnation == 0) {
        return fby_group_refuse("incarnation", 0, "a random number of this process");
    }
    fby_card_t *card = calloc(1, sizeof(*card));
    if (card == NULL) {
        return fby_group_no_memory("card", sizeof(*card));
    }
    card->rank = rank;
    card->ranks = ranks;
    card->incarnation = incarnation;
    *out = card;
    return 0;
}

void fby_card_free(fby_card_t *card)
{
    free(card);
}

static bool name_is_fine(const char *name, size_t n)
{
    static const char accepted[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return n >= 1 && n <= FBY_CARD_NAME_BYTES && memchr(name, 0, n) == NULL && strspn(name, accepted) >= n;
}

static bool value_is_fine(const char *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7F) {
            return false;
        }
    }
    return n <= FBY_CARD_VALUE_BYTES;
}

/* Where the name is, or would be. */
static uint32_t field_find(const fby_card_t *card, const char *name, bool *there)
{
    uint32_t at = 0;
    while (at < card->fields && strcmp(card->field[at].name, name) < 0) {
        at++;
    }
    *there = at < card->fields && strcmp(card->field[at].name, name) == 0;
    return at;
}

int fby_card_set(fby_card_t *card, const char *name, const char *value, unsigned flags)
{
    bool there;
    if (card == NULL || name == NULL || value == NULL) {
        fby_error_set("%s is NULL", card == NULL ? "card" : name == NULL ? "name" : "value");
        return -EINVAL;
    }
    if (!name_is_fine(name, strnlen(name, FBY_CARD_NAME_BYTES + 1))) {
        fby_error_set("name of a field; accepted: " NAME_ACCEPTED);
        return -EINVAL;
    }
    if (!value_is_fine(value, strnlen(value, FBY_CARD_VALUE_BYTES + 1))) {
        fby_error_set("value of %s; accepted: " VALUE_ACCEPTED, name);
        return -EINVAL;
    }
    if ((flags & ~(unsigned)FBY_CARD_PER_RANK) != 0) {
        return fby_group_refuse("flags", flags, "FBY_CARD_PER_RANK, or 0");
    }
    const uint32_t at = field_find(card, name, &there);
    if (!there) {
        if (card->fields == FBY_CARD_FIELDS) {
            fby_error_set("%s: the card has %u fields, and no more are accepted", name, card->fields);
            return -ENOSPC;
        }
        memmove(&card->field[at + 1], &card->field[at], (card->fields - at) * sizeof(card->field[0]));
        card->fields++;
    }
    fby_card_field_t *field = &card->field[at];
    snprintf(field->name, sizeof(field->name), "%s", name);
    snprintf(field->value, sizeof(field->value), "%s", value);
    field->flags = flags;
    return 0;
}

int fby_card_set_number(fby_card_t *card, const char *name, uint64_t value, unsigned flags)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    return fby_card_set(card, name, text, flags);
}

/* Lower-case digits of bytes, with a NUL. */
static void hex_text(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

int fby_card_set_digest(fby_card_t *card, const char *name, const void *bytes, size_t n, unsigned flags)
{
    XXH128_canonical_t digest;
    char text[2 * sizeof(digest.digest) + 1];
    if (bytes == NULL && n > 0) {
        return fby_group_refuse("bytes", 0, "what to digest");
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits(n > 0 ? bytes : "", n));
    hex_text(digest.digest, sizeof(digest.digest), text);
    return fby_card_set(card, name, text, flags);
}

/* ---- What the library knows -------------------------------------------------------------------------------------- */

/* "PREFIX.group.N.WHAT" */
static int set_group_number(fby_card_t *card, const char *prefix, uint32_t group, const char *what, uint64_t value)
{
    char name[FBY_CARD_NAME_BYTES + 1];
    snprintf(name, sizeof(name), "%s.group.%u.%s", prefix, group, what);
    return fby_card_set_number(card, name, value, 0);
}

static int first_error(int a, int b)
{
    return a != 0 ? a : b;
}

static int set_model_group(fby_card_t *card, const fby_model_t *model, uint32_t g)
{
    char name[FBY_CARD_NAME_BYTES + 1];
    snprintf(name, sizeof(name), "model.group.%u.name", g);
    int rc = fby_card_set(card, name, model->group[g].name, 0);
    rc = first_error(rc, set_group_number(card, "model", g, "payload_bytes", model->group[g].payload_bytes));
    rc = first_error(rc, set_group_number(card, "model", g, "slot_bytes", model->group[g].slot_bytes));
    return first_error(rc, set_group_number(card, "model", g, "trailing", model->group[g].trailing));
}

int fby_card_set_model(fby_card_t *card, const fby_model_t *model)
{
    if (model == NULL || model->size != sizeof(*model)) {
        return fby_group_refuse("model.size", model != NULL ? model->size : 0, "the size of fby_model_t");
    }
    if (model->groups > FBY_MAX_GROUPS) {
        return fby_group_refuse("model.groups", model->groups, "at most 8");
    }
    int rc = fby_card_set(card, "model.fingerprint", model->fingerprint, 0);
    rc = first_error(rc, fby_card_set_number(card, "model.block_tokens", model->block_tokens, 0));
    rc = first_error(rc, fby_card_set_number(card, "model.groups", model->groups, 0));
    for (uint32_t g = 0; g < model->groups; g++) {
        rc = first_error(rc, set_model_group(card, model, g));
    }
    return rc;
}

static int set_pool_group(fby_card_t *card, const fby_pool_t *pool, uint32_t g)
{
    int rc = set_group_number(card, "pool", g, "slot_bytes", pool->group[g].slot_bytes);
    rc = first_error(rc, set_group_number(card, "pool", g, "payload_bytes", pool->group[g].payload_bytes));
    rc = first_error(rc, set_group_number(card, "pool", g, "first", pool->group[g].first));
    rc = first_error(rc, set_group_number(card, "pool", g, "slots", pool->group[g].slots));
    return first_error(rc, set_group_number(card, "pool", g, "offset", pool->group[g].offset));
}

int fby_card_set_pool(fby_card_t *card, const fby_pool_t *pool)
{
    char text[2 * sizeof(pool->fingerprint) + 1];
    if (pool == NULL || pool->size != sizeof(*pool)) {
        return fby_group_refuse("pool.size", pool != NULL ? pool->size : 0, "the size of fby_pool_t");
    }
    if (pool->groups > FBY_MAX_GROUPS) {
        return fby_group_refuse("pool.groups", pool->groups, "at most 8");
    }
    hex_text(pool->fingerprint, sizeof(pool->fingerprint), text);
    int rc = fby_card_set(card, "pool.fingerprint", text, 0);
    rc = first_error(rc, fby_card_set_number(card, "pool.bytes", pool->bytes, 0));
    rc = first_error(rc, fby_card_set_number(card, "pool.groups", pool->groups, 0));
    for (uint32_t g = 0; g < pool->groups; g++) {
        rc = first_error(rc, set_pool_group(card, pool, g));
    }
    return rc;
}

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

static void write_text(fby_writer_t *writer, const char *text)
{
    const size_t n = strlen(text);
    fby_write_u8(writer, (uint8_t)n);
    fby_write(writer, text, n);
}

int fby_card_encode(const fby_card_t *card, void *buffer, size_t capacity, size_t *needed)
{
    if (card == NULL || (buffer == NULL && capacity > 0)) {
        return fby_group_refuse(card == NULL ? "card" : "buffer", 0, "not NULL");
    }
    fby_writer_t writer = {.bytes = buffer, .capacity = capacity};
    const fby_message_t head = {
        .type = FBY_MESSAGE_CARD,
        .rank = card->rank,
        .ranks = card->ranks,
        .count = card->fields,
        .incarnation = card->incarnation,
    };
    fby_message_begin(&writer, &head);
    for (uint32_t i = 0; i < card->fields; i++) {
        fby_write_u8(&writer, (uint8_t)card->field[i].flags);
        write_text(&writer, card->field[i].name);
        write_text(&writer, card->field[i].value);
    }
    return fby_message_end(&writer, needed);
}

static bool read_text(fby_reader_t *reader, char *out, size_t most, size_t *n)
{
    *n = fby_read_u8(reader);
    const void *at = *n <= most ? fby_read(reader, *n) : NULL;
    if (at == NULL) {
        return false;
    }
    memcpy(out, at, *n);
    out[*n] = '\0';
    return true;
}

/* One field, which must come behind the one before it. */
static bool read_field(fby_reader_t *reader, const fby_card_field_t *before, fby_card_field_t *out)
{
    size_t name_bytes, value_bytes;
    out->flags = fby_read_u8(reader);
    return read_text(reader, out->name, FBY_CARD_NAME_BYTES, &name_bytes) &&
           read_text(reader, out->value, FBY_CARD_VALUE_BYTES, &value_bytes) && name_is_fine(out->name, name_bytes) &&
           value_is_fine(out->value, value_bytes) && out->flags <= FBY_CARD_PER_RANK &&
           (before == NULL || strcmp(before->name, out->name) < 0);
}

int fby_card_decode(const void *bytes, size_t n, fby_card_t *card, uint8_t *protocol)
{
    fby_message_t head;
    fby_reader_t body;
    *protocol = 0;
    int rc = fby_message_open(bytes, n, &head, protocol, &body);
    if (rc != 0 && *protocol == 0) {
        return rc;
    }
    card->rank = head.rank;
    card->ranks = head.ranks;
    card->incarnation = head.incarnation;
    card->fields = 0;
    if (*protocol != FBY_GROUP_PROTOCOL) {
        return 0;
    }
    if (rc != 0 || head.type != FBY_MESSAGE_CARD || head.count > FBY_CARD_FIELDS || head.incarnation == 0 ||
        head.number != 0) {
        fby_error_set("not a card");
        return FBY_E_FORMAT;
    }
    for (uint32_t i = 0; i < head.count; i++) {
        if (!read_field(&body, i > 0 ? &card->field[i - 1] : NULL, &card->field[i])) {
            fby_error_set("field %u of the card cannot be read", i);
            return FBY_E_FORMAT;
        }
    }
    card->fields = (uint32_t)head.count;
    return fby_message_closed(&body, "card");
}
