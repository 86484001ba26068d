/*
 * list.h - circular doubly linked lists of uint32 ids over caller-owned link arrays.
 *
 * The links of all lists over the same array live in `fby_link_t *links`; a list head is an entry of that array too, so
 * no operation has a special case. An id that is on no list links to itself.
 */
#ifndef FBY_BASE_LIST_H
#define FBY_BASE_LIST_H

#include "base/base.h"

typedef struct fby_link {
    uint32_t prev, next;
} fby_link_t;

static inline void fby_list_init(fby_link_t *links, uint32_t id)
{
    links[id].prev = links[id].next = id;
}
static inline bool fby_list_linked(const fby_link_t *links, uint32_t id)
{
    return links[id].next != id;
}
static inline bool fby_list_empty(const fby_link_t *links, uint32_t head)
{
    return links[head].next == head;
}
/* After `where`: with a head, at the front. The id must be on no list. */
static inline void fby_list_insert_after(fby_link_t *links, uint32_t where, uint32_t id)
{
    links[id].prev = where;
    links[id].next = links[where].next;
    links[links[where].next].prev = id;
    links[where].next = id;
}
static inline void fby_list_push_front(fby_link_t *links, uint32_t head, uint32_t id)
{
    fby_list_insert_after(links, head, id);
}
static inline void fby_list_push_back(fby_link_t *links, uint32_t head, uint32_t id)
{
    fby_list_insert_after(links, links[head].prev, id);
}
/* Harmless when on no list. */
static inline void fby_list_remove(fby_link_t *links, uint32_t id)
{
    links[links[id].prev].next = links[id].next;
    links[links[id].next].prev = links[id].prev;
    fby_list_init(links, id);
}
/* First or last id, or FBY_NONE. */
static inline uint32_t fby_list_front(const fby_link_t *links, uint32_t head)
{
    return links[head].next == head ? FBY_NONE : links[head].next;
}
static inline uint32_t fby_list_back(const fby_link_t *links, uint32_t head)
{
    return links[head].prev == head ? FBY_NONE : links[head].prev;
}

#endif
