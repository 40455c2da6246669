/* Makes one operation on files below a folder fail, or ends the process there:
   the library of operations_test.py.

   cc -shared -fPIC -O1 -o crashes.so crashes.c -ldl
   LD_PRELOAD=./crashes.so python ...

crashes_arm(folder, k, error, lasting, note) begins to count the operations of
this process below a folder, of all threads. The k-th fails with an error
number and is not done, and so are all later ones if `lasting`; if the error is
0, the process is killed before it. The name of the operation and its path go to
the file `note`. crashes_count() returns how many operations there were. Descriptors are looked up in /proc, so that it is the
same for every library that opened them.
*/

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char below[PATH_MAX], notes[PATH_MAX];
static size_t below_length;
static long failing;
static int number, is_lasting;
static atomic_int is_armed;
static atomic_long count;

void crashes_arm(const char *folder, long k, int error, int lasting,
                const char *note) {
  snprintf(below, sizeof below, "%s", folder);
  snprintf(notes, sizeof notes, "%s", note);
  below_length = strlen(below);
  failing = k;
  number = error;
  is_lasting = lasting;
  count = 0;
  is_armed = 1;
}

long crashes_count(void) { return count; }

/* Appends a line to the notes by system calls, which are not counted. */
static void take_note(const char *call, const char *path) {
  char line[PATH_MAX + 64];
  int length = snprintf(line, sizeof line, "%s %s\n", call, path);
  int file = syscall(SYS_openat, AT_FDCWD, notes,
                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file >= 0) {
    syscall(SYS_write, file, line, (size_t)length);
    syscall(SYS_close, file);
  }
}

/* Returns whether an operation on this absolute path must fail. */
static int fails(const char *call, const char *path) {
  if (strncmp(path, below, below_length) ||
      (path[below_length] && path[below_length] != '/'))
    return 0;
  long now = atomic_fetch_add(&count, 1) + 1;
  if (now != failing && !(is_lasting && failing && now > failing)) return 0;
  if (now == failing) take_note(call, path);
  if (!number) kill(getpid(), SIGKILL);
  errno = number;
  return 1;
}

static int named(char *path, int descriptor) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = 0;
  return length > 0;
}

static int fails_of(const char *call, int descriptor) {
  char path[PATH_MAX];
  int before = errno, found = is_armed && named(path, descriptor);
  errno = before;
  return found && fails(call, path);
}

static int fails_at(const char *call, int folder, const char *path) {
  char full[2 * PATH_MAX];
  if (!is_armed || !path) return 0;
  if (path[0] == '/') return fails(call, path);
  int before = errno;
  if (folder == AT_FDCWD) {
    if (syscall(SYS_getcwd, full, PATH_MAX) < 0) full[0] = 0;
  } else {
    named(full, folder);
  }
  errno = before;
  size_t length = strlen(full);
  snprintf(full + length, sizeof full - length, "/%s", path);
  return fails(call, full);
}

#define REAL(name, type, ...)                             \
  static type (*real)(__VA_ARGS__);                       \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define MODE                                              \
  mode_t mode = 0;                                        \
  if (flags & (O_CREAT | O_TMPFILE)) {                    \
    va_list list;                                         \
    va_start(list, flags);                                \
    mode = va_arg(list, mode_t);                          \
    va_end(list);                                         \
  }

#define OPEN(name)                                        \
  int name(const char *path, int flags, ...) {            \
    MODE                                                  \
    REAL(name, int, const char *, int, ...);              \
    if (fails_at("open", AT_FDCWD, path)) return -1;      \
    return real(path, flags, mode);                       \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                      \
  int name(int folder, const char *path, int flags, ...) { \
    MODE                                                  \
    REAL(name, int, int, const char *, int, ...);         \
    if (fails_at("open", folder, path)) return -1;        \
    return real(folder, path, flags, mode);               \
  }
OPENAT(openat)
OPENAT(openat64)

#define CREAT(name)                                       \
  int name(const char *path, mode_t mode) {               \
    REAL(name, int, const char *, mode_t);                \
    if (fails_at("open", AT_FDCWD, path)) return -1;      \
    return real(path, mode);                              \
  }
CREAT(creat)
CREAT(creat64)

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir, int, const char *, mode_t);
  return fails_at("mkdir", AT_FDCWD, path) ? -1 : real(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
  REAL(mkdirat, int, int, const char *, mode_t);
  return fails_at("mkdir", folder, path) ? -1 : real(folder, path, mode);
}

