/* test_timer.c - H01: who keeps the time sleeps until it is needed, and nobody else wakes at all. */
#include <dirent.h>
#include <time.h>

#include "api/rig.h"

enum { RETAINED = 1000 };

/* Whether it is one of the library's: a sanitizer has threads of its own. */
static bool is_ours(const char *task)
{
    char path[300], name[32] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task);
    FILE *comm = fopen(path, "r");
    if (comm != NULL) {
        (void)!fgets(name, sizeof(name), comm);
        fclose(comm);
    }
    return strncmp(name, "fby-", 4) == 0;
}

/* Switches, wanted or not, of every thread of the library; -1: this system does not count them. */
static long switches_of_others(void)
{
    long sum = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], line[128];
        bool counted = false;
        if (entry->d_name[0] == '.' || !is_ours(entry->d_name)) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
            long n;
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1 ||
                sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n) == 1) {
                sum += n;
                counted = true;
            }
        }
        if (status != NULL) {
            fclose(status);
        }
        if (!counted) {
            sum = -1;
            break;
        }
    }
    closedir(tasks);
    return sum;
}

/* Waits until nobody has run for a while: what led here is over. */
static long settled_switches(void)
{
    long before = switches_of_others(), now;
    for (int turn = 0; turn < 500; turn++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        now = switches_of_others();
        if (now == before) {
            return now;
        }
        before = now;
    }
    fail_msg("the process never came to rest");
    return 0;
}

static void retained_results_cost_no_wake_up(void **state)
{
    (void)state;
    static const char *const variants[][2] = {{"store.host=thread", "prefetch.enabled=true"},
                                              {"store.host=inline", "prefetch.enabled=true"},
                                              {"store.host=thread", "prefetch.enabled=false"},
                                              {"store.host=inline", "prefetch.enabled=false"}};
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        rig_t rig;
        RIG_OPEN(&rig, variants[i][0], variants[i][1]);
        fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
        rig_store_blocks(&rig, p32, 0, 32);
        for (int k = 0; k < RETAINED; k++) {
            rig_wait(&rig, rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1));
        }
        RIG_AWAIT(rig_stats(&rig).sessions_running_gauge == 0);
        assert_int_equal(rig_stats(&rig).leases_gauge, RETAINED);
        long before = settled_switches();
        if (before < 0) {
            print_message("skipped: this system does not count context switches\n");
            skip();
        }
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        assert_int_equal(switches_of_others(), before);
        fby_seq_unref(p32);
        rig_close(&rig);
    }
}

/* A TTL ends by itself, whoever keeps the time; the earliest of many first. */
static void leases_end_by_themselves(void **state)
{
    (void)state;
    static const char *const variants[][2] = {{"store.host=thread", "prefetch.enabled=true"},
                                              {"store.host=inline", "prefetch.enabled=true"},
                                              {"store.host=thread", "prefetch.enabled=false"},
                                              {"store.host=inline", "prefetch.enabled=false"}};
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        rig_t rig;
        RIG_OPEN(&rig, variants[i][0], variants[i][1], "prefetch.result_ttl_s=0.05");
        fby_seq_t *seq = rig_seq(&rig, 1, 65);
        rig_store_blocks(&rig, seq, 0, 4);
        for (int k = 0; k < 20; k++) {
            rig_wait(&rig, rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1));
        }
        rig_quiet(&rig);
        fby_seq_unref(seq);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retained_results_cost_no_wake_up),
        cmocka_unit_test(leases_end_by_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
