/* Files as memory: in place, durable by the line, staged and committed at once. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crashed.h"

enum { PAGE = 4096, HUGE = 2 << 20 };

static char path[4096];
static lode_pool *pool;
static lode_file *file;

/* Whether a file of a pool has these bytes at `at`. */
static int has(lode_pool *of, int64_t at, const char *bytes, size_t size)
{
    char buffer[64];
    lode_file *opened = lode_open(of, "file", O_RDONLY, 0);
    CHECK(opened != NULL && size <= sizeof buffer);
    GIVES(lode_pread(opened, buffer, size, at), size);
    GIVES(lode_close(opened), 0);
    return memcmp(buffer, bytes, size) == 0;
}

static int has_after_a_crash(int64_t at, const char *bytes, size_t size)
{
    lode_pool *now = crashed(path);
    int found = has(now, at, bytes, size);
    GIVES(lode_pool_close(now), 0);
    return found;
}

static void a_map_is_the_file(void)
{
    char seen[8];
    for (int populate = 0; populate <= LODE_MAP_POPULATE; populate += LODE_MAP_POPULATE) {
        lode_map *map = lode_mmap(file, 0, 8 * PAGE - 7, LODE_MAP_WRITE | populate);
        CHECK(map != NULL);
        GIVES(lode_map_length(map), 8 * PAGE - 7);
        char *memory = lode_map_address(map);
        CHECK(memory != NULL && (uintptr_t)memory % PAGE == 0);
        memcpy(memory + 4094, "across", 6);
        GIVES(lode_map_persist(map, 4094, 6), 0);
        GIVES(lode_map_store(map, 100, "store", 5), 0);
        GIVES(lode_map_write_back(map, 100, 5), 0);
        GIVES(lode_map_stream(map, 8 * PAGE - 10, "end", 3), 0);
        GIVES(lode_map_fence(map, 0, 8 * PAGE - 7), 0);
        CHECK(has(pool, 4094, "across", 6) && has(pool, 100, "store", 5));
        CHECK(has_after_a_crash(4094, "across", 6) && has_after_a_crash(100, "store", 5));
        CHECK(has_after_a_crash(8 * PAGE - 10, "end", 3));
        GIVES(lode_pwrite(file, "written", 7, 5), 7);
        CHECK(memcmp(memory + 5, "written", 7) == 0);
        GIVES(lode_map_load(map, 5, seen, 7), 0);
        CHECK(memcmp(seen, "written", 7) == 0);
        int class = lode_map_durability(map);
        CHECK(class > LODE_DURABLE_NONE && class <= LODE_DURABLE_POWER);
        GIVES(lode_pool_durability(pool), class);
        GIVES(lode_munmap(map), 0);
    }
    lode_map *part = lode_mmap(file, PAGE, 100, 0);
    CHECK(part != NULL && memcmp(lode_map_address(part), "ross", 4) == 0);
    GIVES(lode_munmap(part), 0);
}

