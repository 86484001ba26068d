/*
 * keymap.h - a hash table from key text to what the owner keeps about it.
 *
 * INVARIANT  entries are linked into exactly one bucket; their addresses do not change while they live.
 * Not locked: the owner's lock guards it. Buckets double when there are as many entries as buckets.
 */
#ifndef FBY_STORES_KEYMAP_H
#define FBY_STORES_KEYMAP_H

#include "base/base.h"
#include "forebay/store.h"

/* First member of the owner's entry. */
typedef struct fby_keymap_entry {
    struct fby_keymap_entry *next;
    uint64_t hash;
    char key[FBY_KEY_BYTES];
} fby_keymap_entry_t;

typedef struct fby_keymap {
    fby_keymap_entry_t **buckets;
    size_t mask; /* buckets - 1 */
    size_t count;
    size_t entry_bytes;
} fby_keymap_t;

/* -ENOMEM. entry_bytes is the size of the owner's entry. */
int fby_keymap_init(fby_keymap_t *map, size_t entry_bytes);
/* Frees every entry; `drop` (may be NULL) first sees each one. */
void fby_keymap_destroy(fby_keymap_t *map, void (*drop)(fby_keymap_entry_t *entry));
/* NULL when absent. A key that fills all of FBY_KEY_BYTES without a NUL is cut there. */
void *fby_keymap_find(const fby_keymap_t *map, const char *key);
/* Finds or makes (zeroed behind the head). NULL: out of memory. */
void *fby_keymap_insert(fby_keymap_t *map, const char *key);
/* Unlinks; the caller frees the entry with free(). NULL when absent. */
void *fby_keymap_take(fby_keymap_t *map, const char *key);
/* Calls `visit` for every entry in no order, until it returns non-zero; returns that. It must not change the map. */
int fby_keymap_each(const fby_keymap_t *map, int (*visit)(void *arg, fby_keymap_entry_t *entry), void *arg);

#endif
