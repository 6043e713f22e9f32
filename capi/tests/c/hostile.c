/* Arguments that can't be right are refused by every call. */
#include "check.h"

static lode_pool *pool;
static lode_file *file;
static lode_dir *dir;
/* These need a pool in a file. */
static lode_pool *mappable;
static lode_map *map;
static lode_log *journal;

/* The last byte of what a process can address. */
static char *const end = (char *)UINTPTR_MAX;

static void no_handles(void)
{
    struct lode_stat found;
    struct lode_statfs space;
    struct lode_opening opening;
    char byte = 0;
    FAILS(lode_pool_close(NULL), EINVAL);
    FAILS(lode_pool_sync(NULL), EINVAL);
    FAILS(lode_statfs(NULL, &space), EINVAL);
    FAILS(lode_pool_opening(NULL, &opening), EINVAL);
    FAILS(lode_pool_durability(NULL), EINVAL);
    NONE(lode_open(NULL, "x", 0, 0), EINVAL);
    FAILS(lode_close(NULL), EINVAL);
    FAILS(lode_read(NULL, &byte, 1), EINVAL);
    FAILS(lode_pread(NULL, &byte, 1, 0), EINVAL);
    FAILS(lode_write(NULL, &byte, 1), EINVAL);
    FAILS(lode_pwrite(NULL, &byte, 1, 0), EINVAL);
    FAILS(lode_append(NULL, &byte, 1), EINVAL);
    FAILS(lode_lseek(NULL, 0, 0), EINVAL);
    FAILS(lode_fsync(NULL), EINVAL);
    FAILS(lode_ftruncate(NULL, 0), EINVAL);
    FAILS(lode_fallocate(NULL, 0, 0, 1), EINVAL);
    FAILS(lode_stat(NULL, "x", &found), EINVAL);
    FAILS(lode_lstat(NULL, "x", &found), EINVAL);
    FAILS(lode_fstat(NULL, &found), EINVAL);
    FAILS(lode_mkdir(NULL, "x", 0), EINVAL);
    FAILS(lode_rmdir(NULL, "x"), EINVAL);
    FAILS(lode_unlink(NULL, "x"), EINVAL);
    FAILS(lode_rename(NULL, "x", "y", 0), EINVAL);
    FAILS(lode_link(NULL, "x", "y"), EINVAL);
    FAILS(lode_flink(NULL, "x"), EINVAL);
    FAILS(lode_symlink(NULL, "x", "y"), EINVAL);
    FAILS(lode_readlink(NULL, "x", &byte, 1), EINVAL);
    NONE(lode_opendir(NULL, "x"), EINVAL);
    NONE(lode_readdir(NULL), EINVAL);
    FAILS(lode_closedir(NULL), EINVAL);
    FAILS(lode_chmod(NULL, "x", 0), EINVAL);
    FAILS(lode_fchmod(NULL, 0), EINVAL);
    FAILS(lode_chown(NULL, "x", 0, 0), EINVAL);
    FAILS(lode_lchown(NULL, "x", 0, 0), EINVAL);
    FAILS(lode_fchown(NULL, 0, 0), EINVAL);
    FAILS(lode_utimens(NULL, "x", NULL, 0), EINVAL);
    FAILS(lode_futimens(NULL, NULL), EINVAL);
    FAILS(lode_getxattr(NULL, "x", "user.x", &byte, 1), EINVAL);
    FAILS(lode_fgetxattr(NULL, "user.x", &byte, 1), EINVAL);
    FAILS(lode_setxattr(NULL, "x", "user.x", &byte, 1, 0), EINVAL);
    FAILS(lode_fsetxattr(NULL, "user.x", &byte, 1, 0), EINVAL);
    FAILS(lode_listxattr(NULL, "x", &byte, 1), EINVAL);
    FAILS(lode_flistxattr(NULL, &byte, 1), EINVAL);
    FAILS(lode_removexattr(NULL, "x", "user.x"), EINVAL);
    FAILS(lode_fremovexattr(NULL, "user.x"), EINVAL);
}

