/* doctor_mooncake.c - a Mooncake Store from outside, without a client: its master, its nodes, settings that cost speed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/doctor.h"
#include "cli/doctor_net.h"
#include "runtime/config.h"
#include "stores/options.h"

#define DEFAULT_MASTER "127.0.0.1:50051"
#define DEFAULT_LEASE_NS (5000 * FBY_MS)
#define FAST_BYTES (UINT64_C(256) << 10)
#define FAST_SLICE (UINT64_C(1) << 20)
enum { MOST_BATCH = 1024, PAGE_BYTES = 256 << 10 };

/* ---- Master and nodes -------------------------------------------------------------------------------------------- */

void fby_check_mooncake_master(fby_doctor_t *doctor)
{
    const char *given = fby_doctor_option(doctor, "master"), *master = given != NULL ? given : DEFAULT_MASTER;
    fby_net_address_t address;
    char why[FBY_NET_WHY_BYTES];
    if (strstr(master, "://") != NULL) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "named by %.40s, which is not asked here", master);
        return;
    }
    if (!fby_net_address_parse(master, &address)) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "master=HOST:PORT", "\"%.100s\" is no address", master);
        return;
    }
    int fd = fby_net_connect(&address, why);
    if (fd < 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "start mooncake_master, or name its --rpc_port in master=HOST:PORT",
                          "%s does not answer: %s", master, why);
        return;
    }
    close(fd);
    if (fby_net_is_loopback(address.host)) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s answers", master);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_WARN,
                          "a private network or a firewall: Mooncake knows neither passwords nor encryption",
                          "%s answers, and is not on loopback", master);
    }
}

/* The page in `body`; false after a finding. */
static bool ask_master(fby_doctor_t *doctor, const char *path, char *body)
{
    static const char advice[] = "--metrics HOST:PORT as mooncake_master has it in --metrics_host and --metrics_port";
    fby_net_address_t address;
    char why[FBY_NET_WHY_BYTES];
    if (!fby_net_address_parse(doctor->metrics, &address)) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, advice, "\"%.100s\" is no address", doctor->metrics);
        return false;
    }
    int status = fby_net_get(&address, path, body, PAGE_BYTES, why);
    if (status != 200) {
        snprintf(why, status < 0 ? 0 : sizeof(why), "status %d", status);
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, advice, "http://%s%s: %s", doctor->metrics, path, why);
    }
    return status == 200;
}

void fby_check_mooncake_health(fby_doctor_t *doctor)
{
    static char body[PAGE_BYTES];
    if (!ask_master(doctor, "/health", body)) {
        return;
    }
    if (strstr(body, "\"service_ready\":true") != NULL) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "ready");
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "wait for it, or look into its log",
                          "the master says that it is not ready: %.200s", body);
    }
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        lines += length > 0;
        text += length + (text[length] == '\n');
    }
    return lines;
}

void fby_check_mooncake_nodes(fby_doctor_t *doctor)
{
    static char body[PAGE_BYTES];
    if (doctor->metrics == NULL) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN,
                          "--metrics HOST:PORT of the master (its --metrics_port, usually 9003)",
                          "not looked at: a master without a storage node takes no object");
        return;
    }
    if (!ask_master(doctor, "/get_all_segments", body)) {
        return;
    }
    size_t nodes = count_lines(body);
    if (nodes == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "start mooncake_client with a --global_segment_size",
                          "none is registered: every put will find the store full");
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%zu", nodes);
    }
}

/* ---- Settings that cost speed ------------------------------------------------------------------------------------ */

static bool is_off(const char *value)
{
    return strcmp(value, "0") == 0 || strcasecmp(value, "false") == 0 || strcasecmp(value, "off") == 0 ||
           strcasecmp(value, "no") == 0;
}

void fby_check_mooncake_transfer(fby_doctor_t *doctor)
{
    const char *pool = fby_doctor_option(doctor, "env.MC_TCP_ENABLE_CONNECTION_POOL");
    const char *slice = fby_doctor_option(doctor, "env.MC_TCP_SLICE_SIZE");
    uint64_t bytes;
    bool fine = true;
    if (fby_doctor_option_is(doctor, "protocol", "rdma")) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "protocol=tcp where a proven fence matters more than speed",
                          "rdma: that a killed agent writes no more has not been tested on such hardware");
        return;
    }
    if (pool != NULL && is_off(pool)) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "leave env.MC_TCP_ENABLE_CONNECTION_POOL out: it is 1 then",
                          "the connection pool is off: every transfer connects anew");
        fine = false;
    }
    if (slice != NULL && (!fby_text_u64(slice, strlen(slice), &bytes) || bytes < FAST_SLICE)) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "leave env.MC_TCP_SLICE_SIZE out: it is 1048576 then",
                          "slices of \"%.40s\" bytes: below 1048576 objects travel in many small pieces", slice);
        fine = false;
    }
    if (fine) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "tcp; the same MC_TCP_ settings belong to the storage nodes");
    }
}

void fby_check_mooncake_object_size(fby_doctor_t *doctor)
{
    fby_value_t groups;
    bool fine = true;
    fby_config_value(doctor->config, FBY_KEY_MODEL_GROUPS, &groups);
    if (doctor->config_path == NULL || groups.unset || groups.parts == 0) {
        return;
    }
    for (uint32_t i = 0; i < groups.parts; i++) {
        if (groups.part[i].bytes < FAST_BYTES) {
            fby_doctor_report(doctor, FBY_VERDICT_WARN, "a larger model.block_tokens: 256 KiB and more are fast",
                              "blocks of group %s have %" PRIu64 " bytes", groups.part[i].name, groups.part[i].bytes);
            fine = false;
        }
    }
    if (fine) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "256 KiB or more in every group");
    }
}

void fby_check_mooncake_batch(fby_doctor_t *doctor)
{
    uint64_t batch = fby_doctor_number(doctor, FBY_KEY_STORE_BATCH);
    if (batch > MOST_BATCH) {
        fby_doctor_report(
            doctor, FBY_VERDICT_WARN, "store.batch: 1024 or less; 8 to 128 are as fast",
            "store.batch is %" PRIu64 ": calls of Mooncake are cut at 1024, above which its client may hang", batch);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "at most %" PRIu64 " objects a call",
                          batch > 0 ? batch : UINT64_C(128));
    }
}

void fby_check_mooncake_lease(fby_doctor_t *doctor)
{
    uint64_t lease_ns = DEFAULT_LEASE_NS, limit_ns = fby_doctor_number(doctor, FBY_KEY_PREFETCH_IO_TIMEOUT_S);
    const char *given = fby_doctor_option(doctor, "lease_ms");
    if (given != NULL && !fby_text_ms(given, strlen(given), &lease_ns)) {
        return; /* said by the check of the options */
    }
    if (lease_ns < limit_ns) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN,
                          "the same longer time in lease_ms and in the master's --default_kv_lease_ttl, or a shorter "
                          "prefetch.io_timeout_s",
                          "%" PRIu64 " ms, and a graph may take %.0f s: what is read later than the lease may be gone",
                          lease_ns / FBY_MS, (double)limit_ns / 1e9);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL,
                          "%" PRIu64 " ms; the master's --default_kv_lease_ttl must be as long", lease_ns / FBY_MS);
    }
}
