/* script.c - the parser. One pass, a span of text per part, and a message at the first part that is wrong. */
#include "stores/script_rule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stores/options.h"

typedef struct span {
    const char *at;
    size_t length;
} span_t;

typedef struct parser {
    fby_script_t script;
    uint32_t capacity;
    span_t item; /* the one being read: every message shows it */
    char *error;
    size_t error_size;
} parser_t;

typedef enum argument {
    ARGUMENT_NOTHING,
    ARGUMENT_CODE,
    ARGUMENT_BYTES,
    ARGUMENT_BIT,
    ARGUMENT_DELAY_MS,
    ARGUMENT_LEASE_MS
} argument_t;

static const struct {
    const char *name;
    argument_t argument;
    bool outcome;
} effects[] = {
#define FBY_X(effect, text, takes, decides) {text, ARGUMENT_##takes, decides},
    FBY_EFFECT_MAP(FBY_X)
#undef FBY_X
};

/* What the field calls common failures: an effect with its conditions. */
#define SHORTHAND_NAMES "fail_tail, fail_all_but_first, random, full"

static const struct {
    const char *name;
    int32_t code;
} codes[] = {
#define FBY_X(name) {#name, FBY_E_##name},
    FBY_X(MISSING) FBY_X(NOT_READY) FBY_X(SIZE) FBY_X(CHECKSUM) FBY_X(LEASE) FBY_X(TIMEOUT) FBY_X(CONNECTION)
        FBY_X(FULL) FBY_X(EXISTS) FBY_X(INVALID)
#undef FBY_X
#define FBY_X(name) {#name, -name},
            FBY_X(EAGAIN) FBY_X(ENOMEM) FBY_X(EINVAL) FBY_X(EIO)
#undef FBY_X
};
#define ACCEPTED_CODES                                                                                                 \
    "MISSING, NOT_READY, SIZE, CHECKSUM, LEASE, TIMEOUT, CONNECTION, FULL, EXISTS, INVALID, EAGAIN, ENOMEM, EINVAL, "  \
    "EIO"

static int shown(size_t length)
{
    return (int)FBY_MIN(length, (size_t)60);
}

static int bad(parser_t *parser, span_t part, const char *what, const char *accepted)
{
    if (parser->error != NULL && parser->error_size > 0) {
        snprintf(parser->error, parser->error_size, "script item '%.*s': %s '%.*s'; accepted: %s",
                 shown(parser->item.length), parser->item.at, what, shown(part.length), part.at, accepted);
    }
    return FBY_E_CONFIG;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static span_t trim(span_t span)
{
    while (span.length > 0 && blank(span.at[0])) {
        span.at++;
        span.length--;
    }
    while (span.length > 0 && blank(span.at[span.length - 1])) {
        span.length--;
    }
    return span;
}

/* An empty span may have no text at all. */
static const char *find(span_t span, char what)
{
    return span.length > 0 ? memchr(span.at, what, span.length) : NULL;
}

/* Cuts the text before `separator` off the front of *rest. false when *rest was already spent. */
static bool cut(span_t *rest, char separator, span_t *part)
{
    if (rest->at == NULL) {
        return false;
    }
    const char *end = find(*rest, separator);
    size_t length = end != NULL ? (size_t)(end - rest->at) : rest->length;
    *part = trim((span_t){rest->at, length});
    if (end == NULL) {
        *rest = (span_t){NULL, 0};
    } else {
        rest->at += length + 1;
        rest->length -= length + 1;
    }
    return true;
}

static bool is(span_t span, const char *word)
{
    return span.length > 0 && strlen(word) == span.length && memcmp(span.at, word, span.length) == 0;
}

/* "name(arguments)" or "name". false: unbalanced or text behind the ')'. */
static bool split_call(span_t text, span_t *name, span_t *arguments)
{
    const char *open = find(text, '(');
    *arguments = (span_t){NULL, 0};
    if (open == NULL) {
        *name = text;
        return find(text, ')') == NULL;
    }
    size_t before = (size_t)(open - text.at);
    *name = trim((span_t){text.at, before});
    if (text.at[text.length - 1] != ')') {
        return false;
    }
    *arguments = trim((span_t){open + 1, text.length - before - 2});
    return true;
}

static bool read_code(span_t text, int32_t *code)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(codes); i++) {
        if (is(text, codes[i].name)) {
            *code = codes[i].code;
            return true;
        }
    }
    return false;
}

static bool read_u64(span_t text, uint64_t *value)
{
    return fby_text_u64(text.at, text.length, value);
}

static int read_range(parser_t *parser, span_t text, fby_script_range_t *range)
{
    span_t rest = text, low = {0}, high = {0};
    uint64_t last = UINT64_MAX;
    bool open = find(text, '-') != NULL;
    if (!cut(&rest, '-', &low) || !read_u64(low, &range->low) || range->low == 0 ||
        (open && cut(&rest, '-', &high) && high.length > 0 && (!read_u64(high, &last) || last < range->low))) {
        return bad(parser, text, "wrong range", "N, N- or N-M, from 1");
    }
    range->high = open ? last : range->low;
    return 0;
}

