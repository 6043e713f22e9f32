/* Names: directories, links, renames, listings. */
#include <sys/stat.h>

#include "check.h"

static lode_pool *pool;

static struct lode_stat look(const char *path)
{
    struct lode_stat found;
    memset(&found, 0xff, sizeof found);
    GIVES(lode_lstat(pool, path, &found), 0);
    return found;
}

static void directories(void)
{
    GIVES(lode_mkdir(pool, "dir", 0777), 0);
    CHECK(look("/dir").mode == (S_IFDIR | 0755));
    GIVES(lode_mkdir(pool, "private", 01700), 0);
    CHECK(look("private").mode == (S_IFDIR | 01700));
    FAILS(lode_mkdir(pool, "dir", 0777), EEXIST);
    FAILS(lode_mkdir(pool, "no/dir", 0777), ENOENT);
    CHECK(strstr(lode_last_error(), "no/dir") != NULL);
    FAILS(lode_mkdir(pool, "", 0777), ENOENT);
    put(pool, "dir/file", "x");
    FAILS(lode_mkdir(pool, "dir/file/below", 0777), ENOTDIR);
    FAILS(lode_rmdir(pool, "dir"), ENOTEMPTY);
    FAILS(lode_rmdir(pool, "dir/file"), ENOTDIR);
    FAILS(lode_unlink(pool, "dir"), EISDIR);
    GIVES(lode_unlink(pool, "dir/file"), 0);
    FAILS(lode_unlink(pool, "dir/file"), ENOENT);
    GIVES(lode_rmdir(pool, "dir"), 0);
    FAILS(lode_rmdir(pool, "dir"), ENOENT);
    GIVES(lode_rmdir(pool, "private"), 0);
}

static void links(void)
{
    char target[16];
    put(pool, "one", "one");
    GIVES(lode_link(pool, "one", "two"), 0);
    CHECK(look("one").nlink == 2 && look("one").ino == look("two").ino);
    FAILS(lode_link(pool, "one", "two"), EEXIST);
    FAILS(lode_link(pool, "none", "three"), ENOENT);
    FAILS(lode_link(pool, "/", "root"), EPERM);
    GIVES(lode_symlink(pool, "one", "link"), 0);
    FAILS(lode_symlink(pool, "one", "link"), EEXIST);
    FAILS(lode_symlink(pool, "", "empty"), ENOENT);
    CHECK(S_ISLNK(look("link").mode) && holds(pool, "link", "one"));
    memset(target, 'x', sizeof target);
    GIVES(lode_readlink(pool, "link", target, sizeof target), 3);
    CHECK(memcmp(target, "onex", 4) == 0);
    memset(target, 'x', sizeof target);
    GIVES(lode_readlink(pool, "link", target, 2), 2);
    CHECK(memcmp(target, "onx", 3) == 0);
    FAILS(lode_readlink(pool, "link", target, 0), EINVAL);
    FAILS(lode_readlink(pool, "one", target, sizeof target), EINVAL);
    FAILS(lode_readlink(pool, "none", target, sizeof target), ENOENT);
    NONE(lode_open(pool, "link", LODE_O_RDONLY | LODE_O_NOFOLLOW, 0), ELOOP);
    GIVES(lode_symlink(pool, "circle", "circle"), 0);
    NONE(lode_open(pool, "circle", LODE_O_RDONLY, 0), ELOOP);
    GIVES(lode_unlink(pool, "circle"), 0);
    GIVES(lode_unlink(pool, "link"), 0);
    CHECK(holds(pool, "one", "one"));
}

static void renames(void)
{
    put(pool, "other", "other");
    FAILS(lode_rename(pool, "one", "other", LODE_RENAME_NOREPLACE), EEXIST);
    GIVES(lode_rename(pool, "one", "other", LODE_RENAME_EXCHANGE), 0);
    CHECK(holds(pool, "one", "other") && holds(pool, "other", "one"));
    GIVES(lode_rename(pool, "one", "other", 0), 0);
    CHECK(holds(pool, "other", "other"));
    FAILS(lode_rename(pool, "one", "other", 0), ENOENT);
    CHECK(strstr(lode_last_error(), "one -> other") != NULL);
    GIVES(lode_rename(pool, "other", "one", LODE_RENAME_NOREPLACE), 0);
    FAILS(lode_rename(pool, "one", "none", LODE_RENAME_EXCHANGE), ENOENT);
    FAILS(lode_rename(pool, "one", "none", 3), EINVAL);
    FAILS(lode_rename(pool, "one", "none", 4), EINVAL);
    GIVES(lode_mkdir(pool, "dir", 0777), 0);
    FAILS(lode_rename(pool, "one", "dir", 0), EISDIR);
    FAILS(lode_rename(pool, "dir", "dir/below", 0), EINVAL);
}

static void names_are_bytes_of_any_kind(void)
{
    char longest[257];
    memset(longest, 'n', sizeof longest);
    longest[255] = '\0';
    put(pool, longest, "x");
    CHECK(holds(pool, longest, "x"));
    GIVES(lode_unlink(pool, longest), 0);
    longest[255] = 'n';
    longest[256] = '\0';
    FAILS(lode_mkdir(pool, longest, 0777), ENAMETOOLONG);
    put(pool, "\xff\xfe\n", "x");
    CHECK(holds(pool, "./dir/..//\xff\xfe\n", "x"));
    GIVES(lode_unlink(pool, "\xff\xfe\n"), 0);
}

enum { MANY = 300 };

static void listings(void)
{
    char name[32];
    int seen[MANY] = {0}, files = 0;
    for (int at = 0; at < MANY; at++) {
        snprintf(name, sizeof name, "dir/%d", at);
        if (at % 3 == 0)
            GIVES(lode_mkdir(pool, name, 0777), 0);
        else if (at % 3 == 1)
            GIVES(lode_symlink(pool, "x", name), 0);
        else
            put(pool, name, "");
    }
    lode_dir *dir = lode_opendir(pool, "dir");
    CHECK(dir != NULL);
    const struct lode_dirent *entry;
    while ((entry = lode_readdir(dir)) != NULL) {
        int at = atoi(entry->name);
        CHECK(at >= 0 && at < MANY && !seen[at]);
        seen[at] = 1;
        files++;
        CHECK(entry->length == strlen(entry->name));
        const uint32_t kinds[] = {S_IFDIR, S_IFLNK, S_IFREG};
        CHECK(entry->mode == kinds[at % 3]);
        snprintf(name, sizeof name, "dir/%d", at);
        CHECK(look(name).ino == entry->ino);
    }
    GIVES(errno, 0);
    GIVES(files, MANY);
    NONE(lode_readdir(dir), 0);
    GIVES(lode_closedir(dir), 0);
    NONE(lode_opendir(pool, "one"), ENOTDIR);
    NONE(lode_opendir(pool, "none"), ENOENT);
}

int main(void)
{
    pool = scratch_pool();
    directories();
    links();
    renames();
    names_are_bytes_of_any_kind();
    listings();
    return lode_pool_close(pool);
}
