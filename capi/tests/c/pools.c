/* Pools: made, opened, closed, with all options; what is in them stays. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char path[4096];

static struct lode_pool_options none(void)
{
    struct lode_pool_options options = {.size = sizeof options};
    return options;
}

static void versions(void)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", LODE_VERSION_MAJOR, LODE_VERSION_MINOR,
             LODE_VERSION_PATCH);
    CHECK(strcmp(text, lode_version()) == 0);
    CHECK(lode_last_error()[0] == '\0');
}

/* What the opening of a pool found. */
static struct lode_opening found(lode_pool *pool)
{
    struct lode_opening opening;
    memset(&opening, 0xff, sizeof opening);
    GIVES(lode_pool_opening(pool, &opening), 0);
    for (int at = 0; at < 8; at++)
        GIVES(opening.reserved[at], 0);
    return opening;
}

static void what_was_done_stays(void)
{
    NONE(lode_pool_open(path, NULL), ENOENT);
    CHECK(strstr(lode_last_error(), path) != NULL);
    lode_pool *pool = lode_pool_create(path, 16 << 20, NULL, NULL);
    CHECK(pool != NULL);
    put(pool, "kept", "text");
    GIVES(lode_pool_sync(pool), 0);
    NONE(lode_pool_open(path, NULL), EBUSY);
    NONE(lode_pool_create(path, 16 << 20, NULL, NULL), EEXIST);
    GIVES(lode_pool_close(pool), 0);

    pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL);
    struct lode_opening opening = found(pool);
    CHECK(opening.flags == LODE_OPENING_CLEAN && opening.inodes == 2);
    CHECK(lode_pool_durability(pool) > LODE_DURABLE_NONE);
    CHECK(holds(pool, "/kept", "text"));
    GIVES(lode_pool_close(pool), 0);
}

static void open_files_keep_a_pool_open(void)
{
    lode_pool *pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL);
    lode_file *file = lode_open(pool, "kept", LODE_O_RDWR, 0);
    lode_dir *dir = lode_opendir(pool, "/");
    CHECK(file != NULL && dir != NULL);
    FAILS(lode_pool_close(pool), EBUSY);
    GIVES(lode_append(file, "+", 1), 4);
    GIVES(lode_close(file), 0);
    NONE(lode_pool_open(path, NULL), EBUSY);
    const struct lode_dirent *entry = lode_readdir(dir);
    CHECK(entry != NULL && strcmp(entry->name, "kept") == 0);
    GIVES(lode_closedir(dir), 0);
    pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL);
    CHECK(holds(pool, "kept", "text+"));
    GIVES(lode_pool_close(pool), 0);
}

static void what_a_killed_process_had_done_stays(void)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        lode_pool *pool = lode_pool_open(path, NULL);
        lode_file *file = lode_open(pool, "kept", LODE_O_WRONLY, 0);
        CHECK(pool != NULL && file != NULL);
        GIVES(lode_append(file, "!", 1), 5);
        CHECK(lode_open(pool, "/", LODE_O_TMPFILE | LODE_O_RDWR, 0600) != NULL);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
    lode_pool *pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL);
    CHECK(holds(pool, "kept", "text+!"));
    struct lode_opening opening = found(pool);
    CHECK(opening.flags == 0 && opening.inodes == 2 && opening.orphans == 1);
    GIVES(lode_pool_close(pool), 0);
}

/* The first superblock of a closed pool is lost: the second one has it. */
static void what_was_repaired_is_told(void)
{
    char zeros[4096] = "";
    int file = open(path, O_RDWR);
    CHECK(file >= 0 && pwrite(file, zeros, sizeof zeros, 0) == sizeof zeros && close(file) == 0);
    lode_pool *pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL);
    struct lode_opening opening = found(pool);
    GIVES(opening.flags, LODE_OPENING_CLEAN | LODE_OPENING_REPAIRED);
    GIVES(opening.damaged, 0);
    GIVES(lode_pool_close(pool), 0);
    pool = lode_pool_open(path, NULL);
    GIVES(found(pool).flags, LODE_OPENING_CLEAN);
    GIVES(lode_pool_close(pool), 0);
}

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    handled += signal == SIGBUS || signal == SIGSEGV;
}

