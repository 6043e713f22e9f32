/* Many threads at a time, each with its own errno and last error. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 4, RECORDS = 500, RECORD = 100 };

static lode_pool *pool;
static lode_file *together;

static void *work(void *number)
{
    int own = (int)(intptr_t)number;
    char name[32], record[RECORD];
    CHECK(lode_last_error()[0] == '\0');
    memset(record, 'a' + own, sizeof record);
    snprintf(name, sizeof name, "missing-%d", own);
    for (int at = 0; at < RECORDS; at++) {
        GIVES(lode_append(together, record, sizeof record) % RECORD, 0);
        NONE(lode_open(pool, name, LODE_O_RDONLY, 0), ENOENT);
        CHECK(strstr(lode_last_error(), name) != NULL);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    char record[RECORD];
    int count[THREADS] = {0};
    pool = scratch_pool();
    together = lode_open(pool, "together", LODE_O_RDWR | LODE_O_CREAT, 0644);
    CHECK(together != NULL);
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, work, (void *)(intptr_t)at) == 0);
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    while (lode_read(together, record, sizeof record) == RECORD) {
        for (int at = 1; at < RECORD; at++)
            CHECK(record[at] == record[0]);
        CHECK(record[0] >= 'a' && record[0] < 'a' + THREADS);
        count[record[0] - 'a']++;
    }
    for (int at = 0; at < THREADS; at++)
        GIVES(count[at], RECORDS);
    GIVES(lode_close(together), 0);
    return lode_pool_close(pool);
}
