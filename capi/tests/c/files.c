/* Open files: reading, writing, positions, sizes, space. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static lode_pool *pool;

static void reading_and_writing(void)
{
    char buffer[16];
    lode_file *file = lode_open(pool, "file", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(file != NULL);
    GIVES(lode_read(file, buffer, sizeof buffer), 0);
    GIVES(lode_write(file, "hello", 5), 5);
    GIVES(lode_lseek(file, 0, SEEK_CUR), 5);
    GIVES(lode_read(file, buffer, sizeof buffer), 0);
    GIVES(lode_lseek(file, 1, SEEK_SET), 1);
    GIVES(lode_read(file, buffer, 3), 3);
    CHECK(memcmp(buffer, "ell", 3) == 0);
    GIVES(lode_read(file, buffer, sizeof buffer), 1);
    CHECK(buffer[0] == 'o');

    GIVES(lode_pwrite(file, "HE", 2, 0), 2);
    GIVES(lode_pread(file, buffer, sizeof buffer, 0), 5);
    CHECK(memcmp(buffer, "HEllo", 5) == 0);
    GIVES(lode_pread(file, buffer, sizeof buffer, 4), 1);
    GIVES(lode_pread(file, buffer, sizeof buffer, 5), 0);
    GIVES(lode_pread(file, buffer, sizeof buffer, INT64_MAX), 0);
    GIVES(lode_lseek(file, 0, SEEK_CUR), 5);

    GIVES(lode_append(file, " there", 6), 5);
    GIVES(lode_append(file, "", 0), 11);
    CHECK(holds(pool, "file", "HEllo there"));
    GIVES(lode_write(file, "", 0), 0);
    GIVES(lode_write(file, NULL, 0), 0);
    GIVES(lode_read(file, NULL, 0), 0);
    GIVES(lode_fsync(file), 0);
    FAILS(lode_pread(file, buffer, 1, -1), EINVAL);
    FAILS(lode_pwrite(file, buffer, 1, -1), EINVAL);
    FAILS(lode_pwrite(file, buffer, 1, INT64_MAX), EFBIG);
    GIVES(lode_close(file), 0);
}

static void rights_of_an_opening(void)
{
    char byte;
    lode_file *reader = lode_open(pool, "file", O_RDONLY, 0);
    lode_file *writer = lode_open(pool, "file", O_WRONLY, 0);
    lode_file *made = lode_open(pool, "made", O_RDONLY | O_CREAT, 0600);
    CHECK(reader != NULL && writer != NULL && made != NULL);
    FAILS(lode_write(reader, "x", 1), EBADF);
    FAILS(lode_pwrite(reader, "x", 1, 0), EBADF);
    FAILS(lode_append(reader, "x", 1), EBADF);
    FAILS(lode_ftruncate(reader, 0), EINVAL);
    FAILS(lode_fallocate(reader, 0, 0, 1), EBADF);
    FAILS(lode_read(writer, &byte, 1), EBADF);
    FAILS(lode_pread(writer, &byte, 1, 0), EBADF);
    FAILS(lode_write(made, "x", 1), EBADF);
    FAILS(lode_pwrite(made, "x", 1, 0), EBADF);
    FAILS(lode_append(made, "x", 1), EBADF);
    FAILS(lode_ftruncate(made, 0), EINVAL);
    FAILS(lode_fallocate(made, LODE_FALLOC_ZERO_RANGE, 0, 1), EBADF);
    FAILS(lode_fallocate(made, LODE_FALLOC_PUNCH_HOLE | LODE_FALLOC_KEEP_SIZE, 0, 1), EBADF);
    GIVES(lode_read(made, &byte, 1), 0);
    GIVES(lode_close(reader), 0);
    GIVES(lode_close(writer), 0);
    GIVES(lode_close(made), 0);
    lode_file *dir = lode_open(pool, "/", O_RDONLY | O_DIRECTORY, 0);
    CHECK(dir != NULL);
    FAILS(lode_read(dir, &byte, 1), EISDIR);
    GIVES(lode_close(dir), 0);
    NONE(lode_open(pool, "file", O_PATH, 0), EINVAL);
}

static void files_that_are_appended_to(void)
{
    put(pool, "log", "one");
    lode_file *log = lode_open(pool, "log", O_RDWR | O_APPEND, 0);
    CHECK(log != NULL);
    GIVES(lode_pwrite(log, "two", 3, 0), 3);
    GIVES(lode_lseek(log, 0, SEEK_SET), 0);
    GIVES(lode_write(log, "three", 5), 5);
    GIVES(lode_lseek(log, 0, SEEK_CUR), 11);
    CHECK(holds(pool, "log", "onetwothree"));
    GIVES(lode_close(log), 0);
    log = lode_open(pool, "log", O_WRONLY | O_APPEND | O_TRUNC | O_CREAT, 0644);
    CHECK(log != NULL);
    CHECK(holds(pool, "log", ""));
    GIVES(lode_append(log, "x", 1), 0);
    GIVES(lode_close(log), 0);
}

static void holes_and_sizes(void)
{
    struct lode_stat found;
    char buffer[4096];
    lode_file *file = lode_open(pool, "holes", O_RDWR | O_CREAT, 0644);
    CHECK(file != NULL);
    GIVES(lode_pwrite(file, "x", 1, 1 << 20), 1);
    GIVES(lode_lseek(file, 0, SEEK_DATA), 1 << 20);
    GIVES(lode_lseek(file, 0, SEEK_CUR), 1 << 20);
    GIVES(lode_lseek(file, 5, SEEK_HOLE), 5);
    GIVES(lode_lseek(file, 1 << 20, SEEK_HOLE), (1 << 20) + 1);
    GIVES(lode_lseek(file, -1, SEEK_END), 1 << 20);
    FAILS(lode_lseek(file, 2 << 20, SEEK_DATA), ENXIO);
    FAILS(lode_lseek(file, -1, SEEK_DATA), ENXIO);
    FAILS(lode_lseek(file, -1, SEEK_SET), EINVAL);
    FAILS(lode_lseek(file, -(2 << 20), SEEK_END), EINVAL);
    FAILS(lode_lseek(file, INT64_MAX, SEEK_CUR), EINVAL);
    FAILS(lode_lseek(file, 0, 9), EINVAL);

    GIVES(lode_ftruncate(file, 10000), 0);
    GIVES(lode_fstat(file, &found), 0);
    CHECK(found.size == 10000 && found.blocks == 0);
    FAILS(lode_ftruncate(file, -1), EINVAL);
    GIVES(lode_fallocate(file, 0, 0, 20000), 0);
    GIVES(lode_fstat(file, &found), 0);
    CHECK(found.size == 20000 && found.blocks == 40);
    GIVES(lode_fallocate(file, LODE_FALLOC_KEEP_SIZE, 20480, 4096), 0);
    GIVES(lode_fstat(file, &found), 0);
    CHECK(found.size == 20000 && found.blocks == 48);

    memset(buffer, 'x', sizeof buffer);
    GIVES(lode_pwrite(file, buffer, sizeof buffer, 4096), 4096);
    GIVES(lode_fallocate(file, LODE_FALLOC_ZERO_RANGE, 5000, 96), 0);
    GIVES(lode_pread(file, buffer, sizeof buffer, 4096), 4096);
    CHECK(buffer[903] == 'x' && buffer[904] == 0 && buffer[999] == 0 && buffer[1000] == 'x');
    GIVES(lode_fallocate(file, LODE_FALLOC_PUNCH_HOLE | LODE_FALLOC_KEEP_SIZE, 4096, 4096), 0);
    GIVES(lode_pread(file, buffer, sizeof buffer, 4096), 4096);
    CHECK(buffer[0] == 0 && buffer[4095] == 0);
    GIVES(lode_fstat(file, &found), 0);
    CHECK(found.size == 20000 && found.blocks == 40);
    GIVES(lode_fallocate(file, LODE_FALLOC_ZERO_RANGE | LODE_FALLOC_KEEP_SIZE, 20000, 9), 0);
    GIVES(lode_lseek(file, 0, SEEK_END), 20000);
    GIVES(lode_fallocate(file, LODE_FALLOC_ZERO_RANGE, 20000, 9), 0);
    GIVES(lode_lseek(file, 0, SEEK_END), 20009);
    FAILS(lode_fallocate(file, LODE_FALLOC_PUNCH_HOLE, 0, 1), EOPNOTSUPP);
    FAILS(lode_fallocate(file, 0x8, 0, 1), EOPNOTSUPP);
    FAILS(lode_fallocate(file, 0, 0, 0), EINVAL);
    FAILS(lode_fallocate(file, 0, -1, 1), EINVAL);
    FAILS(lode_fallocate(file, 0, 0, -1), EINVAL);
    FAILS(lode_fallocate(file, 0, INT64_MAX, 1), EFBIG);
    FAILS(lode_fallocate(file, 0, 0, 1 << 30), ENOSPC);
    GIVES(lode_close(file), 0);
}

static void files_without_a_name(void)
{
    struct lode_stat found;
    char byte;
    lode_file *file = lode_open(pool, "/", O_TMPFILE | O_WRONLY, 0777);
    CHECK(file != NULL);
    GIVES(lode_write(file, "whole", 5), 5);
    FAILS(lode_pread(file, &byte, 1, 0), EBADF);
    GIVES(lode_fstat(file, &found), 0);
    CHECK(found.nlink == 0 && found.mode == (S_IFREG | 0755));
    FAILS(lode_flink(file, "log"), EEXIST);
    GIVES(lode_flink(file, "named"), 0);
    GIVES(lode_flink(file, "again"), 0);
    GIVES(lode_close(file), 0);
    CHECK(holds(pool, "named", "whole") && holds(pool, "again", "whole"));
    NONE(lode_open(pool, "/", O_TMPFILE | O_RDONLY, 0600), EINVAL);
    NONE(lode_open(pool, "/", O_TMPFILE | O_RDWR | O_CREAT, 0600), EINVAL);
    NONE(lode_open(pool, "log", O_TMPFILE | O_RDWR, 0600), ENOTDIR);
    file = lode_open(pool, "log", O_RDWR, 0);
    CHECK(file != NULL);
    GIVES(lode_unlink(pool, "log"), 0);
    FAILS(lode_flink(file, "back"), ENOENT);
    GIVES(lode_close(file), 0);
}

int main(void)
{
    pool = scratch_pool();
    reading_and_writing();
    rights_of_an_opening();
    files_that_are_appended_to();
    holes_and_sizes();
    files_without_a_name();
    return lode_pool_close(pool);
}
