/* One key's I/O, with the answers a kernel may give played by hand. */
#include "fixture.h"

#include <unistd.h>

#include "stores/file.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)

static const fby_store_driver_t *const driver = &fby_store_file;
static fby_store_spec_t spec;
static fby_store_t *store;
static char *directory;
static uint8_t *buffer;
static fby_store_op_t op;
static fby_file_job_t job;

static void open_with(const char *direct, const char *sync)
{
    store = fixture_open(driver, &spec, fixture_dir_option(directory), "capacity=1MiB", "segment=64KiB", direct, sync,
                         NULL);
}

static int setup(void **state)
{
    spec = fixture_spec(4096);
    directory = fixture_directory();
    buffer = fixture_buffer(&spec, 1);
    op = fixture_op(&spec, 1, 0, buffer);
    fixture_fill(&spec, 1, 0, buffer);
    open_with("direct=off", NULL);
    return 0;
}

static int teardown(void **state)
{
    driver->close(store);
    fixture_remove_directory(directory);
    free(buffer);
    return 0;
}

static fby_file_io_t next_io(void)
{
    fby_file_io_t io;
    fby_file_job_io(&job, &io);
    return io;
}

/* Lets the kernel do the next I/O in full. */
static bool do_next(void)
{
    fby_file_io_t io = next_io();
    ssize_t moved = io.kind == FBY_JOB_READ    ? pread(io.fd, io.memory, io.bytes, (off_t)io.offset)
                    : io.kind == FBY_JOB_WRITE ? pwrite(io.fd, io.memory, io.bytes, (off_t)io.offset)
                                               : fdatasync(io.fd);
    return fby_file_job_advance(&job, moved);
}

static bool begin(bool write)
{
    return fby_file_job_begin((fby_file_t *)store, write, &op, &job);
}

static void a_key_is_not_there_before_its_last_step(void **state)
{
    assert_true(begin(true));
    assert_int_equal(fixture_exists(driver, store, 1), 0);
    assert_int_equal(fixture_get(driver, store, &spec, 1), FBY_E_NOT_READY);
    assert_int_equal(fixture_put(driver, store, &spec, 1), FBY_E_NOT_READY);
    assert_int_equal(fixture_remove(driver, store, 1), FBY_E_NOT_READY);
    assert_false(do_next());
    assert_int_equal(op.result, BYTES);
    assert_int_equal(fixture_get(driver, store, &spec, 1), BYTES);
}

static void a_short_transfer_goes_on_where_it_stopped(void **state)
{
    assert_true(begin(true));
    fby_file_io_t whole = next_io();
    assert_int_equal(pwrite(whole.fd, whole.memory, 1000, (off_t)whole.offset), 1000);
    assert_true(fby_file_job_advance(&job, 1000));
    fby_file_io_t rest = next_io();
    assert_int_equal(rest.offset, whole.offset + 1000);
    assert_int_equal(rest.bytes, whole.bytes - 1000);
    assert_ptr_equal(rest.memory, (uint8_t *)whole.memory + 1000);
    assert_true(fby_file_job_advance(&job, -EINTR));
    assert_true(fby_file_job_advance(&job, -EAGAIN));
    assert_false(do_next());
    assert_int_equal(fixture_get(driver, store, &spec, 1), BYTES);
}

static void direct_transfers_go_on_at_a_whole_block(void **state)
{
    driver->close(store);
    open_with("direct=auto", NULL);
    assert_true(begin(true));
    if (!job.slot->segment->direct) {
        fby_file_job_fail(&job, FBY_E_TIMEOUT);
        print_message("skipped: the file system takes no direct I/O\n");
        skip();
    }
    fby_file_io_t whole = next_io();
    assert_int_equal(whole.bytes, 8192);
    assert_true(fby_file_job_advance(&job, 5000));
    assert_int_equal(next_io().offset, whole.offset + 4096);
    fby_file_job_fail(&job, FBY_E_TIMEOUT);
}