int unlink(const char *path) {
  REAL(unlink, int, const char *);
  return fails_at("unlink", AT_FDCWD, path) ? -1 : real(path);
}

int rmdir(const char *path) {
  REAL(rmdir, int, const char *);
  return fails_at("rmdir", AT_FDCWD, path) ? -1 : real(path);
}

int unlinkat(int folder, const char *path, int flags) {
  REAL(unlinkat, int, int, const char *, int);
  const char *call = flags & AT_REMOVEDIR ? "rmdir" : "unlink";
  return fails_at(call, folder, path) ? -1 : real(folder, path, flags);
}

int rename(const char *from, const char *to) {
  REAL(rename, int, const char *, const char *);
  return fails_at("rename", AT_FDCWD, to) ? -1 : real(from, to);
}

int renameat(int here, const char *from, int there, const char *to) {
  REAL(renameat, int, int, const char *, int, const char *);
  return fails_at("rename", there, to) ? -1 : real(here, from, there, to);
}

int renameat2(int here, const char *from, int there, const char *to,
              unsigned flags) {
  REAL(renameat2, int, int, const char *, int, const char *, unsigned);
  if (fails_at("rename", there, to)) return -1;
  return real(here, from, there, to, flags);
}

int link(const char *from, const char *to) {
  REAL(link, int, const char *, const char *);
  return fails_at("link", AT_FDCWD, to) ? -1 : real(from, to);
}

int linkat(int here, const char *from, int there, const char *to, int flags) {
  REAL(linkat, int, int, const char *, int, const char *, int);
  if (fails_at("link", there, to)) return -1;
  return real(here, from, there, to, flags);
}

int fsync(int file) {
  REAL(fsync, int, int);
  return fails_of("fsync", file) ? -1 : real(file);
}

int fdatasync(int file) {
  REAL(fdatasync, int, int);
  return fails_of("fsync", file) ? -1 : real(file);
}

#define TRUNCATE(name, offset)                            \
  int name(int file, offset length) {                     \
    REAL(name, int, int, offset);                         \
    return fails_of("ftruncate", file) ? -1 : real(file, length); \
  }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

ssize_t write(int file, const void *data, size_t size) {
  REAL(write, ssize_t, int, const void *, size_t);
  return fails_of("write", file) ? -1 : real(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int size) {
  REAL(writev, ssize_t, int, const struct iovec *, int);
  return fails_of("write", file) ? -1 : real(file, parts, size);
}

#define PWRITE(name, offset)                              \
  ssize_t name(int file, const void *data, size_t size, offset at) { \
    REAL(name, ssize_t, int, const void *, size_t, offset); \
    return fails_of("write", file) ? -1 : real(file, data, size, at); \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define FOPEN(name)                                       \
  FILE *name(const char *path, const char *mode) {        \
    REAL(name, FILE *, const char *, const char *);       \
    return fails_at("open", AT_FDCWD, path) ? NULL : real(path, mode); \
  }
FOPEN(fopen)
FOPEN(fopen64)

size_t fwrite(const void *data, size_t size, size_t items, FILE *file) {
  REAL(fwrite, size_t, const void *, size_t, size_t, FILE *);
  if (is_armed && fails_of("fwrite", fileno(file))) return 0;
  return real(data, size, items, file);
}

int fflush(FILE *file) {
  REAL(fflush, int, FILE *);
  if (is_armed && file && fails_of("fflush", fileno(file))) return EOF;
  return real(file);
}

/* Closes the file also where it fails, as the C library does. */
int fclose(FILE *file) {
  REAL(fclose, int, FILE *);
  int failed = is_armed && file && fails_of("fclose", fileno(file));
  int before = errno, result = real(file);
  if (!failed) return result;
  errno = before;
  return EOF;
}
