/* doctor_redis.c - a Redis or Valkey: whether it can be used, and settings that lose, expose or slow down. */
#include "cli/doctor_redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/doctor_net.h"
#include "runtime/config_value.h"

void fby_check_redis_connection(fby_doctor_t *doctor)
{
    doctor->redis = fby_doctor_redis_open(doctor);
}

/* ---- Server ------------------------------------------------------------------------------------------------------ */

static bool info_is(const fby_doctor_redis_t *redis, const char *field, const char *value)
{
    char text[64];
    return fby_doctor_redis_info(redis, field, text, sizeof(text)) && strcmp(text, value) == 0;
}

static void check_role(fby_doctor_t *doctor)
{
    const fby_doctor_redis_t *redis = doctor->redis;
    bool is_cluster = info_is(redis, "cluster_enabled", "1");
    if (info_is(redis, "role", "slave") && !is_cluster) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "host and port of its master", "it is a replica: it takes no puts");
    }
    if (is_cluster && !redis->config.cluster) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "cluster=on", "it is a node of a cluster, and cluster is off");
    } else if (!is_cluster && redis->config.cluster && redis->info != NULL) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "leave cluster out",
                          "cluster is on, and it is no node of a cluster");
    }
}

void fby_check_redis_server(fby_doctor_t *doctor)
{
    char version[64], role[32] = "role not told";
    const fby_doctor_redis_t *redis = doctor->redis;
    bool is_valkey = fby_doctor_redis_info(redis, "valkey_version", version, sizeof(version));
    if (!is_valkey && !fby_doctor_redis_info(redis, "redis_version", version, sizeof(version))) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "a user that may use INFO, for this check",
                          "it does not say what it is: this user may not use INFO");
        return;
    }
    fby_doctor_redis_info(redis, "role", role, sizeof(role));
    if (atoi(version) < 6) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "version 6 or newer", "version %s is older than what was tested",
                          version);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s %s, %s", is_valkey ? "Valkey" : "Redis", version, role);
    }
    check_role(doctor);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void fby_check_redis_memory(fby_doctor_t *doctor)
{
    static const char advice[] = "maxmemory-policy allkeys-lru (or another allkeys- policy)";
    char limit[32], policy[64], size[32];
    const fby_doctor_redis_t *redis = doctor->redis;
    if (!fby_doctor_redis_info(redis, "maxmemory", limit, sizeof(limit)) ||
        !fby_doctor_redis_info(redis, "maxmemory_policy", policy, sizeof(policy))) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "a user that may use INFO, for this check", "not told");
        return;
    }
    uint64_t bytes = strtoull(limit, NULL, 10);
    fby_format_size(bytes, size, sizeof(size));
    if (bytes == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "maxmemory SIZE and maxmemory-policy allkeys-lru",
                          "maxmemory is 0: it grows until the machine has no memory left");
    } else if (strcmp(policy, "noeviction") == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, advice, "%s, noeviction: puts fail when it is full", size);
    } else if (strncmp(policy, "volatile-", 9) == 0 && redis->config.ttl_s == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, advice,
                          "%s, %s: only keys that expire are evicted and ours do not, so puts fail when it is full",
                          size, policy);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s, %s", size, policy);
    }
}

/* ---- Persistence ------------------------------------------------------------------------------------------------- */

void fby_check_redis_persistence(fby_doctor_t *doctor)
{
    char save[256] = "", append[16], when[32];
    bool fine = true;
    if (!fby_doctor_redis_setting(doctor->redis, "save", save, sizeof(save)) ||
        !fby_doctor_redis_setting(doctor->redis, "appendonly", append, sizeof(append)) ||
        !fby_doctor_redis_setting(doctor->redis, "appendfsync", when, sizeof(when))) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "a user that may use CONFIG GET, for this check", "not told");
        return;
    }
    if (strcmp(append, "yes") == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "appendonly no: a cache can be filled again",
                          "appendonly is on, appendfsync %s: every put is %s", when,
                          strcmp(when, "always") == 0 ? "synced to disk before it is answered"
                                                      : "written to disk, too");
        fine = false;
    }
    if (*save != '\0') {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "save \"\": a cache can be filled again",
                          "save is \"%.100s\": it forks, copies what changes meanwhile, and writes everything to disk",
                          save);
        fine = false;
    }
    if (fine) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "off");
    }
}

/* ---- Who gets in ------------------------------------------------------------------------------------------------- */

static bool seed_is_local(const fby_redis_endpoint_t *seed)
{
    return seed->port == 0 || fby_net_is_loopback(seed->host);
}

static bool all_local(const fby_redis_config_t *config)
{
    bool local = true;
    for (uint32_t i = 0; i < config->seed_count; i++) {
        local = local && seed_is_local(&config->seeds[i]);
    }
    return local;
}

/* The setting `bind`: addresses, each perhaps behind a '-' (then it may be missing). None: every interface. */
static bool binds_loopback_only(const char *bind)
{
    bool only = *bind != '\0';
    for (const char *at = bind + strspn(bind, " "); *at != '\0';) {
        size_t length = strcspn(at, " "), sign = *at == '-';
        only =
            only && (strncmp(at + sign, "127.", 4) == 0 || (length - sign == 3 && memcmp(at + sign, "::1", 3) == 0) ||
                     (length - sign == 9 && memcmp(at + sign, "localhost", 9) == 0));
        at += length;
        at += strspn(at, " ");
    }
    return only;
}

static void judge_access(fby_doctor_t *doctor, const char *bind, bool is_protected)
{
    const bool anonymous = doctor->redis->anonymous;
    if (binds_loopback_only(bind)) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "loopback only%s",
                          anonymous ? ", no password: for every user of this machine" : "; a login is needed");
    } else if (!anonymous) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "listens on \"%.100s\"; a login is needed", bind);
    } else if (is_protected) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "bind 127.0.0.1, or requirepass",
                          "listens on \"%.100s\" without a password; only its protected mode keeps others out", bind);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "requirepass or ACL users, and bind to a private network",
                          "listens on \"%.100s\" without a password and without protected mode: whoever reaches it can "
                          "read and change everything",
                          bind);
    }
}

void fby_check_redis_access(fby_doctor_t *doctor)
{
    char bind[512] = "", protected_mode[16] = "";
    fby_doctor_redis_t *redis = doctor->redis;
    if (fby_doctor_redis_setting(redis, "bind", bind, sizeof(bind)) &&
        fby_doctor_redis_setting(redis, "protected-mode", protected_mode, sizeof(protected_mode))) {
        judge_access(doctor, bind, strcmp(protected_mode, "yes") == 0);
    } else if (redis->anonymous && !seed_is_local(redis->endpoint)) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "requirepass or ACL users",
                          "it obeys from another machine, without a password");
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "a user that may use CONFIG GET, for this check",
                          "it does not tell where it listens%s", redis->anonymous ? ", and wants no password" : "");
    }
}

void fby_check_redis_tls(fby_doctor_t *doctor)
{
    if (doctor->redis == NULL) {
        return; /* its finding says more */
    }
    const fby_redis_config_t *config = &doctor->redis->config;
    if (config->tls && !config->tls_verify) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "tls_verify=on, with tls_ca where the certificate is your own",
                          "on, and certificates are not verified: anybody may pose as the server");
    } else if (config->tls) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "on");
    } else if (all_local(config)) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "off; nothing leaves this machine");
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "tls=on, or a private network",
                          "off: %sKV cache%s readable on the network", config->has_password ? "password and " : "",
                          config->has_password ? " are" : " is");
    }
}
