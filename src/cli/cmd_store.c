/* cmd_store.c - `forebay store ls|verify|gc`: a store looked at from outside, through any driver. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/store_target.h"
#include "cli/store_text.h"
#include "cli/table.h"
#include "keys/keys.h"
#include "stores/object.h"

/* ---- What a store holds ------------------------------------------------------------------------------------------ */

typedef struct listed {
    char key[FBY_KEY_BYTES];
    uint32_t bytes;
    fby_object_id_t id;       /* as the trailer says; meaningful when fault is OK */
    fby_object_fault_t fault; /* of the trailer, later of the whole object */
    bool checksum;            /* written with one */
} listed_t;

typedef struct listing {
    listed_t *row;
    size_t count, capacity;
    uint64_t bytes;
} listing_t;

static int add_listed(void *arg, const char *key, uint32_t bytes, const void *trailer64)
{
    listing_t *listing = arg;
    if (listing->count == listing->capacity) {
        size_t capacity = listing->capacity * 2 + 256;
        listed_t *grown = reallocarray(listing->row, capacity, sizeof(*grown));
        if (grown == NULL) {
            return -ENOMEM;
        }
        listing->row = grown;
        listing->capacity = capacity;
    }
    listed_t *row = &listing->row[listing->count++];
    uint64_t checksum;
    uint8_t flags = 0;
    *row = (listed_t){.bytes = bytes};
    snprintf(row->key, sizeof(row->key), "%s", key);
    row->fault = fby_trailer_parse(trailer64, &row->id, &checksum, &flags);
    row->checksum = (flags & FBY_FLAG_NO_CHECKSUM) == 0;
    listing->bytes += bytes;
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const listed_t *)a)->key, ((const listed_t *)b)->key);
}

/* Sorted by key, so that two listings compare. */
static int list_store(const fby_store_target_t *target, listing_t *listing)
{
    if (target->driver->visit == NULL) {
        fby_error_set("store driver %s cannot list what it holds; accepted: a driver that can, as file, mem and redis",
                      target->driver->name);
        return -ENOTSUP;
    }
    int status = target->driver->visit(target->store, add_listed, listing);
    if (status < 0) {
        fby_error_set("store driver %s did not list what it holds: %s", target->driver->name, fby_strerror(status));
        return status;
    }
    if (listing->count > 0) {
        qsort(listing->row, listing->count, sizeof(*listing->row), by_key);
    }
    return 0;
}

static void hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

static int failed(const fby_usage_t *usage)
{
    fprintf(stderr, "%s: %s\n", usage->command, fby_last_error());
    return FBY_EXIT_FAILED;
}

/* ---- ls ---------------------------------------------------------------------------------------------------------- */

static void print_listing_json(const listing_t *listing)
{
    fby_json_t json;
    char fingerprint[33];
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_u64(&json, "count", listing->count);
    fby_json_u64(&json, "bytes", listing->bytes);
    fby_json_array(&json, "objects");
    for (size_t i = 0; i < listing->count; i++) {
        const listed_t *row = &listing->row[i];
        fby_json_object(&json, NULL);
        fby_json_text(&json, "key", row->key);
        fby_json_u64(&json, "bytes", row->bytes);
        fby_json_text(&json, "trailer", fby_object_fault_name(row->fault));
        if (row->fault == FBY_OBJECT_OK) {
            hex(row->id.fingerprint, sizeof(row->id.fingerprint), fingerprint);
            fby_json_u64(&json, "group", row->id.group);
            fby_json_u64(&json, "payload_bytes", row->id.payload_bytes);
            fby_json_text(&json, "fingerprint", fingerprint);
            fby_json_bool(&json, "checksum", row->checksum);
        }
        fby_json_end(&json);
    }
    fby_json_end(&json);
    fby_json_end(&json);
}

static void print_listing(const listing_t *listing)
{
    static const char *const titles[] = {"key", "group", "payload", "fingerprint", "checksum"};
    static const bool right[] = {false, true, true, false, false};
    fby_table_t table;
    char fingerprint[33], size[32];
    fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
    for (size_t i = 0; i < listing->count; i++) {
        const listed_t *row = &listing->row[i];
        bool is_good = row->fault == FBY_OBJECT_OK;
        hex(row->id.fingerprint, sizeof(row->id.fingerprint), fingerprint);
        fby_table_cell(&table, "%s", row->key);
        fby_table_cell(&table, is_good ? "%" PRIu32 : "-", row->id.group);
        fby_table_cell(&table, is_good ? "%" PRIu32 : "-", row->id.payload_bytes);
        fby_table_cell(&table, "%s", is_good ? fingerprint : "-");
        fby_table_cell(&table, "%s", !is_good ? fby_object_fault_name(row->fault) : row->checksum ? "yes" : "no");
    }
    fby_table_print(&table, stdout);
    fby_table_free(&table);
    fby_format_size(listing->bytes, size, sizeof(size));
    printf("%zu objects, %s\n", listing->count, size);
}

