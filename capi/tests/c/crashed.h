/* For tests of what is durable: the pool as a crash of this process now would leave it. */
#ifndef CRASHED_H
#define CRASHED_H

#include "check.h"

/* Opens a copy of a pool's file as it is now. */
static inline lode_pool *crashed(const char *path)
{
    static char piece[1 << 16];
    char copy[4100];
    size_t count;
    snprintf(copy, sizeof copy, "%s.now", path);
    FILE *from = fopen(path, "r"), *to = fopen(copy, "w");
    CHECK(from != NULL && to != NULL);
    while ((count = fread(piece, 1, sizeof piece, from)) > 0)
        CHECK(fwrite(piece, 1, count, to) == count);
    CHECK(!ferror(from) && fclose(from) == 0 && fclose(to) == 0);
    lode_pool *pool = lode_pool_open(copy, NULL);
    CHECK(pool != NULL);
    return pool;
}

#endif
