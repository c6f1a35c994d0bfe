/* Preloaded: lets one call of the C library on files below a folder fail, as a bad disk does.

   A call counts if its name is among `calls` and its file lies below `root`. The process that is
   armed counts alone: the driver arms what it has forked, by `refuse_arm`; a program that this
   starts is armed by the environment (REFUSE_IN: a word of its command line). */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ONCE, ON, SHORT }; /* this call; it and all of its kind that follow; half of this write */

static struct {
    pid_t pid;
    char root[1024], calls[512], log[1024], refused[32];
    long nth, seen;
    int how, number;
} plan;

void refuse_arm(const char *root, const char *calls, long nth, int how, int number, const char *log)
{
    memset(&plan, 0, sizeof plan);
    snprintf(plan.root, sizeof plan.root, "%s", root);
    snprintf(plan.calls, sizeof plan.calls, " %s ", calls);
    snprintf(plan.log, sizeof plan.log, "%s", log);
    plan.nth = nth, plan.how = how, plan.number = number, plan.pid = getpid();
}

__attribute__((constructor)) static void arm_from_environment(void)
{
    const char *word = getenv("REFUSE_IN"), *text = getenv("REFUSE");
    char line[1 << 16] = "", root[1024], calls[512], log[1024];
    long nth;
    int how, number;
    if (!word || !text) return;
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t size = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file) fclose(file);
    if (!memmem(line, size, word, strlen(word))) return;
    if (sscanf(text, "%1023[^|]|%511[^|]|%ld|%d|%d|%1023[^|]", root, calls, &nth, &how, &number, log) == 6)
        refuse_arm(root, calls, nth, how, number, log);
}

static __thread int is_noting;

static void note(const char *call, const char *path)
{
    char line[2200];
    int size = snprintf(line, sizeof line, "%s %s\n", call, path);
    FILE *file = fopen(plan.log, "a");
    if (file) fwrite(line, 1, size, file), fclose(file);
}

/* 0: do it; 1: fail, with errno set; 2: do half of it. */
static int judge(const char *call, const char *path)
{
    char word[40];
    size_t size = strlen(plan.root);
    if (is_noting || plan.pid != getpid() || strncmp(path, plan.root, size)) return 0;
    if (path[size] && path[size] != '/') return 0;
    snprintf(word, sizeof word, " %s ", call);
    if (!strstr(plan.calls, word)) return 0;
    if (plan.refused[0] && !strcmp(plan.refused, call)) return errno = plan.number, 1;
    long number = __sync_add_and_fetch(&plan.seen, 1);
    if (!plan.nth) is_noting = 1, note(call, path), is_noting = 0;
    if (number != plan.nth) return 0;
    if (plan.how == SHORT) return 2;
    if (plan.how == ON) snprintf(plan.refused, sizeof plan.refused, "%s", call);
    errno = plan.number;
    return 1;
}

