/* Main memory of a pool. The first argument is a directory; in it a pool's owner has its socket, or none answers. */
#include "check.h"

#include <limits.h>

static void blocks(lode_heap *heap)
{
    struct lode_heap_stats figures;
    unsigned char *small = lode_heap_alloc(heap, 100, 64);
    CHECK(small != NULL && (size_t)small % 64 == 0);
    memset(small, 1, 100);
    unsigned char *large = lode_heap_alloc(heap, 20 << 20, 0);
    CHECK(large != NULL);
    memset(large, 2, 20 << 20);
    large = lode_heap_realloc(heap, large, 30 << 20);
    CHECK(large != NULL && large[0] == 2 && large[(20 << 20) - 1] == 2);
    GIVES(lode_heap_stats(heap, &figures), 0);
    CHECK(figures.held >= 30 << 20 && figures.pool >= 30 << 20 && figures.dram == 0);
    NONE(lode_heap_alloc(heap, 100 << 20, 0), ENOMEM);
    NONE(lode_heap_alloc(heap, 1, 3), EINVAL);
    GIVES(lode_heap_free(heap, large), 0);
    GIVES(lode_heap_free(heap, small), 0);
    CHECK(lode_heap_purge(heap) >= 30 << 20);
    GIVES(lode_heap_stats(heap, &figures), 0);
    CHECK(figures.held < 30 << 20 && figures.returned >= 30 << 20);
}

int main(int argc, char **argv)
{
    char socket[PATH_MAX];
    if (argc != 2)
        DIE("one argument: a directory");
    snprintf(socket, sizeof socket, "%s/socket", argv[1]);
    NONE(lode_heap_open(socket, "other"), EINVAL);
    lode_heap *heap = lode_heap_open(socket, "indirect");
    if (heap == NULL) {
        CHECK(errno == ENOENT);
        puts("nobody lends");
        return 0;
    }
    NONE(lode_heap_open("/other", NULL), EBUSY);
    blocks(heap);
    GIVES(lode_heap_close(heap), 0);
    puts("blocks came from the pool");
    return 0;
}