static void what_is_outside_or_not_allowed_is_refused(void)
{
    char bytes[2] = "";
    NONE(lode_mmap(file, 0, 0, 0), EINVAL);
    NONE(lode_mmap(file, 1, 10, 0), EINVAL);
    NONE(lode_mmap(file, -PAGE, 10, 0), EINVAL);
    NONE(lode_mmap(file, 0, 8 * PAGE + 1, 0), EINVAL);
    NONE(lode_mmap(file, 0, UINT64_MAX, 0), EINVAL);
    NONE(lode_mmap(file, 0, PAGE, 4), EINVAL);
    lode_map *map = lode_mmap(file, 0, 5000, LODE_MAP_WRITE);
    CHECK(map != NULL);
    int64_t outside[] = {4999, 5000, INT64_MAX};
    for (int at = 0; at < 3; at++) {
        FAILS(lode_map_load(map, outside[at], bytes, 2), EFAULT);
        FAILS(lode_map_store(map, outside[at], bytes, 2), EFAULT);
        FAILS(lode_map_stream(map, outside[at], bytes, 2), EFAULT);
        FAILS(lode_map_persist(map, outside[at], 2), EFAULT);
        FAILS(lode_map_write_back(map, outside[at], 2), EFAULT);
        FAILS(lode_map_fence(map, outside[at], 2), EFAULT);
    }
    FAILS(lode_map_persist(map, 10, UINT64_MAX), EFAULT);
    FAILS(lode_map_load(map, -1, bytes, 1), EINVAL);
    FAILS(lode_map_persist(map, -1, 1), EINVAL);
    GIVES(lode_munmap(map), 0);

    lode_file *reader = lode_open(pool, "file", O_RDONLY, 0);
    lode_file *writer = lode_open(pool, "file", O_WRONLY, 0);
    /* The library's own opening of these can do more. */
    lode_file *maker = lode_open(pool, "file", O_RDONLY | O_CREAT, 0644);
    CHECK(reader != NULL && writer != NULL && maker != NULL);
    NONE(lode_mmap(reader, 0, 10, LODE_MAP_WRITE), EBADF);
    NONE(lode_mmap(maker, 0, 10, LODE_MAP_WRITE), EBADF);
    NONE(lode_mmap(writer, 0, 10, LODE_MAP_WRITE), EBADF);
    NONE(lode_mmap(writer, 0, 10, 0), EBADF);
    map = lode_mmap(reader, 0, 10, 0);
    CHECK(map != NULL);
    FAILS(lode_map_store(map, 0, "x", 1), EFAULT);
    GIVES(lode_munmap(map), 0);
    const struct lode_range whole = {0, PAGE};
    map = lode_mmap(maker, 0, PAGE, 0);
    CHECK(map != NULL);
    FAILS(lode_map_stage(map, 0, PAGE, LODE_STAGE_ZEROED), EBADF);
    FAILS(lode_map_commit(map, &whole, 1), EBADF);
    GIVES(lode_munmap(map), 0);
    GIVES(lode_close(reader) + lode_close(writer) + lode_close(maker), 0);

    lode_pool *memory = scratch_pool();
    put(memory, "file", "text");
    reader = lode_open(memory, "file", O_RDONLY, 0);
    NONE(lode_mmap(reader, 0, 4, 0), EOPNOTSUPP);
    GIVES(lode_close(reader), 0);
    GIVES(lode_pool_close(memory), 0);
}

static void staged_stores_become_the_files_at_once_or_never(void)
{
    struct lode_range ranges[] = {{3 * PAGE, 5 * PAGE}, {PAGE, PAGE}};
    struct lode_range wrong[] = {{PAGE, PAGE}, {10, 10}};
    struct lode_range far[] = {{PAGE, UINT64_MAX}};
    lode_map *map = lode_mmap(file, 0, 8 * PAGE, LODE_MAP_WRITE);
    CHECK(map != NULL);
    char *memory = lode_map_address(map);
    memset(memory, 'o', 8 * PAGE);
    GIVES(lode_map_persist(map, 0, 8 * PAGE), 0);
    FAILS(lode_map_stage(map, 10, 10, LODE_STAGE_COPIED), EINVAL);
    FAILS(lode_map_stage(map, 0, PAGE, 2), EINVAL);
    FAILS(lode_map_stage(map, -PAGE, PAGE, LODE_STAGE_COPIED), EINVAL);
    GIVES(lode_map_stage(map, PAGE, PAGE, LODE_STAGE_COPIED), 0);
    FAILS(lode_map_stage(map, PAGE, PAGE, LODE_STAGE_COPIED), EINVAL);
    GIVES(lode_map_stage(map, 3 * PAGE, 5 * PAGE, LODE_STAGE_ZEROED), 0);
    memcpy(memory + PAGE + 1, "one", 3);
    memcpy(memory + 4 * PAGE, "two", 3);
    CHECK(memcmp(memory + PAGE, "oone", 4) == 0 && memory[3 * PAGE] == '\0');
    CHECK(has(pool, PAGE, "oooo", 4) && has(pool, 4 * PAGE, "ooo", 3));
    CHECK(has_after_a_crash(PAGE, "oooo", 4));

    FAILS(lode_map_commit(map, wrong, 2), EINVAL);
    FAILS(lode_map_commit(map, far, 1), EINVAL);
    CHECK(has(pool, PAGE, "oooo", 4));
    GIVES(lode_map_commit(map, ranges, 2), 0);
    CHECK(has(pool, PAGE, "oone", 4) && has(pool, 4 * PAGE, "two\0", 4));
    CHECK(has_after_a_crash(PAGE, "oone", 4) && has_after_a_crash(4 * PAGE, "two\0", 4));
    /* In place again. */
    memcpy(memory + PAGE, "here", 4);
    CHECK(has(pool, PAGE, "here", 4));
    GIVES(lode_map_commit(map, NULL, 0), 0);

    GIVES(lode_map_stage(map, 0, 8 * PAGE, LODE_STAGE_ZEROED), 0);
    CHECK(memory[0] == '\0');
    GIVES(lode_map_discard(map), 0);
    CHECK(memory[0] == 'o' && memcmp(memory + PAGE, "here", 4) == 0);
    lode_map *second = lode_mmap(file, 0, 10, 0);
    CHECK(second != NULL);
    FAILS(lode_map_stage(map, 0, PAGE, LODE_STAGE_COPIED), EINVAL);
    GIVES(lode_munmap(second), 0);
    GIVES(lode_map_stage(map, 0, PAGE, LODE_STAGE_ZEROED), 0);
    GIVES(lode_munmap(map), 0);
    CHECK(has(pool, 0, "oooo", 4));
}