static int judge_path(const char *call, int folder, const char *path)
{
    char whole[4200], here[2048] = "", name[64];
    if (!plan.pid || !path) return 0;
    if (path[0] == '/') return judge(call, path);
    snprintf(name, sizeof name, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
    if (readlink(name, here, sizeof here - 1) < 0) return 0;
    snprintf(whole, sizeof whole, "%s/%s", here, path);
    return judge(call, whole);
}

static int judge_open(const char *call, int fd)
{
    char path[2048] = "", name[64];
    if (!plan.pid) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return readlink(name, path, sizeof path - 1) < 0 ? 0 : judge(call, path);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define OPEN_AT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        REAL(int, #name, int, const char *, int, ...); \
        return judge_path(flags & O_CREAT ? "create" : "open", folder, path) ? -1 : real(folder, path, flags, mode); \
    }
#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        REAL(int, #name, const char *, int, ...); \
        return judge_path(flags & O_CREAT ? "create" : "open", AT_FDCWD, path) ? -1 : real(path, flags, mode); \
    }
OPEN(open) OPEN(open64) OPEN_AT(openat) OPEN_AT(openat64)

#define MOVE(name, call, buffer, rest, args) \
    ssize_t name(int fd, buffer, size_t size rest) \
    { \
        REAL(ssize_t, #name, int, buffer, size_t rest); \
        int verdict = judge_open(call, fd); \
        if (verdict == 1) return -1; \
        if (verdict == 2 && size > 1) size /= 2; \
        return real args; \
    }
#define NOTHING
#define OFFSET , off_t at
MOVE(read, "read", void *data, NOTHING, (fd, data, size))
MOVE(write, "write", const void *data, NOTHING, (fd, data, size))
MOVE(pread, "read", void *data, OFFSET, (fd, data, size, at))
MOVE(pread64, "read", void *data, OFFSET, (fd, data, size, at))
MOVE(pwrite, "write", const void *data, OFFSET, (fd, data, size, at))
MOVE(pwrite64, "write", const void *data, OFFSET, (fd, data, size, at))

#define READ_ALL(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at) \
    { \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t); \
        return judge_open("read", fd) == 1 ? -1 : real(fd, parts, count, at); \
    }
READ_ALL(preadv) READ_ALL(preadv64)

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
    REAL(ssize_t, "preadv2", int, const struct iovec *, int, off_t, int);
    return judge_open("read", fd) == 1 ? -1 : real(fd, parts, count, at, flags);
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t size)
{
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    return judge_open("write", to) == 1 ? -1 : real(to, from, at, size);
}

#define OF_OPEN(name, call, more, args) \
    int name(int fd more) \
    { \
        REAL(int, #name, int more); \
        return judge_open(call, fd) == 1 ? -1 : real args; \
    }
#define LENGTH , off_t length
#define WAY , int way
OF_OPEN(fsync, "sync", NOTHING, (fd))
OF_OPEN(fdatasync, "sync", NOTHING, (fd))
OF_OPEN(ftruncate, "truncate", LENGTH, (fd, length))
OF_OPEN(ftruncate64, "truncate", LENGTH, (fd, length))
OF_OPEN(flock, "lock", WAY, (fd, way))

int close(int fd)
{
    REAL(int, "close", int);
    /* Of a file that was only read nothing can be lost, and no system says so. */
    int is_written = plan.pid && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    int is_refused = is_written && judge_open("close", fd) == 1, number = errno, answer = real(fd);
    return is_refused ? (errno = number, -1) : answer;
}

#define ALLOCATE(name) \
    int name(int fd, off_t at, off_t size) \
    { \
        REAL(int, #name, int, off_t, off_t); \
        return judge_open("allocate", fd) == 1 ? plan.number : real(fd, at, size); \
    }
ALLOCATE(posix_fallocate) ALLOCATE(posix_fallocate64)

#define OF_NAME(name, call, more, args) \
    int name(const char *path more) \
    { \
        REAL(int, #name, const char * more); \
        return judge_path(call, AT_FDCWD, path) == 1 ? -1 : real args; \
    }
#define MODE , mode_t mode
#define TO , const char *to
#define STATUS , struct stat *status
OF_NAME(unlink, "unlink", NOTHING, (path))
OF_NAME(rmdir, "unlink", NOTHING, (path))
OF_NAME(mkdir, "mkdir", MODE, (path, mode))
OF_NAME(rename, "rename", TO, (path, to))
OF_NAME(link, "link", TO, (path, to))
OF_NAME(stat, "stat", STATUS, (path, status))
OF_NAME(lstat, "stat", STATUS, (path, status))

int renameat2(int from_folder, const char *from, int folder, const char *to, unsigned int flags)
{
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned int);
    return judge_path("rename", folder, to) == 1 ? -1 : real(from_folder, from, folder, to, flags);
}

DIR *opendir(const char *path)
{
    REAL(DIR *, "opendir", const char *);
    return judge_path("list", AT_FDCWD, path) == 1 ? NULL : real(path);
}
