/*
 * confine.c - no second holder of the pool: after this a process can end only as a whole, and alone.
 *
 * Refused is what could make another holder of the mapping, or let something write into it when the process is gone.
 * The filter guards against clients that fork, spawn helpers or share memory because they were written so; it is no
 * jail for hostile code. What it cannot see: a descriptor of the pool that was opened again through
 * /proc/self/map_files (takes privileges and intent), memory given to a device (RDMA, VFIO: the device's descriptors
 * must have no other holder), and SQPOLL, since io_uring_setup takes its flags in memory: where io_uring is allowed,
 * the driver must not ask for it. MADV_DOFORK stays allowed (RDMA libraries call it for their own pages): without a
 * fork it changes nothing. Linux AIO stays allowed: the end of a process waits for its AIO before anybody can see it.
 */
#include "agent/confine.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>

/* X(call): answered with EPERM. A call that the architecture does not have has a negative number. */
#define REFUSED_MAP(X)                                                                                                 \
    /* another process: a child has the mapping, or at least our descriptors and our name */                           \
    X(fork)                                                                                                            \
    X(vfork)                                                                                                           \
    /* the same process id with another program, which knows nothing of the ring */                                    \
    X(execve)                                                                                                          \
    X(execveat)                                                                                                        \
    /* out of the namespaces whose end may be our fence */                                                             \
    X(unshare)                                                                                                         \
    X(setns)                                                                                                           \
    /* into the memory and descriptors of another process, or another thread's eyes into ours */                       \
    X(ptrace)                                                                                                          \
    X(process_vm_readv)                                                                                                \
    X(process_vm_writev)                                                                                               \
    X(process_madvise)                                                                                                 \
    X(pidfd_getfd)                                                                                                     \
    X(kcmp)                                                                                                            \
    /* its descriptor fills pages of our mapping, and can be passed on */                                              \
    X(userfaultfd)                                                                                                     \
    /* leaves pages of the mapping in a pipe, which can outlive us */                                                  \
    X(vmsplice)

/* X(call): kernel workers write into the mapping on behalf of a descriptor that can be passed on. */
#define URING_MAP(X)                                                                                                   \
    X(io_uring_setup)                                                                                                  \
    X(io_uring_enter)                                                                                                  \
    X(io_uring_register)

static const int refused[] = {
#define FBY_X(call) SCMP_SYS(call),
    REFUSED_MAP(FBY_X)
#undef FBY_X
};

static const int uring_calls[] = {
#define FBY_X(call) SCMP_SYS(call),
    URING_MAP(FBY_X)
#undef FBY_X
};

static int refuse_all(scmp_filter_ctx context, const int *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int status = calls[i] < 0 ? 0 : seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), calls[i], 0);
        if (status < 0) {
            return status;
        }
    }
    return 0;
}

/* Threads may be made, processes not. clone3 has its flags in memory, where a filter cannot look: without it libraries
   fall back to clone, whose flags are its first argument on x86-64 and aarch64. */
static int refuse_clones(scmp_filter_ctx context)
{
    int status = seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                                  SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
    return status < 0 ? status : seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

int fby_confine(bool uring)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
    if (context == NULL) {
        return -ENOMEM;
    }
    /* Other ABIs of the machine (i386, x32) have other numbers for the same calls: all of theirs are refused. */
    int status = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
    status = status < 0 ? status : seccomp_attr_set(context, SCMP_FLTATR_CTL_NNP, 1);
    status = status < 0 ? status : seccomp_attr_set(context, SCMP_FLTATR_CTL_TSYNC, 1);
    status = status < 0 ? status : refuse_all(context, refused, FBY_ARRAY_LEN(refused));
    if (!uring) {
        status = status < 0 ? status : refuse_all(context, uring_calls, FBY_ARRAY_LEN(uring_calls));
    }
    status = status < 0 ? status : refuse_clones(context);
    status = status < 0 ? status : seccomp_load(context);
    seccomp_release(context);
    return status;
}
