/* script_rule.h - one parsed rule; shared by the parser (script.c) and the matcher (script_match.c). */
#ifndef FBY_STORES_SCRIPT_RULE_H
#define FBY_STORES_SCRIPT_RULE_H

#include "stores/script.h"

/* X(name, text) */
#define FBY_PLACE_MAP(X) X(FIRST, "first") X(REST, "rest") X(TAIL, "tail")
typedef enum fby_place {
    FBY_PLACE_ANY,
#define FBY_X(name, text) FBY_PLACE_##name,
    FBY_PLACE_MAP(FBY_X)
#undef FBY_X
} fby_place_t;

typedef struct fby_script_range {
    uint64_t low, high; /* inclusive */
} fby_script_range_t;

#define FBY_GLOB_BYTES 64
#define FBY_CHANCE_SURE 1000000u

struct fby_script_rule {
    uint32_t verbs; /* bit per fby_verb_t */
    char glob[FBY_GLOB_BYTES];
    fby_script_range_t nth, call;
    uint64_t times_left;
    uint32_t chance; /* millionths */
    fby_place_t place;
    fby_effect_t effect;
};

#endif
