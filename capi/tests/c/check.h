/* What the tests in C share: a test is a program that ends with 0. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lode.h>

#define DIE(...) \
    do { \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr); \
        exit(1); \
    } while (0)

/* Holds. */
#define CHECK(what) \
    do { \
        if (!(what)) \
            DIE("not so: %s (last error: %s)", #what, lode_last_error()); \
    } while (0)

/* Returns this number. */
#define GIVES(call, expected) \
    do { \
        long long got_ = (long long)(call), wanted_ = (long long)(expected); \
        if (got_ != wanted_) \
            DIE("%s gives %lld, not %lld (last error: %s)", #call, got_, wanted_, \
                lode_last_error()); \
    } while (0)

/* Fails with this error number, and says so in words. */
#define FAILED_(failed, call, number) \
    do { \
        errno = 0; \
        int failed_ = (failed); \
        int errno_ = errno; \
        if (!failed_) \
            DIE("%s does not fail", call); \
        if (errno_ != (number)) \
            DIE("%s fails with %s, not %s (last error: %s)", call, strerror(errno_), #number, \
                lode_last_error()); \
        if (lode_last_error()[0] == '\0') \
            DIE("%s has no last error", call); \
    } while (0)
#define FAILS(call, number) FAILED_((call) == -1, #call, number)
#define NONE(call, number) FAILED_((call) == NULL, #call, number)

/* A small pool that is nobody else's, with umask 022. */
static inline lode_pool *scratch_pool(void)
{
    struct lode_pool_options options = {.size = sizeof options};
    options.flags = LODE_POOL_UMASK;
    options.umask = 022;
    lode_pool *pool = lode_pool_in_memory(16 << 20, &options);
    CHECK(pool != NULL);
    return pool;
}

/* A file with this text. */
static inline void put(lode_pool *pool, const char *path, const char *text)
{
    lode_file *file = lode_open(pool, path, LODE_O_WRONLY | LODE_O_CREAT | LODE_O_TRUNC, 0644);
    CHECK(file != NULL);
    GIVES(lode_write(file, text, strlen(text)), strlen(text));
    GIVES(lode_close(file), 0);
}

/* Whether a file holds this text. */
static inline int holds(lode_pool *pool, const char *path, const char *text)
{
    char buffer[256];
    lode_file *file = lode_open(pool, path, LODE_O_RDONLY, 0);
    CHECK(file != NULL);
    int64_t length = lode_read(file, buffer, sizeof buffer);
    CHECK(length >= 0);
    GIVES(lode_close(file), 0);
    return (size_t)length == strlen(text) && memcmp(buffer, text, (size_t)length) == 0;
}

#endif