static int read_place(parser_t *parser, span_t text, fby_place_t *place)
{
#define FBY_X(name, word)                                                                                              \
    if (is(text, word)) {                                                                                              \
        *place = FBY_PLACE_##name;                                                                                     \
        return 0;                                                                                                      \
    }
    FBY_PLACE_MAP(FBY_X)
#undef FBY_X
    return bad(parser, text, "wrong place", "first, rest, tail");
}

static int read_condition(parser_t *parser, span_t text, fby_script_rule_t *rule)
{
    span_t value = text, name = {0};
    cut(&value, '=', &name);
    value = trim(value);
    if (is(name, "nth")) {
        return read_range(parser, value, &rule->nth);
    }
    if (is(name, "call")) {
        return read_range(parser, value, &rule->call);
    }
    if (is(name, "at")) {
        return read_place(parser, value, &rule->place);
    }
    if (is(name, "times")) {
        return read_u64(value, &rule->times_left) ? 0 : bad(parser, value, "wrong count", "a whole number");
    }
    if (is(name, "p")) {
        return fby_text_chance(value.at, value.length, &rule->chance)
                   ? 0
                   : bad(parser, value, "wrong chance", "a number from 0 to 1 with at most six decimals");
    }
    return bad(parser, name, "unknown condition", "nth=, call=, times=, p=, at=");
}

static int read_argument(parser_t *parser, argument_t kind, span_t text, fby_effect_t *effect)
{
    switch (kind) {
    case ARGUMENT_NOTHING:
        return text.at == NULL ? 0 : bad(parser, text, "unexpected argument", "no argument");
    case ARGUMENT_CODE:
        return read_code(text, &effect->code) ? 0 : bad(parser, text, "wrong code", ACCEPTED_CODES);
    case ARGUMENT_BYTES:
        return fby_text_size(text.at, text.length, &effect->bytes)
                   ? 0
                   : bad(parser, text, "wrong size", "bytes, such as 100 or 4KiB");
    case ARGUMENT_BIT:
        return read_u64(text, &effect->bit) ? 0 : bad(parser, text, "wrong bit", "a whole number");
    case ARGUMENT_DELAY_MS:
        return fby_text_ms(text.at, text.length, &effect->delay_ns)
                   ? 0
                   : bad(parser, text, "wrong time", "milliseconds, such as 10 or 0.5");
    case ARGUMENT_LEASE_MS:
    default:
        return fby_text_ms(text.at, text.length, &effect->lease_ns) && effect->lease_ns > 0
                   ? 0
                   : bad(parser, text, "wrong time", "milliseconds above 0, such as 10 or 0.5");
    }
}

static int add_outcome(parser_t *parser, span_t text, fby_script_rule_t *rule, uint32_t flag)
{
    uint32_t outcomes = 0;
    for (size_t i = 0; i < FBY_ARRAY_LEN(effects); i++) {
        outcomes |= effects[i].outcome ? UINT32_C(1) << i : 0;
    }
    if ((rule->effect.flags & outcomes) != 0) {
        return bad(parser, text, "a second outcome",
                   "one outcome per rule; delay, hang, lost, drop_reply, lease, "
                   "reorder and duplicate_reply combine with it");
    }
    rule->effect.flags |= flag;
    return 0;
}

/* fail_tail[(CODE)], fail_all_but_first[(CODE)], random(CHANCE[,CODE]), full. 1: not a shorthand. */
static int read_shorthand(parser_t *parser, span_t text, span_t name, span_t arguments, fby_script_rule_t *rule)
{
    bool random = is(name, "random"), full = is(name, "full");
    span_t rest = arguments, part = {0};
    if (is(name, "fail_tail")) {
        rule->place = FBY_PLACE_TAIL;
    } else if (is(name, "fail_all_but_first")) {
        rule->place = FBY_PLACE_REST;
    } else if (!random && !full) {
        return 1;
    }
    rule->effect.code = full ? FBY_E_FULL : FBY_E_CONNECTION;
    if (random && (!cut(&rest, ',', &part) || !fby_text_chance(part.at, part.length, &rule->chance))) {
        return bad(parser, text, "wrong chance in", "random(CHANCE) or random(CHANCE,CODE), CHANCE from 0 to 1");
    }
    if (!full && cut(&rest, ',', &part) && !read_code(part, &rule->effect.code)) {
        return bad(parser, part, "wrong code", ACCEPTED_CODES);
    }
    if (rest.at != NULL) {
        return bad(parser, rest, "unexpected argument", "fewer arguments");
    }
    return add_outcome(parser, text, rule, FBY_EFFECT_ERR);
}

