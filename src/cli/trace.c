/* trace.c - reading and writing traces. Strict: the first line that breaks an invariant ends the reading. */
#include "cli/trace.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/trace_build.h"
#include "forebay/forebay.h"

typedef struct reader {
    const char *name;
    uint64_t line; /* 1-based */
    fby_trace_builder_t builder;
    uint64_t *last_line; /* by id: the line of its last use, to find an id twice in one request */
    uint64_t last_line_capacity;
} reader_t;

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static int fault(const reader_t *reader, const char *format, ...) FBY_PRINTF(2, 3);
static int fault(const reader_t *reader, const char *format, ...)
{
    char what[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    fby_error_set("%.128s:%" PRIu64 ": %s", reader->name, reader->line, what);
    return FBY_E_FORMAT;
}

/* A JSON value for messages, cut to fit. */
static const char *shown(const cJSON *item, char out[48])
{
    char *text = cJSON_PrintUnformatted(item);
    snprintf(out, 48, "%.44s%s", text != NULL ? text : "?", text != NULL && strlen(text) > 44 ? "..." : "");
    cJSON_free(text);
    return out;
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

/* `field` may name an element ("hash_ids[3]"). */
static int read_whole(const reader_t *reader, const cJSON *item, const char *field, uint64_t low, uint64_t high,
                      uint64_t *out)
{
    char value[48];
    const char *why = NULL;
    double number = cJSON_IsNumber(item) ? item->valuedouble : 0;
    if (!cJSON_IsNumber(item)) {
        why = "is not a number";
    } else if (number < 0) {
        why = "is negative";
    } else if (!isfinite(number) || number > (double)high) {
        why = "is too large";
    } else if (number != floor(number)) {
        why = "is not a whole number";
    } else if (number < (double)low) {
        why = "is too small";
    }
    if (why != NULL) {
        return fault(reader, "%s: %s %s; accepted: a whole number from %" PRIu64 " to %" PRIu64, field,
                     shown(item, value), why, low, high);
    }
    *out = (uint64_t)number;
    return 0;
}

/* A member that must stand there exactly once. */
static int find_member(const reader_t *reader, const cJSON *object, const char *field, const cJSON **out)
{
    const cJSON *item;
    *out = NULL;
    cJSON_ArrayForEach(item, object)
    {
        if (strcmp(item->string, field) != 0) {
            continue;
        }
        if (*out != NULL) {
            return fault(reader, "%s: stands twice; accepted: once", field);
        }
        *out = item;
    }
    return *out != NULL
               ? 0
               : fault(reader, "%s: is missing; accepted: timestamp, input_length, output_length and hash_ids", field);
}

static int read_member(const reader_t *reader, const cJSON *object, const char *field, uint64_t low, uint64_t high,
                       uint64_t *out)
{
    const cJSON *item;
    int status = find_member(reader, object, field, &item);
    return status == 0 ? read_whole(reader, item, field, low, high, out) : status;
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

/* Text of a parent for messages: an id, or "the start". */
static const char *parent_text(uint32_t parent, char out[24])
{
    if (parent == FBY_NONE) {
        return "the start";
    }
    snprintf(out, 24, "%" PRIu32, parent);
    return out;
}

/* Checks one id against the forest so far and enters it. */
static int take_id(reader_t *reader, const char *field, uint32_t id, uint32_t parent)
{
    fby_trace_t *trace = &reader->builder.trace;
    char now[24], before[24];
    if (id > trace->unique_blocks) {
        return fault(reader,
                     "%s: %" PRIu32
                     " skips ids, which are dense and numbered by first appearance; accepted: 0 to %" PRIu32,
                     field, id, trace->unique_blocks);
    }
    bool is_new = id == trace->unique_blocks;
    if (is_new) {
        int status =
            fby_grow((void **)&reader->last_line, &reader->last_line_capacity, id + UINT64_C(1), sizeof(uint64_t));
        if (status != 0) {
            return status;
        }
    } else if (reader->last_line[id] == reader->line) {
        return fault(reader, "%s: %" PRIu32 " stands twice in this request; accepted: each id once", field, id);
    } else if (trace->parent[id] != parent) {
        return fault(reader, "%s: %" PRIu32 " follows %s here and followed %s before; accepted: one parent for each id",
                     field, id, parent_text(parent, now), parent_text(trace->parent[id], before));
    }
    reader->last_line[id] = reader->line;
    return fby_trace_add_id(&reader->builder, id, parent);
}

static int read_ids(reader_t *reader, const cJSON *object, const fby_trace_request_t *request)
{
    const cJSON *list, *item;
    uint32_t parent = FBY_NONE, index = 0;
    char value[48], field[32];
    int status = find_member(reader, object, "hash_ids", &list);
    if (status != 0) {
        return status;
    }
    if (!cJSON_IsArray(list)) {
        return fault(reader, "hash_ids: %s is not a list; accepted: a list of whole numbers", shown(list, value));
    }
    if (cJSON_GetArraySize(list) != (int)request->blocks) {
        return fault(reader,
                     "hash_ids: has %d ids for input_length %" PRIu32 "; accepted: %" PRIu32 ", one per 512 tokens",
                     cJSON_GetArraySize(list), request->input_tokens, request->blocks);
    }
    cJSON_ArrayForEach(item, list)
    {
        uint64_t id = 0;
        snprintf(field, sizeof(field), "hash_ids[%" PRIu32 "]", index++);
        status = status == 0 ? read_whole(reader, item, field, 0, INT32_MAX, &id) : status;
        status = status == 0 ? take_id(reader, field, (uint32_t)id, parent) : status;
        parent = (uint32_t)id;
    }
    return status;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static int read_request(reader_t *reader, const cJSON *object)
{
    const fby_trace_t *trace = &reader->builder.trace;
    fby_trace_request_t request = {.first_id = trace->block_refs};
    uint64_t input = 0, output = 0;
    if (!cJSON_IsObject(object)) {
        return fault(reader, "is not an object; accepted: one JSON object per line");
    }
    int status = read_member(reader, object, "timestamp", 0, FBY_TRACE_MOST_MS, &request.timestamp_ms);
    status = status == 0 ? read_member(reader, object, "input_length", 1, FBY_TRACE_MOST_TOKENS, &input) : status;
    status = status == 0 ? read_member(reader, object, "output_length", 0, FBY_TRACE_MOST_TOKENS, &output) : status;
    if (status != 0) {
        return status;
    }
    uint64_t before = trace->requests > 0 ? trace->request[trace->requests - 1].timestamp_ms : 0;
    if (request.timestamp_ms < before) {
        return fault(reader, "timestamp: %" PRIu64 " is earlier than the line before; accepted: %" PRIu64 " or more",
                     request.timestamp_ms, before);
    }
    request.input_tokens = (uint32_t)input;
    request.output_tokens = (uint32_t)output;
    request.blocks = (uint32_t)((input + FBY_TRACE_BLOCK_TOKENS - 1) / FBY_TRACE_BLOCK_TOKENS);
    status = read_ids(reader, object, &request);
    return status == 0 ? fby_trace_add_request(&reader->builder, &request) : status;
}

static int read_line(reader_t *reader, const char *text, size_t length)
{
    const char *end = NULL;
    if (memchr(text, '\0', length) != NULL) {
        return fault(reader, "has a NUL byte; accepted: one JSON object per line");
    }
    if (reader->builder.trace.requests >= INT32_MAX) {
        return fault(reader, "is one request too many; accepted: at most 2147483647");
    }
    cJSON *object = cJSON_ParseWithLengthOpts(text, length, &end, false);
    if (object == NULL) {
        size_t at = end != NULL ? (size_t)(end - text) : 0;
        return fault(reader, "is not JSON from column %zu on; accepted: one JSON object per line", at + 1);
    }
    size_t used = (size_t)(end - text);
    while (used < length && strchr(" \t\r", text[used]) != NULL) {
        used++;
    }
    int status =
        used < length
            ? fault(reader, "goes on after the object, at column %zu; accepted: one JSON object per line", used + 1)
            : read_request(reader, object);
    cJSON_Delete(object);
    return status;
}

int fby_trace_parse(const char *text, size_t length, const char *name, fby_trace_t *out)
{
    reader_t reader = {.name = name};
    int status = 0;
    for (size_t at = 0; at < length && status == 0;) {
        const char *newline = memchr(text + at, '\n', length - at);
        size_t line_length = newline != NULL ? (size_t)(newline - text) - at : length - at;
        reader.line++;
        status = read_line(&reader, text + at, line_length);
        at += line_length + 1;
    }
    if (status == 0 && reader.builder.trace.requests == 0) {
        fby_error_set("%.256s: has no requests; accepted: one JSON object per line", name);
        status = FBY_E_FORMAT;
    }
    if (status == -ENOMEM) {
        fby_error_set("%.256s: out of memory at line %" PRIu64, name, reader.line);
    }
    free(reader.last_line);
    if (status != 0) {
        fby_trace_free(&reader.builder.trace);
        return status;
    }
    *out = reader.builder.trace;
    return 0;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static int map_file(const char *path, char **text, size_t *length)
{
    struct stat stat = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int status = fd < 0 || fstat(fd, &stat) != 0 ? -errno : 0;
    if (status == 0 && !S_ISREG(stat.st_mode)) {
        status = S_ISDIR(stat.st_mode) ? -EISDIR : -EINVAL;
    }
    *length = status == 0 ? (size_t)stat.st_size : 0;
    *text = NULL;
    if (*length > 0) {
        void *map = mmap(NULL, *length, PROT_READ, MAP_PRIVATE, fd, 0);
        status = map == MAP_FAILED ? -errno : 0;
        *text = map == MAP_FAILED ? NULL : map;
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

int fby_trace_load(const char *path, fby_trace_t *out)
{
    char *text;
    size_t length;
    int status = map_file(path, &text, &length);
    if (status != 0) {
        fby_error_set("%.256s: cannot be read: %s; accepted: a file of JSON lines", path, fby_strerror(status));
        return status;
    }
    status = fby_trace_parse(text != NULL ? text : "", text != NULL ? length : 0, path, out);
    if (text != NULL) {
        munmap(text, length);
    }
    return status;
}

void fby_trace_write(const fby_trace_t *trace, FILE *out)
{
    for (uint32_t i = 0; i < trace->requests; i++) {
        const fby_trace_request_t *request = &trace->request[i];
        fprintf(out,
                "{\"timestamp\": %" PRIu64 ", \"input_length\": %" PRIu32 ", \"output_length\": %" PRIu32
                ", \"hash_ids\": [",
                request->timestamp_ms, request->input_tokens, request->output_tokens);
        for (uint32_t b = 0; b < request->blocks; b++) {
            fprintf(out, "%s%" PRIu32, b > 0 ? ", " : "", fby_trace_ids(trace, i)[b]);
        }
        fputs("]}\n", out);
    }
}
