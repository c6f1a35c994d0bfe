/* Makes a system call on a file fail, for real processes: LD_PRELOAD, see faults.py.

   FAULT_CALL  fsync, fdatasync, close, read (of any kind), pwrite
   FAULT_PATH  which files: part of their path
   FAULT_NTH   which of these calls fails, counted by process; 0: all
   FAULT_FROM, FAULT_TO    for reads: which bytes of the file cannot be read
   FAULT_SHORT if set, a write takes half of what it is given in place of failing
*/
#define _GNU_SOURCE
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long number_of(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int is_meant(const char *call, int descriptor) {
    const char *wanted = getenv("FAULT_CALL"), *part = getenv("FAULT_PATH");
    char link[64], path[PATH_MAX + 1], pattern[PATH_MAX + 3];
    if (!wanted || !part || strcmp(wanted, call)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long size = syscall(SYS_readlinkat, -100, link, path, PATH_MAX);
    if (size < 0) return 0;
    path[size] = 0;
    snprintf(pattern, sizeof pattern, "*%s*", part);
    return fnmatch(pattern, path, 0) == 0;
}

static int is_turn(void) {
    static int calls;
    long nth = number_of("FAULT_NTH", 0);
    return __sync_add_and_fetch(&calls, 1) == nth || !nth;
}

static int fails(const char *call, int descriptor) {
    int before = errno, is_failing = is_meant(call, descriptor) && is_turn();
    errno = is_failing ? EIO : before;
    return is_failing;
}

/* How many of the bytes can be read: up to the first bad one, as of a disk; -1 if none. */
static long readable(int descriptor, long start, long size) {
    long from = number_of("FAULT_FROM", 0);
    if (start >= number_of("FAULT_TO", LONG_MAX) || start + size <= from) return size;
    if (start < from) return is_meant("read", descriptor) ? from - start : size;
    return fails("read", descriptor) ? -1 : size;
}

int fsync(int d) { return fails("fsync", d) ? -1 : syscall(SYS_fsync, d); }

int fdatasync(int d) { return fails("fdatasync", d) ? -1 : syscall(SYS_fdatasync, d); }

int close(int d) {
    int is_failing = fails("close", d), answer = syscall(SYS_close, d);
    if (is_failing) errno = EIO;
    return is_failing ? -1 : answer;
}

ssize_t read(int d, void *to, size_t size) {
    long part = readable(d, syscall(SYS_lseek, d, 0, SEEK_CUR), size);
    return part < 0 ? -1 : syscall(SYS_read, d, to, part);
}

ssize_t pread64(int d, void *to, size_t size, off_t start) {
    long part = readable(d, start, size);
    return part < 0 ? -1 : syscall(SYS_pread64, d, to, part, start);
}

ssize_t preadv64v2(int d, const struct iovec *to, int count, off_t start, int flags) {
    if (count == 1) return pread64(d, to->iov_base, to->iov_len, start);
    return syscall(SYS_preadv2, d, to, count, start, 0L, flags);
}

ssize_t pwrite64(int d, const void *from, size_t size, off_t start) {
    int is_failing = fails("pwrite", d);
    if (is_failing && !getenv("FAULT_SHORT")) return -1;
    return syscall(SYS_pwrite64, d, from, is_failing && size > 1 ? size / 2 : size, start);
}
