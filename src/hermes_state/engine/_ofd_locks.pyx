# cython: language_level=3
"""Open-file-description locks for APSW's copy of SQLite (Linux).

POSIX locks belong to the process: when another copy of SQLite in it closes a
descriptor of the file, the locks of this copy are gone. Locks of an open file
description belong to the descriptor. This module is an SQLite extension as
well as a Python one: loaded once into APSW's SQLite, it gets that copy's VFS
and puts itself in the place of its ``open``, ``fcntl`` and ``close`` system calls.

What it changes is limited to what is safe, and to the files that ``watch`` was told of with the
WAL index beside each, so that other databases that this process has open through APSW go on as they did:

* the WAL index (bytes 120 to 128 of the -shm file), which a process locks
  through one descriptor only;
* the main file while its header says WAL: there a connection keeps its SHARED
  lock until it closes. In DELETE mode SQLite locks by one descriptor and
  unlocks by another, which would leak.

A descriptor is unlocked as it was locked: its kind is noted at its first lock
and forgotten when the whole file is unlocked or the descriptor closed.

Closing a descriptor drops the POSIX locks that *others* in this process have on
the file: a stdlib connection that outlives the last store would be open without a
lock. So where anybody else here has the file open, a descriptor is not closed but
kept, without a lock, for the next connection to it, until nobody else has it open.

Sources: fcntl_locking(2) of Linux; the lock bytes of SQLite's file format and
of its WAL-index format; sqlite3_vfs and the order of the function table that
an extension is given, which SQLite keeps stable.
"""

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <dirent.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdarg.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/resource.h>
    #include <sys/stat.h>
    #include <unistd.h>

    #define HS_API_VFS_FIND 141
    #define HS_OK_LOAD_PERMANENTLY 256
    #define HS_ERROR 1
    #define HS_FDS 65536
    #define HS_SHM_FIRST 120
    #define HS_SHM_LAST 128
    #define HS_PENDING_BYTE 0x40000000
    #define HS_LOCK_BYTES 512

    #define HS_FILES 4096
    #define HS_KEPT 64
    #define HS_TRIED 1048576

    enum { HS_UNKNOWN = 0, HS_POSIX = 1, HS_OFD = 2 };
    enum { HS_NOT_OURS = 0, HS_MAIN = 1, HS_SHM = 2, HS_IS_KEPT = 3 };

    typedef void (*hs_syscall)(void);
    typedef struct hs_vfs hs_vfs;
    struct hs_vfs {
        int iVersion, szOsFile, mxPathname;
        void *pNext;
        const char *zName;
        void *pAppData;
        void *methods_of_versions_1_and_2[13];
        int (*xSetSystemCall)(hs_vfs *, const char *, hs_syscall);
        hs_syscall (*xGetSystemCall)(hs_vfs *, const char *);
    };

    static int (*hs_fcntl_before)(int, int, ...);
    static int (*hs_close_before)(int);
    static int (*hs_open_before)(const char *, int, int);
    static unsigned char hs_kind[HS_FDS];
    static unsigned char hs_ours[HS_FDS]; /* what APSW's SQLite opened on a watched file */
    static long long hs_ofd_locks;
    static int hs_installed;

    /* The files to lock that way, by device and inode; the newest take the place of the oldest. SQLite opens
       files without the GIL, so several threads may come here at once: each writes in a place of its own, and
       the inode last. */
    static struct { unsigned long long device, inode; } hs_files[HS_FILES];
    static unsigned int hs_next_file;

    static int hs_is_listed(unsigned long long device, unsigned long long inode) {
        unsigned int next = __atomic_load_n(&hs_next_file, __ATOMIC_ACQUIRE);
        unsigned int i, used = next < HS_FILES ? next : HS_FILES;
        for (i = 0; i < used; i++)
            if (__atomic_load_n(&hs_files[i].inode, __ATOMIC_ACQUIRE) == inode
                && hs_files[i].device == device) return 1;
        return 0;
    }

    static void hs_watch(unsigned long long device, unsigned long long inode) {
        unsigned int next, following;
        if (hs_is_listed(device, inode)) return;
        next = __atomic_load_n(&hs_next_file, __ATOMIC_RELAXED);
        do following = next + 1 < 2 * HS_FILES ? next + 1 : HS_FILES;
        while (!__atomic_compare_exchange_n(&hs_next_file, &next, following, 0,
                                            __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
        __atomic_store_n(&hs_files[next % HS_FILES].inode, 0, __ATOMIC_RELEASE);
        hs_files[next % HS_FILES].device = device;
        __atomic_store_n(&hs_files[next % HS_FILES].inode, inode, __ATOMIC_RELEASE);
    }

    static int hs_is_watched(int fd) {
        struct stat found;
        return !fstat(fd, &found)
            && hs_is_listed((unsigned long long)found.st_dev, (unsigned long long)found.st_ino);
    }

    /* How many open descriptors of the file are locked that way. */
    static int hs_descriptors(unsigned long long device, unsigned long long inode) {
        struct stat found;
        unsigned char *at = hs_kind;
        int count = 0;
        while ((at = memchr(at, HS_OFD, (size_t)(hs_kind + HS_FDS - at)))) {
            if (!fstat((int)(at - hs_kind), &found) && (unsigned long long)found.st_ino == inode
                && (unsigned long long)found.st_dev == device) count++;
            if (++at == hs_kind + HS_FDS) break;
        }
        return count;
    }

    /* Bytes 18 and 19 of an SQLite file are 2 while it is in WAL mode. */
    static int hs_is_wal_database(int fd) {
        char head[20];
        return pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head
            && memcmp(head, "SQLite format 3", 16) == 0 && head[18] == 2 && head[19] == 2;
    }

    /* Whether the header of the file says WAL, read by a descriptor that SQLite has open on it; 0 where it
       has none. Opening another would do harm: closing it drops the locks of the process. */
    static int hs_says_wal(unsigned long long device, unsigned long long inode) {
        struct stat found;
        unsigned char *at = hs_ours;
        while ((at = memchr(at, HS_MAIN, (size_t)(hs_ours + HS_FDS - at)))) {
            if (!fstat((int)(at - hs_ours), &found) && (unsigned long long)found.st_ino == inode
                && (unsigned long long)found.st_dev == device) return hs_is_wal_database((int)(at - hs_ours));
            if (++at == hs_ours + HS_FDS) break;
        }
        return 0;
    }

    /* Descriptors that are kept open without a lock; the oldest first. ``access`` is how each was opened,
       -1 for one that is not to be used again. */
    static struct hs_kept { int fd, role, access; dev_t device; ino_t inode; int wanted; } hs_kept[HS_KEPT];
    static int hs_kept_count;
    static pthread_mutex_t hs_keeping = PTHREAD_MUTEX_INITIALIZER;

    /* Whether the number is still that file's: a program may close descriptors that are not its own. */
    static int hs_is_still(int at) {
        struct stat now;
        return !fstat(hs_kept[at].fd, &now) && now.st_ino == hs_kept[at].inode
            && now.st_dev == hs_kept[at].device;
    }

    static void hs_before_fork(void) { pthread_mutex_lock(&hs_keeping); }

    static void hs_after_fork(void) { pthread_mutex_unlock(&hs_keeping); }

    /* A child has no POSIX locks yet that a close could drop, and shares each descriptor's locks with its
       parent: it closes what is kept, and gives up no lock by what it has inherited. */
    static void hs_after_fork_in_child(void) {
        while (hs_kept_count > 0)
            if (hs_is_still(--hs_kept_count)) hs_close_before(hs_kept[hs_kept_count].fd);
        memset(hs_ours, HS_NOT_OURS, sizeof hs_ours);
        pthread_mutex_unlock(&hs_keeping);
    }

    /* Whether this process has the file open by a descriptor that is not APSW's SQLite's; notes that at the kept
       ones of all files too. Without /proc, or a descriptor to look into it by, every number is tried. */
    static int hs_others_have(dev_t device, ino_t inode) {
        DIR *folder = opendir("/proc/self/fd");
        struct dirent *entry;
        struct stat found;
        struct rlimit limit;
        int i, fd = -1, have = 0, last = 0;
        for (i = 0; i < hs_kept_count; i++) hs_kept[i].wanted = 0;
        if (!folder)
            last = getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > HS_TRIED ? HS_TRIED : (int)limit.rlim_cur;
        for (;;) {
            if (folder) {
                if (!(entry = readdir(folder))) break;
                if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
                fd = atoi(entry->d_name);
            } else if (++fd >= last) break;
            if (fd < HS_FDS && hs_ours[fd] != HS_NOT_OURS) continue;
            if (fstat(fd, &found) || !S_ISREG(found.st_mode)) continue;
            have |= found.st_ino == inode && found.st_dev == device;
            for (i = 0; i < hs_kept_count; i++)
                hs_kept[i].wanted |= found.st_ino == hs_kept[i].inode && found.st_dev == hs_kept[i].device;
        }
        if (folder) closedir(folder);
        return have;
    }

    static void hs_forget_kept(int at) {
        hs_ours[hs_kept[at].fd] = HS_NOT_OURS;
        hs_kept_count--;
        memmove(hs_kept + at, hs_kept + at + 1, (size_t)(hs_kept_count - at) * sizeof *hs_kept);
    }

    static void hs_close_kept(int at) {
        int fd = hs_kept[at].fd, still = hs_is_still(at);
        hs_forget_kept(at);
        if (still) hs_close_before(fd);
    }

    static void hs_close_unwanted(void) {
        int i;
        for (i = hs_kept_count - 1; i >= 0; i--)
            if (!hs_kept[i].wanted) hs_close_kept(i);
    }

    /* Close the kept descriptors of files that nobody else here has open any more. */
    static void hs_sweep(void) {
        if (!__atomic_load_n(&hs_kept_count, __ATOMIC_ACQUIRE)) return;
        pthread_mutex_lock(&hs_keeping);
        hs_others_have(0, 0);
        hs_close_unwanted();
        pthread_mutex_unlock(&hs_keeping);
    }

    /* Keep the descriptor that is to be closed, where the close would drop somebody's locks; 1 if it is kept. */
    static int hs_keep(int fd, int role) {
        struct flock all;
        struct stat found;
        int keep;
        if (fstat(fd, &found) || found.st_nlink == 0) return 0;
        memset(&all, 0, sizeof all);
        all.l_type = F_WRLCK;
        all.l_whence = SEEK_SET;
        /* Nobody has a lock; this process has one; or somebody else's may hide one of this process. */
        keep = hs_fcntl_before(fd, F_OFD_GETLK, &all) ? -1
            : all.l_type == F_UNLCK ? 0 : all.l_pid == getpid() ? 1 : -1;
        if (keep == 0) return 0;
        pthread_mutex_lock(&hs_keeping);
        if (keep < 0) {
            keep = hs_others_have(found.st_dev, found.st_ino);
            hs_close_unwanted();
        }
        if (keep) {
            memset(&all, 0, sizeof all);
            all.l_type = F_UNLCK;
            all.l_whence = SEEK_SET;
            keep = !hs_fcntl_before(fd, F_OFD_SETLK, &all);
        }
        if (keep) {
            if (hs_kept_count == HS_KEPT) hs_close_kept(0);
            memset(hs_kept + hs_kept_count, 0, sizeof *hs_kept);
            hs_kept[hs_kept_count].fd = fd;
            hs_kept[hs_kept_count].role = role;
            /* SQLite takes no descriptor below 3, and would be given it again and again. */
            hs_kept[hs_kept_count].access = fd < 3 ? -1 : fcntl(fd, F_GETFL) & O_ACCMODE;
            hs_kept[hs_kept_count].device = found.st_dev;
            hs_kept[hs_kept_count++].inode = found.st_ino;
            hs_kind[fd] = HS_UNKNOWN;
            hs_ours[fd] = HS_IS_KEPT;
        }
        pthread_mutex_unlock(&hs_keeping);
        return keep;
    }

    /* A kept descriptor of the file, opened for the same, or -1. */
    static int hs_kept_for(const char *path, int flags) {
        struct stat found;
        int i, role, fd = -1, wanted = flags & O_ACCMODE;
        if (!__atomic_load_n(&hs_kept_count, __ATOMIC_ACQUIRE) || (flags & (O_EXCL | O_TRUNC))) return -1;
        /* What is opened anew asks for the rights that the file has now. */
        if (lstat(path, &found) || faccessat(AT_FDCWD, path, wanted == O_RDONLY ? R_OK : R_OK | W_OK, AT_EACCESS))
            return -1;
        pthread_mutex_lock(&hs_keeping);
        for (i = hs_kept_count - 1; i >= 0 && fd < 0; i--)
            if (hs_kept[i].inode == found.st_ino && hs_kept[i].device == found.st_dev
                && hs_kept[i].access == wanted && hs_is_still(i)) {
                fd = hs_kept[i].fd;
                role = hs_kept[i].role;
                hs_forget_kept(i);
                hs_ours[fd] = (unsigned char)role;
            }
        pthread_mutex_unlock(&hs_keeping);
        return fd;
    }

    /* A WAL index belongs to the database beside it: the first to open one makes it, so that nobody can name
       it before. */
    static int hs_open(const char *path, int flags, int mode) {
        struct stat found;
        char main_file[4096];
        size_t length = path ? strlen(path) : 0;
        int is_shm = length > 4 && length - 4 < sizeof main_file && !strcmp(path + length - 4, "-shm");
        /* A new one may have the inode number of a watched file that is gone. */
        int is_log = length > 4 && (!strcmp(path + length - 4, "-wal")
                                    || (length > 8 && !strcmp(path + length - 8, "-journal")));
        int saved = errno, fd = path && !is_log ? hs_kept_for(path, flags) : -1;
        errno = saved;
        if (fd >= 0) return fd;
        fd = hs_open_before(path, flags, mode);
        if (fd < 0) return fd;
        saved = errno;
        if (is_shm && !hs_is_watched(fd)) {
            memcpy(main_file, path, length - 4);
            main_file[length - 4] = 0;
            if (!stat(main_file, &found)
                && hs_is_listed((unsigned long long)found.st_dev, (unsigned long long)found.st_ino)
                && !fstat(fd, &found))
                hs_watch((unsigned long long)found.st_dev, (unsigned long long)found.st_ino);
        }
        if (fd < HS_FDS)
            hs_ours[fd] = (unsigned char)(is_log || !hs_is_watched(fd) ? HS_NOT_OURS : is_shm ? HS_SHM : HS_MAIN);
        errno = saved;
        return fd;
    }

    static int hs_kind_of(int fd, const struct flock *lock) {
        if (lock->l_whence != SEEK_SET || lock->l_len <= 0 || !hs_is_watched(fd)) return HS_POSIX;
        if (lock->l_start >= HS_SHM_FIRST && lock->l_start + lock->l_len <= HS_SHM_LAST + 1) return HS_OFD;
        if (lock->l_start >= HS_PENDING_BYTE && lock->l_start + lock->l_len <= HS_PENDING_BYTE + HS_LOCK_BYTES)
            return hs_is_wal_database(fd) ? HS_OFD : HS_POSIX;
        return HS_POSIX;
    }

    /* SQLite unlocks a file by the descriptor of whichever connection is the last one. A POSIX unlock where
       it has no such lock would drop those of others in this process. */
    static int hs_kind_of_release(int fd) {
        struct stat own, found;
        unsigned char *at = hs_kind;
        if (hs_ours[fd] == HS_NOT_OURS || fstat(fd, &own)) return HS_POSIX;
        while ((at = memchr(at, HS_POSIX, (size_t)(hs_kind + HS_FDS - at)))) {
            if (!fstat((int)(at - hs_kind), &found) && found.st_ino == own.st_ino && found.st_dev == own.st_dev)
                return HS_POSIX;
            if (++at == hs_kind + HS_FDS) break;
        }
        return HS_OFD;
    }

    static int hs_locking(int fd, int cmd, struct flock *lock) {
        struct flock own = *lock;
        int saved, result, kind = HS_POSIX;
        int release = cmd == F_SETLK && lock->l_type == F_UNLCK;
        if (fd >= 0 && fd < HS_FDS) {
            kind = hs_kind[fd];
            if (kind == HS_UNKNOWN) kind = release ? hs_kind_of_release(fd) : hs_kind_of(fd, lock);
        }
        if (kind != HS_OFD) {
            result = hs_fcntl_before(fd, cmd, lock);
        } else {
            own.l_pid = 0;
            result = hs_fcntl_before(fd, cmd == F_SETLK ? F_OFD_SETLK : F_OFD_GETLK, &own);
            if (cmd == F_GETLK) *lock = own;
        }
        saved = errno;
        if (fd >= 0 && fd < HS_FDS && cmd == F_SETLK && result == 0) {
            if (!release) {
                hs_kind[fd] = (unsigned char)kind;
                if (kind == HS_OFD) __atomic_fetch_add(&hs_ofd_locks, 1, __ATOMIC_RELAXED);
            } else if (lock->l_start == 0 && lock->l_len == 0) {
                hs_kind[fd] = HS_UNKNOWN;
            }
        }
        errno = saved;
        return result;
    }

    static int hs_fcntl(int fd, int cmd, ...) {
        void *argument;
        va_list arguments;
        va_start(arguments, cmd);
        argument = va_arg(arguments, void *);
        va_end(arguments);
        if ((cmd == F_SETLK || cmd == F_GETLK) && argument) return hs_locking(fd, cmd, (struct flock *)argument);
        return hs_fcntl_before(fd, cmd, argument);
    }

    static int hs_close(int fd) {
        int saved = errno;
        if (fd >= 0 && fd < HS_FDS) {
            /* A POSIX lock of the WAL index is given up by its close; those of the main file are by then. */
            if ((hs_ours[fd] == HS_MAIN || (hs_ours[fd] == HS_SHM && hs_kind[fd] != HS_POSIX))
                && hs_keep(fd, hs_ours[fd])) {
                errno = saved;
                return 0;
            }
            hs_kind[fd] = HS_UNKNOWN;
            hs_ours[fd] = HS_NOT_OURS;
        }
        errno = saved;
        return hs_close_before(fd);
    }

    __attribute__((visibility("default")))
    int sqlite3_hermesofd_init(void *db, char **message, void **api) {
        hs_vfs *vfs;
        (void)db; (void)message;
        if (hs_installed) return HS_OK_LOAD_PERMANENTLY;
        vfs = ((hs_vfs *(*)(const char *))api[HS_API_VFS_FIND])("unix");
        if (!vfs || vfs->iVersion < 3 || !vfs->xGetSystemCall || !vfs->xSetSystemCall) return HS_ERROR;
        hs_fcntl_before = (int (*)(int, int, ...))vfs->xGetSystemCall(vfs, "fcntl");
        hs_close_before = (int (*)(int))vfs->xGetSystemCall(vfs, "close");
        hs_open_before = (int (*)(const char *, int, int))vfs->xGetSystemCall(vfs, "open");
        if (!hs_fcntl_before || !hs_close_before || !hs_open_before) return HS_ERROR;
        if (vfs->xSetSystemCall(vfs, "close", (hs_syscall)hs_close)) return HS_ERROR;
        if (vfs->xSetSystemCall(vfs, "open", (hs_syscall)hs_open)
            || vfs->xSetSystemCall(vfs, "fcntl", (hs_syscall)hs_fcntl)) {
            vfs->xSetSystemCall(vfs, "open", (hs_syscall)hs_open_before);
            vfs->xSetSystemCall(vfs, "close", (hs_syscall)hs_close_before);
            return HS_ERROR;
        }
        pthread_atfork(hs_before_fork, hs_after_fork, hs_after_fork_in_child);
        hs_installed = 1;
        return HS_OK_LOAD_PERMANENTLY;
    }
    """
    int hs_installed
    int hs_kept_count
    long long hs_ofd_locks
    void hs_sweep()
    void hs_watch(unsigned long long device, unsigned long long inode)
    int hs_descriptors(unsigned long long device, unsigned long long inode)
    int hs_says_wal(unsigned long long device, unsigned long long inode)
    int sqlite3_hermesofd_init(void *db, char **message, void **api)

ENTRY_POINT = "sqlite3_hermesofd_init"


def installed() -> bool:
    """True once APSW's SQLite takes its locks through this module."""
    return hs_installed != 0


def watch(device: int, inode: int) -> None:
    """Lock this file by open file description from its next lock on, and the -shm beside it."""
    hs_watch(device, inode)


def descriptors(device: int, inode: int) -> int:
    """How many open descriptors of this file are locked that way now."""
    return hs_descriptors(device, inode)


def says_wal(device: int, inode: int) -> bool:
    """Whether the header of a watched file that APSW has open says WAL; no lock is taken or dropped."""
    return hs_says_wal(device, inode) != 0


def kept() -> int:
    """How many descriptors are kept open without a lock, as closing them would drop locks of others here."""
    return hs_kept_count


def sweep() -> None:
    """Close the kept descriptors of files that nobody else in this process has open any more."""
    hs_sweep()


def locks_taken() -> int:
    """How many locks of open file descriptions were taken so far in this process."""
    return hs_ofd_locks


def _keep() -> bool:
    # So that no linker drops the entry point as unused.
    return &sqlite3_hermesofd_init != NULL