static void no_maps_and_logs(void)
{
    struct lode_range range = {0, 4096};
    struct lode_data data = {"x", 1};
    char byte = 0;
    NONE(lode_mmap(NULL, 0, 1, 0), EINVAL);
    FAILS(lode_munmap(NULL), EINVAL);
    NONE(lode_map_address(NULL), EINVAL);
    FAILS(lode_map_length(NULL), EINVAL);
    FAILS(lode_map_durability(NULL), EINVAL);
    FAILS(lode_map_load(NULL, 0, &byte, 1), EINVAL);
    FAILS(lode_map_store(NULL, 0, &byte, 1), EINVAL);
    FAILS(lode_map_stream(NULL, 0, &byte, 1), EINVAL);
    FAILS(lode_map_persist(NULL, 0, 1), EINVAL);
    FAILS(lode_map_write_back(NULL, 0, 1), EINVAL);
    FAILS(lode_map_fence(NULL, 0, 1), EINVAL);
    FAILS(lode_map_stage(NULL, 0, 4096, 0), EINVAL);
    FAILS(lode_map_commit(NULL, &range, 1), EINVAL);
    FAILS(lode_map_discard(NULL), EINVAL);
    NONE(lode_log_open(NULL, "x", 1), EINVAL);
    FAILS(lode_log_close(NULL), EINVAL);
    FAILS(lode_log_append(NULL, &byte, 1), EINVAL);
    FAILS(lode_log_append_all(NULL, &data, 1), EINVAL);
    FAILS(lode_log_position(NULL), EINVAL);
    FAILS(lode_log_clear(NULL), EINVAL);
    NONE(lode_log_read(NULL, 0), EINVAL);
    NONE(lode_entries_next(NULL), EINVAL);
    FAILS(lode_entries_close(NULL), EINVAL);
}

static void handles_that_can_be_none(void)
{
    struct lode_stat found;
    FAILS(lode_stat((lode_pool *)(uintptr_t)3, "x", &found), EINVAL);
    FAILS(lode_close((lode_file *)(uintptr_t)3), EINVAL);
    FAILS(lode_closedir((lode_dir *)(uintptr_t)5), EINVAL);
    NONE(lode_readdir((lode_dir *)(uintptr_t)5), EINVAL);
    NONE(lode_map_address((lode_map *)(uintptr_t)1), EINVAL);
    FAILS(lode_munmap((lode_map *)(uintptr_t)2), EINVAL);
    FAILS(lode_log_clear((lode_log *)(uintptr_t)7), EINVAL);
    FAILS(lode_log_close((lode_log *)(uintptr_t)3), EINVAL);
    NONE(lode_entries_next((lode_entries *)(uintptr_t)5), EINVAL);
    FAILS(lode_entries_close((lode_entries *)(uintptr_t)6), EINVAL);
    FAILS(lode_pool_close((lode_pool *)(uintptr_t)1), EINVAL);
}