static int run_ls(const fby_usage_t *usage, const fby_store_target_t *target, bool as_json)
{
    listing_t listing = {0};
    int code = list_store(target, &listing) == 0 ? FBY_EXIT_OK : failed(usage);
    if (code == FBY_EXIT_OK && as_json) {
        print_listing_json(&listing);
    } else if (code == FBY_EXIT_OK) {
        print_listing(&listing);
    }
    free(listing.row);
    return code;
}

/* ---- verify ------------------------------------------------------------------------------------------------------ */

/* Reads one object whole and checks it against its key. 0, or the code of a read that failed. */
static int verify_object(const fby_store_target_t *target, listed_t *row, void *buffer)
{
    fby_store_op_t op = {.buffer = buffer, .bytes = row->bytes};
    fby_hash_t hash;
    if (row->fault != FBY_OBJECT_OK) {
        return 0;
    }
    if (!fby_key_parse(row->key, &hash, &op.group) || !fby_hash_equal(&hash, &row->id.hash) ||
        op.group != row->id.group) {
        row->fault = FBY_OBJECT_KEY;
        return 0;
    }
    memcpy(op.key, row->key, sizeof(op.key));
    int status = target->driver->get(target->store, &op, 1);
    if (status < 0 || op.result < 0) {
        return status < 0 ? status : (int)op.result;
    }
    row->fault = op.result == row->bytes ? fby_object_verify(buffer, &row->id, true) : FBY_OBJECT_LENGTH;
    return 0;
}

typedef struct verdict {
    listing_t listing;
    size_t good, faulty;
    int *codes; /* per row: of a read that failed, or 0 */
} verdict_t;

static int verify_all(const fby_store_target_t *target, verdict_t *verdict)
{
    uint32_t largest = FBY_TRAILER_BYTES;
    fby_progress_t progress;
    for (size_t i = 0; i < verdict->listing.count; i++) {
        largest = FBY_MAX(largest, verdict->listing.row[i].bytes);
    }
    void *buffer = aligned_alloc(FBY_STORE_TARGET_ALIGNMENT, fby_align_up(largest, FBY_STORE_TARGET_ALIGNMENT));
    verdict->codes = calloc(verdict->listing.count + 1, sizeof(*verdict->codes));
    if (buffer == NULL || verdict->codes == NULL) {
        free(buffer);
        fby_error_set("out of memory for %zu objects of at most %" PRIu32 " bytes", verdict->listing.count, largest);
        return -ENOMEM;
    }
    fby_progress_begin(&progress, "verify", verdict->listing.count);
    for (size_t i = 0; i < verdict->listing.count; i++) {
        listed_t *row = &verdict->listing.row[i];
        verdict->codes[i] = verify_object(target, row, buffer);
        bool is_good = verdict->codes[i] == 0 && row->fault == FBY_OBJECT_OK;
        verdict->good += is_good;
        verdict->faulty += !is_good;
        fby_progress_step(&progress, i + 1);
    }
    fby_progress_end(&progress);
    free(buffer);
    return 0;
}

static const char *fault_text(const verdict_t *verdict, size_t i)
{
    return verdict->codes[i] != 0 ? fby_strerror(verdict->codes[i])
                                  : fby_object_fault_name(verdict->listing.row[i].fault);
}

static bool is_faulty(const verdict_t *verdict, size_t i)
{
    return verdict->codes[i] != 0 || verdict->listing.row[i].fault != FBY_OBJECT_OK;
}

static void print_verdict_json(const verdict_t *verdict)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_u64(&json, "objects", verdict->listing.count);
    fby_json_u64(&json, "bytes", verdict->listing.bytes);
    fby_json_u64(&json, "good", verdict->good);
    fby_json_array(&json, "faults");
    for (size_t i = 0; i < verdict->listing.count; i++) {
        if (is_faulty(verdict, i)) {
            fby_json_object(&json, NULL);
            fby_json_text(&json, "key", verdict->listing.row[i].key);
            fby_json_text(&json, "fault", fault_text(verdict, i));
            fby_json_end(&json);
        }
    }
    fby_json_end(&json);
    fby_json_end(&json);
}

static int run_verify(const fby_usage_t *usage, const fby_store_target_t *target, bool as_json)
{
    verdict_t verdict = {0};
    int status = list_store(target, &verdict.listing);
    status = status == 0 ? verify_all(target, &verdict) : status;
    int code = status != 0 ? failed(usage) : verdict.faulty > 0 ? FBY_EXIT_FAILED : FBY_EXIT_OK;
    if (status == 0 && as_json) {
        print_verdict_json(&verdict);
    } else if (status == 0) {
        char size[32];
        fby_format_size(verdict.listing.bytes, size, sizeof(size));
        for (size_t i = 0; i < verdict.listing.count; i++) {
            if (is_faulty(&verdict, i)) {
                printf("%s: %s\n", verdict.listing.row[i].key, fault_text(&verdict, i));
            }
        }
        printf("%zu objects, %s: %zu good, %zu faulty\n", verdict.listing.count, size, verdict.good, verdict.faulty);
    }
    free(verdict.codes);
    free(verdict.listing.row);
    return code;
}

