/* A kept heap of a pool that another process has open. The first argument is a directory, in which that one has its socket; the
   second what is done: "make" makes a heap, "find" looks at it, "stay" has it until its owner is gone, which a line on standard input says. */
#include <sys/mman.h>

#include "kept_list.h"

enum { THINGS = 300, LARGE = 5 << 20 };

static char path[4096];

static lode_kept *attached(void)
{
    lode_kept *heap = lode_kept_attach(path, "things");
    CHECK(heap != NULL);
    return heap;
}

static void look(lode_kept *heap)
{
    int64_t root = lode_kept_named(heap, LODE_KEPT_ROOT);
    GIVES(length(heap, root), THINGS);
    const char *bytes = lode_kept_address(heap, lode_kept_named(heap, root + 8));
    CHECK(bytes != NULL);
    for (int byte = 0; byte < LARGE; byte++)
        CHECK(bytes[byte] == 'x');
}

static void make(void)
{
    lode_kept *heap = attached();
    int64_t root = lode_kept_alloc_into(heap, LODE_KEPT_ROOT, 64, LODE_KEPT_ZEROED);
    CHECK(root > 0);
    for (uint64_t number = 0; number < THINGS; number++)
        push(heap, root, number);
    int64_t large = lode_kept_alloc_into(heap, root + 8, LARGE, 0);
    CHECK(large > 0);
    char *bytes = lode_kept_address(heap, large);
    memset(bytes, 'x', LARGE);
    GIVES(lode_kept_persist(heap, bytes, LARGE), 0);
    NONE(lode_kept_attach(path, "things"), EBUSY);
    look(heap);
    GIVES(lode_kept_close(heap), 0);
    /* Its place is somebody else's by the next time. */
    char *place = bytes - (size_t)bytes % 4096;
    CHECK(mmap(place, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == place);
    heap = attached();
    CHECK((char *)lode_kept_address(heap, large) != bytes);
    FAILS(lode_kept_offset(heap, bytes), EFAULT);
    look(heap);
    GIVES(lode_kept_close(heap), 0);
}

static void stay(void)
{
    lode_kept *heap = attached();
    int64_t root = lode_kept_named(heap, LODE_KEPT_ROOT);
    char *bytes = lode_kept_address(heap, lode_kept_named(heap, root + 8));
    puts("attached");
    fflush(stdout);
    CHECK(getchar() == '\n');
    /* What is stored is this process' alone; no call pretends that it is more. */
    bytes[0] = 'y';
    CHECK(bytes[0] == 'y');
    FAILS(lode_kept_persist(heap, bytes, 1), ENOTCONN);
    FAILS(lode_kept_alloc_into(heap, root + 16, 100, 0), ENOTCONN);
    FAILS(lode_kept_free_from(heap, root), ENOTCONN);
    FAILS(lode_kept_close(heap), ENOTCONN);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    snprintf(path, sizeof path, "%s/socket", argv[1]);
    if (strcmp(argv[2], "make") == 0) {
        make();
    } else if (strcmp(argv[2], "stay") == 0) {
        stay();
    } else {
        lode_kept *heap = attached();
        look(heap);
        GIVES(lode_kept_close(heap), 0);
    }
    return 0;
}
