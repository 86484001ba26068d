#include "runtime/suggest.h"

#include <string.h>

enum { MOST_LETTERS = 63, MOST_EDITS = 3 };

/* Letters inserted, dropped, replaced, or two neighbours swapped: one edit each. */
static uint32_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    uint32_t rows[3][MOST_LETTERS + 1], *two_back = rows[0], *back = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++) {
        back[j] = (uint32_t)j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= b_length; j++) {
            uint32_t replaced = back[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = FBY_MIN(replaced, FBY_MIN(back[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = FBY_MIN(row[j], two_back[j - 2] + 1);
            }
        }
        uint32_t *oldest = two_back;
        two_back = back;
        back = row;
        row = oldest;
    }
    return back[b_length];
}

void fby_suggest_init(fby_suggest_t *suggest, const char *word)
{
    *suggest = (fby_suggest_t){.word = word, .best = NULL, .best_distance = MOST_EDITS + 1};
}

void fby_suggest_offer(fby_suggest_t *suggest, const char *candidate)
{
    size_t word_length = strlen(suggest->word), length = strlen(candidate);
    if (word_length > MOST_LETTERS || length > MOST_LETTERS) {
        return;
    }
    uint32_t distance = edit_distance(suggest->word, word_length, candidate, length);
    if (distance < suggest->best_distance && distance * 3 <= FBY_MAX(word_length, length)) {
        suggest->best = candidate;
        suggest->best_distance = distance;
    }
}
