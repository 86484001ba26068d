/* metrics_text.h - a small parser of Prometheus text, strict about what the format asks for. */
#ifndef FBY_TESTS_API_METRICS_TEXT_H
#define FBY_TESTS_API_METRICS_TEXT_H

#include "unit.h"

enum { METRICS_MOST_SAMPLES = 2048, METRICS_MOST_FAMILIES = 256 };

typedef struct metrics_family {
    char name[64], type[16];
    uint32_t samples;
} metrics_family_t;

typedef struct metrics_sample {
    char name[64], labels[160]; /* labels: between the braces, or "" */
    double value;
} metrics_sample_t;

typedef struct metrics_text {
    metrics_family_t family[METRICS_MOST_FAMILIES];
    metrics_sample_t sample[METRICS_MOST_SAMPLES];
    uint32_t families, samples;
} metrics_text_t;

/* Fails the test with the line that is wrong. The caller frees it with free(). */
metrics_text_t *metrics_parse(const char *text);
/* The one sample of that name and exactly these labels; fails when there is none. */
double metrics_value(const metrics_text_t *text, const char *name, const char *labels);
/* Sum over the samples of that name whose labels contain `part`; "" for all. */
double metrics_sum(const metrics_text_t *text, const char *name, const char *part);
const metrics_family_t *metrics_family(const metrics_text_t *text, const char *name);

#endif
