/* top_print.c - a view of a server as lines for people and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/table.h"
#include "cli/top_view.h"

enum { SECTION_WIDTH = 9, LABEL_WIDTH = 16, VALUE_WIDTH = 18, GAP = 2, CELL_BYTES = 80 };

typedef enum kind { COUNTER, VOLUME, GAUGE, BYTES, PART, PART_BYTES, SHARE } kind_t;

typedef struct row {
    const char *section, *name, *label;
    kind_t kind;
    uint64_t (*number)(const fby_view_t *v);
    uint64_t (*of)(const fby_view_t *v);
} row_t;

#define FBY_X(section, name, label, kind, number, of)                                                                  \
    static uint64_t section##_##name(const fby_view_t *v)                                                              \
    {                                                                                                                  \
        return (number);                                                                                               \
    }                                                                                                                  \
    static uint64_t section##_##name##_of(const fby_view_t *v)                                                         \
    {                                                                                                                  \
        return (of);                                                                                                   \
    }
FBY_VIEW_MAP(FBY_X)
#undef FBY_X

static const row_t rows[] = {
#define FBY_X(section, name, label, kind, number, of)                                                                  \
    {#section, #name, label, kind, section##_##name, section##_##name##_of},
    FBY_VIEW_MAP(FBY_X)
#undef FBY_X
};

uint64_t fby_view_failures(const fby_stats_t *stats)
{
    return stats->fail_missing + stats->fail_not_ready + stats->fail_size + stats->fail_checksum + stats->fail_lease +
           stats->fail_timeout + stats->fail_connection + stats->fail_other;
}

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

const char *fby_view_bytes(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double amount = (double)bytes;
    size_t unit = 0;
    while (amount >= 1024 && unit + 1 < FBY_ARRAY_LEN(units)) {
        amount /= 1024;
        unit++;
    }
    bool is_whole = amount >= 99.95 || amount == floor(amount);
    snprintf(out, 32, "%.*f%s", is_whole ? 0 : 1, amount, units[unit]);
    return out;
}

/* Exact as long as it is short. */
static const char *count_text(double number, char out[32])
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t unit = 0;
    if (number < 1e7) {
        snprintf(out, 32, "%.0f", number);
        return out;
    }
    while (number >= 1000 && unit + 1 < FBY_ARRAY_LEN(units)) {
        number /= 1000;
        unit++;
    }
    snprintf(out, 32, "%.2f%s", number, units[unit]);
    return out;
}

const char *fby_view_age(uint64_t ns, char out[32])
{
    uint64_t s = ns / FBY_SECOND;
    if (s < 120) {
        snprintf(out, 32, "%" PRIu64 " s", s);
    } else if (s < 7200) {
        snprintf(out, 32, "%" PRIu64 " min", s / 60);
    } else if (s < 48 * 3600) {
        snprintf(out, 32, "%" PRIu64 " h", s / 3600);
    } else {
        snprintf(out, 32, "%" PRIu64 " d", s / 86400);
    }
    return out;
}

const char *fby_view_clean(const char *text, size_t capacity, char *out)
{
    size_t n = 0;
    for (; n + 1 < capacity && text[n] != '\0'; n++) {
        out[n] = text[n] >= ' ' && text[n] < 0x7F ? text[n] : '?';
    }
    out[n] = '\0';
    return out;
}

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

static void add_rate(char *out, size_t capacity, const row_t *row, const fby_view_t *view, const fby_view_t *before)
{
    char text[32];
    size_t length = strlen(out);
    double s = (double)fby_sub_sat(view->taken_ns, before->taken_ns) / (double)FBY_SECOND;
    uint64_t now = row->number(view), was = row->number(before);
    if (s <= 0 || now <= was) { /* a server that was restarted counts from 0 */
        return;
    }
    double rate = (double)(now - was) / s;
    const char *amount = row->kind == VOLUME ? fby_view_bytes((uint64_t)rate, text) : count_text(rate, text);
    snprintf(out + length, capacity - length, " +%s/s", amount);
}

