#include "client/served.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_SETTINGS = 32 };

static void run(const served_t *served, const char *const *settings, int in, int out)
{
    char listen[80];
    const char *arguments[MOST_SETTINGS] = {getenv("FOREBAY_TEST_SERVE"), listen, "server.allow_check=true"};
    size_t n = 3;
    snprintf(listen, sizeof(listen), "server.listen=%s", served->path);
    for (; *settings != NULL && n < MOST_SETTINGS - 1; settings++) {
        arguments[n++] = *settings;
    }
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(127);
}

void served_start(served_t *served, const char *const *settings)
{
    int in[2], out[2];
    char byte;
    assert_non_null(getenv("FOREBAY_TEST_SERVE"));
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    served->pid = fork();
    assert_true(served->pid >= 0);
    if (served->pid == 0) {
        run(served, settings, in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    served->to = in[1];
    served->from = out[0];
    assert_int_equal(read(served->from, &byte, 1), 1);
}

void served_open(served_t *served, const char *const *settings)
{
    memset(served, 0, sizeof(*served));
    snprintf(served->folder, sizeof(served->folder), "/tmp/forebay-client-XXXXXX");
    assert_non_null(mkdtemp(served->folder));
    snprintf(served->path, sizeof(served->path), "%s/socket", served->folder);
    served_start(served, settings);
}

static int reap(served_t *served)
{
    int status = 0;
    assert_int_equal(waitpid(served->pid, &status, 0), served->pid);
    served->pid = 0;
    close(served->from);
    return status;
}

void served_kill(served_t *served)
{
    assert_int_equal(kill(served->pid, SIGKILL), 0);
    (void)reap(served);
    close(served->to);
}

void served_freeze(served_t *served)
{
    int status;
    assert_int_equal(kill(served->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(served->pid, &status, WUNTRACED), served->pid);
    assert_true(WIFSTOPPED(status));
}

void served_thaw(served_t *served)
{
    assert_int_equal(kill(served->pid, SIGCONT), 0);
}

void served_stop(served_t *served)
{
    close(served->to);
    assert_int_equal(reap(served), 0);
}

void served_close(served_t *served)
{
    if (served->pid != 0) {
        served_stop(served);
    }
    unlink(served->path); /* a killed one leaves it */
    char lock[80];
    snprintf(lock, sizeof(lock), "%s.lock", served->path);
    unlink(lock);
    assert_int_equal(rmdir(served->folder), 0);
}

void served_connect(const served_t *served, rig_t *rig, double call_timeout_s)
{
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    options.call_timeout_s = call_timeout_s;
    options.reconnect_s = 0.001;
    *rig = (rig_t){0};
    int rc = fby_connect(served->path, &options, &rig->cache);
    if (rc != 0) {
        fail_msg("connect: %s: %s", fby_errname(rc), fby_last_error());
    }
}

static bool is_back(rig_t *rig)
{
    fby_session_t session;
    fby_seq_t *seq = rig_seq(rig, 1, 17);
    assert_int_equal(fby_session_start(rig->cache, seq, NULL, &session), 0);
    fby_seq_unref(seq);
    bool back = fby_cache_connected(rig->cache) == 1 && rig_poll(rig, session).error != -ENOTCONN;
    fby_session_release(rig->cache, session);
    return back;
}

void served_await_back(rig_t *rig)
{
    RIG_AWAIT(is_back(rig));
}
