/* suggest.h - "did you mean": the nearest of some offered words. Pure; remembers pointers, copies nothing. */
#ifndef FBY_RUNTIME_SUGGEST_H
#define FBY_RUNTIME_SUGGEST_H

#include "base/base.h"

typedef struct fby_suggest {
    const char *word;
    const char *best; /* NULL: nothing offered so far is near enough */
    uint32_t best_distance;
} fby_suggest_t;

void fby_suggest_init(fby_suggest_t *suggest, const char *word);
/* Keeps the candidate if it is nearer than all before: at most a third of the letters edited, and never more than 3. */
void fby_suggest_offer(fby_suggest_t *suggest, const char *candidate);

#endif
