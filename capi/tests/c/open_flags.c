/* lode_open() is held to open(2): all combinations of flags, on all kinds of targets. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const int flags[] = {O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW};
enum { FLAGS = sizeof flags / sizeof flags[0] };
/* Of openings that make a file without a name. */
static const int nameless[] = {O_CREAT,    O_EXCL,     O_TRUNC,  O_APPEND,
                               O_NOFOLLOW, O_NONBLOCK, O_NOCTTY, O_NOATIME};
enum { NAMELESS = sizeof nameless / sizeof nameless[0] };
static const char *const targets[] = {"file", "none", "dir", "dir/", "link", "dangling", "todir",
                                      "file/below", "none/below", "none/", "/"};
enum { TARGETS = sizeof targets / sizeof targets[0] };

/* What came of an opening. */
struct outcome {
    int opened, wrote, read;
    char text[16];
};

static void set_up(lode_pool *pool, const char *dir)
{
    CHECK(mkdir(dir, 0700) == 0 && chdir(dir) == 0 && mkdir("dir", 0700) == 0);
    CHECK(symlink("file", "link") == 0 && symlink("none", "dangling") == 0);
    CHECK(symlink("dir", "todir") == 0);
    GIVES(lode_mkdir(pool, "dir", 0700), 0);
    GIVES(lode_symlink(pool, "file", "link"), 0);
    GIVES(lode_symlink(pool, "none", "dangling"), 0);
    GIVES(lode_symlink(pool, "dir", "todir"), 0);
}

static void set_back(lode_pool *pool)
{
    int file = open("file", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(write(file, "text", 4) == 4 && close(file) == 0);
    CHECK(unlink("none") == 0 || errno == ENOENT);
    put(pool, "file", "text");
    CHECK(lode_unlink(pool, "none") == 0 || errno == ENOENT);
}

static int or_errno(long long done)
{
    return done < 0 ? -errno : (int)done;
}

static struct outcome by_system(const char *target, int how)
{
    struct outcome came = {0, 0, 0, ""};
    char bytes[3];
    /* Its root is the directory that this process is in. */
    int file = open(strcmp(target, "/") == 0 ? "./" : target, how, 0640);
    came.opened = file < 0 ? -errno : 1;
    if (file >= 0) {
        came.wrote = or_errno(pwrite(file, "XY", 2, 1));
        came.read = or_errno(pread(file, bytes, 3, 0));
        close(file);
    }
    for (int at = 0; at < 2; at++) {
        struct stat found;
        file = open(at ? "none" : "file", O_RDONLY);
        if (file < 0) {
            strcat(came.text, "-");
            continue;
        }
        size_t length = strlen(came.text);
        ssize_t count = read(file, came.text + length, 7);
        CHECK(count >= 0 && fstat(file, &found) == 0);
        came.text[length + (size_t)count] = '\0';
        strcat(came.text, at && (found.st_mode & 07777) != 0640 ? "?" : ".");
        close(file);
    }
    return came;
}

static struct outcome by_library(lode_pool *pool, const char *target, int how)
{
    struct outcome came = {0, 0, 0, ""};
    char bytes[3];
    lode_file *file = lode_open(pool, target, how, 0640);
    came.opened = file ? 1 : -errno;
    if (file) {
        came.wrote = or_errno(lode_pwrite(file, "XY", 2, 1));
        came.read = or_errno(lode_pread(file, bytes, 3, 0));
        lode_close(file);
    }
    for (int at = 0; at < 2; at++) {
        struct lode_stat found;
        file = lode_open(pool, at ? "none" : "file", O_RDONLY, 0);
        if (!file) {
            strcat(came.text, "-");
            continue;
        }
        size_t length = strlen(came.text);
        int64_t count = lode_read(file, came.text + length, 7);
        CHECK(count >= 0 && lode_fstat(file, &found) == 0);
        came.text[length + (size_t)count] = '\0';
        strcat(came.text, at && (found.mode & 07777) != 0640 ? "?" : ".");
        lode_close(file);
    }
    return came;
}

static int compared, opened;

/* Opens all targets with these flags, here and there. */
static void compare(lode_pool *pool, int how)
{
    for (int access = O_RDONLY; access <= O_RDWR; access++) {
        for (int at = 0; at < TARGETS; at++) {
            set_back(pool);
            struct outcome wanted = by_system(targets[at], how | access);
            struct outcome got = by_library(pool, targets[at], how | access);
            /* Kernels before 6.4 made something of these two. */
            int both = O_CREAT | O_DIRECTORY;
            if ((how & both) == both && wanted.opened != -EINVAL)
                continue;
            compared++;
            opened += wanted.opened == 1;
            if (memcmp(&wanted, &got, sizeof got) != 0)
                DIE("open(%s, %#x): the system %d, wrote %d, read %d, left %s; "
                    "here %d, wrote %d, read %d, left %s",
                    targets[at], (unsigned)(how | access), wanted.opened, wanted.wrote,
                    wanted.read, wanted.text, got.opened, got.wrote, got.read, got.text);
        }
    }
}

/* All flags of a list whose bits are set. */
static int chosen(const int *list, int bits)
{
    int how = 0;
    for (int at = 0; bits >> at; at++)
        how |= bits >> at & 1 ? list[at] : 0;
    return how;
}

static void names_are_given_where_the_flags_let_them(lode_pool *pool)
{
    lode_file *file = lode_open(pool, "/", O_TMPFILE | O_WRONLY | O_EXCL, 0600);
    CHECK(file != NULL);
    FAILS(lode_flink(file, "never"), ENOENT);
    GIVES(lode_close(file), 0);
    file = lode_open(pool, "/", O_TMPFILE | O_WRONLY | O_APPEND | O_DIRECT | O_SYNC, 0600);
    CHECK(file != NULL);
    GIVES(lode_pwrite(file, "one", 3, 0) + lode_pwrite(file, "two", 3, 0), 6);
    GIVES(lode_flink(file, "named"), 0);
    GIVES(lode_close(file), 0);
    CHECK(holds(pool, "named", "onetwo"));
    NONE(lode_open(pool, "/", O_TMPFILE | O_RDWR | 1 << 30, 0600), EINVAL);
}

int main(int argc, char **argv)
{
    char dir[4096];
    CHECK(argc == 2);
    snprintf(dir, sizeof dir, "%s/flags", argv[1]);
    umask(0);
    struct lode_pool_options options = {.size = sizeof options};
    lode_pool *pool = lode_pool_in_memory(16 << 20, &options);
    CHECK(pool != NULL);
    set_up(pool, dir);
    for (int bits = 0; bits < 1 << FLAGS; bits++)
        compare(pool, chosen(flags, bits));
    CHECK(compared > 1000 && opened > 200);
    opened = 0;
    for (int bits = 0; bits < 1 << NAMELESS; bits++)
        compare(pool, O_TMPFILE | chosen(nameless, bits));
    CHECK(opened > 200);
    names_are_given_where_the_flags_let_them(pool);
    NONE(lode_open(pool, "file", 3, 0), EINVAL);
    return lode_pool_close(pool);
}