static void an_error_frees_the_slot_and_the_key(void **state)
{
    static const struct {
        int64_t error;
        int code;
    } errors[] = {{-EIO, FBY_E_CONNECTION}, {-ENOSPC, FBY_E_FULL},       {-EDQUOT, FBY_E_FULL},
                  {-EROFS, FBY_E_INVALID},  {-ECANCELED, FBY_E_TIMEOUT}, {-ESTALE, FBY_E_CONNECTION},
                  {0, FBY_E_FULL}};
    for (size_t i = 0; i < FBY_ARRAY_LEN(errors); i++) {
        assert_true(begin(true));
        if (job.step == FBY_JOB_INVALIDATE) {
            assert_true(do_next());
        }
        assert_false(fby_file_job_advance(&job, errors[i].error));
        assert_int_equal(op.result, errors[i].code);
        assert_int_equal(fixture_exists(driver, store, 1), 0);
        assert_int_equal(fixture_get(driver, store, &spec, 1), FBY_E_MISSING);
    }
    assert_int_equal(fixture_put(driver, store, &spec, 1), BYTES);
}

static void a_slot_that_may_hold_a_trailer_is_invalidated_first(void **state)
{
    assert_true(begin(true));
    assert_int_equal(job.step, FBY_JOB_DATA); /* a new slot */
    assert_false(fby_file_job_advance(&job, -EIO));
    assert_true(begin(true));
    assert_int_equal(job.step, FBY_JOB_INVALIDATE);
    fby_file_io_t io = next_io();
    assert_int_equal(io.kind, FBY_JOB_WRITE);
    assert_int_equal(io.offset, fby_file_slot_offset(job.slot) + 4096);
    assert_int_equal(io.bytes, 64);
    assert_memory_equal(io.memory, fby_file_zeros, 64);
    assert_true(do_next());
    assert_int_equal(job.step, FBY_JOB_DATA);
    assert_false(do_next());
}

static void an_invalidation_that_was_cut_short_gives_up(void **state)
{
    assert_true(begin(true));
    assert_false(fby_file_job_advance(&job, -EIO));
    assert_true(begin(true));
    assert_false(fby_file_job_advance(&job, 13));
    assert_int_equal(op.result, FBY_E_CONNECTION);
}

static void synced_data_is_stored_after_the_sync_only(void **state)
{
    driver->close(store);
    open_with("direct=off", "sync=data");
    assert_true(begin(true));
    assert_true(do_next());
    assert_int_equal(next_io().kind, FBY_JOB_FSYNC);
    assert_int_equal(fixture_exists(driver, store, 1), 0);
    assert_false(fby_file_job_advance(&job, -EIO));
    assert_int_equal(op.result, FBY_E_CONNECTION);
    assert_true(begin(true));
    assert_true(do_next());
    assert_true(do_next());
    assert_false(do_next());
    assert_int_equal(op.result, BYTES);
}

static void a_read_that_meets_the_files_end_frees_the_key(void **state)
{
    assert_int_equal(fixture_put(driver, store, &spec, 1), BYTES);
    assert_true(begin(false));
    assert_false(fby_file_job_advance(&job, 0));
    assert_int_equal(op.result, FBY_E_SIZE);
    assert_int_equal(fixture_exists(driver, store, 1), 0);
}

static void a_read_that_fails_leaves_the_key(void **state)
{
    assert_int_equal(fixture_put(driver, store, &spec, 1), BYTES);
    assert_true(begin(false));
    assert_false(fby_file_job_advance(&job, -EIO));
    assert_int_equal(op.result, FBY_E_CONNECTION);
    assert_int_equal(fixture_get(driver, store, &spec, 1), BYTES);
}

static void everything_that_began_is_given_back(void **state)
{
    assert_int_equal(fixture_put(driver, store, &spec, 1), BYTES);
    assert_true(begin(false));
    const fby_segment_t *segment = job.slot->segment;
    assert_int_equal(segment->busy, 1);
    fby_file_job_fail(&job, FBY_E_TIMEOUT);
    assert_int_equal(segment->busy, 0);
    op = fixture_op(&spec, 2, 0, buffer);
    fixture_fill(&spec, 2, 0, buffer);
    assert_true(begin(true));
    assert_int_equal(segment->busy, 1);
    fby_file_job_fail(&job, FBY_E_TIMEOUT);
    assert_int_equal(segment->busy, 0);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_key_is_not_there_before_its_last_step),
        STORY(a_short_transfer_goes_on_where_it_stopped),
        STORY(direct_transfers_go_on_at_a_whole_block),
        STORY(an_error_frees_the_slot_and_the_key),
        STORY(a_slot_that_may_hold_a_trailer_is_invalidated_first),
        STORY(an_invalidation_that_was_cut_short_gives_up),
        STORY(synced_data_is_stored_after_the_sync_only),
        STORY(a_read_that_meets_the_files_end_frees_the_key),
        STORY(a_read_that_fails_leaves_the_key),
        STORY(everything_that_began_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
