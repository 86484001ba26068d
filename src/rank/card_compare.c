/*
 * card_compare.c - whether the cards of all ranks say the same, and if not, what differs.
 *
 * Cards are read one at a time: a group may have many. Whatever is said is found in the order of ranks and names, never
 * in that of arrival.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "rank/card.h"
#include "stores/object.h"

/* ---- What is said ------------------------------------------------------------------------------------------------ */

/* The caller's text, and what fby_last_error() keeps. */
typedef struct verdict_text {
    char *text;
    size_t capacity, used;
    char detail[512];
    size_t detail_used;
} verdict_text_t;

static size_t append(char *to, size_t capacity, size_t used, const char *piece)
{
    const size_t n = strlen(piece);
    if (used + 1 < capacity) {
        const size_t fits = FBY_MIN(n, capacity - 1 - used);
        memcpy(to + used, piece, fits);
        to[used + fits] = '\0';
    }
    return used + n;
}

FBY_PRINTF(2, 3) static void say(verdict_text_t *text, const char *format, ...)
{
    char piece[FBY_CARD_NAME_BYTES + FBY_CARD_VALUE_BYTES + 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(piece, sizeof(piece), format, arguments);
    va_end(arguments);
    text->used = append(text->text, text->capacity, text->used, piece);
    text->detail_used = append(text->detail, sizeof(text->detail), text->detail_used, piece);
}

/* ---- Who came ---------------------------------------------------------------------------------------------------- */

enum { MISSING, BROKEN, CHANGED, UNREADABLE_KINDS };

typedef struct roll {
    const void *const *cards;
    const size_t *lengths;
    uint32_t n;
    uint32_t *card_of; /* [n] by rank: which card; FBY_NONE: none */
    uint64_t unreadable[UNREADABLE_KINDS];
    fby_card_t *reference, *other;
    verdict_text_t text;
} roll_t;

/* The header of rank's card; its fields when the protocol is ours. */
static void read_card(const roll_t *roll, uint32_t rank, fby_card_t *out, uint8_t *protocol)
{
    const uint32_t i = roll->card_of[rank];
    (void)fby_card_decode(roll->cards[i], roll->lengths[i], out, protocol); /* was read before */
}

/* The lowest rank number that is wrong, as a card that came late or twice must not hide it. */
static int call_the_roll(roll_t *roll)
{
    uint32_t foreign = FBY_NONE, foreign_ranks = 0, twice = FBY_NONE;
    bool is_foreign = false; /* any number may stand on a card, FBY_NONE too */
    for (uint32_t i = 0; i < roll->n; i++) {
        uint8_t protocol;
        const bool given = roll->cards[i] != NULL && roll->lengths[i] > 0;
        int rc = given ? fby_card_decode(roll->cards[i], roll->lengths[i], roll->other, &protocol) : 0;
        const uint32_t rank = given && rc == 0 ? roll->other->rank : FBY_NONE;
        if (!given || rc != 0) {
            roll->unreadable[!given ? MISSING : rc == FBY_E_CHECKSUM ? CHANGED : BROKEN]++;
        } else if (rank >= roll->n) {
            if (!is_foreign || rank < foreign || (rank == foreign && roll->other->ranks < foreign_ranks)) {
                foreign = rank;
                foreign_ranks = roll->other->ranks;
            }
            is_foreign = true;
        } else if (roll->card_of[rank] != FBY_NONE) {
            twice = FBY_MIN(twice, rank);
        } else {
            roll->card_of[rank] = i;
        }
    }
    if (is_foreign) {
        say(&roll->text, "a card of rank %u of %u came; this group has ranks 0 to %u", foreign, foreign_ranks,
            roll->n - 1);
    } else if (twice != FBY_NONE) {
        say(&roll->text, "rank %u has two cards", twice);
    }
    return is_foreign || twice != FBY_NONE ? FBY_E_CONFIG : 0;
}

static int name_the_absent(roll_t *roll)
{
    static const char *const kinds[UNREADABLE_KINDS] = {"missing", "not a whole card", "with a wrong checksum"};
    const char *before = "no readable card of";
    for (uint32_t rank = 0; rank < roll->n; rank++) {
        if (roll->card_of[rank] == FBY_NONE) {
            say(&roll->text, "%s rank %u", before, rank);
            before = ",";
        }
    }
    before = ":";
    for (unsigned kind = 0; kind < UNREADABLE_KINDS; kind++) {
        if (roll->unreadable[kind] > 0) {
            say(&roll->text, "%s %llu %s", before, (unsigned long long)roll->unreadable[kind], kinds[kind]);
            before = ",";
        }
    }
    return before[0] == ',' ? FBY_E_CONFIG : 0;
}

/* ---- What differs ------------------------------------------------------------------------------------------------ */

/* Protocol and number of ranks, which say more than the fields do when they differ. */
static int compare_headers(roll_t *roll)
{
    bool protocols_equal = true, ranks_equal = true;
    uint8_t protocol;
    for (uint32_t rank = 0; rank < roll->n; rank++) {
        read_card(roll, rank, roll->other, &protocol);
        protocols_equal &= protocol == FBY_GROUP_PROTOCOL;
        ranks_equal &= roll->other->ranks == roll->n;
    }
    if (protocols_equal && ranks_equal) {
        return 0;
    }
    const char *before = protocols_equal ? "ranks:" : "protocol:";
    for (uint32_t rank = 0; rank < roll->n; rank++) {
        read_card(roll, rank, roll->other, &protocol);
        say(&roll->text, "%s rank %u %u", before, rank, protocols_equal ? roll->other->ranks : protocol);
        before = ",";
    }
    if (protocols_equal) {
        say(&roll->text, "; accepted: %u", roll->n);
    } else {
        say(&roll->text, "; this library speaks %d", FBY_GROUP_PROTOCOL);
    }
    return FBY_E_CONFIG;
}

/* Two cards' fields with the same name, or one of them NULL. */
static bool fields_agree(const fby_card_field_t *a, const fby_card_field_t *b)
{
    const uint32_t flags = (a != NULL ? a->flags : FBY_CARD_PER_RANK) & (b != NULL ? b->flags : FBY_CARD_PER_RANK);
    return (flags & FBY_CARD_PER_RANK) != 0 || (a != NULL && b != NULL && strcmp(a->value, b->value) == 0);
}

/* The first name at which two cards differ, or NULL. */
static const char *first_difference(const fby_card_t *a, const fby_card_t *b)
{
    uint32_t i = 0, j = 0;
    while (i < a->fields || j < b->fields) {
        int order = i == a->fields ? 1 : j == b->fields ? -1 : strcmp(a->field[i].name, b->field[j].name);
        const fby_card_field_t *left = order <= 0 ? &a->field[i++] : NULL;
        const fby_card_field_t *right = order >= 0 ? &b->field[j++] : NULL;
        if (!fields_agree(left, right)) {
            return left != NULL ? left->name : right->name;
        }
    }
    return NULL;
}

static const char *value_of(const fby_card_t *card, const char *name)
{
    for (uint32_t i = 0; i < card->fields; i++) {
        if (strcmp(card->field[i].name, name) == 0) {
            return card->field[i].value;
        }
    }
    return "(not set)";
}

static int compare_fields(roll_t *roll)
{
    char first[FBY_CARD_NAME_BYTES + 1] = "";
    uint8_t protocol;
    read_card(roll, 0, roll->reference, &protocol);
    for (uint32_t rank = 1; rank < roll->n; rank++) {
        read_card(roll, rank, roll->other, &protocol);
        const char *name = first_difference(roll->reference, roll->other);
        if (name != NULL && (first[0] == '\0' || strcmp(name, first) < 0)) {
            snprintf(first, sizeof(first), "%s", name);
        }
    }
    if (first[0] == '\0') {
        return 0;
    }
    for (uint32_t rank = 0; rank < roll->n; rank++) {
        read_card(roll, rank, roll->other, &protocol);
        say(&roll->text, "%s%s rank %u %s", rank == 0 ? first : "", rank == 0 ? ":" : ",", rank,
            value_of(roll->other, first));
    }
    return FBY_E_CONFIG;
}

/* ---- The answer -------------------------------------------------------------------------------------------------- */

/* One number for this set of processes: any that starts again draws another, and so the group gets another. */
static int group_incarnation(roll_t *roll, uint64_t *out)
{
    uint64_t *each = calloc(roll->n, sizeof(*each));
    if (each == NULL) {
        return fby_group_no_memory("cards", roll->n * sizeof(*each));
    }
    for (uint32_t rank = 0; rank < roll->n; rank++) {
        uint8_t protocol;
        read_card(roll, rank, roll->other, &protocol);
        each[rank] = roll->other->incarnation;
    }
    const uint64_t folded = fby_checksum_fold(each, roll->n);
    *out = folded != 0 ? folded : 1;
    free(each);
    return 0;
}

static int roll_compare(roll_t *roll, fby_ranks_t *out)
{
    uint64_t incarnation = 0;
    int rc = call_the_roll(roll);
    rc = rc != 0 ? rc : name_the_absent(roll);
    rc = rc != 0 ? rc : compare_headers(roll);
    rc = rc != 0 ? rc : compare_fields(roll);
    if (rc != 0) {
        fby_error_set("%s", roll->text.detail);
        return rc;
    }
    rc = group_incarnation(roll, &incarnation);
    if (rc == 0 && out != NULL) {
        out->ranks = roll->n;
        out->incarnation = incarnation;
    }
    return rc;
}

int fby_cards_compare(const void *const *cards, const size_t *lengths, uint32_t n, fby_ranks_t *out, char *text,
                      size_t capacity)
{
    if (cards == NULL || lengths == NULL || (text == NULL && capacity > 0)) {
        fby_error_set("cards, lengths or text is NULL");
        return -EINVAL;
    }
    if (n == 0 || n > FBY_MOST_RANKS) {
        return fby_group_refuse("n", n, "1 to 65536");
    }
    if (out != NULL && out->size != sizeof(*out)) {
        return fby_group_refuse("out.size", out->size, "the size of fby_ranks_t");
    }
    roll_t roll = {.cards = cards, .lengths = lengths, .n = n, .text = {.text = text, .capacity = capacity}};
    roll.card_of = malloc(n * sizeof(*roll.card_of));
    roll.reference = malloc(sizeof(*roll.reference));
    roll.other = malloc(sizeof(*roll.other));
    int rc;
    if (roll.card_of == NULL || roll.reference == NULL || roll.other == NULL) {
        rc = fby_group_no_memory("cards", n * sizeof(*roll.card_of) + 2 * sizeof(*roll.other));
    } else {
        memset(roll.card_of, 0xFF, n * sizeof(*roll.card_of)); /* FBY_NONE */
        if (capacity > 0) {
            text[0] = '\0';
        }
        rc = roll_compare(&roll, out);
    }
    free(roll.other);
    free(roll.reference);
    free(roll.card_of);
    return rc;
}