static void value_text(const row_t *row, const fby_view_t *view, const fby_view_t *before, char out[CELL_BYTES])
{
    char text[32], most[32];
    uint64_t number = row->number(view), of = row->of(view);
    bool is_bytes = row->kind == BYTES || row->kind == VOLUME || row->kind == PART_BYTES;
    if (row->kind == SHARE && of == 0) {
        snprintf(out, CELL_BYTES, "-");
    } else if (row->kind == SHARE) {
        snprintf(out, CELL_BYTES, "%.1f%%", 100.0 * (double)number / (double)of);
    } else if (of > 0) {
        snprintf(out, CELL_BYTES, "%s of %s",
                 is_bytes ? fby_view_bytes(number, text) : count_text((double)number, text),
                 is_bytes ? fby_view_bytes(of, most) : count_text((double)of, most));
    } else {
        snprintf(out, CELL_BYTES, "%s", is_bytes ? fby_view_bytes(number, text) : count_text((double)number, text));
    }
    if (before != NULL && (row->kind == COUNTER || row->kind == VOLUME)) {
        add_rate(out, CELL_BYTES, row, view, before);
    }
}

/* As many cells in a line as fit. */
static void print_figures(FILE *out, const fby_view_t *view, const fby_view_t *before, size_t width)
{
    size_t room = fby_sub_sat(width, SECTION_WIDTH), one = LABEL_WIDTH + VALUE_WIDTH + GAP;
    size_t across = FBY_MAX((room + GAP) / one, (size_t)1), in_line = 0;
    const char *section = "";
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        char value[CELL_BYTES];
        bool is_new = strcmp(section, rows[i].section) != 0;
        if (is_new || in_line == across) {
            fprintf(out, "%s%-*s", i > 0 ? "\n" : "", SECTION_WIDTH, is_new ? rows[i].section : "");
            section = rows[i].section;
            in_line = 0;
        }
        value_text(&rows[i], view, before, value);
        fprintf(out, "%*s%-*s%*s", in_line > 0 ? GAP : 0, "", LABEL_WIDTH, rows[i].label, VALUE_WIDTH, value);
        in_line++;
    }
    fputc('\n', out);
}

/* ---- Clients ----------------------------------------------------------------------------------------------------- */

static void print_client(fby_table_t *table, const fby_server_client_t *client)
{
    char text[32], age[32], name[sizeof(client->name)];
    fby_view_clean(client->name, sizeof(name), name);
    fby_table_cell(table, "%" PRIu64, client->client);
    fby_table_cell(table, "%" PRId32, client->pid);
    fby_table_cell(table, "%" PRIu32, client->uid);
    fby_table_cell(table, "%s", fby_view_age(client->connected_ns, age));
    fby_table_cell(table, "%" PRIu32, client->sessions);
    fby_table_cell(table, "%" PRIu32, client->holds);
    fby_table_cell(table, "%" PRIu32, client->puts);
    fby_table_cell(table, "%s", fby_view_bytes(client->pinned_bytes, text));
    fby_table_cell(table, "%s", count_text((double)client->calls, text));
    fby_table_cell(table, "%s", count_text((double)client->refused, text));
    fby_table_cell(table, "%s%s", name, client->ended ? " (ended, process lives)" : "");
}

static void print_clients(FILE *out, const fby_view_t *view, size_t most)
{
    static const char *const titles[] = {"client", "process", "user",  "since",   "sessions", "holds",
                                         "puts",   "pinned",  "calls", "refused", "name"};
    static const bool right[] = {true, true, true, true, true, true, true, true, true, true, false};
    fby_table_t table;
    size_t shown = FBY_MIN(view->clients, most);
    fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
    for (size_t i = 0; i < shown; i++) {
        print_client(&table, &view->client[i]);
    }
    fby_table_print(&table, out);
    fby_table_free(&table);
    if (shown < view->server.clients) {
        fprintf(out, "and %zu more\n", (size_t)view->server.clients - shown);
    }
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static void print_health(FILE *out, const fby_view_t *view)
{
    static const char *const breakers[] = {"closed", "open", "probing"};
    char text[32], message[sizeof(view->health.message)];
    uint32_t breaker = FBY_MIN(view->health.breaker, (uint32_t)2);
    fby_view_clean(view->health.message, sizeof(message), message);
    fprintf(out, "%s; breaker %s", view->health.healthy ? "healthy" : "NOT HEALTHY", breakers[breaker]);
    if (view->health.oldest_operation_ns > 0) {
        fprintf(out, "; oldest operation %s", fby_view_age(view->health.oldest_operation_ns, text));
    }
    fprintf(out, "%s%s\n", *message != '\0' ? "; " : "", message);
}

void fby_view_print(FILE *out, const char *path, const fby_view_t *view, const fby_view_t *before, size_t width,
                    size_t clients)
{
    char age[32], version[sizeof(view->server.version)];
    fprintf(out, "forebay %s  %s\n", fby_view_clean(view->server.version, sizeof(version), version), path);
    fprintf(out, "process %" PRId32 ", up %s, %" PRIu32 " client%s%s\n", view->server.pid,
            fby_view_age(view->server.age_ns, age), view->server.clients, view->server.clients == 1 ? "" : "s",
            view->server.stopping ? ", STOPPING" : "");
    print_health(out, view);
    fputc('\n', out);
    print_figures(out, view, before, width);
    fputc('\n', out);
    print_clients(out, view, clients);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_figure(fby_json_t *json, const row_t *row, const fby_view_t *view)
{
    uint64_t number = row->number(view), of = row->of(view);
    if (row->kind == SHARE) {
        fby_json_real(json, row->name, of > 0 ? (double)number / (double)of : NAN);
    } else if (row->kind == PART || row->kind == PART_BYTES) {
        fby_json_object(json, row->name);
        fby_json_u64(json, "value", number);
        if (of > 0) {
            fby_json_u64(json, "of", of);
        } else {
            fby_json_null(json, "of");
        }
        fby_json_end(json);
    } else {
        fby_json_u64(json, row->name, number);
    }
}

static void json_figures(fby_json_t *json, const fby_view_t *view)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        if (i == 0 || strcmp(rows[i - 1].section, rows[i].section) != 0) {
            fby_json_object(json, rows[i].section);
        }
        json_figure(json, &rows[i], view);
        if (i + 1 == FBY_ARRAY_LEN(rows) || strcmp(rows[i + 1].section, rows[i].section) != 0) {
            fby_json_end(json);
        }
    }
}

