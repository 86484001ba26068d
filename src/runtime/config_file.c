/*
 * config_file.c - a YAML or JSON text as assignments.
 *
 * One parser reads both: JSON is YAML's flow style, libyaml gives every scalar its line, keeps the digits as they were
 * written, and shows repeated keys, none of which a JSON tree does. Events are taken one by one and the walk ends at the
 * first wrong one, so neither depth nor size of a hostile text costs anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/log.h"
#include "runtime/config.h"

enum { MOST_FILE_BYTES = 1 << 20, PATH_BYTES = 256, MOST_SEEN = 512, NAME_BYTES = 256 };

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; deleted when the next is taken */
    const char *name;   /* of the text, for messages */
    fby_config_t *config;
    char *seen[MOST_SEEN]; /* full paths that stood in this text */
    size_t seen_count;
} reader_t;

/* A path below which the walk is. */
typedef struct path {
    char text[PATH_BYTES];
} path_t;

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static const char *where_at(const reader_t *reader, size_t line, char out[FBY_WHERE_BYTES])
{
    snprintf(out, FBY_WHERE_BYTES, "%.256s:%zu", reader->name, line + 1);
    return out;
}

static const char *where_event(const reader_t *reader, char out[FBY_WHERE_BYTES])
{
    return where_at(reader, reader->event.start_mark.line, out);
}

/* "WHERE: PATH WHAT". */
static int fault(const reader_t *reader, const path_t *path, const char *what)
{
    char where[FBY_WHERE_BYTES], quoted[128] = "";
    where_event(reader, where);
    if (path != NULL && path->text[0] != '\0') {
        fby_log_quote(quoted, sizeof(quoted), path->text);
    }
    fby_error_set("%s: %s%s%s", where, quoted, *quoted != '\0' ? " " : "", what);
    return FBY_E_CONFIG;
}

static int parser_fault(const reader_t *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    if (parser->error == YAML_MEMORY_ERROR) {
        return -ENOMEM;
    }
    char where[FBY_WHERE_BYTES];
    const char *problem = parser->problem != NULL ? parser->problem : "cannot be read";
    if (parser->error == YAML_READER_ERROR) {
        fby_error_set("%.256s: not a text at byte %zu: %s; accepted: YAML or JSON in UTF-8", reader->name,
                      parser->problem_offset, problem);
        return FBY_E_CONFIG;
    }
    where_at(reader, parser->problem_mark.line, where);
    fby_error_set("%s: not valid YAML or JSON: %s%s%s", where, parser->context != NULL ? parser->context : "",
                  parser->context != NULL ? ", " : "", problem);
    return FBY_E_CONFIG;
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static bool event_is_marked(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return true;
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor != NULL || event->data.scalar.tag != NULL;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor != NULL || event->data.sequence_start.tag != NULL;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor != NULL || event->data.mapping_start.tag != NULL;
    default:
        return false;
    }
}

/* Takes the next event. Anchors, aliases and tags are refused here, for every place at once. */
static int next(reader_t *reader)
{
    yaml_event_delete(&reader->event);
    if (!yaml_parser_parse(&reader->parser, &reader->event)) {
        return parser_fault(reader);
    }
    if (event_is_marked(&reader->event)) {
        return fault(reader, NULL, "anchors, aliases and tags are not accepted; write the value out");
    }
    return 0;
}

static const char *scalar(const reader_t *reader)
{
    return (const char *)reader->event.data.scalar.value;
}

/* A scalar with a NUL inside would be read short. */
static bool scalar_has_nul(const reader_t *reader)
{
    return strlen(scalar(reader)) != reader->event.data.scalar.length;
}

static fby_style_t scalar_style(const reader_t *reader)
{
    return reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? FBY_STYLE_PLAIN : FBY_STYLE_QUOTED;
}

