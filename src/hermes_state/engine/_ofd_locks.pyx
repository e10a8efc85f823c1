# cython: language_level=3
"""Open-file-description locks for APSW's copy of SQLite (Linux).

POSIX locks belong to the process: when another copy of SQLite in it closes a
descriptor of the file, the locks of this copy are gone. Locks of an open file
description belong to the descriptor. This module is an SQLite extension as
well as a Python one: loaded once into APSW's SQLite, it gets that copy's VFS
and puts itself in the place of its ``fcntl`` and ``close`` system calls.

What it changes is limited to what is safe, and to the files that ``watch`` was told of, so that
other databases that this process has open through APSW go on as they did:

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
    static unsigned char hs_kind[HS_FDS];
    static long long hs_ofd_locks;
    static int hs_installed;

    /* The files to lock that way, by device and inode; the newest take the place of the oldest. */
    static struct { unsigned long long device, inode; } hs_files[HS_FILES];
    static int hs_next_file;

    static void hs_watch(unsigned long long device, unsigned long long inode) {
        int i, used = hs_next_file < HS_FILES ? hs_next_file : HS_FILES;
        for (i = 0; i < used; i++)
            if (hs_files[i].inode == inode && hs_files[i].device == device) return;
        hs_files[hs_next_file % HS_FILES].device = device;
        hs_files[hs_next_file % HS_FILES].inode = inode;
        hs_next_file = hs_next_file + 1 < 2 * HS_FILES ? hs_next_file + 1 : HS_FILES;
    }

    static int hs_is_watched(int fd) {
        struct stat found;
        int i, used = hs_next_file < HS_FILES ? hs_next_file : HS_FILES;
        if (fstat(fd, &found)) return 0;
        for (i = used - 1; i >= 0; i--)
            if (hs_files[i].inode == (unsigned long long)found.st_ino
                && hs_files[i].device == (unsigned long long)found.st_dev) return 1;
        return 0;
    }

    /* Bytes 18 and 19 of an SQLite file are 2 while it is in WAL mode. */
    static int hs_is_wal_database(int fd) {
        char head[20];
        return pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head
            && memcmp(head, "SQLite format 3", 16) == 0 && head[18] == 2 && head[19] == 2;
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
        if (fd >= 0 && fd < HS_FDS) hs_kind[fd] = HS_UNKNOWN;
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
        if (!hs_fcntl_before || !hs_close_before) return HS_ERROR;
        if (vfs->xSetSystemCall(vfs, "close", (hs_syscall)hs_close)) return HS_ERROR;
        if (vfs->xSetSystemCall(vfs, "fcntl", (hs_syscall)hs_fcntl)) {
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
    int sqlite3_hermesofd_init(void *db, char **message, void **api)

ENTRY_POINT = "sqlite3_hermesofd_init"


def installed() -> bool:
    """True once APSW's SQLite takes its locks through this module."""
    return hs_installed != 0


def watch(device: int, inode: int) -> None:
    """Lock this file by open file description from its next lock on; called with the GIL held."""
    hs_watch(device, inode)


def locks_taken() -> int:
    """How many locks of open file descriptions were taken so far in this process."""
    return hs_ofd_locks


def _keep() -> bool:
    # So that no linker drops the entry point as unused.
    return &sqlite3_hermesofd_init != NULL
