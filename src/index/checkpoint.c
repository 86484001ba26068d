#include "index/index.h"

/*
 * A missing block b of a group rules out every boundary in (b, b + n], so the next boundary that is possible is b. All
 * groups go down together, block by block: what lies above a new boundary needs no second look, and what was asked
 * below it for another group stays true.
 */
uint32_t fby_checkpoint_below(const uint32_t *trailing, uint32_t groups, uint32_t end, fby_present_fn *present,
                              void *arg)
{
    uint32_t longest = 0;
    for (uint32_t g = 0; g < groups; g++) {
        longest = FBY_MAX(longest, trailing[g]);
    }
    for (uint32_t block = end; block > 0 && end - block < longest;) {
        block--;
        for (uint32_t g = 0; g < groups; g++) {
            if (end - block <= trailing[g] && !present(arg, block, g)) {
                end = block;
                break;
            }
        }
    }
    return end;
}
