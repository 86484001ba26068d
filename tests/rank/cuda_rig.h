/* cuda_rig.h - one rank over the double of the CUDA driver (cuda_driver_double.h), with a random layout and some blocks. */
#ifndef FBY_TESTS_RANK_CUDA_RIG_H
#define FBY_TESTS_RANK_CUDA_RIG_H

#include "cuda_driver_double.h"
#include "rig.h"

enum { CUDA_ORDINAL = 3 };

/* The double's hooks. */
typedef struct cuda_double {
    double_control_t *control;
    double_step_fn *step;
    double_gate_fn *gate;
    double_fire_fn *fire;
} cuda_double_t;
extern cuda_double_t cuda_double;

typedef struct cuda_story {
    rig_pool_t rig;
    rig_engine_t engine;
    fby_rank_t *rank;
    uint64_t random, n, offset;
    uint64_t slot[RIG_SLOTS], block[RIG_BLOCKS], place[RIG_SLOTS];
    fby_copy_list_t list;
} cuda_story_t;

/* Group set-up: loads the double, FOREBAY_CUDA_DOUBLE or $FOREBAY_BUILD_ROOT/cuda_driver_double.so. */
int cuda_find_double(void **state);
fby_rank_config_t cuda_rank_config(void);
/* A fresh double, a pool, tensors, filled slots; no rank yet. A query makes 0 to most_steps steps. */
void cuda_prepare(cuda_story_t *story, fby_layout_kind_t kind, uint64_t seed, uint32_t most_steps);
void cuda_attach(cuda_story_t *story);
/* Both. */
void cuda_open(cuda_story_t *story, fby_layout_kind_t kind, uint64_t seed, uint32_t most_steps);
/* The double holds no context, stream, event or region of ours. */
void cuda_nothing_is_left(void);
/* What prepare made. */
void cuda_dismantle(cuda_story_t *story);
/* Detaches, looks that nothing is left, dismantles. */
void cuda_close(cuda_story_t *story);
/* Polls a copy to its end; fails when it is reported twice. */
fby_copy_status_t cuda_end_of(cuda_story_t *story, fby_copy_t copy);
/* The model's load of all of the story's blocks. */
void cuda_model_load(cuda_story_t *story);

#endif
