/* test_listener.c - the socket in the file system: its mode, stale ones, living ones, and what is left behind: nothing. */
#include "server/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "forebay/forebay.h"
#include "runtime/settings.h"
#include "unit.h"

typedef struct place {
    char directory[64], path[96], lock[104];
} place_t;

static place_t place_make(void)
{
    place_t place;
    snprintf(place.directory, sizeof(place.directory), "/tmp/fby-listener-XXXXXX");
    assert_non_null(mkdtemp(place.directory));
    snprintf(place.path, sizeof(place.path), "%s/s", place.directory);
    snprintf(place.lock, sizeof(place.lock), "%s/s.lock", place.directory);
    return place;
}

/* Fails unless the directory is empty. */
static void place_end(const place_t *place)
{
    assert_int_equal(rmdir(place->directory), 0);
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int rc = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : -errno;
    close(fd);
    return rc;
}

static void it_has_its_mode_and_is_gone_afterwards(void **state)
{
    static const unsigned modes[] = {0600, 0660, 0666, 0700};
    place_t place = place_make();
    mode_t before = umask(077);
    for (size_t i = 0; i < FBY_ARRAY_LEN(modes); i++) {
        fby_listener_t listener;
        struct stat about;
        assert_int_equal(fby_listener_open(place.path, modes[i], &listener), 0);
        assert_int_equal(lstat(place.path, &about), 0);
        assert_true(S_ISSOCK(about.st_mode));
        assert_int_equal(about.st_mode & 0777, modes[i]);
        assert_int_equal(lstat(place.lock, &about), 0);
        assert_int_equal(about.st_mode & 0777, 0600);
        assert_int_equal(connect_to(place.path), 0);
        fby_listener_close(&listener);
        assert_int_equal(connect_to(place.path), -ENOENT);
    }
    umask(before);
    place_end(&place);
}

static void a_living_one_is_left_alone(void **state)
{
    fby_listener_t listener, second;
    place_t place = place_make();
    assert_int_equal(fby_listener_open(place.path, 0600, &listener), 0);
    assert_int_equal(fby_listener_open(place.path, 0600, &second), -EADDRINUSE);
    assert_non_null(strstr(fby_last_error(), place.path));
    assert_int_equal(connect_to(place.path), 0);
    fby_listener_close(&listener);
    place_end(&place);
}

/* Somebody else's socket has no lock of ours. */
static void one_of_another_program_is_left_alone(void **state)
{
    fby_listener_t listener;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    place_t place = place_make();
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", place.path);
    for (int i = 0; i < 2; i++) {
        int fd = socket(AF_UNIX, i == 0 ? SOCK_SEQPACKET : SOCK_STREAM, 0);
        assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 1), 0);
        assert_int_equal(fby_listener_open(place.path, 0600, &listener), -EADDRINUSE);
        assert_int_equal(access(place.lock, F_OK), -1);
        close(fd);
        assert_int_equal(unlink(place.path), 0);
    }
    place_end(&place);
}

static void what_is_no_socket_is_not_replaced(void **state)
{
    fby_listener_t listener;
    place_t place = place_make();
    int fd = open(place.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(fby_listener_open(place.path, 0600, &listener), FBY_E_CONFIG);
    assert_int_equal(access(place.path, F_OK), 0);
    unlink(place.path);
    assert_int_equal(symlink("elsewhere", place.path), 0);
    assert_int_equal(fby_listener_open(place.path, 0600, &listener), FBY_E_CONFIG);
    unlink(place.path);
    place_end(&place);
}

static void where_it_cannot_be_made_the_detail_says_why(void **state)
{
    fby_listener_t listener;
    char path[200] = "/tmp/";
    assert_int_equal(fby_listener_open("/nonexistent/s", 0600, &listener), -ENOENT);
    assert_non_null(strstr(fby_last_error(), "/nonexistent/s"));
    memset(path + 5, 'x', 87);
    assert_int_equal(strlen(path), FBY_MOST_SOCKET_PATH + 1);
    assert_int_equal(fby_listener_open(path, 0600, &listener), FBY_E_CONFIG);
    assert_non_null(strstr(fby_last_error(), "the path has 92 bytes; accepted: at most 91"));
    path[FBY_MOST_SOCKET_PATH] = '\0';
    assert_int_equal(fby_listener_open(path, 0600, &listener), 0);
    assert_int_equal(connect_to(path), 0);
    fby_listener_close(&listener);
    assert_int_equal(access(path, F_OK), -1);
}

/* In a child: listens until it is killed. A grandchild outlives it, with all that fork() copies. */
static void listen_in_child(const place_t *place, int say, int keep)
{
    fby_listener_t listener;
    if (fby_listener_open(place->path, 0600, &listener) != 0) {
        _exit(1);
    }
    if (fork() == 0) {
        char end;
        (void)!write(say, "l", 1); /* by now it has let go of what fork() copied */
        close(say);
        (void)!read(keep, &end, 1);
        _exit(0);
    }
    for (;;) {
        pause();
    }
}

static void a_killed_ones_socket_is_replaced_though_its_children_live(void **state)
{
    int said[2], keep[2], status;
    char heard;
    fby_listener_t listener;
    place_t place = place_make();
    assert_int_equal(pipe2(said, O_CLOEXEC), 0);
    assert_int_equal(pipe2(keep, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(keep[1]);
        listen_in_child(&place, said[1], keep[0]);
    }
    close(said[1]);
    assert_int_equal(read(said[0], &heard, 1), 1);
    assert_int_equal(fby_listener_open(place.path, 0600, &listener), -EADDRINUSE);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(access(place.path, F_OK), 0); /* it could not clean up */
    assert_int_equal(fby_listener_open(place.path, 0600, &listener), 0);
    assert_int_equal(connect_to(place.path), 0);
    fby_listener_close(&listener);
    close(keep[1]);
    close(keep[0]);
    close(said[0]);
    place_end(&place);
}

static void only_what_is_still_ours_is_removed(void **state)
{
    fby_listener_t listener;
    place_t place = place_make();
    assert_int_equal(fby_listener_open(place.path, 0600, &listener), 0);
    assert_int_equal(unlink(place.path), 0);
    int fd = open(place.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    fby_listener_close(&listener);
    assert_int_equal(access(place.path, F_OK), 0);
    unlink(place.path);
    place_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_its_mode_and_is_gone_afterwards),
        cmocka_unit_test(a_living_one_is_left_alone),
        cmocka_unit_test(one_of_another_program_is_left_alone),
        cmocka_unit_test(what_is_no_socket_is_not_replaced),
        cmocka_unit_test(where_it_cannot_be_made_the_detail_says_why),
        cmocka_unit_test(a_killed_ones_socket_is_replaced_though_its_children_live),
        cmocka_unit_test(only_what_is_still_ours_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