/* ---- gc ---------------------------------------------------------------------------------------------------------- */

static int run_gc(const fby_usage_t *usage, const fby_store_target_t *target, bool as_json)
{
    char text[256] = "", size[32];
    uint64_t freed = 0;
    if (target->driver->gc == NULL) {
        fby_error_set("store driver %s has nothing that tidies; accepted: a driver that has, as file and redis",
                      target->driver->name);
        return failed(usage);
    }
    int status = target->driver->gc(target->store, &freed, text, sizeof(text));
    if (status < 0) {
        fby_error_set("store driver %s could not tidy: %s%s%s", target->driver->name, fby_strerror(status),
                      *text != '\0' ? ": " : "", text);
        return failed(usage);
    }
    if (as_json) {
        fby_json_t json;
        fby_json_init(&json, stdout);
        fby_json_object(&json, NULL);
        fby_json_u64(&json, "freed_bytes", freed);
        fby_json_text(&json, "text", text);
        fby_json_end(&json);
    } else {
        fby_format_size(freed, size, sizeof(size));
        printf("freed %s%s%s\n", size, *text != '\0' ? ": " : "", text);
    }
    return FBY_EXIT_OK;
}

/* ---- The three commands ------------------------------------------------------------------------------------------ */

typedef struct tool {
    const char *command, *about, *examples;
    bool writes;
    int (*run)(const fby_usage_t *usage, const fby_store_target_t *target, bool as_json);
} tool_t;

static int run_tool(const tool_t *tool, int argc, char **argv)
{
    fby_store_choice_t choice = {.driver = NULL};
    bool as_json = false;
    const fby_arg_t args[] = {
        {"config", FBY_ARG_TEXT, &choice.config, "FILE", "takes driver, options and model from a configuration", 0, 0,
         NULL},
        {"store", FBY_ARG_TEXT, &choice.text, "STORE", FBY_STORE_ACCEPTED, 0, 0, NULL},
        {"driver", FBY_ARG_TEXT, &choice.driver, "NAME", "the driver, without a configuration (file)", 0, 0, NULL},
        {"option", FBY_ARG_TEXTS, &choice.options, "KEY=VALUE", "an option of the driver; may be repeated", 0, 0, NULL},
        {"json", FBY_ARG_FLAG, &as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {tool->command, "[DIRECTORY]",       tool->about, tool->examples,
                               args,          FBY_ARRAY_LEN(args), 0,           1};
    char **positional;
    size_t count;
    fby_store_target_t target;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    choice.directory = count > 0 ? positional[0] : NULL;
    const char *wrong = fby_store_choice_fault(&choice);
    if (wrong != NULL) {
        return fby_usage_fault(&usage, "%s", wrong);
    }
    if (fby_store_target_open(&choice, tool->writes, &target) != 0) {
        return failed(&usage);
    }
    code = tool->run(&usage, &target, as_json);
    fby_store_target_close(&target);
    return code;
}

static int command_ls(int argc, char **argv)
{
    static const tool_t tool = {"forebay store ls", "Lists the objects of a store, sorted by key. Changes nothing.",
                                "  forebay store ls /var/cache/forebay\n"
                                "  forebay store ls --store redis:host=127.0.0.1,port=6379\n"
                                "  forebay store ls --config forebay.yaml --json\n",
                                false, run_ls};
    return run_tool(&tool, argc, argv);
}

static int command_verify(int argc, char **argv)
{
    static const tool_t tool = {
        "forebay store verify",
        "Reads every object and checks key, length and checksum. Changes nothing; exit code 1 when one is "
        "faulty.",
        "  forebay store verify /var/cache/forebay\n"
        "  FOREBAY_STORE=redis:host=127.0.0.1 forebay store verify --store env\n"
        "  forebay store verify --config forebay.yaml --json\n",
        false, run_verify};
    return run_tool(&tool, argc, argv);
}

static int command_gc(int argc, char **argv)
{
    static const tool_t tool = {"forebay store gc",
                                "Drops dead space and unreadable objects. A directory must not be in use by a cache.",
                                "  forebay store gc /var/cache/forebay\n"
                                "  forebay store gc --store redis:host=127.0.0.1,port=6379\n"
                                "  forebay store gc --config forebay.yaml --json\n",
                                true, run_gc};
    return run_tool(&tool, argc, argv);
}

int fby_cmd_store(int argc, char **argv)
{
    static const fby_command_t commands[] = {
        {"ls", command_ls, "lists objects"},
        {"verify", command_verify, "reads every object and checks it"},
        {"gc", command_gc, "drops dead space and unreadable objects"},
        {NULL, NULL, NULL},
    };
    return fby_commands_run("forebay store", "A store, looked at from outside.", commands, argc, argv);
}
