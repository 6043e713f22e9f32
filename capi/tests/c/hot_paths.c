/* What is called most makes no system call and allocates nothing: a thread that is not allowed any
 * system call does it, and this program's allocator counts. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static __thread int allocations;

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    allocations++;
    return __libc_realloc(old, size);
}

static lode_pool *pool;
static lode_file *file;
static lode_map *map;
static lode_log *journal;
static char buffer[4096];
static int done, allocated;

static int looking(void)
{
    struct lode_stat found;
    return lode_pread(file, buffer, sizeof buffer, 100) == sizeof buffer &&
           lode_lseek(file, 0, SEEK_SET) == 0 && lode_read(file, buffer, 512) == 512 &&
           lode_fstat(file, &found) == 0 && lode_stat(pool, "dir/file", &found) == 0 &&
           lode_fsync(file) == 0;
}

static int writing(void)
{
    lode_file *opened = lode_open(pool, "dir/file", O_RDWR, 0);
    return opened != NULL && lode_pwrite(opened, buffer, sizeof buffer, 0) == sizeof buffer &&
           lode_write(opened, buffer, 512) == 512 && lode_append(opened, buffer, 512) > 0 &&
           lode_ftruncate(opened, 8192) == 0 && lode_close(opened) == 0 &&
           lode_rename(pool, "dir/file", "dir/other", 0) == 0 &&
           lode_rename(pool, "dir/other", "dir/file", 0) == 0;
}

static int mapping(void)
{
    return lode_map_store(map, 10, buffer, 100) == 0 && lode_map_persist(map, 10, 100) == 0 &&
           lode_map_stream(map, 4096, buffer, 4096) == 0 && lode_map_fence(map, 4096, 4096) == 0 &&
           lode_map_write_back(map, 0, 8192) == 0 && lode_map_load(map, 5, buffer, 100) == 0 &&
           lode_map_address(map) != NULL && lode_map_length(map) == 8192 &&
           lode_log_append(journal, buffer, 100) > 0 && lode_log_position(journal) > 0;
}

/* From here on this thread may end, and nothing else: any other system call ends the process. */
static void forbid_system_calls(void)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof lines / sizeof lines[0], lines};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void *work(void *unused)
{
    (void)unused;
    /* Before: what is made at the first time is there, and the allocator has something in store. */
    for (int at = 0; at < 200; at++)
        CHECK(writing() && looking() && mapping());
    CHECK(allocations > 0);
    forbid_system_calls();
    int before = allocations;
    for (int at = 0; at < 100; at++)
        done += looking() && mapping();
    allocated = allocations - before;
    for (int at = 0; at < 100; at++)
        done += writing();
    syscall(SYS_exit, 0);
    return NULL;
}

/* What is mapped needs a pool in a file: this one is never written by system calls. */
static lode_pool *mappable_pool(const char *where)
{
    char path[4096];
    struct lode_pool_options options = {.size = sizeof options};
    options.flush = "sse2+clflush";
    snprintf(path, sizeof path, "%s/pool", where);
    lode_pool *made = lode_pool_create(path, 16 << 20, &options, NULL);
    CHECK(made != NULL);
    return made;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CHECK(argc == 2);
    lode_pool *mappable = mappable_pool(argv[1]);
    lode_file *mapped = lode_open(mappable, "file", LODE_O_RDWR | LODE_O_CREAT, 0644);
    GIVES(lode_ftruncate(mapped, 8192), 0);
    map = lode_mmap(mapped, 0, 8192, LODE_MAP_WRITE | LODE_MAP_POPULATE);
    journal = lode_log_open(mappable, "journal", 1 << 20);
    CHECK(map != NULL && journal != NULL);
    pool = scratch_pool();
    GIVES(lode_mkdir(pool, "dir", 0777), 0);
    file = lode_open(pool, "dir/file", LODE_O_RDWR | LODE_O_CREAT, 0644);
    CHECK(file != NULL);
    GIVES(lode_ftruncate(file, 8192), 0);
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
    GIVES(done, 200);
    GIVES(allocated, 0);
    GIVES(lode_close(file) + lode_close(mapped) + lode_munmap(map) + lode_log_close(journal), 0);
    GIVES(lode_pool_close(mappable), 0);
    return lode_pool_close(pool);
}
