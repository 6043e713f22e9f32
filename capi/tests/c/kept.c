/* Kept heaps: what was allocated is there, at whatever address, after a crash too. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "crashed.h"
#include "kept_list.h"

static char path[4096];
static lode_pool *pool;
static lode_kept *heap;

static int64_t blocks(lode_kept *of)
{
    int64_t count = 0;
    for (int64_t at = 0; (at = lode_kept_next(of, at)) != 0; count++)
        CHECK(at > 0);
    struct lode_kept_stats stats;
    GIVES(lode_kept_get_stats(of, &stats), 0);
    CHECK(stats.blocks == (uint64_t)count && stats.used + stats.free <= stats.bytes);
    return count;
}

static void a_list_is_there_after_a_crash(void)
{
    int64_t root = lode_kept_alloc_into(heap, LODE_KEPT_ROOT, 64, LODE_KEPT_ZEROED);
    CHECK(root > 0);
    GIVES(lode_kept_named(heap, LODE_KEPT_ROOT), root);
    for (uint64_t number = 0; number < 500; number++)
        push(heap, root, number);
    lode_pool *now = crashed(path);
    lode_kept *again = lode_kept_open(now, "heap");
    CHECK(again != NULL);
    CHECK(lode_kept_address(again, root) != lode_kept_address(heap, root));
    GIVES(length(again, lode_kept_named(again, LODE_KEPT_ROOT)), 500);
    GIVES(blocks(again), 501);
    GIVES(lode_kept_close(again), 0);
    GIVES(lode_pool_close(now), 0);
}

static void a_block_is_moved_and_freed(void)
{
    int64_t root = lode_kept_named(heap, LODE_KEPT_ROOT);
    int64_t first = lode_kept_named(heap, root);
    const struct node *node = lode_kept_address(heap, first);
    struct lode_kept_word words[] = {{root, node->next}, {root + 8, (uint64_t)first}};
    GIVES(lode_kept_change(heap, words, 2), 0);
    GIVES(lode_kept_free_from(heap, root + 8), first);
    GIVES(lode_kept_named(heap, root + 8), 0);
    GIVES(length(heap, root), 499);
    GIVES(blocks(heap), 500);
    FAILS(lode_kept_free_from(heap, root + 8), EINVAL);
}

static void what_is_stored_is_durable(void)
{
    int64_t root = lode_kept_named(heap, LODE_KEPT_ROOT);
    int64_t block = lode_kept_alloc_into(heap, root + 16, 5000, 0);
    CHECK(block > 0 && block % 4096 == 0);
    char *bytes = lode_kept_address(heap, block);
    memset(bytes, 'x', 5000);
    GIVES(lode_kept_persist(heap, bytes, 5000), 0);
    lode_pool *now = crashed(path);
    lode_kept *again = lode_kept_open(now, "heap");
    CHECK(again != NULL);
    CHECK(memcmp(lode_kept_address(again, block), bytes, 5000) == 0);
    GIVES(lode_kept_close(again), 0);
    GIVES(lode_pool_close(now), 0);
}

static void what_is_wrong_is_refused(void)
{
    char elsewhere;
    int64_t root = lode_kept_named(heap, LODE_KEPT_ROOT);
    NONE(lode_kept_open(pool, "heap"), EBUSY);
    put(pool, "text", "something else");
    NONE(lode_kept_open(pool, "text"), EINVAL);
    CHECK(strstr(lode_last_error(), "there is no heap") != NULL);
    CHECK(holds(pool, "text", "something else"));
    NONE(lode_kept_open(pool, "none/heap"), ENOENT);
    FAILS(lode_kept_alloc_into(heap, root + 1, 8, 0), EFAULT);
    FAILS(lode_kept_alloc_into(heap, -8, 8, 0), EINVAL);
    FAILS(lode_kept_alloc_into(heap, root, 8, 2), EINVAL);
    FAILS(lode_kept_alloc_into(heap, root + 24, (uint64_t)1 << 40, 0), ENOSPC);
    FAILS(lode_kept_alloc_into(heap, root + 24, UINT64_MAX, 0), EFBIG);
    FAILS(lode_kept_copy_into(heap, root + 24, NULL, 8), EFAULT);
    struct lode_kept_word word = {LODE_KEPT_ROOT, 12345};
    FAILS(lode_kept_change(heap, &word, 1), EINVAL);
    FAILS(lode_kept_usable_size(heap, root + 8), EINVAL);
    FAILS(lode_kept_offset(heap, &elsewhere), EFAULT);
    FAILS(lode_kept_persist(heap, &elsewhere, 1), EFAULT);
    FAILS(lode_kept_named(heap, (int64_t)1 << 40), EFAULT);
    FAILS(lode_kept_get_stats(heap, NULL), EFAULT);
    NONE(lode_kept_address(heap, (int64_t)1 << 40), EFAULT);
    GIVES(length(heap, root), 499);
}

/* Answers one program with what no owner says. */
static void *impostor(void *listener)
{
    char line[256];
    int answers = accept((int)(intptr_t)listener, NULL, NULL);
    CHECK(answers >= 0 && read(answers, line, sizeof line) > 0);
    CHECK(write(answers, "{}\n", 3) == 3);
    close(answers);
    return NULL;
}

static void who_is_no_owner_of_a_pool_is_refused(const char *directory)
{
    char socket_path[4200];
    snprintf(socket_path, sizeof socket_path, "%s/socket", directory);
    NONE(lode_kept_attach(NULL, "heap"), EFAULT);
    NONE(lode_kept_attach(socket_path, "heap"), ENOENT);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(strlen(socket_path) < sizeof address.sun_path);
    strcpy(address.sun_path, socket_path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, impostor, (void *)(intptr_t)listener) == 0);
    NONE(lode_kept_attach(socket_path, "heap"), EPROTO);
    CHECK(pthread_join(thread, NULL) == 0);
    close(listener);
    NONE(lode_kept_attach(socket_path, "heap"), ECONNREFUSED);
}

enum { THREADS = 4, EACH = 200 };

static void *work(void *head)
{
    for (uint64_t number = 0; number < EACH; number++)
        push(heap, (int64_t)(intptr_t)head, number);
    return NULL;
}

static void threads_allocate_side_by_side(void)
{
    pthread_t threads[THREADS];
    int64_t root = lode_kept_named(heap, LODE_KEPT_ROOT), before = blocks(heap);
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, work, (void *)(intptr_t)(root + 24 + 8 * at)) == 0);
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    for (int at = 0; at < THREADS; at++)
        GIVES(length(heap, root + 24 + 8 * at), EACH);
    GIVES(blocks(heap), before + THREADS * EACH);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/pool", argv[1]);
    pool = lode_pool_create(path, 16 << 20, NULL, NULL);
    CHECK(pool != NULL);
    heap = lode_kept_open(pool, "heap");
    CHECK(heap != NULL);
    a_list_is_there_after_a_crash();
    a_block_is_moved_and_freed();
    what_is_stored_is_durable();
    what_is_wrong_is_refused();
    who_is_no_owner_of_a_pool_is_refused(argv[1]);
    threads_allocate_side_by_side();
    int64_t before = blocks(heap);
    FAILS(lode_pool_close(pool), EBUSY);
    GIVES(lode_kept_close(heap), 0);
    pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL);
    heap = lode_kept_open(pool, "heap");
    CHECK(heap != NULL);
    GIVES(blocks(heap), before);
    GIVES(lode_kept_close(heap), 0);
    return lode_pool_close(pool);
}