static void no_strings(void)
{
    struct lode_stat found;
    char byte = 0;
    NONE(lode_pool_open(NULL, NULL), EFAULT);
    NONE(lode_pool_create(NULL, 16 << 20, NULL, NULL), EFAULT);
    NONE(lode_open(pool, NULL, 0, 0), EFAULT);
    FAILS(lode_stat(pool, NULL, &found), EFAULT);
    FAILS(lode_lstat(pool, NULL, &found), EFAULT);
    FAILS(lode_mkdir(pool, NULL, 0), EFAULT);
    FAILS(lode_rmdir(pool, NULL), EFAULT);
    FAILS(lode_unlink(pool, NULL), EFAULT);
    FAILS(lode_rename(pool, NULL, "y", 0), EFAULT);
    FAILS(lode_rename(pool, "x", NULL, 0), EFAULT);
    FAILS(lode_link(pool, NULL, "y"), EFAULT);
    FAILS(lode_link(pool, "x", NULL), EFAULT);
    FAILS(lode_flink(file, NULL), EFAULT);
    FAILS(lode_symlink(pool, NULL, "y"), EFAULT);
    FAILS(lode_symlink(pool, "x", NULL), EFAULT);
    FAILS(lode_readlink(pool, NULL, &byte, 1), EFAULT);
    NONE(lode_opendir(pool, NULL), EFAULT);
    NONE(lode_log_open(pool, NULL, 1), EFAULT);
    FAILS(lode_chmod(pool, NULL, 0), EFAULT);
    FAILS(lode_chown(pool, NULL, 0, 0), EFAULT);
    FAILS(lode_lchown(pool, NULL, 0, 0), EFAULT);
    FAILS(lode_utimens(pool, NULL, NULL, 0), EFAULT);
    FAILS(lode_getxattr(pool, NULL, "user.x", &byte, 1), EFAULT);
    FAILS(lode_getxattr(pool, "x", NULL, &byte, 1), EFAULT);
    FAILS(lode_fgetxattr(file, NULL, &byte, 1), EFAULT);
    FAILS(lode_setxattr(pool, NULL, "user.x", &byte, 1, 0), EFAULT);
    FAILS(lode_setxattr(pool, "x", NULL, &byte, 1, 0), EFAULT);
    FAILS(lode_fsetxattr(file, NULL, &byte, 1, 0), EFAULT);
    FAILS(lode_listxattr(pool, NULL, &byte, 1), EFAULT);
    FAILS(lode_removexattr(pool, NULL, "user.x"), EFAULT);
    FAILS(lode_removexattr(pool, "x", NULL), EFAULT);
    FAILS(lode_fremovexattr(file, NULL), EFAULT);
}

/* No buffer, one that goes on past the last address, and one that is longer than any can be. */
#define BUFFER(call, ...) \
    do { \
        FAILS(call(__VA_ARGS__ NULL, 1), EFAULT); \
        FAILS(call(__VA_ARGS__ end, 2), EFAULT); \
        FAILS(call(__VA_ARGS__ &byte, SIZE_MAX), EINVAL); \
    } while (0)
#define COMMA ,

static void no_buffers(void)
{
    char byte = 0;
    BUFFER(lode_read, file COMMA);
    BUFFER(lode_write, file COMMA);
    BUFFER(lode_append, file COMMA);
    BUFFER(lode_readlink, pool COMMA "link" COMMA);
    BUFFER(lode_getxattr, pool COMMA "x" COMMA "user.x" COMMA);
    BUFFER(lode_fgetxattr, file COMMA "user.x" COMMA);
    BUFFER(lode_listxattr, pool COMMA "x" COMMA);
    BUFFER(lode_flistxattr, file COMMA);
    BUFFER(lode_map_load, map COMMA 0 COMMA);
    BUFFER(lode_map_store, map COMMA 0 COMMA);
    BUFFER(lode_map_stream, map COMMA 0 COMMA);
    BUFFER(lode_log_append, journal COMMA);
    FAILS(lode_pread(file, NULL, 1, 0), EFAULT);
    FAILS(lode_pread(file, end, 2, 0), EFAULT);
    FAILS(lode_pread(file, &byte, SIZE_MAX, 0), EINVAL);
    FAILS(lode_pwrite(file, NULL, 1, 0), EFAULT);
    FAILS(lode_pwrite(file, end, 2, 0), EFAULT);
    FAILS(lode_pwrite(file, &byte, SIZE_MAX, 0), EINVAL);
    FAILS(lode_setxattr(pool, "x", "user.x", NULL, 1, 0), EFAULT);
    FAILS(lode_setxattr(pool, "x", "user.x", &byte, SIZE_MAX, 0), EINVAL);
    FAILS(lode_fsetxattr(file, "user.x", NULL, 1, 0), EFAULT);
    FAILS(lode_fsetxattr(file, "user.x", end, 2, 0), EFAULT);
}