static void json_clients(fby_json_t *json, const fby_view_t *view)
{
    fby_json_array(json, "clients");
    for (size_t i = 0; i < view->clients; i++) {
        const fby_server_client_t *client = &view->client[i];
        char name[sizeof(client->name)];
        const struct {
            const char *key;
            uint64_t number;
        } numbers[] = {
            {"client", client->client},
            {"process", (uint64_t)FBY_MAX(client->pid, 0)},
            {"user", client->uid},
            {"sessions", client->sessions},
            {"holds", client->holds},
            {"puts", client->puts},
            {"subscriptions", client->subscriptions},
            {"sequences", client->sequences},
            {"pinned_bytes", client->pinned_bytes},
            {"sequence_bytes", client->sequence_bytes},
            {"fenced_bytes", client->fenced_bytes},
            {"calls", client->calls},
            {"refused", client->refused},
        };
        fby_json_object(json, NULL);
        fby_json_text(json, "name", fby_view_clean(client->name, sizeof(name), name));
        for (size_t n = 0; n < FBY_ARRAY_LEN(numbers); n++) {
            fby_json_u64(json, numbers[n].key, numbers[n].number);
        }
        fby_json_real(json, "connected_s", (double)client->connected_ns / (double)FBY_SECOND);
        fby_json_bool(json, "ended", client->ended != 0);
        fby_json_end(json);
    }
    fby_json_end(json);
}

static void json_server(fby_json_t *json, const fby_view_t *view)
{
    char version[sizeof(view->server.version)], message[sizeof(view->health.message)];
    fby_json_object(json, "process");
    fby_json_u64(json, "pid", (uint64_t)FBY_MAX(view->server.pid, 0));
    fby_json_text(json, "version", fby_view_clean(view->server.version, sizeof(version), version));
    fby_json_real(json, "age_s", (double)view->server.age_ns / (double)FBY_SECOND);
    fby_json_bool(json, "stopping", view->server.stopping != 0);
    fby_json_u64(json, "clients", view->server.clients);
    fby_json_u64(json, "accepted", view->server.accepted);
    fby_json_end(json);
    fby_json_object(json, "model");
    fby_json_text(json, "fingerprint", view->model.fingerprint);
    fby_json_u64(json, "block_tokens", view->model.block_tokens);
    fby_json_u64(json, "groups", view->model.groups);
    fby_json_end(json);
    fby_json_object(json, "health");
    fby_json_bool(json, "healthy", view->health.healthy != 0);
    fby_json_u64(json, "breaker", view->health.breaker);
    fby_json_real(json, "oldest_operation_s", (double)view->health.oldest_operation_ns / (double)FBY_SECOND);
    fby_json_text(json, "message", fby_view_clean(view->health.message, sizeof(message), message));
    fby_json_end(json);
}

void fby_view_json(fby_json_t *json, const char *path, const fby_view_t *view)
{
    fby_json_object(json, NULL);
    fby_json_text(json, "socket", path);
    fby_json_bool(json, "connected", view != NULL);
    if (view != NULL) {
        json_server(json, view);
        json_figures(json, view);
        json_clients(json, view);
    }
    fby_json_end(json);
}
