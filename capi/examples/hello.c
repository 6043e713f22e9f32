/*
 * Makes a pool, or opens the one that is there, and counts how often it was run.
 *
 *     cc hello.c $(pkg-config --cflags --libs lode) -o hello && ./hello /dev/shm/hello
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lode.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, lode_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "/dev/shm/hello";
    lode_pool *pool = lode_pool_open(path, NULL);
    if (!pool && errno == ENOENT)
        pool = lode_pool_create(path, 16 << 20, NULL, NULL);
    if (!pool)
        return failed("can't open the pool");

    lode_file *log = lode_open(pool, "/runs", O_RDWR | O_APPEND | O_CREAT, 0644);
    if (!log)
        return failed("can't open the log");
    char line[64];
    int length = snprintf(line, sizeof line, "hello from process %ld\n", (long)getpid());
    /* Once this has returned, it is there, whatever happens to this process. */
    if (lode_write(log, line, (size_t)length) != length)
        return failed("can't write");

    int runs = 0;
    char buffer[4096];
    int64_t offset = 0, count;
    while ((count = lode_pread(log, buffer, sizeof buffer, offset)) > 0) {
        for (int64_t at = 0; at < count; at++)
            runs += buffer[at] == '\n';
        offset += count;
    }
    if (count < 0)
        return failed("can't read");
    lode_close(log);
    printf("%s was opened %d times\n", path, runs);

    lode_dir *dir = lode_opendir(pool, "/");
    if (!dir)
        return failed("can't list");
    const struct lode_dirent *entry;
    while ((entry = lode_readdir(dir)) != NULL) {
        struct lode_stat found;
        if (lode_lstat(pool, entry->name, &found) == 0)
            printf("%s (%llu bytes)\n", entry->name, (unsigned long long)found.size);
    }
    if (errno != 0)
        return failed("can't list");
    lode_closedir(dir);
    return lode_pool_close(pool) == 0 ? 0 : failed("can't close the pool");
}
