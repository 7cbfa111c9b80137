/* Preloaded into a mount, its worker and its collections: numbers their calls below one directory tree, and
 * at a chosen number kills them all, has the call fail, or cuts a write short; or logs every change.
 *
 * What to do is said in a file that all processes map. FAULTS_CONTROL names it; shim.py has the same layout.
 * Calls that only look at names and attributes are let through, and so are writes through a mapping: SQLite's
 * -shm has the only one, and is rebuilt after a crash.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

/* The kinds of calls, as bits. */
enum { OPEN = 1, CREATE = 2, READ = 4, WRITE = 8, RENAME = 16, NAME = 32, SIZE = 64, SYNC = 128, ATTR = 256 };
enum { COUNT, KILL, KILL_HALFWAY, FAIL, SHORTEN };

struct control {
    uint32_t armed, recording, kinds, action;
    uint64_t first, last; /* the numbers, from 1, of the calls to act upon */
    uint64_t steps;       /* the calls counted so far */
    int32_t error;
    uint32_t fired, frozen;
    int32_t leader; /* the first process that came: the mount */
    uint32_t lock, processes;
    int32_t pids[64];
    char tree[256], log[256], what[512];
};

/* Followed by the two paths and the data. */
struct record {
    char op[8];
    uint64_t inode;
    int64_t number; /* an offset, a size, flags, or the length of an attribute's name */
    uint32_t path_size, other_size;
    uint64_t data_size;
};

struct call {
    const char *op;
    int locked, shortened, fd, count;
    int64_t number;
    size_t size;
    const struct iovec *data;
    char path[PATH_MAX], other[PATH_MAX];
};