static bool scalar_is_null(const reader_t *reader)
{
    const char *text = scalar(reader);
    return scalar_style(reader) == FBY_STYLE_PLAIN &&
           (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

/* ---- Paths ------------------------------------------------------------------------------------------------------- */

/* Each path may stand once in a text, whether written nested or with dots. */
static int remember(reader_t *reader, const path_t *path)
{
    for (size_t i = 0; i < reader->seen_count; i++) {
        if (strcmp(reader->seen[i], path->text) == 0) {
            return fault(reader, path, "stands here for the second time; accepted: each key once");
        }
    }
    if (reader->seen_count == MOST_SEEN) {
        return fault(reader, path, "is one key too many; accepted: at most 512");
    }
    char *copy = strdup(path->text);
    if (copy == NULL) {
        return -ENOMEM;
    }
    reader->seen[reader->seen_count++] = copy;
    return 0;
}

/* Enters the key that the current event holds: *child becomes parent.key, remembered. */
static int enter_key(reader_t *reader, const path_t *parent, path_t *child)
{
    if (reader->event.type != YAML_SCALAR_EVENT || scalar_has_nul(reader)) {
        return fault(reader, parent, "has a key that is not a text");
    }
    int length =
        snprintf(child->text, PATH_BYTES, "%s%s%s", parent->text, parent->text[0] != '\0' ? "." : "", scalar(reader));
    if (length >= PATH_BYTES) {
        return fault(reader, parent, "has a key that is too long");
    }
    return remember(reader, child);
}

static bool is_section(const path_t *path)
{
    size_t length = strlen(path->text);
    for (size_t id = 0; id < FBY_KEY_COUNT; id++) {
        if (strncmp(fby_keys[id].name, path->text, length) == 0 && fby_keys[id].name[length] == '.') {
            return true;
        }
    }
    return strcmp(path->text, "store.options") == 0;
}

static bool is_option(const path_t *path)
{
    return strncmp(path->text, FBY_OPTIONS_PREFIX, strlen(FBY_OPTIONS_PREFIX)) == 0;
}

/* ---- Composite values -------------------------------------------------------------------------------------------- */

/* The three fields of one entry of model.groups, as written. */
typedef struct group_fields {
    char name[NAME_BYTES], payload_bytes[NAME_BYTES], rule[NAME_BYTES];
} group_fields_t;

static int check_group_field(reader_t *reader, const path_t *path, const char *field)
{
    char why[FBY_WHY_BYTES], name[32], what[FBY_WHY_BYTES + 160], quoted[64];
    const char *text = scalar(reader), *accepted;
    uint64_t bytes;
    uint32_t trailing;
    bool good;
    if (strcmp(field, "name") == 0) {
        good = fby_read_group_name(text, name, why);
        accepted = "1 to 31 letters, digits, '_', '-', '.'";
    } else if (strcmp(field, "rule") == 0) {
        good = fby_read_rule(text, &trailing, why);
        accepted = "all or trailing(n)";
    } else {
        good = fby_read_size(text, 1, UINT64_C(1) << 30, &bytes, why);
        accepted = "a size from 1B to 1GiB, such as 64KiB";
    }
    if (good) {
        return 0;
    }
    snprintf(what, sizeof(what), "%s %s; accepted: %s", fby_log_quote(quoted, sizeof(quoted), text), why, accepted);
    return fault(reader, path, what);
}

/* The place in `fields` of a field's text, or NULL. */
static char *group_field(group_fields_t *fields, const char *name)
{
    return strcmp(name, "name") == 0            ? fields->name
           : strcmp(name, "payload_bytes") == 0 ? fields->payload_bytes
           : strcmp(name, "rule") == 0          ? fields->rule
                                                : NULL;
}

/* One {name, payload_bytes, rule}; the current event is its mapping's start. */
static int read_group(reader_t *reader, const path_t *path, group_fields_t *fields)
{
    if (reader->event.type != YAML_MAPPING_START_EVENT) {
        return fault(reader, path, "is not a mapping; accepted: name, payload_bytes and rule of one group");
    }
    int status = next(reader);
    while (status == 0 && reader->event.type != YAML_MAPPING_END_EVENT) {
        path_t child;
        status = enter_key(reader, path, &child);
        char *field = status == 0 ? group_field(fields, scalar(reader)) : NULL;
        if (status == 0 && field == NULL) {
            return fault(reader, &child, "is not known; accepted: name, payload_bytes, rule");
        }
        char field_name[16] = "";
        if (status == 0) {
            snprintf(field_name, sizeof(field_name), "%s", scalar(reader));
            status = next(reader);
        }
        if (status == 0 && (reader->event.type != YAML_SCALAR_EVENT || scalar_has_nul(reader))) {
            return fault(reader, &child, "is not a single value");
        }
        status = status == 0 ? check_group_field(reader, &child, field_name) : status;
        if (status == 0) {
            snprintf(field, NAME_BYTES, "%s", scalar(reader));
            status = next(reader);
        }
    }
    if (status == 0 && (fields->name[0] == '\0' || fields->payload_bytes[0] == '\0' || fields->rule[0] == '\0')) {
        return fault(reader, path, "lacks a field; accepted: name, payload_bytes and rule of one group");
    }
    return status;
}

/* Appends "separator text"; false when it does not fit. */
static bool join(char out[FBY_VALUE_TEXT_BYTES], const char *separator, const char *text)
{
    size_t length = strlen(out);
    int added = snprintf(out + length, FBY_VALUE_TEXT_BYTES - length, "%s%s", separator, text);
    return (size_t)added < FBY_VALUE_TEXT_BYTES - length;
}

/* The list of model.groups into its compact text. The current event is the sequence's start. */
static int read_groups(reader_t *reader, const path_t *path, char out[FBY_VALUE_TEXT_BYTES])
{
    uint32_t count = 0;
    int status = next(reader);
    while (status == 0 && reader->event.type != YAML_SEQUENCE_END_EVENT) {
        path_t child;
        group_fields_t fields = {0};
        snprintf(child.text, sizeof(child.text), "%.200s[%u]", path->text, count);
        if (count++ == FBY_MAX_GROUPS) {
            return fault(reader, &child, "is one group too many; accepted: 1 to 8 groups");
        }
        status = read_group(reader, &child, &fields);
        bool fits = join(out, count > 1 ? "," : "", fields.name) && join(out, ":", fields.payload_bytes) &&
                    join(out, ":", fields.rule);
        if (status == 0 && !fits) {
            return fault(reader, &child, "is too long");
        }
        status = status == 0 ? next(reader) : status;
    }
    return status;
}

/* The mapping of pool.group_bytes into its compact text. The current event is the mapping's start. */
static int read_group_bytes(reader_t *reader, const path_t *path, char out[FBY_VALUE_TEXT_BYTES])
{
    bool is_first = true;
    int status = next(reader);
    while (status == 0 && reader->event.type != YAML_MAPPING_END_EVENT) {
        path_t child;
        status = enter_key(reader, path, &child);
        bool fits = status == 0 && join(out, is_first ? "" : ",", scalar(reader));
        status = status == 0 ? next(reader) : status;
        if (status == 0 && (reader->event.type != YAML_SCALAR_EVENT || scalar_has_nul(reader))) {
            return fault(reader, &child, "is not a single value; accepted: a size such as 512MiB");
        }
        if (status == 0 && !(fits && join(out, "=", scalar(reader)))) {
            return fault(reader, &child, "is too long");
        }
        is_first = false;
        status = status == 0 ? next(reader) : status;
    }
    return status;
}

/* ---- The walk ---------------------------------------------------------------------------------------------------- */

static int read_mapping(reader_t *reader, const path_t *path);

static int assign(reader_t *reader, const path_t *path, const char *text, fby_style_t style, const char *where)
{
    return fby_config_assign(reader->config, FBY_LAYER_FILE, path->text, text, style, where);
}

static int read_scalar(reader_t *reader, const path_t *path)
{
    char where[FBY_WHERE_BYTES];
    where_event(reader, where);
    if (is_section(path)) {
        return scalar_is_null(reader) ? 0 : fault(reader, path, "is a single value; accepted: a mapping of keys");
    }
    if (scalar_has_nul(reader)) {
        return fault(reader, path, "has a NUL character in its value");
    }
    if (is_option(path) && scalar_is_null(reader)) {
        return fault(reader, path, "has no value; accepted: one line of text");
    }
    return assign(reader, path, scalar(reader), scalar_style(reader), where);
}

/* A list or mapping where only model.groups, pool.group_bytes and sections may have one. */
static int read_composite(reader_t *reader, const path_t *path)
{
    char where[FBY_WHERE_BYTES], text[FBY_VALUE_TEXT_BYTES] = "", accepts[320];
    bool is_list = reader->event.type == YAML_SEQUENCE_START_EVENT;
    where_event(reader, where);
    fby_key_id_t id = fby_key_find(path->text);
    int status;
    if (!is_list && is_section(path)) {
        return read_mapping(reader, path);
    }
    if (is_list && id == FBY_KEY_MODEL_GROUPS) {
        status = read_groups(reader, path, text);
    } else if (!is_list && id == FBY_KEY_POOL_GROUP_BYTES) {
        status = read_group_bytes(reader, path, text);
    } else if (id != FBY_KEY_COUNT) {
        fby_value_accepts(&fby_keys[id], accepts, sizeof(accepts));
        fby_error_set("%s: %s: is a %s; accepted: %s", where, path->text, is_list ? "list" : "mapping", accepts);
        return FBY_E_CONFIG;
    } else if (is_option(path) || is_section(path)) {
        return fault(reader, path,
                     is_option(path) ? "is not a single value; accepted: one line of text"
                                     : "is a list; accepted: a mapping of keys");
    } else {
        return fby_config_unknown_key(where, path->text);
    }
    return status == 0 ? assign(reader, path, text, FBY_STYLE_TEXT, where) : status;
}

static int read_value(reader_t *reader, const path_t *path)
{
    return reader->event.type == YAML_SCALAR_EVENT ? read_scalar(reader, path) : read_composite(reader, path);
}

/* The current event is the mapping's start; at return it is its end. Only known sections are entered, so the
   recursion is as deep as the longest key has parts. */
static int read_mapping(reader_t *reader, const path_t *path)
{
    int status = next(reader);
    while (status == 0 && reader->event.type != YAML_MAPPING_END_EVENT) {
        path_t child;
        status = enter_key(reader, path, &child);
        status = status == 0 ? next(reader) : status;
        status = status == 0 ? read_value(reader, &child) : status;
        status = status == 0 ? next(reader) : status;
    }
    return status;
}

static int read_root(reader_t *reader)
{
    static const path_t root = {""};
    if (reader->event.type == YAML_SCALAR_EVENT && scalar_is_null(reader)) {
        return 0;
    }
    if (reader->event.type != YAML_MAPPING_START_EVENT) {
        return fault(reader, NULL, "the text is a single value or a list; accepted: a mapping of keys");
    }
    return read_mapping(reader, &root);
}

/* Stream start, at most one document, stream end. */
static int read_stream(reader_t *reader)
{
    int status = next(reader);
    status = status == 0 ? next(reader) : status;
    if (status != 0 || reader->event.type == YAML_STREAM_END_EVENT) {
        return status;
    }
    status = next(reader);
    status = status == 0 ? read_root(reader) : status;
    status = status == 0 ? next(reader) : status; /* document end */
    status = status == 0 ? next(reader) : status;
    if (status == 0 && reader->event.type != YAML_STREAM_END_EVENT) {
        return fault(reader, NULL, "a second document begins here; accepted: one document");
    }
    return status;
}

/* ---- Public ------------------------------------------------------------------------------------------------------ */

/* Reads the text into `config`, which is half changed after an error. */
static int parse_into(fby_config_t *config, const char *text, size_t length, const char *name)
{
    reader_t reader = {.name = name, .config = config};
    if (!yaml_parser_initialize(&reader.parser)) {
        return -ENOMEM;
    }
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, length);
    int status = read_stream(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    for (size_t i = 0; i < reader.seen_count; i++) {
        free(reader.seen[i]);
    }
    return status;
}

/* All or nothing: `made` replaces the configuration's contents when status is 0. Takes `made`. */
static int commit(fby_config_t *config, fby_config_t *made, int status)
{
    if (status == 0) {
        fby_config_derive(made);
        fby_config_t old = *config;
        *config = *made;
        *made = old;
    }
    fby_config_free(made);
    return status;
}

int fby_config_parse(fby_config_t *config, const char *text, size_t length, const char *name)
{
    if (length > MOST_FILE_BYTES) {
        fby_error_set("%.256s: %zu bytes are too many for a configuration; accepted: at most 1MiB", name, length);
        return FBY_E_CONFIG;
    }
    fby_config_t *made = fby_config_copy(config);
    return made == NULL ? -ENOMEM : commit(config, made, parse_into(made, text, length, name));
}

int fby_config_set(fby_config_t *config, const char *key, const char *value)
{
    fby_config_t *made = fby_config_copy(config);
    if (made == NULL) {
        return -ENOMEM;
    }
    int status;
    fby_key_id_t id = fby_key_find(key);
    if (id != FBY_KEY_COUNT && fby_keys[id].type >= FBY_TYPE_GROUPS && (value[0] == '[' || value[0] == '{')) {
        char text[2 * FBY_VALUE_TEXT_BYTES];
        int length = snprintf(text, sizeof(text), "%s: %s", key, value);
        bool is_one_line = strchr(value, '\n') == NULL && (size_t)length < sizeof(text);
        status = is_one_line
                     ? parse_into(made, text, (size_t)length, key)
                     : fby_config_wrong_value("", &fby_keys[id], value, "is not one line of at most 2000 bytes");
    } else {
        status = fby_config_assign(made, FBY_LAYER_FILE, key, value, FBY_STYLE_TEXT, "");
    }
    return commit(config, made, status);
}

/* Reads at most `capacity` bytes of a descriptor; -errno. */
static int read_all(int fd, char *buffer, size_t capacity, size_t *length)
{
    *length = 0;
    while (*length < capacity) {
        ssize_t got = read(fd, buffer + *length, capacity - *length);
        if (got < 0 && errno != EINTR) {
            return -errno;
        }
        if (got == 0) {
            return 0;
        }
        *length += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int fby_config_load(fby_config_t *config, const char *path)
{
    size_t length = 0, capacity = MOST_FILE_BYTES + 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int status = fd < 0 ? -errno : 0;
    char *buffer = status == 0 ? malloc(capacity) : NULL;
    if (status == 0) {
        status = buffer == NULL ? -ENOMEM : read_all(fd, buffer, capacity, &length);
    }
    if (status != 0) {
        fby_error_set("%.256s: cannot be read: %s", path, fby_strerror(status));
    } else {
        status = fby_config_parse(config, buffer, length, path);
    }
    free(buffer);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}
