/* What is known of files, and how it is changed: permissions, owners, times, extended attributes. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static lode_pool *pool;
static lode_file *file;

static struct lode_stat look(const char *path)
{
    struct lode_stat found;
    memset(&found, 0xff, sizeof found);
    GIVES(lode_lstat(pool, path, &found), 0);
    return found;
}

static void what_is_known(void)
{
    struct lode_stat followed, of_link, opened;
    int64_t now = time(NULL);
    put(pool, "file", "hello");
    GIVES(lode_symlink(pool, "file", "link"), 0);
    file = lode_open(pool, "file", O_RDWR, 0);
    CHECK(file != NULL);
    memset(&followed, 0xff, sizeof followed);
    memset(&opened, 0, sizeof opened);
    GIVES(lode_stat(pool, "link", &followed), 0);
    GIVES(lode_fstat(file, &opened), 0);
    CHECK(memcmp(&followed, &opened, sizeof opened) == 0);
    CHECK(opened.mode == (S_IFREG | 0644) && opened.nlink == 1 && opened.size == 5);
    CHECK(opened.uid == geteuid() && opened.gid == getegid() && opened.rdev == 0);
    CHECK(opened.blksize == 4096 && opened.blocks == 8 && opened.ino != 0);
    const struct lode_timespec times[] = {opened.atim, opened.mtim, opened.ctim, opened.btim};
    for (int at = 0; at < 4; at++) {
        CHECK(times[at].sec >= now - 2 && times[at].sec <= now + 60);
        CHECK(times[at].nsec >= 0 && times[at].nsec < 1000000000);
    }
    for (int at = 0; at < 8; at++)
        CHECK(opened.reserved[at] == 0);
    CHECK(opened.reserved0 == 0);
    GIVES(lode_lstat(pool, "link", &of_link), 0);
    CHECK(S_ISLNK(of_link.mode) && of_link.size == 4 && of_link.ino != opened.ino);
    CHECK(of_link.dev == opened.dev && of_link.generation != 0);
    FAILS(lode_stat(pool, "none", &opened), ENOENT);
    FAILS(lode_lstat(pool, "file/none", &opened), ENOTDIR);
}

static void permissions_and_owners(void)
{
    GIVES(lode_chmod(pool, "link", 06751), 0);
    CHECK(look("file").mode == (S_IFREG | 06751));
    GIVES(lode_chown(pool, "link", 7, LODE_KEEP_ID), 0);
    CHECK(look("file").uid == 7 && look("file").gid == getegid());
    CHECK(look("file").mode == (S_IFREG | 0751));
    GIVES(lode_chown(pool, "file", (uid_t)-1, 8), 0);
    CHECK(look("file").uid == 7 && look("file").gid == 8);
    GIVES(lode_lchown(pool, "link", 9, 10), 0);
    CHECK(look("file").uid == 7 && look("link").uid == 9 && look("link").gid == 10);
    GIVES(lode_fchmod(file, 0600), 0);
    GIVES(lode_fchown(file, 11, 12), 0);
    CHECK(look("file").mode == (S_IFREG | 0600));
    CHECK(look("file").uid == 11 && look("file").gid == 12);
    FAILS(lode_chmod(pool, "none", 0600), ENOENT);
    FAILS(lode_chown(pool, "none", 0, 0), ENOENT);
    FAILS(lode_lchown(pool, "none", 0, 0), ENOENT);
}

static int same(struct lode_timespec found, int64_t sec, int64_t nsec)
{
    return found.sec == sec && found.nsec == nsec;
}

static void times(void)
{
    const struct lode_timespec old[2] = {{-5, 999999999}, {2000000000, 1}};
    GIVES(lode_utimens(pool, "link", old, 0), 0);
    CHECK(same(look("file").atim, -5, 999999999) && same(look("file").mtim, 2000000000, 1));
    const struct lode_timespec some[2] = {{0, UTIME_OMIT}, {77, 0}};
    GIVES(lode_futimens(file, some), 0);
    CHECK(same(look("file").atim, -5, 999999999) && same(look("file").mtim, 77, 0));
    struct lode_timespec changed = look("file").ctim;
    const struct lode_timespec none[2] = {{0, LODE_UTIME_OMIT}, {0, LODE_UTIME_OMIT}};
    GIVES(lode_utimens(pool, "file", none, 0), 0);
    CHECK(same(look("file").ctim, changed.sec, changed.nsec));
    /* Then the system does not even look for the file. */
    GIVES(lode_utimens(pool, "none", none, 0), 0);
    const struct lode_timespec now[2] = {{0, UTIME_NOW}, {0, LODE_UTIME_OMIT}};
    GIVES(lode_utimens(pool, "file", now, 0), 0);
    CHECK(look("file").atim.sec >= time(NULL) - 60 && same(look("file").mtim, 77, 0));
    GIVES(lode_utimens(pool, "link", old, AT_SYMLINK_NOFOLLOW), 0);
    CHECK(same(look("link").mtim, 2000000000, 1) && same(look("file").mtim, 77, 0));
    GIVES(lode_futimens(file, NULL), 0);
    CHECK(look("file").mtim.sec >= time(NULL) - 60);

    const struct lode_timespec wrong[][2] = {
        {{0, 1000000000}, {0, 0}}, {{0, 0}, {0, -1}}, {{INT64_MAX, 999999999}, {0, INT64_MAX}}};
    for (int at = 0; at < 3; at++) {
        FAILS(lode_utimens(pool, "file", wrong[at], 0), EINVAL);
        FAILS(lode_futimens(file, wrong[at]), EINVAL);
    }
    FAILS(lode_utimens(pool, "file", old, 1), EINVAL);
    FAILS(lode_utimens(pool, "none", NULL, 0), ENOENT);
}

