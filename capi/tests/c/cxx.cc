// The header in C++: its functions have C's names, also those that a structure is called after.
#include <lode.h>

#include <cstring>

int main()
{
    lode_pool_options options = {};
    options.size = sizeof options;
    lode_pool *pool = lode_pool_in_memory(16 << 20, &options);
    struct lode_stat found;
    struct lode_statfs space;
    if (!pool || lode_stat(pool, "/", &found) != 0 || lode_statfs(pool, &space) != 0)
        return 1;
    lode_file *file = lode_open(pool, "file", LODE_O_RDWR | LODE_O_CREAT, 0644);
    char text[6] = "";
    if (lode_pwrite(file, "hello", 5, 0) != 5 || lode_pread(file, text, 5, 0) != 5)
        return 1;
    return std::strcmp(text, "hello") || lode_close(file) || lode_pool_close(pool);
}