static struct control *control;
static int log_fd = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("FAULTS_CONTROL");
    int fd = path ? REAL(open)(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED)
        return;
    control = found;
    int32_t nobody = 0;
    __atomic_compare_exchange_n(&control->leader, &nobody, getpid(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    uint32_t place = __atomic_fetch_add(&control->processes, 1, __ATOMIC_SEQ_CST);
    if (place < sizeof control->pids / sizeof *control->pids)
        control->pids[place] = getpid();
    log_fd = REAL(open)(control->log, O_WRONLY | O_APPEND | O_CLOEXEC);
}

/* -- what is watched */

/* The absolute path of `path`, which is relative to `dirfd`; of `dirfd` itself when it is NULL. */
static void resolve(int dirfd, const char *path, char *out)
{
    size_t length = 0;
    if (!path || path[0] != '/') {
        char link[40] = "/proc/self/cwd";
        if (dirfd != AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        ssize_t got = readlink(link, out, PATH_MAX - 1);
        length = got < 0 ? 0 : got;
    }
    out[length] = 0;
    if (path)
        snprintf(out + length, PATH_MAX - length, "%s%s", length ? "/" : "", path);
}

static int is_inside(const char *path)
{
    size_t length = strlen(control->tree);
    return !strncmp(path, control->tree, length) && (path[length] == '/' || !path[length]);
}

/* Whether the call is to be looked at: one about the file `fd`, or about one or two paths. */
static int is_watched(struct call *call, int dirfd, const char *path, int other_dirfd, const char *other)
{
    if (!control || !control->armed)
        return 0;
    memset(call, 0, offsetof(struct call, path));
    call->fd = path ? -1 : dirfd;
    call->other[0] = 0;
    resolve(dirfd, path, call->path);
    if (other)
        resolve(other_dirfd, other, call->other);
    return is_inside(call->path) || is_inside(call->other);
}

/* -- before a call, and after it */

static void die(void)
{
    __atomic_store_n(&control->frozen, 1, __ATOMIC_SEQ_CST); /* from here on nobody changes anything */
    kill(control->leader, SIGKILL);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* 0 to go on with the call, -1 when it is to fail with the errno that is set. */
static int begin(struct call *call, const char *op, unsigned kind)
{
    int saved = errno, changes = !(kind & (READ | OPEN));
    call->op = op;
    while (changes && __atomic_load_n(&control->frozen, __ATOMIC_SEQ_CST))
        pause();
    if (control->kinds & kind) {
        uint64_t step = __atomic_add_fetch(&control->steps, 1, __ATOMIC_SEQ_CST);
        if (control->action != COUNT && step >= control->first && step <= control->last) {
            if (!__atomic_fetch_add(&control->fired, 1, __ATOMIC_SEQ_CST))
                snprintf(control->what, sizeof control->what, "%s %.240s %.240s",
                         op, call->path, call->other);
            if (control->action == FAIL) {
                errno = control->error;
                return -1;
            }
            if (control->action == KILL)
                die();
            call->shortened = 1;
        }
    }
    if (control->recording && changes) {
        while (__atomic_exchange_n(&control->lock, 1, __ATOMIC_SEQ_CST))
            sched_yield();
        call->locked = 1;
    }
    errno = saved;
    return 0;
}

/* With a single write, so that what others append to the log comes before it or after it. */
static void write_record(const struct call *call)
{
    struct stat status = {0};
    struct record record = {.number = call->number, .data_size = call->size};
    strncpy(record.op, call->op, sizeof record.op);
    if (call->fd >= 0 ? !fstat(call->fd, &status) : !lstat(call->path, &status))
        record.inode = status.st_ino;
    record.path_size = strlen(call->path);
    record.other_size = strlen(call->other);
    size_t size = sizeof record + record.path_size + record.other_size + record.data_size, left = call->size;
    char *buffer = malloc(size), *end = buffer;
    end = mempcpy(end, &record, sizeof record);
    end = mempcpy(end, call->path, record.path_size);
    end = mempcpy(end, call->other, record.other_size);
    for (int i = 0; i < call->count && left; i++) {
        size_t part = call->data[i].iov_len < left ? call->data[i].iov_len : left;
        end = mempcpy(end, call->data[i].iov_base, part);
        left -= part;
    }
    if (REAL(write)(log_fd, buffer, size) != (ssize_t)size)
        abort();
    free(buffer);
}

static long end(struct call *call, long result)
{
    int saved = errno;
    if (call->shortened && control->action == KILL_HALFWAY)
        die();
    if (call->locked) {
        if (result >= 0)
            write_record(call);
        __atomic_store_n(&control->lock, 0, __ATOMIC_SEQ_CST);
    }
    errno = saved;
    return result;
}

#define FILE_ITSELF NULL

/* -- opening */

static int do_open(int dirfd, const char *path, int flags, mode_t mode)
{
    struct call call;
    struct stat status;
    if (!is_watched(&call, dirfd, path, -1, NULL))
        return REAL(openat)(dirfd, path, flags, mode);
    int creates = (flags & O_TRUNC) || ((flags & O_CREAT) && lstat(call.path, &status));
    if (begin(&call, "open", creates ? CREATE : OPEN))
        return -1;
    call.number = flags;
    return end(&call, call.fd = REAL(openat)(dirfd, path, flags, mode));
}

#define WITH_MODE(dirfd) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list list; \
        va_start(list, flags); \
        mode = va_arg(list, mode_t); \
        va_end(list); \
    } \
    return do_open(dirfd, path, flags, mode)

int open(const char *path, int flags, ...) { WITH_MODE(AT_FDCWD); }
int open64(const char *path, int flags, ...) { WITH_MODE(AT_FDCWD); }
int openat(int dirfd, const char *path, int flags, ...) { WITH_MODE(dirfd); }
int openat64(int dirfd, const char *path, int flags, ...) { WITH_MODE(dirfd); }
int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* -- reading and writing; at the file's own position when `offset` is -1 */

static ssize_t transfer(struct call *call, const struct iovec *data, int count, off_t offset, int flags,
                        int writes)
{
    struct iovec part[IOV_MAX];
    size_t size = 0, taken = 0;
    if (count > IOV_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (begin(call, writes ? "write" : "read", writes ? WRITE : READ))
        return -1;
    for (int i = 0; i < count; i++)
        size += data[i].iov_len;
    if (call->shortened && size > 1)
        size /= 2;
    for (call->count = 0; call->count < count && taken < size; taken += part[call->count++].iov_len) {
        part[call->count] = data[call->count];
        if (part[call->count].iov_len > size - taken)
            part[call->count].iov_len = size - taken;
    }
    call->data = part;
    ssize_t done = writes ? REAL(pwritev2)(call->fd, part, call->count, offset, flags)
                          : REAL(preadv2)(call->fd, part, call->count, offset, flags);
    call->size = done < 0 ? 0 : done;
    call->number = offset < 0 && done >= 0 ? lseek(call->fd, 0, SEEK_CUR) - done : offset;
    return end(call, done);
}

#define PLAIN(name, buffer, offset, writes, ...) \
    struct call call; \
    struct iovec data = {(void *)(buffer), size}; \
    if (!is_watched(&call, fd, FILE_ITSELF, -1, NULL)) \
        return REAL(name)(fd, buffer, size __VA_ARGS__); \
    return transfer(&call, &data, 1, offset, 0, writes)
#define VECTOR(name, offset, flags, writes, ...) \
    struct call call; \
    if (!is_watched(&call, fd, FILE_ITSELF, -1, NULL)) \
        return REAL(name)(fd, data, count __VA_ARGS__); \
    return transfer(&call, data, count, offset, flags, writes)
#define IO const struct iovec *data, int count

ssize_t read(int fd, void *to, size_t size) { PLAIN(read, to, -1, 0, ); }
ssize_t write(int fd, const void *from, size_t size) { PLAIN(write, from, -1, 1, ); }
ssize_t pread(int fd, void *to, size_t size, off_t at) { PLAIN(pread, to, at, 0, , at); }
ssize_t pread64(int fd, void *to, size_t size, off_t at) { PLAIN(pread, to, at, 0, , at); }
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { PLAIN(pwrite, from, at, 1, , at); }
ssize_t pwrite64(int fd, const void *from, size_t size, off_t at) { PLAIN(pwrite, from, at, 1, , at); }
ssize_t readv(int fd, IO) { VECTOR(readv, -1, 0, 0, ); }
ssize_t writev(int fd, IO) { VECTOR(writev, -1, 0, 1, ); }
ssize_t preadv(int fd, IO, off_t at) { VECTOR(preadv, at, 0, 0, , at); }
ssize_t preadv64(int fd, IO, off_t at) { VECTOR(preadv, at, 0, 0, , at); }
ssize_t pwritev(int fd, IO, off_t at) { VECTOR(pwritev, at, 0, 1, , at); }
ssize_t pwritev64(int fd, IO, off_t at) { VECTOR(pwritev, at, 0, 1, , at); }
ssize_t preadv2(int fd, IO, off_t at, int flags) { VECTOR(preadv2, at, flags, 0, , at, flags); }
ssize_t preadv64v2(int fd, IO, off_t at, int flags) { VECTOR(preadv2, at, flags, 0, , at, flags); }
ssize_t pwritev2(int fd, IO, off_t at, int flags) { VECTOR(pwritev2, at, flags, 1, , at, flags); }
ssize_t pwritev64v2(int fd, IO, off_t at, int flags) { VECTOR(pwritev2, at, flags, 1, , at, flags); }

#define COPY(name, parameters, arguments, code) \
    ssize_t name parameters \
    { \
        struct call call; \
        if (!is_watched(&call, out, FILE_ITSELF, -1, NULL)) \
            return REAL(name) arguments; \
        errno = code; /* all callers can do without copies in the kernel */ \
        return -1; \
    }

COPY(sendfile, (int out, int in, off_t *at, size_t size), (out, in, at, size), ENOTSOCK)
COPY(sendfile64, (int out, int in, off_t *at, size_t size), (out, in, at, size), ENOTSOCK)
COPY(copy_file_range, (int in, off64_t *at, int out, off64_t *to, size_t size, unsigned flags),
     (in, at, out, to, size, flags), EXDEV)

/* -- names, sizes, syncs and attributes: one or two paths, or a file */

#define CHANGE(name, op, kind, value, parameters, arguments, ...) \
    int name parameters \
    { \
        struct call call; \
        if (!is_watched(&call, __VA_ARGS__)) \
            return REAL(name) arguments; \
        call.number = value; \
        return begin(&call, op, kind) ? -1 : end(&call, REAL(name) arguments); \
    }
#define XATTR(name, op, value, length, parameters, arguments, ...) \
    int name parameters \
    { \
        struct call call; \
        if (!is_watched(&call, __VA_ARGS__)) \
            return REAL(name) arguments; \
        struct iovec data[] = {{(void *)key, strlen(key)}, {(void *)(value), length}}; \
        call.data = data; \
        call.count = 2; \
        call.number = strlen(key); \
        call.size = call.number + (length); \
        return begin(&call, op, ATTR) ? -1 : end(&call, REAL(name) arguments); \
    }
#define PATH AT_FDCWD, path, -1, NULL
#define PATH_AT dir, path, -1, NULL
#define FD fd, FILE_ITSELF, -1, NULL

CHANGE(rename, "rename", RENAME, 0, (const char *from, const char *to), (from, to),
       AT_FDCWD, from, AT_FDCWD, to)
CHANGE(renameat, "rename", RENAME, 0, (int dir, const char *from, int to_dir, const char *to),
       (dir, from, to_dir, to), dir, from, to_dir, to)
CHANGE(renameat2, "rename", RENAME, flags,
       (int dir, const char *from, int to_dir, const char *to, unsigned flags),
       (dir, from, to_dir, to, flags), dir, from, to_dir, to)
CHANGE(link, "link", NAME, 0, (const char *from, const char *to), (from, to), AT_FDCWD, from, AT_FDCWD, to)
CHANGE(linkat, "link", NAME, 0, (int dir, const char *from, int to_dir, const char *to, int flags),
       (dir, from, to_dir, to, flags), dir, from, to_dir, to)
CHANGE(unlink, "unlink", NAME, 0, (const char *path), (path), PATH)
CHANGE(unlinkat, flags & AT_REMOVEDIR ? "rmdir" : "unlink", NAME, 0, (int dir, const char *path, int flags),
       (dir, path, flags), PATH_AT)
CHANGE(rmdir, "rmdir", NAME, 0, (const char *path), (path), PATH)
CHANGE(mkdir, "mkdir", NAME, 0, (const char *path, mode_t mode), (path, mode), PATH)
CHANGE(mkdirat, "mkdir", NAME, 0, (int dir, const char *path, mode_t mode), (dir, path, mode), PATH_AT)

CHANGE(truncate, "size", SIZE, size, (const char *path, off_t size), (path, size), PATH)
CHANGE(truncate64, "size", SIZE, size, (const char *path, off_t size), (path, size), PATH)
CHANGE(ftruncate, "size", SIZE, size, (int fd, off_t size), (fd, size), FD)
CHANGE(ftruncate64, "size", SIZE, size, (int fd, off_t size), (fd, size), FD)

CHANGE(fsync, "sync", SYNC, 0, (int fd), (fd), FD)
CHANGE(fdatasync, "datasync", SYNC, 0, (int fd), (fd), FD)
CHANGE(syncfs, "syncfs", SYNC, 0, (int fd), (fd), FD)
void sync(void)
{
    int fd = control ? REAL(open)(control->tree, O_RDONLY | O_CLOEXEC) : -1;
    REAL(sync)();
    if (fd >= 0) {
        syncfs(fd);
        close(fd);
    }
}

#define SET const char *key, const void *value, size_t size, int flags
XATTR(setxattr, "setattr", value, size, (const char *path, SET), (path, key, value, size, flags), PATH)
XATTR(lsetxattr, "setattr", value, size, (const char *path, SET), (path, key, value, size, flags), PATH)
XATTR(fsetxattr, "setattr", value, size, (int fd, SET), (fd, key, value, size, flags), FD)
XATTR(removexattr, "rmattr", "", 0, (const char *path, const char *key), (path, key), PATH)
XATTR(lremovexattr, "rmattr", "", 0, (const char *path, const char *key), (path, key), PATH)
XATTR(fremovexattr, "rmattr", "", 0, (int fd, const char *key), (fd, key), FD)

CHANGE(chmod, "chmod", ATTR, mode, (const char *path, mode_t mode), (path, mode), PATH)
CHANGE(fchmod, "chmod", ATTR, mode, (int fd, mode_t mode), (fd, mode), FD)
CHANGE(fchmodat, "chmod", ATTR, mode, (int dir, const char *path, mode_t mode, int flags),
       (dir, path, mode, flags), PATH_AT)
CHANGE(chown, "chown", ATTR, 0, (const char *path, uid_t uid, gid_t gid), (path, uid, gid), PATH)
CHANGE(lchown, "chown", ATTR, 0, (const char *path, uid_t uid, gid_t gid), (path, uid, gid), PATH)
CHANGE(fchown, "chown", ATTR, 0, (int fd, uid_t uid, gid_t gid), (fd, uid, gid), FD)
CHANGE(fchownat, "chown", ATTR, 0, (int dir, const char *path, uid_t uid, gid_t gid, int flags),
       (dir, path, uid, gid, flags), PATH_AT)
CHANGE(utimensat, "utime", ATTR, 0, (int dir, const char *path, const struct timespec times[2], int flags),
       (dir, path, times, flags), PATH_AT)
CHANGE(futimens, "utime", ATTR, 0, (int fd, const struct timespec times[2]), (fd, times), FD)
CHANGE(utime, "utime", ATTR, 0, (const char *path, const struct utimbuf *times), (path, times), PATH)