static int read_effect(parser_t *parser, span_t text, fby_script_rule_t *rule)
{
    static const char accepted[] =
#define FBY_X(effect, name, takes, decides) name ", "
        FBY_EFFECT_MAP(FBY_X)
#undef FBY_X
            SHORTHAND_NAMES;
    span_t name = {0}, arguments = {0};
    if (!split_call(text, &name, &arguments)) {
        return bad(parser, text, "unbalanced parentheses in", "name or name(argument)");
    }
    int shorthand = read_shorthand(parser, text, name, arguments, rule);
    if (shorthand <= 0) {
        return shorthand;
    }
    for (size_t i = 0; i < FBY_ARRAY_LEN(effects); i++) {
        if (!is(name, effects[i].name)) {
            continue;
        }
        int status = read_argument(parser, effects[i].argument, arguments, &rule->effect);
        if (status < 0) {
            return status;
        }
        if (effects[i].outcome) {
            return add_outcome(parser, text, rule, UINT32_C(1) << i);
        }
        rule->effect.flags |= UINT32_C(1) << i;
        return 0;
    }
    return bad(parser, name, "unknown effect", accepted);
}

static int read_verbs(parser_t *parser, span_t text, uint32_t *verbs)
{
    span_t rest = text, word = {0};
    if (is(text, "*")) {
        *verbs = (1u << FBY_VERB_COUNT) - 1;
        return 0;
    }
    while (cut(&rest, '|', &word)) {
        uint32_t found = 0;
        for (uint32_t verb = 0; verb < FBY_VERB_COUNT; verb++) {
            found |= is(word, fby_verb_name((fby_verb_t)verb)) ? 1u << verb : 0;
        }
        if (found == 0) {
            return bad(parser, word, "unknown operation", "*, exists, get, put, remove, joined by |");
        }
        *verbs |= found;
    }
    return 0;
}

static int add_rule(parser_t *parser, const fby_script_rule_t *rule)
{
    fby_script_t *script = &parser->script;
    if (script->count == parser->capacity) {
        uint32_t capacity = parser->capacity == 0 ? 8 : parser->capacity * 2;
        fby_script_rule_t *larger = realloc(script->rules, capacity * sizeof(*larger));
        if (larger == NULL) {
            return -ENOMEM;
        }
        script->rules = larger;
        parser->capacity = capacity;
    }
    script->rules[script->count++] = *rule;
    return 0;
}

static int read_rule(parser_t *parser)
{
    fby_script_rule_t rule = {
        .nth = {1, UINT64_MAX}, .call = {1, UINT64_MAX}, .times_left = UINT64_MAX, .chance = FBY_CHANCE_SURE};
    span_t rest = parser->item, part = {0}, effect = {0};
    if (!cut(&rest, ':', &part)) {
        return bad(parser, parser->item, "empty rule", "operation:keys:effect");
    }
    int status = read_verbs(parser, part, &rule.verbs);
    if (status < 0) {
        return status;
    }
    if (!cut(&rest, ':', &part) || part.length == 0 || part.length >= sizeof(rule.glob)) {
        return bad(parser, part, "wrong key pattern", "1 to 63 characters, * and ? as in file names");
    }
    memcpy(rule.glob, part.at, part.length);
    if (!cut(&rest, ':', &part)) {
        return bad(parser, parser->item, "no effect in", "operation:keys:effect");
    }
    while (rest.at != NULL) {
        status = read_condition(parser, part, &rule);
        if (status < 0) {
            return status;
        }
        cut(&rest, ':', &part);
    }
    while (cut(&part, '+', &effect)) {
        status = read_effect(parser, effect, &rule);
        if (status < 0) {
            return status;
        }
    }
    return add_rule(parser, &rule);
}

static int read_setting(parser_t *parser)
{
    span_t name = {0}, argument = {0};
    fby_script_t *script = &parser->script;
    if (!split_call(parser->item, &name, &argument)) {
        return bad(parser, parser->item, "unbalanced parentheses in", "name(argument)");
    }
    if (is(name, "bandwidth")) {
        return fby_text_size(argument.at, argument.length, &script->bandwidth)
                   ? 0
                   : bad(parser, argument, "wrong bandwidth", "bytes per second, such as 200MB or 1GiB; 0: no limit");
    }
    if (is(name, "latency")) {
        return fby_text_ms(argument.at, argument.length, &script->latency_ns)
                   ? 0
                   : bad(parser, argument, "wrong latency", "milliseconds, such as 2 or 0.25");
    }
    if (is(name, "seed")) {
        return read_u64(argument, &script->random) ? 0 : bad(parser, argument, "wrong seed", "a whole number");
    }
    return bad(parser, name, "unknown setting",
               "bandwidth(SIZE), latency(MS), seed(N), or a rule operation:keys:effect");
}

int fby_script_parse(const char *text, fby_script_t *out, char *error, size_t error_size)
{
    parser_t parser = {.script = {.random = 1}, .error_size = error_size};
    parser.error = error;
    span_t rest = {text != NULL ? text : "", text != NULL ? strlen(text) : 0};
    while (cut(&rest, ';', &parser.item)) {
        if (parser.item.length == 0) {
            continue;
        }
        bool rule = find(parser.item, ':') != NULL;
        int status = rule ? read_rule(&parser) : read_setting(&parser);
        if (status < 0) {
            fby_script_free(&parser.script);
            return status;
        }
    }
    *out = parser.script;
    return 0;
}
