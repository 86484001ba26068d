/* open.c - the table of open decisions: short as a rule, ordered, searched by halves. */
#include "rank/open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

void fby_open_drop(fby_open_t *open)
{
    if (open != NULL) {
        fby_ending_free(&open->ending);
        free(open);
    }
}

void fby_open_free(fby_open_table_t *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        fby_open_drop(table->entry[i]);
    }
    free(table->entry);
    table->entry = NULL;
    table->count = table->capacity = 0;
    table->first = table->last = NULL;
}

/* Where the number is, or would be. */
static uint32_t place_of(const fby_open_table_t *table, uint64_t number)
{
    uint32_t low = 0, high = table->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (table->entry[middle]->number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

fby_open_t *fby_open_find(const fby_open_table_t *table, uint64_t number)
{
    const uint32_t at = place_of(table, number);
    return at < table->count && table->entry[at]->number == number ? table->entry[at] : NULL;
}

static int table_grow(fby_open_table_t *table)
{
    if (table->count == table->most) {
        fby_error_set("%u loads and saves are without a verdict, and no more are accepted", table->count);
        return -EBUSY;
    }
    if (table->count < table->capacity) {
        return 0;
    }
    const uint32_t capacity = FBY_MIN(FBY_MAX(2 * table->capacity, 16u), table->most);
    fby_open_t **entry = realloc(table->entry, capacity * sizeof(fby_open_t *));
    if (entry == NULL) {
        return fby_group_no_memory("open decisions", capacity * sizeof(fby_open_t *));
    }
    table->entry = entry;
    table->capacity = capacity;
    return 0;
}

int fby_open_add(fby_open_table_t *table, uint64_t number, uint32_t kind, uint64_t tag)
{
    int rc = table_grow(table);
    if (rc != 0) {
        return rc;
    }
    fby_open_t *open = malloc(sizeof(*open));
    if (open == NULL) {
        return fby_group_no_memory("open decision", sizeof(*open));
    }
    *open = (fby_open_t){.number = number, .tag = tag, .kind = kind, .ending = {.rank = FBY_NO_RANK}};
    table->entry[table->count++] = open;
    return 0;
}

void fby_open_end(fby_open_table_t *table, fby_open_t *open, fby_ending_t *ending)
{
    open->state = FBY_OPEN_ENDED;
    open->ending = *ending;
    *ending = (fby_ending_t){.rank = FBY_NO_RANK};
    if (table->last != NULL) {
        table->last->next = open;
    } else {
        table->first = open;
    }
    table->last = open;
}

void fby_open_end_all(fby_open_table_t *table, int32_t code)
{
    for (uint32_t i = 0; i < table->count; i++) {
        if (table->entry[i]->state != FBY_OPEN_ENDED) {
            fby_ending_t ending = {.code = code, .rank = FBY_NO_RANK};
            fby_open_end(table, table->entry[i], &ending);
        }
    }
}

fby_open_t *fby_open_take(fby_open_table_t *table)
{
    fby_open_t *open = table->first;
    if (open == NULL) {
        return NULL;
    }
    table->first = open->next;
    if (table->first == NULL) {
        table->last = NULL;
    }
    const uint32_t at = place_of(table, open->number);
    table->count--;
    memmove(&table->entry[at], &table->entry[at + 1], (table->count - at) * sizeof(fby_open_t *));
    return open;
}
