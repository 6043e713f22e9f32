/* Snapshots: made, listed, deleted, looked into, returned to. */
#include <sys/stat.h>

#include "check.h"

/* Whether a file of a snapshot holds this text. */
static int held(lode_snapshot *snapshot, const char *path, const char *text)
{
    char buffer[256];
    lode_file *file = lode_snapshot_open_file(snapshot, path);
    CHECK(file != NULL);
    int64_t length = lode_read(file, buffer, sizeof buffer);
    CHECK(length >= 0);
    FAILS(lode_write(file, "x", 1), EBADF);
    GIVES(lode_close(file), 0);
    return (size_t)length == strlen(text) && memcmp(buffer, text, (size_t)length) == 0;
}

static void looking(void)
{
    lode_pool *pool = scratch_pool();
    GIVES(lode_mkdir(pool, "dir", 0755), 0);
    put(pool, "dir/file", "first");
    GIVES(lode_symlink(pool, "dir/file", "link"), 0);
    GIVES(lode_snapshot_create(pool, "then"), 0);
    put(pool, "dir/file", "second, and longer");
    put(pool, "dir/new", "new");
    GIVES(lode_unlink(pool, "link"), 0);

    lode_snapshot *then = lode_snapshot_open(pool, "then");
    CHECK(then != NULL);
    CHECK(held(then, "dir/file", "first") && held(then, "/link", "first"));
    CHECK(holds(pool, "dir/file", "second, and longer"));
    NONE(lode_snapshot_open_file(then, "dir/new"), ENOENT);
    CHECK(strstr(lode_last_error(), "dir/new") != NULL);

    struct lode_stat found;
    GIVES(lode_snapshot_stat(then, "link", &found), 0);
    CHECK(S_ISREG(found.mode) && found.size == 5);
    GIVES(lode_snapshot_lstat(then, "link", &found), 0);
    CHECK(S_ISLNK(found.mode));
    FAILS(lode_snapshot_stat(then, "dir/new", &found), ENOENT);
    char target[16];
    memset(target, 'x', sizeof target);
    GIVES(lode_snapshot_readlink(then, "link", target, 3), 3);
    CHECK(memcmp(target, "dirx", 4) == 0);
    FAILS(lode_snapshot_readlink(then, "link", target, 0), EINVAL);
    FAILS(lode_snapshot_readlink(then, "dir", target, sizeof target), EINVAL);

    lode_dir *dir = lode_snapshot_opendir(then, "dir");
    CHECK(dir != NULL);
    const struct lode_dirent *entry = lode_readdir(dir);
    CHECK(entry != NULL && strcmp(entry->name, "file") == 0 && S_ISREG(entry->mode));
    CHECK(lode_readdir(dir) == NULL && errno == 0);
    GIVES(lode_closedir(dir), 0);
    NONE(lode_snapshot_opendir(then, "dir/file"), ENOTDIR);

    lode_file *file = lode_snapshot_open_file(then, "dir/file");
    CHECK(file != NULL);
    GIVES(lode_snapshot_delete(pool, "then"), 0);
    FAILS(lode_pread(file, target, 5, 0), ESTALE);
    NONE(lode_snapshot_open_file(then, "dir/file"), ENOENT);
    GIVES(lode_close(file), 0);
    FAILS(lode_snapshot_stat(NULL, "x", &found), EINVAL);
    FAILS(lode_snapshot_stat(then, NULL, &found), EFAULT);
    FAILS(lode_snapshot_stat(then, "/", NULL), EFAULT);
    GIVES(lode_snapshot_close(then), 0);
    GIVES(lode_pool_close(pool), 0);
}

static void listing(void)
{
    lode_pool *pool = scratch_pool();
    lode_snapshots *list = lode_snapshots_open(pool);
    CHECK(list != NULL && lode_snapshots_next(list) == NULL && errno == 0);
    GIVES(lode_snapshots_close(list), 0);
    char large[3 * 4096 + 1];
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = 0;
    put(pool, "file", large);
    GIVES(lode_snapshot_create(pool, "one"), 0);
    put(pool, "file", "small");
    GIVES(lode_snapshot_create(pool, "two, with a comma"), 0);
    FAILS(lode_snapshot_create(pool, "one"), EEXIST);
    FAILS(lode_snapshot_create(pool, "a/b"), EINVAL);
    FAILS(lode_snapshot_create(pool, ""), EINVAL);
    FAILS(lode_snapshot_delete(pool, "none"), ENOENT);
    NONE(lode_snapshot_open(pool, "none"), ENOENT);

    list = lode_snapshots_open(pool);
    CHECK(list != NULL);
    const struct lode_snapshot_info *info = lode_snapshots_next(list);
    CHECK(info != NULL && strcmp(info->name, "one") == 0 && info->length == 3);
    CHECK(info->bytes >= 3 * 4096 && info->bytes_alone == info->bytes);
    CHECK(info->created.sec > 1700000000 && info->created.nsec < 1000000000);
    uint32_t epoch = info->epoch;
    info = lode_snapshots_next(list);
    CHECK(info != NULL && strcmp(info->name, "two, with a comma") == 0 && info->epoch > epoch);
    CHECK(lode_snapshots_next(list) == NULL && errno == 0);
    CHECK(lode_snapshots_next(list) == NULL && errno == 0);
    GIVES(lode_snapshots_close(list), 0);
    NONE(lode_snapshots_open(NULL), EINVAL);
    NONE(lode_snapshots_next(NULL), EINVAL);
    FAILS(lode_snapshots_close(NULL), EINVAL);
    FAILS(lode_snapshot_close(NULL), EINVAL);
    GIVES(lode_pool_close(pool), 0);
}

static void returning(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/snapshots", dir);
    lode_pool *pool = lode_pool_create(path, 16 << 20, NULL, NULL);
    CHECK(pool != NULL);
    put(pool, "file", "before");
    GIVES(lode_snapshot_create(pool, "before"), 0);
    put(pool, "file", "after");
    put(pool, "new", "new");
    GIVES(lode_snapshot_create(pool, "later"), 0);
    FAILS(lode_snapshot_rollback(path, "before", NULL), EBUSY);
    GIVES(lode_pool_close(pool), 0);
    FAILS(lode_snapshot_rollback(path, "none", NULL), ENOENT);
    FAILS(lode_snapshot_rollback("/dev/null", "before", NULL), EINVAL);
    FAILS(lode_snapshot_rollback(path, NULL, NULL), EFAULT);
    GIVES(lode_snapshot_rollback(path, "before", NULL), 0);

    pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL && holds(pool, "file", "before"));
    NONE(lode_open(pool, "new", LODE_O_RDONLY, 0), ENOENT);
    NONE(lode_snapshot_open(pool, "later"), ENOENT);
    GIVES(lode_snapshot_delete(pool, "before"), 0);
    GIVES(lode_pool_close(pool), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    looking();
    listing();
    returning(argv[1]);
    return 0;
}
