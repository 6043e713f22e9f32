/*
 * Lode: files on persistent memory, in this process.
 *
 * Made from the library's definitions: do not edit. docs/c-library.md tells how to use it.
 *
 * A pool is opened as a file is, and has POSIX's calls for what is in it. They make no system call
 * while they read, write and look: they load from the memory that the pool lies on, and store to it.
 * When a call returns, what it did is durable, and a call that a crash cuts off happened wholly or
 * not at all.
 *
 * Calls return 0, a count or a handle, or -1 or NULL with errno set as POSIX has it; then
 * lode_last_error() tells more. What can be checked of the arguments is: a NULL handle, and flags
 * that don't exist, fail with EINVAL, other pointers that can't be right with EFAULT. A call that
 * runs into an error of the library's own fails with EIO, and the pool is left as after a crash.
 *
 * All calls may be made from many threads at a time, with the same pools, files, maps, logs and snapshots. A lode_dir,
 * lode_entries and lode_snapshots are for one thread at a time. A handle must not be closed while another thread uses it. After
 * fork(), the child must not use any of them, nor the memory of maps.
 *
 * The first pool takes the handler of SIGBUS, and where a protection key guards it that of SIGSEGV; else that one is taken
 * with the first snapshot while a file is mapped to be stored to (those of logs and kept heaps are), or the first
 * lode_map_stage(). Install your own before, and they get what is not the library's; who replaces the library's later has
 * to call them. Threads that make calls, or store to maps, must not block SIGSEGV, and handlers of signals make no calls.
 */


#ifndef LODE_H
#define LODE_H

#include <stddef.h>
#include <stdint.h>

/* Handles: what they lead to is the library's. */
typedef struct lode_pool lode_pool;
typedef struct lode_file lode_file;
typedef struct lode_dir lode_dir;
typedef struct lode_map lode_map;
typedef struct lode_log lode_log;
typedef struct lode_entries lode_entries;
typedef struct lode_snapshot lode_snapshot;
typedef struct lode_snapshots lode_snapshots;
typedef struct lode_heap lode_heap;
typedef struct lode_kept lode_kept;


// The first number of the version that this header is of.
#define LODE_VERSION_MAJOR 0

// The second number.
#define LODE_VERSION_MINOR 1

// The third number.
#define LODE_VERSION_PATCH 0

// Change nothing in the pool, not even by recovery. Many may have it open so at a time.
#define LODE_POOL_READ_ONLY 1

// Overwrite file data in place: faster, but a crash can leave a part of an overwrite.
#define LODE_POOL_RELAXED 2

// lode_pool_create() replaces what is there.
#define LODE_POOL_OVERWRITE 4

// New files belong to `uid` and `gid`. Without it, to the process (effective user and group).
#define LODE_POOL_OWNER 8

// New files do not get the permissions in `umask`. Without it, those in the process's umask, as it
// is when the pool is opened.
#define LODE_POOL_UMASK 16

// Reads move an access time that is not later than the last change, or is a day old.
#define LODE_ATIME_RELATIVE 0

// Reads move access times.
#define LODE_ATIME_ALWAYS 1

// Reads do not move access times.
#define LODE_ATIME_NEVER 2

// Guard the pool against stray stores of this process as well as the machine can.
#define LODE_WINDOWS_BEST 0

// By a memory protection key.
#define LODE_WINDOWS_KEY 1

// By mprotect(): slow, to find errors.
#define LODE_WINDOWS_MPROTECT 2

// Not at all.
#define LODE_WINDOWS_NONE 3

// What was made durable is gone when the pool is closed.
#define LODE_DURABLE_NONE 0

// It survives the process, not the system.
#define LODE_DURABLE_PROCESS 1

// It survives a crash of the system, not a power failure.
#define LODE_DURABLE_SYSTEM 2

// It survives a power failure.
#define LODE_DURABLE_POWER 3

// It had been closed: there was nothing to recover.
#define LODE_OPENING_CLEAN 1

// Damage was found that takes nothing away. In a pool that is open to be changed it is repaired.
#define LODE_OPENING_REPAIRED 2

// O_RDONLY.
#define LODE_O_RDONLY 0

// O_WRONLY.
#define LODE_O_WRONLY 1

// O_RDWR.
#define LODE_O_RDWR 2

// O_CREAT.
#define LODE_O_CREAT 64

// O_EXCL.
#define LODE_O_EXCL 128

// O_TRUNC.
#define LODE_O_TRUNC 512

// O_APPEND.
#define LODE_O_APPEND 1024

// O_DIRECTORY.
#define LODE_O_DIRECTORY 65536

// O_NOFOLLOW.
#define LODE_O_NOFOLLOW 131072

// O_NOATIME.
#define LODE_O_NOATIME 262144

// O_TMPFILE.
#define LODE_O_TMPFILE 4259840

// SEEK_SET.
#define LODE_SEEK_SET 0

// SEEK_CUR.
#define LODE_SEEK_CUR 1

// SEEK_END.
#define LODE_SEEK_END 2

// SEEK_DATA.
#define LODE_SEEK_DATA 3

// SEEK_HOLE.
#define LODE_SEEK_HOLE 4

