#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "pool/region.h"

static const fby_region_config_t two_groups = {
    .groups = 2,
    .slots = {3, 2},
    .slot_bytes = {8192, 4096},
    .alignment = 4096,
    .numa_node = -1,
};

static void groups_lie_one_behind_the_other(void **state)
{
    (void)state;
    fby_region_t region;
    assert_int_equal(fby_region_open(&two_groups, &region), 0);
    assert_int_equal(region.bytes, 3 * 8192 + 2 * 4096);
    assert_ptr_equal(fby_region_slot(&region, 0, 0), region.base);
    assert_ptr_equal(fby_region_slot(&region, 0, 2), region.base + 2 * 8192);
    assert_int_equal(region.first[1], 3);
    assert_ptr_equal(fby_region_slot(&region, 1, 3), region.base + 3 * 8192);
    assert_ptr_equal(fby_region_slot(&region, 1, 4), region.base + 3 * 8192 + 4096);
    fby_region_close(&region);
}

static void painting_covers_one_slot_exactly(void **state)
{
    (void)state;
    fby_region_t region;
    assert_int_equal(fby_region_open(&two_groups, &region), 0);
    fby_region_paint(&region, 0, 1, 0xEE);
    assert_int_equal(region.base[8191], 0);
    assert_int_equal(region.base[8192], 0xEE);
    assert_int_equal(region.base[2 * 8192 - 1], 0xEE);
    assert_int_equal(region.base[2 * 8192], 0);
    fby_region_close(&region);
}

static void the_file_is_sealed_and_closed_on_exec(void **state)
{
    (void)state;
    fby_region_t region;
    assert_int_equal(fby_region_open(&two_groups, &region), 0);
    assert_int_equal(fcntl(region.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(ftruncate(region.fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(region.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    fby_region_close(&region);
}

/* Another process maps the same bytes through the descriptor. */
static void the_descriptor_shares_the_memory(void **state)
{
    (void)state;
    fby_region_t region;
    assert_int_equal(fby_region_open(&two_groups, &region), 0);
    uint8_t *other = mmap(NULL, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd, 0);
    assert_ptr_not_equal(other, MAP_FAILED);
    other[8192] = 42;
    assert_int_equal(((uint8_t *)fby_region_slot(&region, 0, 1))[0], 42);
    munmap(other, region.bytes);
    fby_region_close(&region);
}

static void a_forked_child_has_no_pool(void **state)
{
    (void)state;
    fby_region_t region;
    assert_int_equal(fby_region_open(&two_groups, &region), 0);
    pid_t child = fork();
    if (child == 0) {
        unsigned char resident[16];
        /* mincore on a range that is not mapped */
        _exit(mincore(region.base, region.bytes, resident) == -1 && errno == ENOMEM ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fby_region_close(&region);
}

static void prefaulting_makes_every_page_resident(void **state)
{
    (void)state;
    fby_region_config_t config = two_groups;
    config.prefault = true;
    fby_region_t region;
    assert_int_equal(fby_region_open(&config, &region), 0);
    unsigned char resident[16] = {0};
    assert_int_equal(mincore(region.base, region.bytes, resident), 0);
    for (size_t i = 0; i < region.bytes / (size_t)sysconf(_SC_PAGESIZE); i++) {
        assert_int_equal(resident[i] & 1, 1);
    }
    fby_region_close(&region);
}

static void expect_refusal(const fby_region_config_t *config, int code, const char *words)
{
    fby_region_t region;
    assert_int_equal(fby_region_open(config, &region), code);
    assert_non_null(strstr(fby_error_get(), words));
}

static void wrong_sizes_are_refused_by_name(void **state)
{
    (void)state;
    fby_region_config_t config = two_groups;
    config.slot_bytes[1] = 4097;
    expect_refusal(&config, -EINVAL, "group 1 has 2 slots of 4097 bytes");
    config = two_groups;
    config.alignment = 96;
    expect_refusal(&config, -EINVAL, "alignment 96");
    config = two_groups;
    config.slots[0] = 0;
    expect_refusal(&config, -EINVAL, "group 0 has 0 slots");
    config = two_groups;
    config.groups = 0;
    expect_refusal(&config, -EINVAL, "0 groups");
    config = two_groups;
    config.numa_node = 5000;
    expect_refusal(&config, -EINVAL, "NUMA node 5000");
    config = two_groups;
    config.slots[0] = config.slots[1] = UINT32_MAX;
    config.slot_bytes[0] = config.slot_bytes[1] = 0x80000000u;
    expect_refusal(&config, -EINVAL, "do not fit");
}

static void more_than_the_machine_has_is_refused(void **state)
{
    (void)state;
    fby_region_config_t config = two_groups;
    config.slots[0] = 1u << 30;
    config.slot_bytes[0] = 1u << 20; /* a petabyte */
    fby_region_t region;
    assert_int_equal(fby_region_open(&config, &region), -ENOMEM);
}

static void bytes_round_up_to_the_page(void **state)
{
    (void)state;
    fby_region_config_t config = {.groups = 1, .slots = {1}, .slot_bytes = {64}, .alignment = 64, .numa_node = -1};
    assert_int_equal(fby_region_bytes(&config), (uint64_t)sysconf(_SC_PAGESIZE));
    config.huge_pages = true;
    assert_int_equal(fby_region_bytes(&config), 2u << 20);
}

static void closing_twice_is_harmless(void **state)
{
    (void)state;
    fby_region_t region;
    assert_int_equal(fby_region_open(&two_groups, &region), 0);
    fby_region_close(&region);
    fby_region_close(&region);
    assert_int_equal(region.fd, -1);
}

static void memory_of_a_numa_node_can_be_asked_for(void **state)
{
    (void)state;
    fby_region_config_t config = two_groups;
    config.numa_node = 0;
    fby_region_t region;
    int result = fby_region_open(&config, &region);
    if (result == -ENOSYS || result == -EPERM) {
        print_message("skipped: mbind is not allowed here\n");
        skip();
    }
    assert_int_equal(result, 0);
    fby_region_close(&region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_lie_one_behind_the_other),
        cmocka_unit_test(painting_covers_one_slot_exactly),
        cmocka_unit_test(the_file_is_sealed_and_closed_on_exec),
        cmocka_unit_test(the_descriptor_shares_the_memory),
        cmocka_unit_test(a_forked_child_has_no_pool),
        cmocka_unit_test(prefaulting_makes_every_page_resident),
        cmocka_unit_test(wrong_sizes_are_refused_by_name),
        cmocka_unit_test(more_than_the_machine_has_is_refused),
        cmocka_unit_test(bytes_round_up_to_the_page),
        cmocka_unit_test(closing_twice_is_harmless),
        cmocka_unit_test(memory_of_a_numa_node_can_be_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
