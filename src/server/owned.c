#include "server/owned.h"

#include <errno.h>
#include <stdlib.h>

#include "core/handle.h"

int fby_owned_init(fby_owned_table_t *table, unsigned type, uint32_t places)
{
    *table =
        (fby_owned_table_t){.entry = calloc(FBY_MAX(places, 1), sizeof(fby_owned_t)), .places = places, .type = type};
    return table->entry != NULL ? 0 : -ENOMEM;
}

void fby_owned_free(fby_owned_table_t *table)
{
    free(table->entry);
    table->entry = NULL;
}

static uint32_t place_of(const fby_owned_table_t *table, const fby_owned_t *owned)
{
    return (uint32_t)(owned - table->entry);
}

fby_owned_t *fby_owned_find(const fby_owned_table_t *table, uint64_t handle, uint64_t client)
{
    uint32_t place = fby_handle_index(handle);
    if (fby_handle_type(handle) != table->type || place >= table->places) {
        return NULL;
    }
    fby_owned_t *owned = &table->entry[place];
    return owned->handle == handle && (client == 0 || owned->client == client) ? owned : NULL;
}

void fby_owned_unlink(fby_owned_table_t *table, fby_owned_t *owned)
{
    fby_owned_list_t *list = owned->list;
    if (list == NULL) {
        return;
    }
    *(owned->prev == FBY_NONE ? &list->first : &table->entry[owned->prev].next) = owned->next;
    *(owned->next == FBY_NONE ? &list->last : &table->entry[owned->next].prev) = owned->prev;
    list->count--;
    owned->list = NULL;
}

void fby_owned_link(fby_owned_table_t *table, fby_owned_list_t *list, fby_owned_t *owned)
{
    uint32_t place = place_of(table, owned);
    fby_owned_unlink(table, owned);
    owned->list = list;
    owned->prev = list->last;
    owned->next = FBY_NONE;
    *(list->last == FBY_NONE ? &list->first : &table->entry[list->last].next) = place;
    list->last = place;
    list->count++;
}

void fby_owned_forget(fby_owned_table_t *table, fby_owned_t *owned)
{
    fby_owned_unlink(table, owned);
    *owned = (fby_owned_t){0};
}

fby_owned_t *fby_owned_add(fby_owned_table_t *table, fby_owned_list_t *list, uint64_t handle, uint64_t client)
{
    fby_owned_t *owned = &table->entry[fby_handle_index(handle)];
    fby_owned_forget(table, owned);
    owned->handle = handle;
    owned->client = client;
    fby_owned_link(table, list, owned);
    return owned;
}

fby_owned_t *fby_owned_first(const fby_owned_table_t *table, const fby_owned_list_t *list)
{
    return list->first == FBY_NONE ? NULL : &table->entry[list->first];
}

fby_owned_t *fby_owned_next(const fby_owned_table_t *table, const fby_owned_t *owned)
{
    return owned->next == FBY_NONE ? NULL : &table->entry[owned->next];
}
