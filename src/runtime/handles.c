#include "runtime/handles.h"

#include <errno.h>
#include <stdlib.h>

int fby_handles_init(fby_handles_t *handles, uint32_t most)
{
    uint64_t size = fby_pow2_ceil((uint64_t)most * 2 + 2);
    *handles = (fby_handles_t){.mask = (uint32_t)(size - 1), .most = most};
    handles->entry = calloc(size, sizeof(*handles->entry));
    return handles->entry != NULL ? 0 : -ENOMEM;
}

void fby_handles_free(fby_handles_t *handles)
{
    free(handles->entry);
    handles->entry = NULL;
}

/* Handles count up in their low bits and carry type and epoch in their high ones: mix both. */
static uint32_t home_of(const fby_handles_t *handles, uint64_t handle)
{
    return (uint32_t)((handle * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & handles->mask;
}

/* Where the handle is, or the free place where it would go. */
static uint32_t place_of(const fby_handles_t *handles, uint64_t handle)
{
    uint32_t at = home_of(handles, handle);
    while (handles->entry[at].handle != 0 && handles->entry[at].handle != handle) {
        at = (at + 1) & handles->mask;
    }
    return at;
}

uint64_t *fby_handles_find(const fby_handles_t *handles, uint64_t handle)
{
    fby_handle_entry_t *entry = &handles->entry[place_of(handles, handle)];
    return handle != 0 && entry->handle == handle ? &entry->value : NULL;
}

bool fby_handles_set(fby_handles_t *handles, uint64_t handle, uint64_t value)
{
    fby_handle_entry_t *entry = &handles->entry[place_of(handles, handle)];
    if (handle == 0 || (entry->handle == 0 && handles->count == handles->most)) {
        return false;
    }
    handles->count += entry->handle == 0;
    *entry = (fby_handle_entry_t){handle, value};
    return true;
}

uint64_t fby_handles_remove(fby_handles_t *handles, uint64_t handle)
{
    uint32_t hole = place_of(handles, handle);
    if (handle == 0 || handles->entry[hole].handle != handle) {
        return 0;
    }
    uint64_t value = handles->entry[hole].value;
    for (uint32_t at = (hole + 1) & handles->mask; handles->entry[at].handle != 0; at = (at + 1) & handles->mask) {
        uint32_t home = home_of(handles, handles->entry[at].handle);
        /* an entry may move into the hole unless its home lies behind the hole on the way to where it is */
        if (((at - home) & handles->mask) >= ((at - hole) & handles->mask)) {
            handles->entry[hole] = handles->entry[at];
            hole = at;
        }
    }
    handles->entry[hole] = (fby_handle_entry_t){0, 0};
    handles->count--;
    return value;
}
