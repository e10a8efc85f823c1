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

Sources: fcntl_locking(2) of Linux; the lock bytes of SQLite's file format and
of its WAL-index format; sqlite3_vfs and the order of the function table that
an extension is given, which SQLite keeps stable.
"""

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <stdarg.h>
    #include <string.h>
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

    enum { HS_UNKNOWN = 0, HS_POSIX = 1, HS_OFD = 2 };

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
    static unsigned char hs_main[HS_FDS]; /* 1 for a descriptor that was opened on a watched file */
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
        unsigned char *at = hs_main;
        while ((at = memchr(at, 1, (size_t)(hs_main + HS_FDS - at)))) {
            if (!fstat((int)(at - hs_main), &found) && (unsigned long long)found.st_ino == inode
                && (unsigned long long)found.st_dev == device) return hs_is_wal_database((int)(at - hs_main));
            if (++at == hs_main + HS_FDS) break;
        }
        return 0;
    }

    /* A WAL index belongs to the database beside it: the first to open one makes it, so that nobody can name
       it before. */
    static int hs_open(const char *path, int flags, int mode) {
        struct stat found;
        char main_file[4096];
        size_t length = path ? strlen(path) : 0;
        int saved = errno, fd = hs_open_before(path, flags, mode);
        if (fd >= 0 && fd < HS_FDS) {
            hs_main[fd] = (unsigned char)hs_is_watched(fd);
            errno = saved;
        }
        if (fd < 0 || length <= 4 || length - 4 >= sizeof main_file) return fd;
        if (strcmp(path + length - 4, "-shm")) return fd;
        saved = errno;
        memcpy(main_file, path, length - 4);
        main_file[length - 4] = 0;
        if (!stat(main_file, &found)
            && hs_is_listed((unsigned long long)found.st_dev, (unsigned long long)found.st_ino)
            && !fstat(fd, &found)) hs_watch((unsigned long long)found.st_dev, (unsigned long long)found.st_ino);
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

    static int hs_locking(int fd, int cmd, struct flock *lock) {
        struct flock own = *lock;
        int saved, result, kind = HS_POSIX;
        int release = cmd == F_SETLK && lock->l_type == F_UNLCK;
        if (fd >= 0 && fd < HS_FDS) {
            kind = hs_kind[fd];
            if (kind == HS_UNKNOWN) kind = release ? HS_POSIX : hs_kind_of(fd, lock);
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
        if (fd >= 0 && fd < HS_FDS) hs_kind[fd] = hs_main[fd] = HS_UNKNOWN;
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
        hs_installed = 1;
        return HS_OK_LOAD_PERMANENTLY;
    }
    """
    int hs_installed
    long long hs_ofd_locks
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


def locks_taken() -> int:
    """How many locks of open file descriptions were taken so far in this process."""
    return hs_ofd_locks


def _keep() -> bool:
    # So that no linker drops the entry point as unused.
    return &sqlite3_hermesofd_init != NULL
