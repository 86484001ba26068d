/* The program forebay-agent, started as a runtime starts it: what it says to a person, and its drivers behind a ring.
   */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/rig.h"
#include "stores/fixture.h"
#include "unit.h"

static const char *program(void)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/forebay-agent", getenv("FOREBAY_BUILD_ROOT"));
    return path;
}

/* Its exit code; what it wrote in `text`. */
static int run(const char *argument, char *text, size_t text_size)
{
    int pipe_fds[2], status;
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipe_fds[1], STDOUT_FILENO);
        dup2(pipe_fds[1], STDERR_FILENO);
        close(FBY_WIRE_CONTROL_FD);
        execl(program(), program(), argument, (char *)NULL);
        _exit(127);
    }
    close(pipe_fds[1]);
    size_t used = 0;
    for (ssize_t n = 1; n > 0 && used < text_size - 1;) {
        n = read(pipe_fds[0], text + used, text_size - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = '\0';
    close(pipe_fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_person_gets_an_answer(void **state)
{
    char text[4096];
    assert_int_equal(run("--version", text, sizeof(text)), 0);
    assert_memory_equal(text, "forebay-agent 0.", 16);
    assert_int_equal(run("--help", text, sizeof(text)), 0);
    assert_memory_equal(text, "Usage: forebay-agent", 20);
    assert_int_equal(run("--verbose", text, sizeof(text)), 2);
    assert_memory_equal(text, "forebay-agent: unknown argument '--verbose'\n", 44);
    assert_int_equal(run(NULL, text, sizeof(text)), 2);
    assert_memory_equal(text, "forebay-agent: descriptor 3 is no socket\n", 41);
}

static void start(rig_t *rig, const char *const *texts, fby_wire_ready_t *ready)
{
    rig_open(rig);
    rig_texts(rig, texts);
    rig_send(rig, FBY_WIRE_FDS);
    rig_execute(rig, program());
    rig_receive_ready(rig, ready);
}

static void objects_go_there_and_back(rig_t *rig)
{
    fby_ring_entry_t entries[RIG_DEPTH];
    int64_t results[RIG_DEPTH];
    for (uint32_t i = 0; i < RIG_DEPTH; i++) {
        char key[FBY_KEY_BYTES];
        fixture_key(i, 0, key);
        fixture_fill(&rig_hello(rig)->spec, i, 0, rig->pool + i * RIG_SLOT_BYTES);
        entries[i] = rig_entry(FBY_RING_PUT, key, i * RIG_SLOT_BYTES, RIG_SLOT_BYTES);
    }
    assert_true(rig_call(rig, 0, entries, RIG_DEPTH, results));
    for (uint32_t i = 0; i < RIG_DEPTH; i++) {
        assert_int_equal(results[i], RIG_SLOT_BYTES);
        entries[i].op = FBY_RING_GET;
        entries[i].offset = (RIG_DEPTH + i) * RIG_SLOT_BYTES;
    }
    assert_true(rig_call(rig, 1, entries, RIG_DEPTH, results));
    for (uint32_t i = 0; i < RIG_DEPTH; i++) {
        assert_int_equal(results[i], RIG_SLOT_BYTES);
    }
    assert_memory_equal(rig->pool, rig->pool + RIG_DEPTH * RIG_SLOT_BYTES, RIG_DEPTH * RIG_SLOT_BYTES);
}

static void mem_works_in_an_agent(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    int64_t results[2];
    start(&rig, (const char *const[]){"mem", "max_batch=3", NULL}, &ready);
    assert_string_equal(ready.version, "mem built in");
    assert_int_equal(rig.confined, FBY_CONFINED_SECCOMP | FBY_CONFINED_NO_FORK);
    assert_int_equal(ready.caps.max_batch, 3);
    assert_int_equal(ready.caps.one_process, 1);
    objects_go_there_and_back(&rig);

    char key[FBY_KEY_BYTES];
    fixture_key(0, 0, key);
    fby_ring_entry_t pair[2] = {rig_entry(FBY_RING_EXISTS, key, FBY_RING_NO_BUFFER, 0),
                                rig_entry(FBY_RING_EXISTS, "nobody", FBY_RING_NO_BUFFER, 0)};
    assert_true(rig_call(&rig, 0, pair, 2, results));
    assert_int_equal(results[0], 1);
    assert_int_equal(results[1], 0);
    pair[0].op = pair[1].op = FBY_RING_REMOVE;
    assert_true(rig_call(&rig, 0, pair, 2, results));
    assert_int_equal(results[0], 1);
    assert_int_equal(results[1], FBY_E_MISSING);

    fby_ring_entry_t health = rig_entry(FBY_RING_HEALTH, "", FBY_RING_NO_BUFFER, 0);
    assert_true(rig_call(&rig, 1, &health, 1, results));
    assert_int_equal(results[0], 0);
    assert_string_equal((char *)rig.lanes[1].bounce, "ok: 7 objects, 28672 bytes");
    fby_ring_entry_t epoch = rig_entry(FBY_RING_EPOCH, "", 9, 0);
    assert_true(rig_call(&rig, 0, &epoch, 1, results));
    assert_int_equal(results[0], 0);

    rig_say(&rig, FBY_WIRE_CLOSE);
    assert_int_equal(rig_wait(&rig), 0);
    rig_close(&rig);
}

/* The file store writes through io_uring: the filter has to let that pass, and says so. */
static void the_file_store_works_in_an_agent(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    char *directory = fixture_directory();
    start(&rig, (const char *const[]){"file", fixture_dir_option(directory), NULL}, &ready);
    assert_int_equal(rig.confined, FBY_CONFINED_SECCOMP | FBY_CONFINED_NO_FORK | FBY_CONFINED_URING);
    objects_go_there_and_back(&rig);
    rig_say(&rig, FBY_WIRE_CLOSE);
    assert_int_equal(rig_wait(&rig), 0);
    rig_close(&rig);
    fixture_remove_directory(directory);
}

static void a_batch_that_fails_as_a_whole_fails_for_every_key(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    int64_t results[2];
    start(&rig, (const char *const[]){"fault:mem", "script=get:*:refuse(CONNECTION)", NULL}, &ready);
    assert_int_equal(ready.caps.one_process, 1);
    fby_ring_entry_t pair[2] = {rig_entry(FBY_RING_GET, "a", 0, RIG_SLOT_BYTES),
                                rig_entry(FBY_RING_GET, "b", RIG_SLOT_BYTES, RIG_SLOT_BYTES)};
    assert_true(rig_call(&rig, 0, pair, 2, results));
    assert_int_equal(results[0], FBY_E_CONNECTION);
    assert_int_equal(results[1], FBY_E_CONNECTION);
    rig_close(&rig);
}

static void refused(const char *const *texts, int32_t code, const char *begin)
{
    rig_t rig;
    fby_wire_failed_t failed;
    rig_open(&rig);
    rig_texts(&rig, texts);
    rig_send(&rig, FBY_WIRE_FDS);
    rig_execute(&rig, program());
    assert_int_equal(rig_receive(&rig, &failed, sizeof(failed)), sizeof(failed));
    assert_int_equal(failed.head.type, FBY_WIRE_FAILED);
    assert_int_equal(failed.code, code);
    failed.text[strlen(begin)] = '\0';
    assert_string_equal(failed.text, begin);
    assert_int_equal(rig_wait(&rig), 1);
    rig_close(&rig);
}

static void what_cannot_be_opened_says_why(void **state)
{
    refused((const char *const[]){"memory", NULL}, FBY_E_CONFIG, "there is no store driver 'memory'");
    refused((const char *const[]){"mem", "colour=red", NULL}, FBY_E_CONFIG, "store driver mem: ");
}

static void an_interrupt_is_for_the_runtime_a_termination_for_the_agent(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    int64_t result;
    start(&rig, (const char *const[]){"mem", NULL}, &ready);
    kill(rig.child, SIGINT);
    fby_ring_entry_t entry = rig_entry(FBY_RING_EXISTS, "a", FBY_RING_NO_BUFFER, 0);
    assert_true(rig_call(&rig, 0, &entry, 1, &result));
    kill(rig.child, SIGTERM);
    assert_int_equal(rig_wait(&rig), -SIGTERM);
    rig_close(&rig);
}

static void a_malformed_batch_ends_the_agent(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    int64_t result;
    start(&rig, (const char *const[]){"mem", NULL}, &ready);
    fby_ring_entry_t entry = rig_entry(FBY_RING_GET, "a", RIG_POOL_BYTES, RIG_SLOT_BYTES);
    assert_false(rig_call(&rig, 0, &entry, 1, &result));
    assert_int_equal(rig_wait(&rig), 1);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_person_gets_an_answer),
        cmocka_unit_test(mem_works_in_an_agent),
        cmocka_unit_test(the_file_store_works_in_an_agent),
        cmocka_unit_test(a_batch_that_fails_as_a_whole_fails_for_every_key),
        cmocka_unit_test(what_cannot_be_opened_says_why),
        cmocka_unit_test(an_interrupt_is_for_the_runtime_a_termination_for_the_agent),
        cmocka_unit_test(a_malformed_batch_ends_the_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