// The size stays: FALLOC_FL_KEEP_SIZE.
#define LODE_FALLOC_KEEP_SIZE 1

// The bytes become a hole: FALLOC_FL_PUNCH_HOLE. Only with LODE_FALLOC_KEEP_SIZE.
#define LODE_FALLOC_PUNCH_HOLE 2

// The bytes become zeros: FALLOC_FL_ZERO_RANGE.
#define LODE_FALLOC_ZERO_RANGE 16

// It can be stored to.
#define LODE_MAP_WRITE 1

// All pages are mapped at once: no later access waits for the system.
#define LODE_MAP_POPULATE 2

// Staged pages hold what the file's do.
#define LODE_STAGE_COPIED 0

// Staged pages hold zeros: for who stores all of them.
#define LODE_STAGE_ZEROED 1

// The root of a kept heap: a place to name a block in, as a word of a block is.
#define LODE_KEPT_ROOT 64

// The block holds zeros when it is named.
#define LODE_KEPT_ZEROED 1

// Fail with EEXIST where something has the new name: RENAME_NOREPLACE.
#define LODE_RENAME_NOREPLACE 1

// Exchange the two: RENAME_EXCHANGE.
#define LODE_RENAME_EXCHANGE 2

// In `nsec`: the time is now. UTIME_NOW.
#define LODE_UTIME_NOW 1073741823

// In `nsec`: the time stays. UTIME_OMIT.
#define LODE_UTIME_OMIT 1073741822

// Of a symbolic link itself: AT_SYMLINK_NOFOLLOW.
#define LODE_NOFOLLOW 256

// The owner or group stays.
#define LODE_KEEP_ID 4294967295

// Fail with EEXIST where there is one of this name: XATTR_CREATE.
#define LODE_XATTR_CREATE 1

// Fail with ENODATA where there is none of this name: XATTR_REPLACE.
#define LODE_XATTR_REPLACE 2

// A directory that is listed.
struct lode_dir;

// Entries of a log that are being read. They keep the pool open.
struct lode_entries;

// An open file, or directory. It keeps its contents, named or not, and the pool open.
struct lode_file;

// Main memory that a pool's owner lends.
struct lode_heap;

// A heap in a file of a pool, whose blocks outlive the program. It keeps the pool open.
struct lode_kept;

// A log in a file of a pool. It keeps the pool open.
struct lode_log;

// Bytes of a file as memory. It keeps the file's contents, and the pool, open.
struct lode_map;

// An open pool.
struct lode_pool;

// A snapshot, to look into it. It keeps the pool open.
struct lode_snapshot;

// The snapshots of a pool, to be listed.
struct lode_snapshots;

// How to open a pool. Set `size` to sizeof (struct lode_pool_options), and the rest to zero but for
// what you want: `struct lode_pool_options options = { .size = sizeof options };`
struct lode_pool_options {
    // sizeof (struct lode_pool_options): later versions of it are longer.
    size_t size;
    // LODE_POOL_... flags.
    uint64_t flags;
    // Owner of new files, with LODE_POOL_OWNER.
    uint32_t uid;
    // Their group.
    uint32_t gid;
    // What new files do not get, with LODE_POOL_UMASK.
    uint32_t umask;
    // LODE_ATIME_...: when reads move access times.
    uint32_t access_times;
    // Bytes of the pages that files made from now on take: 4096, 2 MiB or 1 GiB; 0 for the pool's own.
    uint64_t page_size;
    // LODE_WINDOWS_...: what guards the pool.
    uint32_t windows;
    // How many CPUs to count on; 0 for those that the process may run on.
    uint32_t cpus;
    // How stores reach the memory, in the words of `lode mount --help`; NULL for the best that is safe.
    const char *flush;
    // Bytes of main memory that the indexes may take; 0 for an eighth of the machine's,
    // UINT64_MAX for no limit. What is in use stays, and may take more.
    uint64_t index_memory;
};

// How to make a pool. Set `size`, and the rest to zero but for what you want.
struct lode_format_options {
    // sizeof (struct lode_format_options): later versions of it are longer.
    size_t size;
    // How many threads can commit at a time, at most: 1 to 256; 0 for the default.
    uint32_t lanes;
    // Permissions of the root directory; 0 for 0755.
    uint32_t root_mode;
    // Bytes of the pages that files take by default: 4096, 2 MiB or 1 GiB; 0 for 4096.
    uint64_t page_size;
    // Label, at most 64 bytes of UTF-8; NULL for none.
    const char *label;
    // 16 bytes of a UUID; NULL for a random one.
    const uint8_t *uuid;
};

// Space and inodes of a pool.
struct lode_statfs {
    // Bytes of a block.
    uint64_t bsize;
    // Blocks of the pool.
    uint64_t blocks;
    // Blocks that hold nothing.
    uint64_t bfree;
    // Blocks that can be had: the others are kept so that a full pool can be emptied.
    uint64_t bavail;
    // Inodes, used and free.
    uint64_t files;
    // Inodes that could still be made.
    uint64_t ffree;
    // Bytes of the longest name.
    uint64_t namemax;
    // LODE_POOL_READ_ONLY where changes are refused, asked for or since the medium failed; LODE_POOL_RELAXED
    // where overwrites may be torn.
    uint64_t flags;
    // Zeros, for later versions.
    uint64_t reserved[8];
};