static void maps_of_large_pages_are_aligned_for_them(void)
{
    lode_file *large = lode_open(pool, "large", O_RDWR | O_CREAT, 0644);
    CHECK(large != NULL);
    GIVES(lode_ftruncate(large, 4 * HUGE), 0);
    lode_map *map = lode_mmap(large, PAGE, 2 * HUGE, LODE_MAP_WRITE);
    CHECK(map != NULL);
    GIVES((uintptr_t)lode_map_address(map) % HUGE, PAGE);
    GIVES(lode_munmap(map), 0);
    GIVES(lode_close(large), 0);
}

static void a_map_keeps_the_file_and_the_pool(void)
{
    lode_map *map = lode_mmap(file, 0, PAGE, LODE_MAP_WRITE);
    CHECK(map != NULL);
    GIVES(lode_close(file), 0);
    GIVES(lode_unlink(pool, "file"), 0);
    memset(lode_map_address(map), 'x', PAGE);
    GIVES(lode_map_persist(map, 0, PAGE), 0);
    FAILS(lode_pool_close(pool), EBUSY);
    NONE(lode_pool_open(path, NULL), EBUSY);
    GIVES(lode_munmap(map), 0);
    pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL);
    NONE(lode_open(pool, "file", O_RDONLY, 0), ENOENT);
    GIVES(lode_pool_close(pool), 0);
}

/* A store to a map that is for reading ends the process. */
static void readers_can_not_store(void)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pool = lode_pool_open(path, NULL);
        file = lode_open(pool, "large", O_RDWR, 0);
        lode_map *map = lode_mmap(file, 0, PAGE, 0);
        CHECK(map != NULL);
        *(volatile char *)lode_map_address(map) = 1;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    GIVES(WTERMSIG(status), SIGSEGV);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/pool", argv[1]);
    pool = lode_pool_create(path, 16 << 20, NULL, NULL);
    CHECK(pool != NULL);
    file = lode_open(pool, "file", O_RDWR | O_CREAT, 0644);
    CHECK(file != NULL);
    GIVES(lode_ftruncate(file, 8 * PAGE), 0);
    a_map_is_the_file();
    what_is_outside_or_not_allowed_is_refused();
    staged_stores_become_the_files_at_once_or_never();
    maps_of_large_pages_are_aligned_for_them();
    a_map_keeps_the_file_and_the_pool();
    readers_can_not_store();
    return 0;
}
