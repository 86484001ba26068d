/* A pool is checked against where its memory comes from; /proc and /sys are files below a root of our own. */
#include "unit.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "pool/region.h"

#define GIB (UINT64_C(1) << 30)

static char root[PATH_MAX];

static void put_file(const char *path, const char *text)
{
    char full[PATH_MAX];
    snprintf(full, sizeof(full), "%.2000s%.2000s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int setup(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof(root), "%.1000s/forebay-limits-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(root));
    /* 2 GiB available; 8 GiB of free huge pages. */
    put_file("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1048576 kB\nMemAvailable:    2097152 kB\n"
                              "HugePages_Total:    4096\nHugePages_Free:     4096\nHugePages_Rsvd:        0\n"
                              "Hugepagesize:       2048 kB\n");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[PATH_MAX + 32];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static fby_region_limits_t limits_here(void)
{
    fby_region_limits_t limits;
    assert_int_equal(fby_region_limits_read(root, &limits), 0);
    return limits;
}

static fby_region_config_t pool_of(uint64_t gib, bool huge_pages)
{
    return (fby_region_config_t){.groups = 1,
                                 .slots = {(uint32_t)(gib * 1024)},
                                 .slot_bytes = {1u << 20},
                                 .alignment = 4096,
                                 .huge_pages = huge_pages,
                                 .numa_node = -1};
}

static void expect_refusal(const fby_region_config_t *config, const char *asked, const char *there)
{
    fby_region_limits_t limits = limits_here();
    assert_int_equal(fby_region_limits_check(config, &limits), -ENOMEM);
    assert_non_null(strstr(fby_error_get(), asked));
    assert_non_null(strstr(fby_error_get(), there));
}

static void expect_room(const fby_region_config_t *config)
{
    fby_region_limits_t limits = limits_here();
    if (fby_region_limits_check(config, &limits) != 0) {
        fail_msg("%s", fby_error_get());
    }
}

/* Case I07. */
static void huge_pages_are_counted_as_huge_pages(void **state)
{
    (void)state;
    fby_region_config_t huge = pool_of(7, true), ordinary = pool_of(7, false);
    expect_room(&huge);
    expect_refusal(&ordinary, "7516192768 bytes are asked for", "available memory has 2147483648");
}

static void a_cgroup_limit_refuses(void **state)
{
    (void)state;
    put_file("/proc/meminfo", "MemAvailable:   33554432 kB\n");
    put_file("/proc/self/cgroup", "0::/box/inner\n");
    put_file("/sys/fs/cgroup/box/memory.max", "4294967296\n");
    put_file("/sys/fs/cgroup/box/memory.current", "0\n");
    put_file("/sys/fs/cgroup/box/inner/memory.max", "max\n");
    put_file("/sys/fs/cgroup/box/inner/memory.current", "0\n");
    fby_region_config_t config = pool_of(7, false);
    expect_refusal(&config, "7516192768", "the cgroup's memory limit has 4294967296");
    config = pool_of(4, false);
    expect_room(&config);
}

static void what_the_cgroup_uses_is_not_there_but_its_cache_is(void **state)
{
    (void)state;
    put_file("/proc/self/cgroup", "0::/\n");
    put_file("/sys/fs/cgroup/memory.max", "4294967296\n");
    put_file("/sys/fs/cgroup/memory.current", "3221225472\n");
    assert_int_equal(limits_here().cgroup_free_bytes, GIB);
    put_file("/sys/fs/cgroup/memory.stat", "anon 1073741824\ninactive_file 2147483648\n");
    assert_int_equal(limits_here().cgroup_free_bytes, 3 * GIB);
}

static void version_one_of_cgroups_is_read_too(void **state)
{
    (void)state;
    put_file("/proc/self/cgroup", "5:cpu,cpuacct:/other\n4:hugetlb:/box\n3:memory:/box\n0::/\n");
    put_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put_file("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
    put_file("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1073741824\n");
    put_file("/sys/fs/cgroup/hugetlb/box/hugetlb.2MB.limit_in_bytes", "4294967296\n");
    put_file("/sys/fs/cgroup/hugetlb/box/hugetlb.2MB.usage_in_bytes", "0\n");
    assert_int_equal(limits_here().cgroup_free_bytes, GIB);
    assert_int_equal(limits_here().cgroup_huge_free_bytes, 4 * GIB);
}

/* A container sees the path of its host in /proc/self/cgroup, but its own cgroup at the mount. */
static void a_path_that_is_not_mounted_falls_back_to_the_mount(void **state)
{
    (void)state;
    put_file("/proc/self/cgroup", "3:memory:/docker/0123456789ab\n");
    put_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    put_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
    assert_int_equal(limits_here().cgroup_free_bytes, GIB);
}

static void huge_pages_have_a_cgroup_limit_of_their_own(void **state)
{
    (void)state;
    put_file("/proc/self/cgroup", "0::/box\n");
    put_file("/sys/fs/cgroup/box/memory.max", "1073741824\n");
    put_file("/sys/fs/cgroup/box/memory.current", "0\n");
    fby_region_config_t config = pool_of(7, true);
    expect_room(&config); /* huge pages do not count in memory.max */
    put_file("/sys/fs/cgroup/box/hugetlb.2MB.max", "4294967296\n");
    put_file("/sys/fs/cgroup/box/hugetlb.2MB.current", "0\n");
    expect_refusal(&config, "7516192768", "the cgroup's limit of 2 MiB pages has 4294967296");
}

static void unless_the_kernel_counts_them_in_the_memory_limit(void **state)
{
    (void)state;
    put_file("/proc/self/cgroup", "0::/box\n");
    put_file("/sys/fs/cgroup/box/memory.max", "4294967296\n");
    put_file("/sys/fs/cgroup/box/memory.current", "0\n");
    put_file("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_hugetlb_accounting\n");
    fby_region_config_t config = pool_of(7, true);
    expect_refusal(&config, "7516192768", "4294967296");
}

static void reserved_huge_pages_belong_to_others(void **state)
{
    (void)state;
    put_file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1024\n");
    put_file("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "512\n");
    assert_int_equal(limits_here().huge_free_bytes, GIB);
}

static void pages_of_another_default_size_do_not_help(void **state)
{
    (void)state;
    put_file("/proc/meminfo", "MemAvailable: 2097152 kB\nHugePages_Free: 8\nHugepagesize: 1048576 kB\n");
    assert_int_equal(limits_here().huge_free_bytes, 0);
}

static void locking_has_a_limit(void **state)
{
    (void)state;
    put_file("/proc/self/status", "Name:\tx\nVmLck:\t    1024 kB\nCapEff:\t0000000000000000\n");
    put_file("/proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units\n"
                                  "Max locked memory         8388608              8388608              bytes\n");
    assert_int_equal(limits_here().lock_limit_bytes, 7340032);
    fby_region_config_t config = pool_of(1, false);
    expect_room(&config);
    config.lock = true;
    expect_refusal(&config, "1073741824", "RLIMIT_MEMLOCK) has 7340032");
}

static void a_capability_or_no_limit_lets_all_be_locked(void **state)
{
    (void)state;
    put_file("/proc/self/limits", "Max locked memory         8388608              8388608              bytes\n");
    put_file("/proc/self/status", "CapEff:\t0000000000004000\n");
    assert_true(limits_here().lock_limit_bytes == UINT64_MAX);
    put_file("/proc/self/status", "CapEff:\t0000000000000000\n");
    put_file("/proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n");
    assert_true(limits_here().lock_limit_bytes == UINT64_MAX);
}

static void no_files_mean_no_limits_but_meminfo_must_be_there(void **state)
{
    (void)state;
    fby_region_limits_t limits = limits_here();
    assert_true(limits.cgroup_free_bytes == UINT64_MAX);
    assert_true(limits.cgroup_huge_free_bytes == UINT64_MAX);
    put_file("/proc/meminfo", "MemTotal: 1 kB\n");
    assert_int_equal(fby_region_limits_read(root, &limits), -EIO);
    assert_non_null(strstr(fby_error_get(), "MemAvailable"));
}

static void this_machine_can_be_read(void **state)
{
    (void)state;
    fby_region_limits_t limits;
    assert_int_equal(fby_region_limits_read("/", &limits), 0);
    assert_true(limits.available_bytes > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(huge_pages_are_counted_as_huge_pages),
        TEST(a_cgroup_limit_refuses),
        TEST(what_the_cgroup_uses_is_not_there_but_its_cache_is),
        TEST(version_one_of_cgroups_is_read_too),
        TEST(a_path_that_is_not_mounted_falls_back_to_the_mount),
        TEST(huge_pages_have_a_cgroup_limit_of_their_own),
        TEST(unless_the_kernel_counts_them_in_the_memory_limit),
        TEST(reserved_huge_pages_belong_to_others),
        TEST(pages_of_another_default_size_do_not_help),
        TEST(locking_has_a_limit),
        TEST(a_capability_or_no_limit_lets_all_be_locked),
        TEST(no_files_mean_no_limits_but_meminfo_must_be_there),
        TEST(this_machine_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