// What the opening of a pool found.
struct lode_opening {
    // LODE_OPENING_...
    uint64_t flags;
    // Inodes that there were.
    uint64_t inodes;
    // Calls that had been cut off, and did not happen.
    uint64_t aborted;
    // Files without a name that were open: they are gone.
    uint64_t orphans;
    // Places that are damaged and can't be read: only a pool that is opened read-only has any.
    uint64_t damaged;
    // Zeros, for later versions.
    uint64_t reserved[8];
};

// Some bytes of a map.
struct lode_range {
    // Where they begin, from the beginning of the map.
    int64_t offset;
    // How many.
    uint64_t size;
};

// Some bytes, to be appended as an entry.
struct lode_data {
    // Where they are.
    const void *data;
    // How many.
    size_t size;
};

// An entry of a log. Later versions may have more fields at its end.
struct lode_entry {
    // Where it is: positions grow with each entry.
    int64_t position;
    // Its bytes.
    const void *data;
    // How many.
    size_t size;
};

// A word of a kept heap, and what it becomes.
struct lode_kept_word {
    // Where it is: LODE_KEPT_ROOT, or an aligned word of a block.
    int64_t place;
    // What it becomes: the offset of a block, or any number.
    uint64_t value;
};

// Figures of a kept heap, in bytes. All blocks are counted for it.
struct lode_kept_stats {
    // Of the file, in use.
    uint64_t bytes;
    // How many blocks there are.
    uint64_t blocks;
    // Of blocks.
    uint64_t used;
    // Of pages without a block.
    uint64_t free;
};

// A time since 1970.
struct lode_timespec {
    // Seconds.
    int64_t sec;
    // Nanoseconds of the second.
    int64_t nsec;
};

// What is known of a file, directory or symbolic link.
struct lode_stat {
    // A number for the pool.
    uint64_t dev;
    // Number of the inode.
    uint64_t ino;
    // Differs between the lives of one inode number.
    uint64_t generation;
    // Names that it has.
    uint64_t nlink;
    // Type and permissions: S_ISDIR(mode) and so on.
    uint32_t mode;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Zero.
    uint32_t reserved0;
    // Number of the device that it stands for.
    uint64_t rdev;
    // Size in bytes.
    uint64_t size;
    // Bytes that are best read and written at a time.
    uint64_t blksize;
    // Blocks of 512 bytes that its data takes.
    uint64_t blocks;
    // When it was read last, as far as that is kept.
    struct lode_timespec atim;
    // When its contents changed last.
    struct lode_timespec mtim;
    // When it changed last.
    struct lode_timespec ctim;
    // When it was made.
    struct lode_timespec btim;
    // Zeros, for later versions.
    uint64_t reserved[8];
};

// An entry of a directory. Later versions may have more fields at its end.
struct lode_dirent {
    // Number of the inode.
    uint64_t ino;
    // What kind of file it is, as in lode_stat: S_ISDIR(entry->mode), for example. It has no permissions.
    uint32_t mode;
    // Bytes of the name.
    uint32_t length;
    // The name, with a NUL at its end.
    const char *name;
};

// A snapshot, and what is kept for it. Later versions may have more fields at its end.
struct lode_snapshot_info {
    // The name, with a NUL at its end.
    const char *name;
    // Bytes of the name.
    uint32_t length;
    // The epoch that it ended: those of later snapshots are higher.
    uint32_t epoch;
    // When it was made.
    struct lode_timespec created;
    // Bytes that are kept for it and for older ones: free when all these are deleted.
    uint64_t bytes;
    // Bytes of these that it alone sees: free when it is deleted.
    uint64_t bytes_alone;
};

