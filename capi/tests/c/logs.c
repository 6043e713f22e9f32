/* Logs: what was appended is there, in its order, after a crash too. */
#include <fcntl.h>
#include <pthread.h>

#include "crashed.h"

static char path[4096];
static lode_pool *pool;
static lode_log *journal;

/* How many entries a log has; each must be `entry` and its number. */
static int count(lode_log *log)
{
    int number = 0;
    const struct lode_entry *entry;
    lode_entries *entries = lode_log_read(log, 0);
    CHECK(entries != NULL);
    int64_t last = 0;
    while ((entry = lode_entries_next(entries)) != NULL) {
        char text[32];
        int length = snprintf(text, sizeof text, "entry %d", number++);
        CHECK(entry->position > last);
        last = entry->position;
        GIVES(entry->size, length);
        CHECK(memcmp(entry->data, text, entry->size) == 0);
    }
    GIVES(errno, 0);
    GIVES(lode_entries_close(entries), 0);
    return number;
}

static int count_after_a_crash(void)
{
    lode_pool *now = crashed(path);
    lode_log *log = lode_log_open(now, "journal", 0);
    CHECK(log != NULL);
    int found = count(log);
    GIVES(lode_log_close(log), 0);
    GIVES(lode_pool_close(now), 0);
    return found;
}

static void entries_come_back_in_their_order(void)
{
    journal = lode_log_open(pool, "journal", 10000);
    CHECK(journal != NULL);
    GIVES(count(journal), 0);
    int64_t first = lode_log_position(journal);
    GIVES(lode_log_append(journal, "entry 0", 7), first);
    CHECK(lode_log_position(journal) > first);
    GIVES(count_after_a_crash(), 1);
    struct lode_data more[] = {{"entry 1", 7}, {"entry 2", 7}, {"entry 3", 7}};
    int64_t second = lode_log_append_all(journal, more, 3);
    CHECK(second > first);
    GIVES(count_after_a_crash(), 4);
    GIVES(lode_log_append_all(journal, NULL, 0), lode_log_position(journal));

    lode_entries *entries = lode_log_read(journal, second);
    CHECK(entries != NULL);
    const struct lode_entry *entry = lode_entries_next(entries);
    CHECK(entry != NULL && memcmp(entry->data, "entry 1", 7) == 0);
    GIVES(entry->position, second);
    /* As many as there were. */
    GIVES(lode_log_append(journal, "entry 4", 7), lode_log_position(journal) - 64);
    CHECK(lode_entries_next(entries) != NULL && lode_entries_next(entries) != NULL);
    errno = EIO;
    CHECK(lode_entries_next(entries) == NULL && errno == 0);
    GIVES(lode_entries_close(entries), 0);

    NONE(lode_log_read(journal, -1), EINVAL);
    NONE(lode_log_read(journal, first + 1), EINVAL);
    NONE(lode_log_read(journal, lode_log_position(journal) + 64), EINVAL);
    GIVES(lode_log_close(journal), 0);
    journal = lode_log_open(pool, "journal", 0);
    CHECK(journal != NULL);
    GIVES(count(journal), 5);
}

static void a_log_that_was_emptied_stays_so(void)
{
    lode_entries *entries = lode_log_read(journal, 0);
    CHECK(entries != NULL && lode_entries_next(entries) != NULL);
    GIVES(lode_log_clear(journal), 0);
    CHECK(lode_entries_next(entries) == NULL && errno == 0);
    GIVES(lode_entries_close(entries), 0);
    GIVES(count(journal), 0);
    GIVES(count_after_a_crash(), 0);
}

static void a_log_is_open_once(void)
{
    NONE(lode_log_open(pool, "journal", 0), EBUSY);
    CHECK(strstr(lode_last_error(), "open already") != NULL);
    GIVES(lode_log_close(journal), 0);
    journal = lode_log_open(pool, "journal", 0);
    CHECK(journal != NULL);
}