/* The library's handlers pass on what is not theirs. (This process has not opened a pool yet.) */
static void handlers_that_were_there_before_are_called(void)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sigaction own = {.sa_handler = handle}, now;
        CHECK(sigaction(SIGBUS, &own, NULL) == 0 && sigaction(SIGSEGV, &own, NULL) == 0);
        lode_pool *pool = scratch_pool();
        put(pool, "f", "text");
        CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler != handle);
        CHECK(raise(SIGBUS) == 0 && raise(SIGSEGV) == 0 && raise(SIGBUS) == 0);
        GIVES(handled, 3);
        GIVES(lode_pool_durability(pool), LODE_DURABLE_NONE);
        CHECK(holds(pool, "f", "text"));
        _exit(lode_pool_close(pool));
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void read_only_pools_are_shared(void)
{
    struct lode_pool_options options = none();
    options.flags = LODE_POOL_READ_ONLY;
    lode_pool *one = lode_pool_open(path, &options), *other = lode_pool_open(path, &options);
    CHECK(one != NULL && other != NULL);
    FAILS(lode_mkdir(one, "new", 0777), EROFS);
    NONE(lode_open(one, "kept", LODE_O_RDWR, 0), EROFS);
    NONE(lode_open(one, "new", LODE_O_RDONLY | LODE_O_CREAT, 0666), EROFS);
    lode_file *file = lode_open(one, "kept", LODE_O_RDONLY | LODE_O_CREAT, 0666);
    CHECK(file != NULL);
    FAILS(lode_write(file, "x", 1), EBADF);
    GIVES(lode_close(file), 0);
    struct lode_statfs space;
    GIVES(lode_statfs(one, &space), 0);
    CHECK(space.flags == LODE_POOL_READ_ONLY);
    CHECK(holds(other, "kept", "text+!"));
    GIVES(lode_pool_close(one), 0);
    GIVES(lode_pool_close(other), 0);
}

static void options_are_obeyed(void)
{
    const uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct lode_format_options format = {.size = sizeof format};
    format.lanes = 4;
    format.root_mode = 0711;
    format.page_size = 4096;
    format.label = "label";
    format.uuid = uuid;
    struct lode_pool_options options = none();
    options.flags = LODE_POOL_OVERWRITE | LODE_POOL_RELAXED | LODE_POOL_OWNER | LODE_POOL_UMASK;
    options.uid = 12;
    options.gid = 34;
    options.umask = 027;
    options.access_times = LODE_ATIME_NEVER;
    options.page_size = 2 << 20;
    options.windows = LODE_WINDOWS_NONE;
    options.cpus = 1;
    options.flush = "sse2+clflush";
    lode_pool *pool = lode_pool_create(path, 64 << 20, &options, &format);
    CHECK(pool != NULL);
    struct lode_statfs space;
    GIVES(lode_statfs(pool, &space), 0);
    GIVES(space.flags, LODE_POOL_RELAXED);
    struct lode_stat found;
    GIVES(lode_stat(pool, "/", &found), 0);
    CHECK(found.mode == (S_IFDIR | 0711) && found.uid == 12 && found.gid == 34);
    CHECK(memcmp(&found.dev, uuid, sizeof found.dev) == 0);
    FAILS(lode_stat(pool, "kept", &found), ENOENT);

    put(pool, "huge", "x");
    GIVES(lode_stat(pool, "huge", &found), 0);
    CHECK(found.mode == (S_IFREG | 0640) && found.uid == 12 && found.gid == 34);
    CHECK(found.blocks == 4096);
    const struct lode_timespec old[2] = {{100, 0}, {200, 0}};
    GIVES(lode_utimens(pool, "huge", old, 0), 0);
    CHECK(holds(pool, "huge", "x"));
    GIVES(lode_stat(pool, "huge", &found), 0);
    CHECK(found.atim.sec == 100);
    GIVES(lode_pool_close(pool), 0);
    options.access_times = LODE_ATIME_ALWAYS;
    pool = lode_pool_open(path, &options);
    CHECK(pool != NULL);
    CHECK(holds(pool, "huge", "x"));
    GIVES(lode_stat(pool, "huge", &found), 0);
    CHECK(found.atim.sec > 100);
    GIVES(lode_pool_close(pool), 0);
    const uint32_t windows[] = {LODE_WINDOWS_BEST, LODE_WINDOWS_MPROTECT};
    for (int at = 0; at < 2; at++) {
        options = none();
        options.windows = windows[at];
        pool = lode_pool_open(path, &options);
        CHECK(pool != NULL);
        GIVES(lode_mkdir(pool, at ? "one" : "other", 0777), 0);
        GIVES(lode_pool_close(pool), 0);
    }
}