// Figures of a process's memory, in bytes.
struct lode_heap_stats {
    // Lent by the pool's owner now.
    uint64_t held;
    // Of these, in use by nobody.
    uint64_t idle;
    // In use, from the pool.
    uint64_t pool;
    // In use, from DRAM: while there is no owner.
    uint64_t dram;
    // Lent since the process began.
    uint64_t lent;
    // Given back since then.
    uint64_t returned;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library that the program runs with, as "0.1.0".
const char *lode_version(void);

// What went wrong when a call of this thread failed last, as a sentence without an end: with the paths
// it was about, and for a damaged pool what is damaged, which `errno` can't say. Empty if none
// has failed. It is valid until this thread's next call that fails.
const char *lode_last_error(void);

// Opens the pool in a file or device of the system, and recovers it if it was not closed.
// `options` may be NULL: read-write.
//
// Returns NULL with errno EBUSY where somebody else has it open, this process or another; EINVAL
// for what is no pool; EIO for one that is damaged (`lode fsck` tells more).
struct lode_pool *lode_pool_open(const char *file, const struct lode_pool_options *options);

// Makes a pool of `bytes` bytes in a file or device of the system, and opens it. What is there is
// replaced only with LODE_POOL_OVERWRITE, and when the new pool is finished. (A device is always
// there; all of it is taken for 0 bytes.) `options` and `format` may be NULL.
//
// Returns NULL with errno EEXIST, ENOSPC, EINVAL for what can't become a pool, and as
// lode_pool_open().
struct lode_pool *lode_pool_create(const char *file,
                                   uint64_t bytes,
                                   const struct lode_pool_options *options,
                                   const struct lode_format_options *format);

// Makes a pool of `bytes` bytes in memory that is nobody else's, and gone when it is closed: for
// tests, and for what need not be kept. `options` may be NULL.
struct lode_pool *lode_pool_in_memory(uint64_t bytes, const struct lode_pool_options *options);

// Closes a pool: its next opening has nothing to recover. `pool` can't be used any more, whatever
// is returned.
//
// Fails with EBUSY where files, directories, maps, logs, entries of logs, kept heaps or snapshots are open: they can be
// used on, and the pool is closed with the last of them. Whatever the error, nothing that a call had done is lost.
int lode_pool_close(struct lode_pool *pool);

// Nothing to do: what has returned is durable. Fails with EIO if the pool is not all right any more.
int lode_pool_sync(struct lode_pool *pool);

// Space and inodes, as statvfs(3).
int lode_statfs(struct lode_pool *pool, struct lode_statfs *buffer);

// What survives what, once a call has returned: LODE_DURABLE_...
int lode_pool_durability(struct lode_pool *pool);

// What the opening of a pool found.
int lode_pool_opening(struct lode_pool *pool, struct lode_opening *buffer);

// Opens a file of a pool as open(2) does. Paths begin at the pool's root, whether or not they begin with
// a slash. `mode` is for a file that is made (less the umask), and counts for nothing else.
//
// The flags are those of <fcntl.h>, or LODE_O_... if you don't have it; those that ask for what is so anyway
// (O_SYNC, O_CLOEXEC, O_NONBLOCK, ...) are let through, unknown ones refused (EINVAL). With O_TMPFILE `name` is a
// directory, and the file has no name until lode_flink() gives it one; with O_EXCL, too, it never gets one (ENOENT).
//
// Returns NULL with errno as open(2); ENXIO for devices, FIFOs and sockets.
struct lode_file *lode_open(struct lode_pool *pool,
                            const char *name,
                            int flags,
                            uint32_t mode);

// Closes a file. `file` can't be used any more, whatever is returned.
int lode_close(struct lode_file *file);

// Reads up to `size` bytes at the file's position, which moves, as read(2). Returns how many: fewer only at the
// end of the file, 0 there.
int64_t lode_read(struct lode_file *file,
                  void *buffer,
                  size_t size);

// The same at `at`, and the position stays, as pread(2). It makes no system call.
int64_t lode_pread(struct lode_file *file, void *buffer, size_t size, int64_t at);

// Writes `size` bytes at the file's position, which moves, as write(2): in one atomic and durable step, whatever
// their number. Where there is not room for all, their beginning is written so. Returns how many.
int64_t lode_write(struct lode_file *file,
                   const void *data,
                   size_t size);

// The same at `at`, and the position stays, as pwrite(2). (At the end of a file that was opened with
// O_APPEND: so does Linux.) It makes no system call. The times of a file that several threads overwrite again and
// again may be some milliseconds older than its last write.
int64_t lode_pwrite(struct lode_file *file,
                    const void *data,
                    size_t size,
                    int64_t at);

// Writes all `size` bytes at the end of the file in one atomic and durable step, or nothing. Returns the
// offset they are at. Appends of many threads never overlap.
int64_t lode_append(struct lode_file *file,
                    const void *data,
                    size_t size);

// Moves the file's position, as lseek(2): LODE_SEEK_SET, _CUR, _END, _DATA or _HOLE, which are those of
// <unistd.h>. Returns it.
int64_t lode_lseek(struct lode_file *file,
                   int64_t at,
                   int whence);

// Nothing to do: what has returned is durable. Fails with EIO if the pool is not all right any more.
int lode_fsync(struct lode_file *file);

// Cuts a file, or lets it grow by a hole, as ftruncate(2).
int lode_ftruncate(struct lode_file *file, int64_t size);

// Backs `size` bytes at `at` with memory, so that writing them later needs no space; or, with LODE_FALLOC_...
// flags, makes them a hole or zeros; as Linux's fallocate(2). Other flags fail with EOPNOTSUPP.
int lode_fallocate(struct lode_file *file,
                   int flags,
                   int64_t at,
                   int64_t size);

// Maps `size` bytes of a file at `at`, a multiple of 4096, as memory of this process: the file's own pages, no copy.
// Holes are backed with memory first. `flags` are LODE_MAP_...; to be stored to, the file has to be open for
// reading and writing. The address is aligned as `at` is, to 2 MiB for maps of that length, to 1 GiB for
// maps of that length. The map stays when the file is closed, or removed.
//
// Snapshots can be made meanwhile: the first store to each page after that costs a fault and a copy, and is a SIGSEGV where there
// is no space for it. A system call that stores to such a page fails with EFAULT until the program has stored there.
//
// Stores by lode_map_address() are in the file at once, and durable when lode_map_persist() of them has
// returned; of others a crash leaves some, each aligned word wholly. While a file is mapped, writing it
// changes its pages in place: durable when it returns, but a crash may leave a part. Bad memory below is a SIGBUS, and
// EIO of lode_map_load(). At protection level full, what a map to store to shows is without checksums until the last map
// of the file ends, or the pool is opened after a crash.
//
// Returns NULL with errno EBADF, EINVAL for a range that is empty, begins inside a page or ends behind the
// file's last one, EOPNOTSUPP for a pool in memory, EIO at level full for what is damaged, EROFS, ENOSPC, ENOMEM.
struct lode_map *lode_mmap(struct lode_file *file,
                           int64_t at,
                           uint64_t size,
                           int flags);

// Ends a map: nothing may use its memory any more, nor `map`, whatever is returned. What is staged and was not
// committed is forgotten.
int lode_munmap(struct lode_map *map);

// Where a map is, for as long as it is there. Without LODE_MAP_WRITE a store there is a SIGSEGV.
void *lode_map_address(struct lode_map *map);

// Bytes in a map.
int64_t lode_map_length(struct lode_map *map);

// What survives what, once lode_map_persist() has returned: LODE_DURABLE_...
int lode_map_durability(struct lode_map *map);

// Loads `size` bytes at `at`: as by the address, but fails with EFAULT outside the map, and with EIO for bad memory.
int lode_map_load(struct lode_map *map,
                  int64_t at,
                  void *buffer,
                  size_t size);

// Stores `size` bytes at `at`, through the caches: as by the address, but fails with EFAULT outside the map,
// and where it can't be stored to.
int lode_map_store(struct lode_map *map,
                   int64_t at,
                   const void *data,
                   size_t size);

// The same past the caches: the fastest way for what is not read soon. It is durable after lode_map_fence()
// of it by the same thread.
int lode_map_stream(struct lode_map *map,
                    int64_t at,
                    const void *data,
                    size_t size);

// Makes `size` bytes at `at` durable, whoever stored them: writes back the lines they are in, and fences. It makes no
// system call, but in an ordinary file. Fails with EFAULT outside the map; with EIO where the system could not write it, and
// from then on always: the pool has to be opened again.
int lode_map_persist(struct lode_map *map,
                     int64_t at,
                     uint64_t size);

// Starts to write back the lines that `size` bytes at `at` are in: lode_map_fence() by the same thread completes that,
// for many of them at once.
int lode_map_write_back(struct lode_map *map,
                        int64_t at,
                        uint64_t size);

// Completes what this thread has streamed to, and written back of, `size` bytes at `at`: then they are durable.
int lode_map_fence(struct lode_map *map,
                   int64_t at,
                   uint64_t size);

// Puts pages of the map's own in the place of `size` bytes at `at`, whole pages (or up to the end of the map): what
// is stored there from now on is seen in this map alone, until lode_map_commit() makes it the file's. A crash, or the end of
// the map, forgets it. `how` is LODE_STAGE_COPIED or LODE_STAGE_ZEROED.
//
// Fails with EBADF for a map without LODE_MAP_WRITE, EINVAL for a range that is not of whole pages of the map, or staged in part
// already, or where the file has another map; with ENOSPC, ENOMEM. What was staged before stays so.
int lode_map_stage(struct lode_map *map,
                   int64_t at,
                   uint64_t size,
                   int how);

// Makes what was stored to `count` staged ranges the file's, all of them in one atomic and durable step, without a
// copy. What other threads have streamed there they have fenced. From then on these pages are the file's own.
//
// Fails with EBADF for a map without LODE_MAP_WRITE, EINVAL where a page of a range is not staged, and nothing has changed; with
// ENOSPC, EIO.
int lode_map_commit(struct lode_map *map,
                    const struct lode_range *ranges,
                    size_t count);

// Forgets all that is staged and was not committed: the map shows the file again. Where the file has given up its pages since
// (it is truncated, punched), what was staged stays in the map, and belongs to nobody.
//
// Fails with ENOMEM: some of it is still staged, and can be discarded again.
int lode_map_discard(struct lode_map *map);

// Opens the log in a file of a pool, or makes it, with room for `capacity` bytes: each entry takes its own and 16, up to the next
// multiple of 64. It grows when they are full. Finding its end reads all entries: it ends before the first that is not whole, as
// a crash leaves the last one, and so does damage; what is appended then takes the place of those behind.
//
// Returns NULL with errno as lode_open() and lode_mmap() of the file; EINVAL for a file that holds something else, EBUSY while the
// log is open already, by whatever name; EFBIG for more than a file can have.
struct lode_log *lode_log_open(struct lode_pool *pool,
                               const char *name,
                               uint64_t capacity);

// Closes a log. `log` can't be used any more, whatever is returned; entries that are being read can.
int lode_log_close(struct lode_log *log);

// Appends an entry of `size` bytes, durable when this returns; a crash leaves it wholly or not at all. Returns its position.
// It makes no system call, unless the log grows, or the pool is in an ordinary file.
//
// Fails with EMSGSIZE for 4 GiB and more; with ENOSPC or ENOMEM where the log has to grow, and nothing is appended.
int64_t lode_log_append(struct lode_log *log,
                        const void *data,
                        size_t size);

// Appends `count` entries under one fence, durable when this returns; a crash before leaves the first of them, any
// number. Returns the position of the first.
int64_t lode_log_append_all(struct lode_log *log,
                            const struct lode_data *entries,
                            size_t count);

// Where the next entry will be.
int64_t lode_log_position(struct lode_log *log);

// Empties a log, in one atomic and durable step; its space stays taken. Entries that are being read end.
int lode_log_clear(struct lode_log *log);

// Begins to read the entries from `position` on, as many as there are now: 0 for the first, or one that lode_log_append() has
// returned. Returns NULL with errno EINVAL where no entry can begin; where none does, lode_entries_next() fails with EIO.
struct lode_entries *lode_log_read(struct lode_log *log,
                                   int64_t position);

// The next entry, in the order of their appending. It is valid until the next call with these `entries`, of which one thread
// at a time makes use.
//
// Returns NULL at the end, with errno 0, and where it fails, with another: EIO for an entry that is damaged, behind which nothing is read.
const struct lode_entry *lode_entries_next(struct lode_entries *entries);

// Ends reading. `entries` can't be used any more, whatever is returned.
int lode_entries_close(struct lode_entries *entries);

// Opens the heap in a file of a pool, or makes it, in one atomic step. What a crash has cut off is done or undone by that.
//
// A block has an offset, which stays its name, and an address, which is another one at each opening: what is stored in blocks are
// offsets. An address is good until the heap is closed. Calls may come from any thread; those that change the heap take turns.
//
// Returns NULL with errno as lode_open() and lode_mmap() of the file; EBUSY while it is open already, EINVAL for a file that holds something
// else, EIO for a heap that is damaged or cut short, which lode_last_error() tells.
struct lode_kept *lode_kept_open(struct lode_pool *pool,
                                 const char *name);

// Opens the heap in the file at `name` of a pool that another process has open, a mount or "lode heap serve", whose control socket is at
// `socket`; or makes it, in one step. `name` is of names from the pool's root on, or the mount's where that is a directory of it, with no link among
// them, and UTF-8. All else is as for a heap of lode_kept_open().
//
// When the owner of the pool is gone, by whatever end, each call fails with ENOTCONN, and what is stored by an address reaches the pool no more: the heap is
// to be closed, and opened again. While it is open the pool is not rolled back, and no snapshot is made.
//
// Returns NULL with errno as lode_kept_open(), EBUSY while anybody has it open; those of connecting; ELOOP for a link, EPROTO from who is no owner of a pool.
struct lode_kept *lode_kept_attach(const char *socket,
                                   const char *name);

// Closes a heap. `kept` and addresses of its blocks can't be used any more, whatever is returned.
int lode_kept_close(struct lode_kept *kept);

// Allocates a block of `size` bytes at least and names it in the word at `place`: LODE_KEPT_ROOT, or an aligned word of a block. Both,
// durably when this returns; after a crash, both or neither. What the word held is overwritten. `flags` are LODE_KEPT_...; without
// LODE_KEPT_ZEROED the block holds anything. Returns its offset, a multiple of 16; of 4096 for more than 2016 bytes.
//
// Fails with EFAULT for what is no place, EFBIG, and where the heap has to grow with ENOSPC or ENOMEM: nothing has changed then. After EIO
// it may be done or not, and the heap has to be opened again.
int64_t lode_kept_alloc_into(struct lode_kept *kept,
                             int64_t place,
                             uint64_t size,
                             int flags);

// The same for a block that holds `size` bytes from `data` when it is named.
int64_t lode_kept_copy_into(struct lode_kept *kept, int64_t place, const void *data, size_t size);

// Frees the block that the word at `place` names, which is 0 then: both, or neither. Returns the offset that it had.
//
// Fails with EFAULT for what is no place, EINVAL where it names no block, EIO.
int64_t lode_kept_free_from(struct lode_kept *kept,
                            int64_t place);

// Changes up to 15 words in one atomic step, durable when this returns: so blocks are moved from one place to another, or a list is
// linked at both ends.
//
// Fails with EFAULT for what is no place, EINVAL for a root that is no block, EFBIG for more words, EIO.
int lode_kept_change(struct lode_kept *kept,
                     const struct lode_kept_word *words,
                     size_t count);

// The word at `place`: the offset of the block that it names, as a rule. 0 is none; -1 with an errno if it fails, with EFAULT outside of the heap.
int64_t lode_kept_named(struct lode_kept *kept,
                        int64_t place);

// Bytes that may be used of the block at an offset; EINVAL where none begins.
int64_t lode_kept_usable_size(struct lode_kept *kept, int64_t block);

// The first block that begins behind an offset: from 0 on, all of them in turn. 0 behind the last one.
int64_t lode_kept_next(struct lode_kept *kept,
                       int64_t at);

// Where the byte at an offset is, until the heap is closed. The bytes of a block are one behind the other; those of two blocks may be apart. NULL
// with errno EFAULT outside of the heap.
void *lode_kept_address(struct lode_kept *kept,
                        int64_t at);

// The offset of what is at an address; EFAULT where that is not in the heap.
int64_t lode_kept_offset(struct lode_kept *kept, const void *address);

// Makes `size` bytes of a block durable, whoever stored them. Of stores by addresses for which this has not returned a crash leaves some,
// each aligned word wholly. (It has to be this call: a change of the heap that was of the same words would come again after a crash otherwise.)
int lode_kept_persist(struct lode_kept *kept,
                      const void *address,
                      size_t size);

// Figures of now.
int lode_kept_get_stats(struct lode_kept *kept, struct lode_kept_stats *stats);

// Stores what is known of what a path leads to, as stat(2).
int lode_stat(struct lode_pool *pool, const char *name, struct lode_stat *buffer);

// The same; of a symbolic link itself, as lstat(2).
int lode_lstat(struct lode_pool *pool, const char *name, struct lode_stat *buffer);

// The same of an open file, as fstat(2).
int lode_fstat(struct lode_file *file, struct lode_stat *buffer);

// Makes a directory with permissions `mode`, less the umask, as mkdir(2).
int lode_mkdir(struct lode_pool *pool, const char *name, uint32_t mode);

// Removes an empty directory, as rmdir(2).
int lode_rmdir(struct lode_pool *pool, const char *name);

// Removes a name that is not a directory's (EISDIR), as unlink(2).
int lode_unlink(struct lode_pool *pool, const char *name);

// Gives what `from` names the name `to`, in place of what is there, in one atomic step, as Linux's renameat2(2):
// `flags` is 0, LODE_RENAME_NOREPLACE or LODE_RENAME_EXCHANGE.
int lode_rename(struct lode_pool *pool,
                const char *from,
                const char *to,
                unsigned int flags);

// Gives a file the further name `name`, as link(2); of a symbolic link, the link itself.
int lode_link(struct lode_pool *pool, const char *original, const char *name);

// Gives an open file a name: so a file of O_TMPFILE gets its first, with all that was written, in one atomic
// step. ENOENT for a file whose last name was removed.
int lode_flink(struct lode_file *file,
               const char *name);

// Makes a symbolic link at `name` to `target`, which need not be there, as symlink(2).
int lode_symlink(struct lode_pool *pool, const char *target, const char *name);

// Stores the target of a symbolic link, as much of it as `size` bytes hold, without a NUL at its end, as readlink(2).
// Returns how many bytes these are.
int64_t lode_readlink(struct lode_pool *pool,
                      const char *name,
                      char *buffer,
                      size_t size);

// Opens a directory to list it, as opendir(3).
struct lode_dir *lode_opendir(struct lode_pool *pool, const char *name);

// The next entry of a directory, in no stated order, without "." and "..", as readdir(3). It is valid until the next call
// with this `dir`, of which one thread at a time makes use.
//
// Returns NULL at the end, with errno 0, and where it fails, with another.
const struct lode_dirent *lode_readdir(struct lode_dir *dir);

// Ends a listing. `dir` can't be used any more, whatever is returned.
int lode_closedir(struct lode_dir *dir);

// Sets permissions, with the set-id and sticky bits, as chmod(2).
int lode_chmod(struct lode_pool *pool, const char *name, uint32_t mode);

// The same of an open file, as fchmod(2).
int lode_fchmod(struct lode_file *file, uint32_t mode);

// Sets owner and group, but for LODE_KEEP_ID ((uid_t) -1), as chown(2). A file loses its set-id bits.
int lode_chown(struct lode_pool *pool,
               const char *name,
               uint32_t uid,
               uint32_t gid);

// The same; of a symbolic link itself, as lchown(2).
int lode_lchown(struct lode_pool *pool, const char *name, uint32_t uid, uint32_t gid);

// The same of an open file, as fchown(2).
int lode_fchown(struct lode_file *file, uint32_t uid, uint32_t gid);

// Sets the times of the last reading, `times[0]`, and of the last change of contents, `times[1]`, as utimensat(2):
// `nsec` may be LODE_UTIME_NOW or LODE_UTIME_OMIT, and `times` NULL: both now. `flags` is 0 or LODE_NOFOLLOW.
int lode_utimens(struct lode_pool *pool,
                 const char *name,
                 const struct lode_timespec *times,
                 int flags);

// The same of an open file, as futimens(3).
int lode_futimens(struct lode_file *file, const struct lode_timespec *times);

// Stores the value of an extended attribute, as getxattr(2). Returns its length; stores nothing if `size` is 0; fails with
// ERANGE if it is too small, with ENODATA if there is no such attribute.
int64_t lode_getxattr(struct lode_pool *pool,
                      const char *name,
                      const char *attribute,
                      void *value,
                      size_t size);

// The same of an open file, as fgetxattr(2).
int64_t lode_fgetxattr(struct lode_file *file, const char *attribute, void *value, size_t size);

// Sets an extended attribute, as setxattr(2): `flags` is 0, LODE_XATTR_CREATE or LODE_XATTR_REPLACE.
int lode_setxattr(struct lode_pool *pool,
                  const char *name,
                  const char *attribute,
                  const void *value,
                  size_t size,
                  int flags);

// The same of an open file, as fsetxattr(2).
int lode_fsetxattr(struct lode_file *file,
                   const char *attribute,
                   const void *value,
                   size_t size,
                   int flags);

// Stores the names of all extended attributes, a NUL behind each, as listxattr(2). Returns their length; stores nothing if
// `size` is 0; fails with ERANGE if it is too small.
int64_t lode_listxattr(struct lode_pool *pool,
                       const char *name,
                       char *list,
                       size_t size);

// The same of an open file, as flistxattr(2).
int64_t lode_flistxattr(struct lode_file *file, char *list, size_t size);

// Removes an extended attribute, as removexattr(2).
int lode_removexattr(struct lode_pool *pool, const char *name, const char *attribute);

// The same of an open file, as fremovexattr(2).
int lode_fremovexattr(struct lode_file *file, const char *attribute);

// Keeps what is in a pool now, under a name of 1 to 128 bytes without a slash. It takes a moment, and a page or two:
// what is changed or removed from then on is kept for it. It can be made while files are mapped, and logs and kept heaps
// are open: of what is stored there it has what was stored before.
//
// Fails with EEXIST for a name that there is; ENOMEM where the system can't keep stores out of a map; EINVAL and
// ENAMETOOLONG for names that can't be; ENOSPC and EROFS.
int lode_snapshot_create(struct lode_pool *pool,
                         const char *name);

// Deletes a snapshot (ENOENT if there is none of this name). What it alone kept becomes free in the background, or when it
// is needed. Calls with a file of it that is open fail with ESTALE.
int lode_snapshot_delete(struct lode_pool *pool,
                         const char *name);

// Makes the pool in a file or device of the system, which nobody has open, what it was when a snapshot was made, in one
// atomic step. What came later is lost; later snapshots go as well. Of `options`, which may be
// NULL, the flush strategy and the windows count.
//
// Fails with ENOENT if there is no such snapshot, with EIO where something of it is lost (then nothing has changed), with EBUSY and so
// on as lode_pool_open().
int lode_snapshot_rollback(const char *file,
                           const char *name,
                           const struct lode_pool_options *options);

// Begins a list of a pool's snapshots, as they are now.
struct lode_snapshots *lode_snapshots_open(struct lode_pool *pool);

// The next snapshot of a list, the oldest first. It is valid until the next call with this `list`, of which one thread at
// a time makes use. Returns NULL at the end, with errno 0, and where it fails, with another.
const struct lode_snapshot_info *lode_snapshots_next(struct lode_snapshots *list);

// Ends a list. `list` can't be used any more, whatever is returned.
int lode_snapshots_close(struct lode_snapshots *list);

// A snapshot, to look into it: paths lead to what they led to when it was made. ENOENT if there is none of this
// name; once it is deleted, calls with it fail with ENOENT.
struct lode_snapshot *lode_snapshot_open(struct lode_pool *pool,
                                         const char *name);

// Ends looking into a snapshot, which stays; files and directories of it that are open stay open. `snapshot` can't be used
// any more, whatever is returned.
int lode_snapshot_close(struct lode_snapshot *snapshot);

// Opens a file of a snapshot to read it, as lode_open() with LODE_O_RDONLY.
struct lode_file *lode_snapshot_open_file(struct lode_snapshot *snapshot, const char *name);

// Opens a directory of a snapshot to list it, for lode_readdir() and lode_closedir().
struct lode_dir *lode_snapshot_opendir(struct lode_snapshot *snapshot, const char *name);

// As lode_stat(), in a snapshot.
int lode_snapshot_stat(struct lode_snapshot *snapshot, const char *name, struct lode_stat *buffer);

// As lode_lstat(), in a snapshot.
int lode_snapshot_lstat(struct lode_snapshot *snapshot, const char *name, struct lode_stat *buffer);

// As lode_readlink(), in a snapshot.
int64_t lode_snapshot_readlink(struct lode_snapshot *snapshot,
                               const char *name,
                               char *buffer,
                               size_t size);

// Memory of the pool whose owner (a mount, or `lode heap serve`) has its control socket at `socket`; NULL is what
// LODE_HEAP_SOCKET says. `method` is "direct", "indirect" or "mmap"; NULL is the first. A process has memory of one owner: EBUSY for
// another one, ENOENT where none answers. NULL if it fails.
//
// Memory of a heap may be used by a child of fork(), which gets its own copy.
struct lode_heap *lode_heap_open(const char *socket,
                                 const char *method);

// A block of `size` bytes at a multiple of `alignment`, a power of two, or 0; NULL with ENOMEM where the owner lends no more. Any
// thread may free it.
void *lode_heap_alloc(struct lode_heap *heap,
                      size_t size,
                      size_t alignment);

// Makes a block larger or smaller, as realloc(3): one of 8 MiB or more is moved by its pages. NULL leaves it as it was.
void *lode_heap_realloc(struct lode_heap *heap,
                        void *block,
                        size_t size);

// Takes a block back; NULL is none.
int lode_heap_free(struct lode_heap *heap, void *block);

// Gives back to the owner what nobody uses; returns its bytes.
int64_t lode_heap_purge(struct lode_heap *heap);

// Figures of now.
int lode_heap_stats(struct lode_heap *heap, struct lode_heap_stats *stats);

// Closes a heap, and gives back what nobody uses. Its blocks stay.
int lode_heap_close(struct lode_heap *heap);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LODE_H */