static void a_damaged_entry_is_not_the_end(void)
{
    lode_log *log = lode_log_open(pool, "damaged", 1000);
    CHECK(log != NULL);
    CHECK(lode_log_append(log, "entry 0", 7) > 0);
    int64_t second = lode_log_append(log, "entry 1", 7);
    CHECK(lode_log_append(log, "entry 2", 7) > second);
    lode_file *file = lode_open(pool, "damaged", O_WRONLY, 0);
    GIVES(lode_pwrite(file, "Entry", 5, second + 16), 5);
    GIVES(lode_close(file), 0);
    lode_entries *entries = lode_log_read(log, 0);
    CHECK(entries != NULL && lode_entries_next(entries) != NULL);
    NONE(lode_entries_next(entries), EIO);
    CHECK(lode_entries_next(entries) == NULL && errno == 0);
    GIVES(lode_entries_close(entries), 0);
    GIVES(lode_log_close(log), 0);
}

static void a_log_grows(void)
{
    static char bytes[100000];
    memset(bytes, 'b', sizeof bytes);
    lode_log *log = lode_log_open(pool, "growing", 1);
    CHECK(log != NULL);
    int64_t at = lode_log_append(log, bytes, sizeof bytes);
    CHECK(at > 0 && lode_log_append(log, NULL, 0) > at);
    lode_entries *entries = lode_log_read(log, at);
    /* Reading goes on without the log. */
    GIVES(lode_log_close(log), 0);
    const struct lode_entry *entry = lode_entries_next(entries);
    CHECK(entry != NULL && entry->size == sizeof bytes);
    CHECK(memcmp(entry->data, bytes, sizeof bytes) == 0);
    entry = lode_entries_next(entries);
    CHECK(entry != NULL && entry->size == 0);
    GIVES(lode_entries_close(entries), 0);
}

static void what_is_no_log_stays_as_it_is(void)
{
    put(pool, "text", "something else");
    NONE(lode_log_open(pool, "text", 1000), EINVAL);
    CHECK(strstr(lode_last_error(), "text") != NULL);
    CHECK(holds(pool, "text", "something else"));
    NONE(lode_log_open(pool, "none/log", 1000), ENOENT);
    NONE(lode_log_open(pool, "large", (uint64_t)1 << 40), ENOSPC);
    NONE(lode_log_open(pool, "large", UINT64_MAX), EFBIG);
    lode_pool *memory = scratch_pool();
    NONE(lode_log_open(memory, "log", 1000), EOPNOTSUPP);
    GIVES(lode_pool_close(memory), 0);
}

enum { THREADS = 4, EACH = 500 };

static lode_log *together;

static void *work(void *number)
{
    int own = (int)(intptr_t)number;
    for (int at = 0; at < EACH; at++) {
        int pair[] = {own, at};
        CHECK(lode_log_append(together, pair, sizeof pair) > 0);
    }
    return NULL;
}

static void threads_append_without_losing_anything(void)
{
    pthread_t threads[THREADS];
    int next[THREADS] = {0};
    const struct lode_entry *entry;
    together = lode_log_open(pool, "together", 1000);
    CHECK(together != NULL);
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, work, (void *)(intptr_t)at) == 0);
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    lode_entries *entries = lode_log_read(together, 0);
    CHECK(entries != NULL);
    while ((entry = lode_entries_next(entries)) != NULL) {
        int pair[2];
        GIVES(entry->size, sizeof pair);
        memcpy(pair, entry->data, sizeof pair);
        CHECK(pair[0] >= 0 && pair[0] < THREADS);
        GIVES(pair[1], next[pair[0]]++);
    }
    for (int at = 0; at < THREADS; at++)
        GIVES(next[at], EACH);
    GIVES(lode_entries_close(entries), 0);
    GIVES(lode_log_close(together), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/pool", argv[1]);
    pool = lode_pool_create(path, 16 << 20, NULL, NULL);
    CHECK(pool != NULL);
    entries_come_back_in_their_order();
    a_log_that_was_emptied_stays_so();
    a_log_is_open_once();
    a_damaged_entry_is_not_the_end();
    a_log_grows();
    what_is_no_log_stays_as_it_is();
    threads_append_without_losing_anything();
    FAILS(lode_pool_close(pool), EBUSY);
    GIVES(lode_log_close(journal), 0);
    pool = lode_pool_open(path, NULL);
    CHECK(pool != NULL);
    return lode_pool_close(pool);
}
