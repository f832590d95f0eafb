/* Makes the system refuse to copy memory of other processes, as many systems do. With `own_too`, it
 * also refuses to copy memory of the process itself. */
#ifndef REFUSE_H
#define REFUSE_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

MAYBE_UNUSED static void refuse_copies(int own_too) {
  const unsigned int allow = SECCOMP_RET_ALLOW, refuse = SECCOMP_RET_ERRNO | EPERM;
  struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, allow),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)getpid(), 0, 1),
    BPF_STMT(BPF_RET | BPF_K, own_too ? refuse : allow),
    BPF_STMT(BPF_RET | BPF_K, refuse),
  };
  struct sock_fprog program;
  program.len = (unsigned short)(sizeof rules / sizeof rules[0]);
  program.filter = rules;
  CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

#endif
