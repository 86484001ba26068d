#include "api/metrics_text.h"

#include <ctype.h>
#include <stdbool.h>

static void wrong(const char *line, const char *why)
{
    fail_msg("%s: %.*s", why, (int)strcspn(line, "\n"), line);
}

static size_t name_length(const char *text)
{
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_' || text[length] == ':') {
        length++;
    }
    return isdigit((unsigned char)text[0]) ? 0 : length;
}

static void copy(char *out, size_t capacity, const char *from, size_t length, const char *line)
{
    if (length >= capacity) {
        wrong(line, "too long");
    }
    memcpy(out, from, length);
    out[length] = '\0';
}

/* "# HELP name text" opens a family, "# TYPE name type" must follow it. */
static void comment_parse(metrics_text_t *out, const char *line, bool *awaits_type)
{
    metrics_family_t *last = out->families > 0 ? &out->family[out->families - 1] : NULL;
    size_t length = name_length(line + 7);
    const char *rest = line + 7 + length;
    if (length == 0 || *rest != ' ') {
        wrong(line, "no name");
    }
    if (strncmp(line, "# HELP ", 7) == 0) {
        if (*awaits_type || out->families == METRICS_MOST_FAMILIES) {
            wrong(line, "HELP without TYPE before it");
        }
        metrics_family_t *family = &out->family[out->families++];
        copy(family->name, sizeof(family->name), line + 7, length, line);
        *awaits_type = true;
        return;
    }
    if (strncmp(line, "# TYPE ", 7) != 0 || !*awaits_type || strncmp(last->name, line + 7, length) != 0 ||
        strlen(last->name) != length) {
        wrong(line, "not the TYPE of the HELP before it");
    }
    copy(last->type, sizeof(last->type), rest + 1, strcspn(rest + 1, "\n"), line);
    *awaits_type = false;
}

/* A sample's name is its family's, with an ending for histograms. */
static bool belongs(const metrics_family_t *family, const char *name)
{
    size_t length = strlen(family->name);
    if (strncmp(name, family->name, length) != 0) {
        return false;
    }
    if (strcmp(family->type, "histogram") != 0) {
        return name[length] == '\0';
    }
    return strcmp(name + length, "_bucket") == 0 || strcmp(name + length, "_sum") == 0 ||
           strcmp(name + length, "_count") == 0;
}

/* key="value",key="value" of the characters that our values have. */
static bool labels_are_right(const char *labels)
{
    while (*labels != '\0') {
        size_t name = name_length(labels);
        if (name == 0 || strncmp(labels + name, "=\"", 2) != 0) {
            return false;
        }
        labels += name + 2;
        size_t value = strspn(labels, "abcdefghijklmnopqrstuvwxyz_0123456789.+I");
        if (labels[value] != '"') {
            return false;
        }
        labels += value + 1;
        if (*labels == ',') {
            labels++;
        } else if (*labels != '\0') {
            return false;
        }
    }
    return true;
}

static void sample_parse(metrics_text_t *out, const char *line)
{
    size_t length = name_length(line);
    const char *at = line + length;
    if (length == 0 || out->samples == METRICS_MOST_SAMPLES || out->families == 0) {
        wrong(line, "no sample");
    }
    metrics_sample_t *sample = &out->sample[out->samples++];
    copy(sample->name, sizeof(sample->name), line, length, line);
    sample->labels[0] = '\0';
    if (*at == '{') {
        size_t labels = strcspn(at + 1, "}\n");
        copy(sample->labels, sizeof(sample->labels), at + 1, labels, line);
        at += labels + 2;
    }
    char *end;
    sample->value = strtod(at, &end);
    if (*at != ' ' || end == at || *end != '\n' || sample->value < 0 || !labels_are_right(sample->labels)) {
        wrong(line, "malformed");
    }
    metrics_family_t *family = &out->family[out->families - 1];
    if (!belongs(family, sample->name)) {
        wrong(line, "not of the family above");
    }
    family->samples++;
}

metrics_text_t *metrics_parse(const char *text)
{
    metrics_text_t *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    bool awaits_type = false;
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        if (end == NULL) {
            wrong(text, "no newline at the end");
        }
        if (*text == '#') {
            comment_parse(out, text, &awaits_type);
        } else {
            sample_parse(out, text);
        }
        text = end + 1;
    }
    assert_false(awaits_type);
    return out;
}

double metrics_value(const metrics_text_t *text, const char *name, const char *labels)
{
    const metrics_sample_t *found = NULL;
    for (uint32_t i = 0; i < text->samples; i++) {
        const metrics_sample_t *sample = &text->sample[i];
        if (strcmp(sample->name, name) == 0 && strcmp(sample->labels, labels) == 0) {
            assert_null(found);
            found = sample;
        }
    }
    if (found == NULL) {
        fail_msg("no sample %s{%s}", name, labels);
    }
    return found->value;
}

double metrics_sum(const metrics_text_t *text, const char *name, const char *part)
{
    double sum = 0;
    for (uint32_t i = 0; i < text->samples; i++) {
        const metrics_sample_t *sample = &text->sample[i];
        if (strcmp(sample->name, name) == 0 && strstr(sample->labels, part) != NULL) {
            sum += sample->value;
        }
    }
    return sum;
}

const metrics_family_t *metrics_family(const metrics_text_t *text, const char *name)
{
    const metrics_family_t *found = NULL;
    for (uint32_t i = 0; i < text->families; i++) {
        if (strcmp(text->family[i].name, name) == 0) {
            assert_null(found);
            found = &text->family[i];
        }
    }
    return found;
}