/* The options of `path` with one thing changed are refused. */
#define REFUSED(change, number) \
    do { \
        struct lode_pool_options options = none(); \
        change; \
        NONE(lode_pool_open(path, &options), number); \
        NONE(lode_pool_create(path, 16 << 20, &options, NULL), number); \
        NONE(lode_pool_in_memory(16 << 20, &options), number); \
    } while (0)
#define NO_FORMAT(change, number) \
    do { \
        struct lode_pool_options replace = none(); \
        replace.flags = LODE_POOL_OVERWRITE; \
        struct lode_format_options format = {.size = sizeof format}; \
        change; \
        NONE(lode_pool_create(path, 16 << 20, &replace, &format), number); \
    } while (0)

static void options_that_can_not_be_are_refused(void)
{
    REFUSED(options.size = 0, EINVAL);
    REFUSED(options.size = 1 << 20, E2BIG);
    REFUSED(options.flags = 1 << 5, EINVAL);
    REFUSED(options.flags = UINT64_C(1) << 63, EINVAL);
    REFUSED(options.access_times = 3, EINVAL);
    REFUSED(options.page_size = 8192, EINVAL);
    REFUSED(options.windows = 4, EINVAL);
    REFUSED(options.flush = "hope", EINVAL);
    REFUSED(options.flush = "\xff", EINVAL);
    REFUSED(options.flush = "msync+clwb", EINVAL);
    NO_FORMAT(format.size = 0, EINVAL);
    NO_FORMAT(format.lanes = 257, EINVAL);
    NO_FORMAT(format.page_size = 1, EINVAL);
    NO_FORMAT(format.root_mode = S_IFREG | 0755, EINVAL);
    NO_FORMAT(format.label = "\xff", EINVAL);
    NO_FORMAT(format.label = "0123456789012345678901234567890123456789012345678901234567890123456",
              EINVAL);
    NONE(lode_pool_in_memory(4096, NULL), EINVAL);
    NONE(lode_pool_create("/nowhere/at/all", 16 << 20, NULL, NULL), ENOENT);
    struct lode_pool_options options = none();
    options.flags = LODE_POOL_READ_ONLY;
    NONE(lode_pool_in_memory(16 << 20, &options), EINVAL);

    /* A newer program, which asks for what this library does not know. */
    struct {
        struct lode_pool_options known;
        uint64_t unknown;
    } newer = {none(), 0};
    newer.known.size = sizeof newer;
    lode_pool *pool = lode_pool_open(path, &newer.known);
    CHECK(pool != NULL);
    GIVES(lode_pool_close(pool), 0);
    newer.unknown = 1;
    NONE(lode_pool_open(path, &newer.known), E2BIG);
}

static void what_is_no_pool_is_told(void)
{
    FILE *file = fopen(path, "r+");
    CHECK(file != NULL);
    for (int at = 0; at < 64 << 20; at++)
        fputc('x', file);
    CHECK(fclose(file) == 0);
    NONE(lode_pool_open(path, NULL), EINVAL);
    CHECK(strstr(lode_last_error(), path) != NULL);
}

static void space_is_counted(void)
{
    lode_pool *pool = scratch_pool();
    struct lode_statfs before, after;
    GIVES(lode_statfs(pool, &before), 0);
    CHECK(before.bsize == 4096 && before.blocks == (16 << 20) / 4096 && before.namemax == 255);
    CHECK(before.bavail <= before.bfree && before.bfree < before.blocks && before.flags == 0);
    CHECK(before.ffree < before.files);
    lode_file *file = lode_open(pool, "file", LODE_O_WRONLY | LODE_O_CREAT, 0600);
    CHECK(file != NULL);
    GIVES(lode_fallocate(file, 0, 0, 1 << 20), 0);
    GIVES(lode_close(file), 0);
    GIVES(lode_statfs(pool, &after), 0);
    CHECK(after.bfree + 256 <= before.bfree && after.ffree < before.ffree);
    GIVES(lode_pool_close(pool), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/pool", argv[1]);
    versions();
    handlers_that_were_there_before_are_called();
    what_was_done_stays();
    open_files_keep_a_pool_open();
    what_a_killed_process_had_done_stays();
    what_was_repaired_is_told();
    read_only_pools_are_shared();
    options_are_obeyed();
    options_that_can_not_be_are_refused();
    what_is_no_pool_is_told();
    space_is_counted();
    return 0;
}