static void no_structures(void)
{
    FAILS(lode_statfs(pool, NULL), EFAULT);
    FAILS(lode_pool_opening(pool, NULL), EFAULT);
    FAILS(lode_stat(pool, "x", NULL), EFAULT);
    FAILS(lode_lstat(pool, "x", NULL), EFAULT);
    FAILS(lode_fstat(file, NULL), EFAULT);
    FAILS(lode_fstat(file, (struct lode_stat *)(uintptr_t)3), EFAULT);
}

/* No array, one that is misaligned, one that goes on past the last address, and one that is longer than any can
 * be; and what can't be in one. */
static void no_arrays(void)
{
    struct lode_range range = {-4096, 4096};
    struct lode_range *last = (struct lode_range *)(UINTPTR_MAX - 15);
    struct lode_data data[] = {{"x", 1}, {NULL, 1}, {"x", SIZE_MAX}};
    struct lode_data *end_of = (struct lode_data *)(UINTPTR_MAX - 15);
    FAILS(lode_map_commit(map, NULL, 1), EFAULT);
    FAILS(lode_map_commit(map, (struct lode_range *)(uintptr_t)12, 1), EFAULT);
    FAILS(lode_map_commit(map, last, 2), EFAULT);
    FAILS(lode_map_commit(map, &range, SIZE_MAX), EINVAL);
    FAILS(lode_map_commit(map, &range, (SIZE_MAX >> 4) + 2), EINVAL);
    FAILS(lode_map_commit(map, &range, 1), EINVAL);
    FAILS(lode_log_append_all(journal, NULL, 1), EFAULT);
    FAILS(lode_log_append_all(journal, (struct lode_data *)(uintptr_t)12, 1), EFAULT);
    FAILS(lode_log_append_all(journal, end_of, 2), EFAULT);
    FAILS(lode_log_append_all(journal, data, SIZE_MAX), EINVAL);
    FAILS(lode_log_append_all(journal, data, 2), EFAULT);
    FAILS(lode_log_append_all(journal, data + 2, 1), EINVAL);
    GIVES(lode_log_position(journal), 64);
}

static void open_mappable(const char *where)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/pool", where);
    mappable = lode_pool_create(path, 16 << 20, NULL, NULL);
    CHECK(mappable != NULL);
    lode_file *mapped = lode_open(mappable, "file", LODE_O_RDWR | LODE_O_CREAT, 0644);
    GIVES(lode_ftruncate(mapped, 4096), 0);
    map = lode_mmap(mapped, 0, 4096, LODE_MAP_WRITE);
    journal = lode_log_open(mappable, "journal", 4096);
    CHECK(map != NULL && journal != NULL);
    GIVES(lode_close(mapped), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    pool = scratch_pool();
    open_mappable(argv[1]);
    put(pool, "x", "text");
    GIVES(lode_symlink(pool, "x", "link"), 0);
    GIVES(lode_setxattr(pool, "x", "user.x", "1", 1, 0), 0);
    file = lode_open(pool, "x", LODE_O_RDWR, 0);
    dir = lode_opendir(pool, "/");
    CHECK(file != NULL && dir != NULL);
    no_handles();
    no_maps_and_logs();
    handles_that_can_be_none();
    no_strings();
    no_buffers();
    no_structures();
    no_arrays();
    /* None of that did anything. */
    CHECK(holds(pool, "x", "text"));
    GIVES(lode_closedir(dir), 0);
    GIVES(lode_close(file), 0);
    GIVES(lode_munmap(map), 0);
    GIVES(lode_log_close(journal), 0);
    GIVES(lode_pool_close(mappable), 0);
    return lode_pool_close(pool);
}
