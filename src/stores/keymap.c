#include "stores/keymap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FIRST_BUCKETS 64u

static uint64_t key_hash(const char *key)
{
    return XXH3_64bits(key, strnlen(key, FBY_KEY_BYTES - 1));
}

int fby_keymap_init(fby_keymap_t *map, size_t entry_bytes)
{
    *map = (fby_keymap_t){.mask = FIRST_BUCKETS - 1, .entry_bytes = entry_bytes};
    map->buckets = calloc(FIRST_BUCKETS, sizeof(fby_keymap_entry_t *));
    return map->buckets != NULL ? 0 : -ENOMEM;
}

void fby_keymap_destroy(fby_keymap_t *map, void (*drop)(fby_keymap_entry_t *entry))
{
    for (size_t i = 0; map->buckets != NULL && i <= map->mask; i++) {
        fby_keymap_entry_t *next;
        for (fby_keymap_entry_t *entry = map->buckets[i]; entry != NULL; entry = next) {
            next = entry->next;
            if (drop != NULL) {
                drop(entry);
            }
            free(entry);
        }
    }
    free(map->buckets);
    *map = (fby_keymap_t){0};
}

/* The link that points to the key's entry, or the end of its chain. */
static fby_keymap_entry_t **find_link(const fby_keymap_t *map, const char *key, uint64_t hash)
{
    fby_keymap_entry_t **link = &map->buckets[hash & map->mask];
    while (*link != NULL && ((*link)->hash != hash || strncmp((*link)->key, key, FBY_KEY_BYTES - 1) != 0)) {
        link = &(*link)->next;
    }
    return link;
}

void *fby_keymap_find(const fby_keymap_t *map, const char *key)
{
    return *find_link(map, key, key_hash(key));
}

/* Keeps the old buckets when there is no memory: chains grow longer, nothing is lost. */
static void keymap_grow(fby_keymap_t *map)
{
    size_t buckets = (map->mask + 1) * 2;
    fby_keymap_entry_t **larger = calloc(buckets, sizeof(fby_keymap_entry_t *));
    if (larger == NULL) {
        return;
    }
    for (size_t i = 0; i <= map->mask; i++) {
        fby_keymap_entry_t *next;
        for (fby_keymap_entry_t *entry = map->buckets[i]; entry != NULL; entry = next) {
            next = entry->next;
            entry->next = larger[entry->hash & (buckets - 1)];
            larger[entry->hash & (buckets - 1)] = entry;
        }
    }
    free(map->buckets);
    map->buckets = larger;
    map->mask = buckets - 1;
}

void *fby_keymap_insert(fby_keymap_t *map, const char *key)
{
    uint64_t hash = key_hash(key);
    fby_keymap_entry_t **link = find_link(map, key, hash);
    if (*link != NULL) {
        return *link;
    }
    fby_keymap_entry_t *entry = calloc(1, map->entry_bytes);
    if (entry == NULL) {
        return NULL;
    }
    entry->hash = hash;
    memcpy(entry->key, key, strnlen(key, FBY_KEY_BYTES - 1));
    *link = entry;
    if (++map->count > map->mask) {
        keymap_grow(map);
    }
    return entry;
}

void *fby_keymap_take(fby_keymap_t *map, const char *key)
{
    fby_keymap_entry_t **link = find_link(map, key, key_hash(key));
    fby_keymap_entry_t *entry = *link;
    if (entry != NULL) {
        *link = entry->next;
        map->count--;
    }
    return entry;
}

int fby_keymap_each(const fby_keymap_t *map, int (*visit)(void *arg, fby_keymap_entry_t *entry), void *arg)
{
    for (size_t i = 0; i <= map->mask; i++) {
        for (fby_keymap_entry_t *entry = map->buckets[i]; entry != NULL; entry = entry->next) {
            int stop = visit(arg, entry);
            if (stop != 0) {
                return stop;
            }
        }
    }
    return 0;
}