static void extended_attributes(void)
{
    char buffer[64];
    GIVES(lode_setxattr(pool, "link", "user.one", "1", 1, 0), 0);
    FAILS(lode_setxattr(pool, "file", "user.one", "2", 1, XATTR_CREATE), EEXIST);
    FAILS(lode_setxattr(pool, "file", "user.two", "2", 1, XATTR_REPLACE), ENODATA);
    GIVES(lode_fsetxattr(file, "user.two", "two", 3, LODE_XATTR_CREATE), 0);
    GIVES(lode_setxattr(pool, "file", "user.empty", NULL, 0, 0), 0);
    GIVES(lode_getxattr(pool, "link", "user.two", NULL, 0), 3);
    GIVES(lode_getxattr(pool, "file", "user.two", buffer, 3), 3);
    CHECK(memcmp(buffer, "two", 3) == 0);
    GIVES(lode_fgetxattr(file, "user.one", buffer, sizeof buffer), 1);
    GIVES(lode_fgetxattr(file, "user.empty", buffer, sizeof buffer), 0);
    FAILS(lode_getxattr(pool, "file", "user.two", buffer, 2), ERANGE);
    FAILS(lode_getxattr(pool, "file", "user.none", buffer, 2), ENODATA);
    FAILS(lode_fgetxattr(file, "user.none", buffer, 2), ENODATA);
    FAILS(lode_getxattr(pool, "none", "user.one", buffer, 2), ENOENT);

    const size_t all = strlen("user.one") + strlen("user.two") + strlen("user.empty") + 3;
    GIVES(lode_listxattr(pool, "link", NULL, 0), all);
    GIVES(lode_flistxattr(file, buffer, sizeof buffer), all);
    const char *const names[] = {"user.one", "user.two", "user.empty"};
    int seen = 0;
    for (const char *name = buffer; name < buffer + all; name += strlen(name) + 1)
        for (int at = 0; at < 3; at++)
            if (strcmp(name, names[at]) == 0)
                seen |= 1 << at;
    GIVES(seen, 7);
    FAILS(lode_listxattr(pool, "file", buffer, all - 1), ERANGE);
    FAILS(lode_flistxattr(file, buffer, 1), ERANGE);

    GIVES(lode_removexattr(pool, "link", "user.one"), 0);
    FAILS(lode_removexattr(pool, "file", "user.one"), ENODATA);
    GIVES(lode_fremovexattr(file, "user.two"), 0);
    FAILS(lode_fremovexattr(file, "user.two"), ENODATA);
    FAILS(lode_setxattr(pool, "file", "user.one", "1", 1, 3), EINVAL);
    FAILS(lode_fsetxattr(file, "user.one", "1", 1, 4), EINVAL);
    FAILS(lode_setxattr(pool, "file", "nobody.one", "1", 1, 0), EOPNOTSUPP);
    FAILS(lode_setxattr(pool, "file", "", "1", 1, 0), ERANGE);
}

int main(void)
{
    pool = scratch_pool();
    what_is_known();
    permissions_and_owners();
    times();
    extended_attributes();
    GIVES(lode_close(file), 0);
    return lode_pool_close(pool);
}
