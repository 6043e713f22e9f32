/*
 * Accounts in a mapped file, and a journal of what was done to them: each transfer changes two accounts
 * that lie on different pages, both or neither.
 *
 *     cc journal.c $(pkg-config --cflags --libs lode) -o journal && ./journal /dev/shm/bank
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <lode.h>

enum { PAGE = 4096, PAGES = 2, TRANSFERS = 10 };

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, lode_last_error());
    return 1;
}

/* One transfer: stores to pages that are the map's alone, until they become the file's in one step. */
static int transfer(lode_map *accounts, int64_t amount)
{
    const struct lode_range both[] = {{0, PAGE}, {PAGE, PAGE}};
    char *memory = lode_map_address(accounts);
    if (lode_map_stage(accounts, 0, PAGES * PAGE, LODE_STAGE_COPIED) != 0)
        return -1;
    *(int64_t *)memory -= amount;
    *(int64_t *)(memory + PAGE) += amount;
    return lode_map_commit(accounts, both, 2);
}

static int read_journal(lode_log *journal)
{
    int count = 0;
    const struct lode_entry *entry;
    lode_entries *entries = lode_log_read(journal, 0);
    if (!entries)
        return -1;
    while ((entry = lode_entries_next(entries)) != NULL)
        count++;
    int ended = errno == 0;
    lode_entries_close(entries);
    return ended ? count : -1;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "/dev/shm/bank";
    lode_pool *pool = lode_pool_open(path, NULL);
    if (!pool && errno == ENOENT)
        pool = lode_pool_create(path, 16 << 20, NULL, NULL);
    if (!pool)
        return failed("can't open the pool");
    lode_file *file = lode_open(pool, "accounts", O_RDWR | O_CREAT, 0644);
    if (!file || lode_ftruncate(file, PAGES * PAGE) != 0)
        return failed("can't make the accounts");
    lode_map *accounts = lode_mmap(file, 0, PAGES * PAGE, LODE_MAP_WRITE);
    lode_log *journal = lode_log_open(pool, "journal", 1 << 20);
    if (!accounts || !journal)
        return failed("can't map the accounts");

    for (int64_t amount = 1; amount <= TRANSFERS; amount++) {
        if (transfer(accounts, amount) != 0)
            return failed("can't transfer");
        /* Once this has returned, it is there, whatever happens to this process. */
        if (lode_log_append(journal, &amount, sizeof amount) < 0)
            return failed("can't append");
    }
    int count = read_journal(journal);
    if (count < 0)
        return failed("can't read the journal");
    const char *memory = lode_map_address(accounts);
    printf("%d transfers, accounts of %lld and %lld\n", count, (long long)*(const int64_t *)memory,
           (long long)*(const int64_t *)(memory + PAGE));

    lode_log_close(journal);
    lode_munmap(accounts);
    lode_close(file);
    return lode_pool_close(pool) == 0 ? 0 : failed("can't close the pool");
}
