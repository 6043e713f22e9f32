/* What programs do with memory: `program WHAT`. Ends with 0 if all is as it has to be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { dprintf(2, "line %d: %s\n", __LINE__, #x); _exit(1); } } while (0)
#define MIB (1UL << 20)

static void fill(unsigned char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i += 64) p[i] = (unsigned char)(seed + i / 64 * 7);
    if (n) p[n - 1] = (unsigned char)seed;
}
static int is(unsigned char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n - 1; i += 64) if (p[i] != (unsigned char)(seed + i / 64 * 7)) return 0;
    return p[n - 1] == (unsigned char)seed;
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void line(void) { /* waits for a line from the test */
    char c;
    do { MUST(read(0, &c, 1) == 1); } while (c != '\n');
}
static void say(const char *s) { MUST(write(1, s, strlen(s)) > 0); }

/* Blocks that threads hand each other. */
#define PLACES 512
static struct block { unsigned char *p; size_t n; unsigned seed; } *_Atomic places[PLACES];
static void *trade(void *arg) {
    unsigned r = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < 20000; i++) {
        r = r * 1103515245u + 12345u;
        size_t n = (r >> 8) % (i % 100 == 0 ? 3000000 : i % 10 == 0 ? 40000 : 600) + 1;
        if (i % 2000 == 0) n = 9 * MIB;
        struct block *b = malloc(sizeof *b);
        MUST(b);
        b->n = n; b->seed = r; b->p = i % 3 ? malloc(n) : calloc(1, n);
        MUST(b->p);
        if (i % 3 == 0) for (size_t k = 0; k < n; k += 512) MUST(b->p[k] == 0);
        fill(b->p, n, r);
        struct block *old = atomic_exchange(&places[(r >> 4) % PLACES], b);
        if (old) {
            MUST(is(old->p, old->n, old->seed));
            if (i % 5 == 0) {
                old->p = realloc(old->p, old->n * 2 + 1);
                MUST(old->p);
                if (old->n > 1) MUST(old->p[0] == (unsigned char)old->seed);
            }
            free(old->p);
            free(old);
        }
    }
    return 0;
}
static void threads(void) {
    pthread_t t[8];
    for (long i = 0; i < 8; i++) MUST(!pthread_create(&t[i], 0, trade, (void *)(i + 1)));
    for (int i = 0; i < 8; i++) MUST(!pthread_join(t[i], 0));
    for (int i = 0; i < PLACES; i++) {
        struct block *b = places[i];
        if (b) { MUST(is(b->p, b->n, b->seed)); free(b->p); free(b); }
    }
    malloc_trim(0);
}

static int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0) MUST(errno == EINTR);
    return status;
}

/* A child sees what its parent has, and writes for itself. So does its own. */
static void forks(void) {
    size_t n = 20 * MIB, m = 100000;
    unsigned char *large = malloc(n), *small = malloc(m);
    fill(large, n, 1); fill(small, m, 2);
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        MUST(is(large, n, 1) && is(small, m, 2));
        fill(large, n, 3); fill(small, m, 4);
        unsigned char *more = malloc(3 * MIB);
        fill(more, 3 * MIB, 5);
        pid_t grandchild = fork();
        MUST(grandchild >= 0);
        if (!grandchild) {
            MUST(is(large, n, 3) && is(small, m, 4) && is(more, 3 * MIB, 5));
            fill(large, n, 6); fill(small, m, 7); fill(more, 3 * MIB, 8);
            free(large); free(small); free(more);
            _exit(0);
        }
        MUST(wait_for(grandchild) == 0);
        MUST(is(large, n, 3) && is(small, m, 4) && is(more, 3 * MIB, 5));
        free(more);
        free(large);
        exit(0);
    }
    /* Meanwhile: what the parent writes doesn't reach the child. */
    MUST(wait_for(child) == 0);
    MUST(is(large, n, 1) && is(small, m, 2));
    free(large); free(small);
    malloc_trim(0);
}

/* A child that asks for nothing has all that its parent has. */
static void copies(void) {
    size_t n = 20 * MIB, m = 100000;
    unsigned char *large = malloc(n), *small = malloc(m);
    fill(large, n, 1); fill(small, m, 2);
    pid_t child = fork();
    if (!child) {
        MUST(is(large, n, 1) && is(small, m, 2));
        fill(large, n, 3); fill(small, m, 4);
        MUST(is(large, n, 3) && is(small, m, 4));
        free(large); free(small);
        _exit(0);
    }
    MUST(wait_for(child) == 0);
    MUST(is(large, n, 1) && is(small, m, 2));
    free(large); free(small);
}

/* Children, while other threads allocate, and while one is in stdio. */
static _Atomic int stop;
static void *busy(void *arg) {
    unsigned r = (unsigned)(uintptr_t)arg;
    while (!stop) {
        r = r * 1103515245u + 12345u;
        size_t n = (r >> 8) % ((r >> 4) % 50 ? 5000 : 200000) + 1;
        unsigned char *p = malloc(n);
        MUST(p);
        fill(p, n, r);
        MUST(is(p, n, r));
        free(p);
    }
    return 0;
}
static FILE *pipe_file;
static void *reads(void *arg) {
    char text[100];
    (void)arg;
    /* Holds the lock of a FILE for the whole time, and lets it go afterwards. */
    MUST(fgets(text, sizeof text, pipe_file));
    MUST(!strcmp(text, "end\n"));
    flockfile(pipe_file); funlockfile(pipe_file);
    MUST(ftrylockfile(pipe_file) == 0);
    return 0;
}
static void *with_keys(void *arg) {
    pthread_key_t *keys = arg;
    for (long i = 0; i < 64; i++) MUST(!pthread_setspecific(keys[i], (void *)(i + 1)));
    while (!stop) usleep(1000);
    for (long i = 0; i < 64; i++) MUST(pthread_getspecific(keys[i]) == (void *)(i + 1));
    return 0;
}
static void fork_storm(void) {
    int ends[2];
    pthread_t t[3], reader, keeper;
    pthread_key_t keys[64];
    for (int i = 0; i < 64; i++) MUST(!pthread_key_create(&keys[i], 0));
    MUST(!pipe(ends));
    pipe_file = fdopen(ends[0], "r");
    MUST(pipe_file);
    MUST(!pthread_create(&reader, 0, reads, 0));
    MUST(!pthread_create(&keeper, 0, with_keys, keys));
    unsigned char *own = malloc(MIB);
    for (long i = 0; i < 3; i++) MUST(!pthread_create(&t[i], 0, busy, (void *)(i + 1)));
    for (int i = 0; i < 200; i++) {
        fill(own, MIB, i);
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            MUST(is(own, MIB, i));
            fill(own, MIB, i + 100);
            unsigned char *p = malloc(300000);
            MUST(p);
            fill(p, 300000, 1);
            MUST(is(p, 300000, 1) && is(own, MIB, i + 100));
            free(p);
            _exit(0);
        }
        MUST(wait_for(child) == 0);
        MUST(is(own, MIB, i));
    }
    stop = 1;
    for (int i = 0; i < 3; i++) MUST(!pthread_join(t[i], 0));
    MUST(!pthread_join(keeper, 0));
    MUST(write(ends[1], "end\n", 4) == 4);
    MUST(!pthread_join(reader, 0));
}

/* A block that grows is moved by its pages. */
static void grows(void) {
    size_t n = 64 * MIB;
    unsigned char *p = malloc(n), *wall = malloc(9 * MIB);
    MUST(p && wall);
    fill(p, n, 9);
    double copied = 0, moved = 0;
    for (int i = 0; i < 5; i++) {
        unsigned char *q = malloc(n);
        MUST(q);
        fill(q, n, 1);
        double start = now();
        memcpy(q, p, n);
        copied += now() - start;
        free(q);
        malloc_trim(0);
        /* The wall keeps it from growing where it is. */
        start = now();
        q = realloc(p, n + 2 * MIB);
        moved += now() - start;
        MUST(q && q != p && is(q, n - 1, 9) == 0 ? 1 : q != 0);
        for (size_t k = 0; k < n - 1; k += 64) MUST(q[k] == (unsigned char)(9 + k / 64 * 7));
        p = realloc(q, n);
        MUST(p == q);
        free(wall);
        wall = malloc(9 * MIB);
        unsigned char *behind = malloc(n);
        free(behind);
        free(p);
        p = malloc(n);
        free(wall);
        wall = malloc(9 * MIB);
        fill(p, n, 9);
    }
    dprintf(1, "copied %.4f moved %.4f\n", copied, moved);
    free(p); free(wall);
    /* Across the sizes at which it is of another kind, and back. */
    p = malloc(100);
    fill(p, 100, 3);
    size_t old = 100;
    for (size_t size = 200; size < 40 * MIB; size = size * 3 / 2) {
        p = realloc(p, size);
        MUST(p && malloc_usable_size(p) >= size);
        for (size_t k = 0; k < old - 1; k += 64) MUST(p[k] == (unsigned char)(3 + k / 64 * 7));
        fill(p, size, 3);
        old = size;
    }
    while (old > 200) {
        size_t size = old / 2;
        p = realloc(p, size);
        MUST(p);
        for (size_t k = 0; k < size; k += 64) MUST(p[k] == (unsigned char)(3 + k / 64 * 7));
        old = size;
    }
    free(p);
    malloc_trim(0);
}

/* More than there may be. */
static void limited(void) {
    void *all[10000];
    int n = 0;
    errno = 0;
    while (n < 10000 && (all[n] = malloc(MIB))) memset(all[n++], 1, MIB);
    MUST(n > 10 && n < 200 && errno == ENOMEM);
    MUST(!malloc(100 * MIB) && errno == ENOMEM);
    MUST(!calloc(SIZE_MAX / 2, 4) && errno == ENOMEM);
    void *last = all[n - 1];
    MUST(!realloc(last, 200 * MIB));
    memset(last, 2, MIB);
    for (int i = 0; i < n; i++) free(all[i]);
    void *again = malloc(10 * MIB);
    MUST(again);
    free(again);
    malloc_trim(0);
}

/* The owner goes and comes. */
static void orphaned(void) {
    unsigned char *a = malloc(20 * MIB), *b = malloc(50000), *c;
    fill(a, 20 * MIB, 1); fill(b, 50000, 2);
    say("owner\n");
    line();
    c = malloc(30 * MIB);
    MUST(c);
    fill(c, 30 * MIB, 3);
    MUST(is(a, 20 * MIB, 1) && is(b, 50000, 2));
    say("orphan\n");
    line();
    unsigned char *d = malloc(40 * MIB);
    MUST(d);
    fill(d, 40 * MIB, 4);
    MUST(is(a, 20 * MIB, 1) && is(b, 50000, 2) && is(c, 30 * MIB, 3));
    say("again\n");
    line();
    free(a); free(b); free(c); free(d);
    malloc_trim(0);
    say("freed\n");
    line();
}

/* Has some memory of each of many owners. */
static void many_owners(void) {
    enum { N = 12 };
    unsigned char *all[N];
    for (int i = 0; i < N; i++) {
        MUST(all[i] = malloc(9 * MIB));
        fill(all[i], 9 * MIB, i);
        for (int k = 0; k <= i; k++) MUST(is(all[k], 9 * MIB, k));
        say("more\n");
        line();
    }
    for (int i = 0; i < N; i++) free(all[i]);
}

/* Frees all that it has of the pool, a part of a chunk, and sleeps. */
static void least(void) {
    void *all = malloc(MIB);
    memset(all, 1, MIB);
    free(all);
    say("freed\n");
    line();
}

/* Frees what little it has, and sleeps. */
static void little(void) {
    enum { N = 50 };
    void *all[N];
    for (int i = 0; i < N; i++) memset(all[i] = malloc(100000), 1, 100000);
    for (int i = 0; i < N; i++) free(all[i]);
    say("freed\n");
    line();
}

/* Frees memory and sleeps. */
static void idles(void) {
    enum { N = 20000 };
    void *all[N];
    for (int i = 0; i < N; i++) memset(all[i] = malloc(2000), 1, 2000);
    void *large = malloc(20 * MIB);
    memset(large, 1, 20 * MIB);
    say("has\n");
    line();
    for (int i = 0; i < N; i++) free(all[i]);
    free(large);
    say("freed\n");
    line();
}

/* Closes what isn't its own, and goes on. */
static void closes(void) {
    unsigned char *a = malloc(20 * MIB);
    fill(a, 20 * MIB, 1);
    for (int i = 3; i < 1024; i++) close(i);
    int ends[2];
    MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    struct timeval second = {1, 0};
    for (int i = 0; i < 2; i++) MUST(!setsockopt(ends[i], SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second));
    for (int i = 5; i < 1020; i++) MUST(dup2(ends[1], i) == i);
    unsigned char *b = malloc(40 * MIB);
    MUST(b);
    fill(b, 40 * MIB, 2);
    MUST(is(a, 20 * MIB, 1));
    free(a); free(b);
    malloc_trim(0);
    for (int i = 5; i < 1020; i++) close(i);
    close(ends[1]);
    char c;
    MUST(read(ends[0], &c, 1) == 0);
}

/* Has files of its own where others were that it has closed: nothing is written to them, read from them, or closed. */
static void takes_numbers(void) {
    enum { FROM = 5, TO = 1020, BYTES = 200 };
    unsigned char *a = malloc(20 * MIB);
    fill(a, 20 * MIB, 1);
    /* (Until an owner may be looked for again.) */
    usleep(300000);
    for (int i = 3; i < 1024; i++) close(i);
    int ends[2];
    MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
    for (int i = FROM; i < TO; i++) MUST(dup2(ends[1], i) == i);
    unsigned char *b = malloc(40 * MIB);
    MUST(b);
    fill(b, 40 * MIB, 2);
    char c;
    for (int i = 0; i < BYTES; i++) {
        MUST(write(ends[0], "x", 1) == 1);
        usleep(10000);
        MUST(read(ends[0], &c, 1) == -1 && errno == EAGAIN);
    }
    pid_t child = fork();
    if (!child) {
        for (int i = FROM; i < TO; i++) MUST(fcntl(i, F_GETFD) >= 0);
        MUST(is(a, 20 * MIB, 1) && is(b, 40 * MIB, 2));
        _exit(0);
    }
    MUST(wait_for(child) == 0);
    for (int i = 0; i < BYTES; i++) MUST(read(ends[1], &c, 1) == 1 && c == 'x');
    MUST(is(a, 20 * MIB, 1) && is(b, 40 * MIB, 2));
    free(a); free(b);
}

/* Other programs, begun in all ways. */
static void spawns(void) {
    unsigned char *a = malloc(20 * MIB);
    fill(a, 20 * MIB, 1);
    MUST(system("exit 3") == 3 << 8);
    FILE *f = popen("echo hello", "r");
    char text[10];
    MUST(f && fgets(text, sizeof text, f) && !strcmp(text, "hello\n") && pclose(f) == 0);
    pid_t child = vfork();
    if (!child) { execl("/bin/true", "true", (char *)0); _exit(9); }
    MUST(wait_for(child) == 0);
    MUST(is(a, 20 * MIB, 1));
    child = fork();
    if (!child) { execl("/bin/true", "true", (char *)0); _exit(9); }
    MUST(wait_for(child) == 0);
    MUST(is(a, 20 * MIB, 1));
    free(a);
    malloc_trim(0);
}

/* Small blocks: how much of them lies in a shared mapping can be told from outside. */
static int in_pool(void *p) {
    FILE *f = fopen("/proc/self/maps", "r");
    char text[500];
    int found = -1;
    while (fgets(text, sizeof text, f)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(text, "%lx-%lx %7s", &from, &to, rights) == 3 && (unsigned long)p >= from && (unsigned long)p < to)
            found = rights[3] == 's';
    }
    fclose(f);
    return found;
}
static void sources(char **argv) {
    size_t below = strtoul(argv[2], 0, 10);
    /* A program's first blocks are DRAM, and stay so until they are made larger. */
    unsigned char *first = malloc(1000), *large;
    fill(first, 1000, 7);
    MUST(!in_pool(first));
    free(large = malloc(MIB));
    MUST(in_pool(large) == (MIB >= below));
    MUST(!in_pool(first) && is(first, 1000, 7));
    large = realloc(first, 6 * MIB);
    MUST(in_pool(large) == (6 * MIB >= below) && is(large, 1000, 7));
    free(large);
    size_t sizes[] = {1, 16, 100, 1000, 3000, 4095, 4096, 4097, 10000, 20000, 100000, MIB, 5 * MIB, 9 * MIB, 30 * MIB};
    for (int round = 0; round < 3; round++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *p = malloc(sizes[i]);
            MUST(in_pool(p) == (sizes[i] >= below));
            p = realloc(p, sizes[(i + 3) % 15]);
            MUST(in_pool(p) == (sizes[(i + 3) % 15] >= below));
            free(p);
            p = aligned_alloc(128, sizes[i]);
            MUST((uintptr_t)p % 128 == 0 && in_pool(p) == (sizes[i] >= below));
            free(p);
        }
    MUST(below > 4096 || in_pool(strdup("libc's own")) == 0);
    malloc_trim(0);
}

/* Forks on stacks that are blocks. The child goes on with the block that it runs on, and so does its parent. */
static ucontext_t outside, inside;
static pid_t forked;
static void forks_there(void) {
    unsigned char kept[20000];
    fill(kept, sizeof kept, 3);
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        MUST(child != -1 && is(kept, sizeof kept, 3 + round));
        fill(kept, sizeof kept, child ? 4 + round : 99);
        if (child) {
            MUST(wait_for(child) == 7 << 8 && is(kept, sizeof kept, 4 + round));
            continue;
        }
        /* A child of the child, and back to where that stack is left. */
        pid_t grandchild = fork();
        MUST(grandchild != -1 && is(kept, sizeof kept, 99));
        fill(kept, sizeof kept, 55);
        if (!grandchild) _exit(5);
        MUST(wait_for(grandchild) == 5 << 8 && is(kept, sizeof kept, 55));
        forked = -1;
        return;
    }
}
static void on_block(size_t n, void (*call)(void)) {
    unsigned char *stack = malloc(n);
    MUST(stack && !getcontext(&inside));
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = n;
    inside.uc_link = &outside;
    makecontext(&inside, call, 0);
    MUST(!swapcontext(&outside, &inside));
    free(stack);
    if (forked == -1) _exit(7);
}
static void block_stack(void) {
    size_t sizes[] = {60000, 256 << 10, MIB + 12345, 5 * MIB};
    free(malloc(3 * MIB));
    for (int i = 0; i < 4; i++) on_block(sizes[i], forks_there);
}
static void is_a_daemon(void) { MUST(!daemon(1, 1)); }
static void block_daemon(void) {
    free(malloc(3 * MIB));
    on_block(256 << 10, is_a_daemon);
}

/* What is said of blocks is heeded as for libc's, which are anonymous memory. */
static void advises(void) {
    size_t sizes[] = {MIB, 3 * MIB, 20 * MIB};
    free(malloc(3 * MIB));
    for (int i = 0; i < 3; i++) {
        size_t n = sizes[i];
        unsigned char *p = aligned_alloc(4096, n);
        MUST(p);
        fill(p, n, 1);
        MUST(!madvise(p, n / 2, MADV_DONTNEED));
        for (size_t k = 0; k < n / 2; k++) MUST(p[k] == 0);
        MUST(p[n - 1] == 1);
        MUST(!madvise(p, n, MADV_FREE) && !madvise(p, n, MADV_WILLNEED));
        fill(p, n, 2);
        MUST(madvise(p, n, MADV_REMOVE) == -1 && errno == EINVAL && is(p, n, 2));
        /* What a child need not have, and what nobody may touch, is no reason for it to end. */
        MUST(!madvise(p, n, MADV_DONTFORK));
        MUST(!mprotect(p, 4096, PROT_NONE) && !mprotect(p + 8192, 4096, PROT_READ));
        pid_t child = fork();
        if (!child) { free(malloc(5 * MIB)); _exit(7); }
        MUST(wait_for(child) == 7 << 8);
        MUST(!madvise(p, n, MADV_DOFORK) && !madvise(p + 4096, 8192, MADV_DONTNEED) && p[8192] == 0);
        child = fork();
        if (!child) { MUST(p[4096] == 0 && p[8192] == 0 && p[n - 1] == 2); p[n - 1] = 9; _exit(7); }
        MUST(wait_for(child) == 7 << 8);
        MUST(!mprotect(p, 12288, PROT_READ | PROT_WRITE) && p[0] == 2 && p[n - 1] == 2);
        free(p);
        unsigned char *zeros = calloc(1, n);
        for (size_t k = 0; k < n; k++) MUST(zeros[k] == 0);
        free(zeros);
    }
    /* A large one that is freed as it is can be had again. */
    for (int i = 0; i < 3; i++) {
        unsigned char *p = aligned_alloc(4096, 40 * MIB);
        fill(p, 40 * MIB, 3);
        MUST(!mprotect(p, 40 * MIB, i % 2 ? PROT_READ : PROT_NONE));
        free(p);
    }
}

/* What a program of 25 MiB does, whatever it may have. */
static void *narrow_thread(void *arg) {
    for (int i = 1; i < 300; i++) {
        unsigned char *p = malloc(i * 100);
        MUST(p);
        fill(p, i * 100, i);
        MUST(is(p, i * 100, i));
        free(p);
    }
    return arg;
}
static void narrow(void) {
    pthread_t t[4];
    pthread_attr_t small_stack;
    MUST(!pthread_attr_init(&small_stack) && !pthread_attr_setstacksize(&small_stack, 256 << 10));
    for (int round = 0; round < 3; round++) {
        unsigned char *large = malloc(9 * MIB), *cleared = calloc(3, MIB), *small[2000];
        MUST(large && cleared);
        fill(large, 9 * MIB, 1);
        for (size_t i = 0; i < 3 * MIB; i += 512) MUST(cleared[i] == 0);
        memset(cleared, 7, 3 * MIB);
        for (int i = 0; i < 2000; i++) { MUST(small[i] = malloc(1500)); fill(small[i], 1500, i); }
        unsigned char *mapped = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(mapped != MAP_FAILED && mapped[MIB - 1] == 0);
        fill(mapped, MIB, 3);
        MUST((large = realloc(large, 12 * MIB)) && is(large, 9 * MIB, 1));
        MUST((large = realloc(large, 100000)) && large[64] == 8);
        MUST((large = realloc(large, 2 * MIB)) && large[64] == 8);
        for (int i = 0; i < 4; i++) MUST(!pthread_create(&t[i], &small_stack, narrow_thread, 0));
        for (int i = 0; i < 4; i++) MUST(!pthread_join(t[i], 0));
        pid_t child = fork();
        if (!child) {
            for (int i = 0; i < 2000; i++) { MUST(is(small[i], 1500, i)); free(small[i]); }
            MUST(is(mapped, MIB, 3));
            narrow_thread(0);
            _exit(0);
        }
        MUST(wait_for(child) == 0);
        for (int i = 0; i < 2000; i++) { MUST(is(small[i], 1500, i)); free(small[i]); }
        MUST(is(mapped, MIB, 3) && !munmap(mapped, MIB));
        free(large);
        free(cleared);
        malloc_trim(0);
    }
    errno = 0;
    MUST(!malloc(1UL << 42) && errno == ENOMEM);
}

/* Alignments that are no power of two become the next one, as libc has it; those that can't be had are said so. */
static void alignments(void) {
    size_t sizes[] = {1, 65, 5000, MIB, 9 * MIB};
    for (int round = 0; round < 2; round++) {
        for (size_t align = 0; align < 200; align++)
            for (int i = 0; i < 5; i++) {
                size_t power = 1;
                while (power < align) power *= 2;
                void *p = align % 2 ? memalign(align, sizes[i]) : aligned_alloc(align, sizes[i]);
                MUST(p && (uintptr_t)p % power == 0 && malloc_usable_size(p) >= sizes[i]);
                fill(p, sizes[i], 1);
                free(p);
                int wanted = align >= 8 && power == align ? 0 : EINVAL;
                MUST(posix_memalign(&p, align, sizes[i]) == wanted);
                if (!wanted) { MUST((uintptr_t)p % align == 0); free(p); }
            }
        errno = 0;
        MUST(!memalign((SIZE_MAX >> 1) + 2, 1) && errno == EINVAL);
        errno = 0;
        MUST(!memalign((SIZE_MAX >> 2) + 2, 1) && errno == ENOMEM);
    }
}

/* What asks for little, as most that a build starts does: nobody is asked for memory. */
static void small(void) {
    unsigned char *p[200], *last = malloc(1);
    for (size_t n = 1; n < 10000; n += 100) {
        unsigned char *was = last;
        MUST((last = realloc(last, n)) == was);
        last[n - 1] = 3;
    }
    for (int i = 0; i < 200; i++) {
        p[i] = i % 2 ? calloc(1, 1000) : aligned_alloc(64, 1000);
        MUST(p[i] && malloc_usable_size(p[i]) >= 1000);
        if (i % 2) for (int k = 0; k < 1000; k++) MUST(p[i][k] == 0);
        fill(p[i], 1000, i);
    }
    /* What is freed in order can be had again, as zeros where that is asked for. */
    for (int i = 0; i < 2000; i++) {
        unsigned char *q = i % 2 ? calloc(1, 5000) : malloc(5001);
        if (i % 2) for (int k = 0; k < 5000; k++) MUST(q[k] == 0);
        fill(q, 5000, i + 1);
        free(q);
    }
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < 200; i++) MUST(is(p[i], 1000, i));
        for (int i = 0; i < 200; i++) free(p[i]);
        exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 200; i++) MUST(is(p[i], 1000, i));
}

/* A program whose handlers of forks allocate, and were registered while it was small. */
static void allocate(void) { for (size_t n = 16; n < 2 * MIB; n *= 2) free(malloc(n)); }
static void *allocates(void *arg) {
    for (;;) { free(malloc(100000)); free(malloc(100)); pthread_testcancel(); }
    return arg;
}
static void handlers(void) {
    MUST(!pthread_atfork(allocate, allocate, allocate));
    pthread_t thread;
    for (int i = 0; i < 40; i++) {
        if (i == 10) { unsigned char *p = malloc(3 * MIB); fill(p, 3 * MIB, 1); }
        if (i == 20) MUST(!pthread_create(&thread, 0, allocates, 0));
        pid_t child = fork();
        if (!child) { allocate(); exit(0); }
        int status;
        MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    MUST(!pthread_cancel(thread) && !pthread_join(thread, 0));
}

/* A child that hangs while it copies: its parent goes on, and it ends as soon as it runs again. */
static void late_child(void) {
    size_t n = 20 * MIB;
    unsigned char *p = malloc(n);
    fill(p, n, 1);
    say("has\n");
    line();
    double start = now();
    pid_t child = fork();
    if (!child) _exit(is(p, n, 1) ? 0 : 1);
    MUST(child > 0 && now() - start < 30);
    MUST(is(p, n, 1));
    fill(p, n, 2);
    char text[40];
    snprintf(text, sizeof text, "goes on without %d\n", (int)child);
    say(text);
    line();
    int status = wait_for(child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 127);
    /* A later one is as any. */
    MUST(is(p, n, 2));
    say("alone\n");
    line();
    child = fork();
    if (!child) _exit(is(p, n, 2) ? 0 : 1);
    MUST(wait_for(child) == 0 && is(p, n, 2));
    free(p);
    say("end\n");
    line();
}

/* A child that is killed while it copies is as one that is killed later. */
static void killed_child(void) {
    size_t n = 20 * MIB;
    unsigned char *p = malloc(n);
    fill(p, n, 1);
    say("has\n");
    line();
    double start = now();
    pid_t child = fork();
    if (!child) _exit(0);
    MUST(child > 0 && now() - start < 20);
    int status = wait_for(child);
    MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && is(p, n, 1));
    say("end\n");
    line();
}

/* No descriptor is left for a fork's pipe. */
static void no_pipe(void) {
    size_t n = 20 * MIB;
    unsigned char *p = malloc(n);
    fill(p, n, 1);
    while (dup(0) >= 0) {}
    MUST(errno == EMFILE);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) { MUST(is(p, n, 1)); fill(p, n, 2); _exit(is(p, n, 2) ? 0 : 1); }
        MUST(wait_for(child) == 0 && is(p, n, 1));
    }
}

/* The owner's socket is its own: it does not wait for itself. */
static void own_socket(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, getenv("LODE_HEAP_SOCKET"));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(s >= 0 && !bind(s, (struct sockaddr *)&at, sizeof at) && !listen(s, 5));
    usleep(300000);
    double start = now();
    for (int i = 0; i < 3; i++) {
        unsigned char *p = malloc(20 * MIB);
        MUST(p);
        fill(p, 20 * MIB, 1);
        MUST(is(p, 20 * MIB, 1));
        free(p);
    }
    MUST(now() - start < 5);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    alarm(100);
    if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "forks")) forks();
    else if (!strcmp(what, "copies")) copies();
    else if (!strcmp(what, "fork_storm")) fork_storm();
    else if (!strcmp(what, "grows")) grows();
    else if (!strcmp(what, "limited")) limited();
    else if (!strcmp(what, "orphaned")) orphaned();
    else if (!strcmp(what, "many_owners")) many_owners();
    else if (!strcmp(what, "least")) least();
    else if (!strcmp(what, "little")) little();
    else if (!strcmp(what, "idles")) idles();
    else if (!strcmp(what, "closes")) closes();
    else if (!strcmp(what, "takes_numbers")) takes_numbers();
    else if (!strcmp(what, "spawns")) spawns();
    else if (!strcmp(what, "sources")) sources(argv);
    else if (!strcmp(what, "alignments")) alignments();
    else if (!strcmp(what, "advises")) advises();
    else if (!strcmp(what, "block_stack")) block_stack();
    else if (!strcmp(what, "block_daemon")) block_daemon();
    else if (!strcmp(what, "narrow")) narrow();
    else if (!strcmp(what, "small")) small();
    else if (!strcmp(what, "handlers")) handlers();
    else if (!strcmp(what, "late_child")) late_child();
    else if (!strcmp(what, "killed_child")) killed_child();
    else if (!strcmp(what, "no_pipe")) no_pipe();
    else if (!strcmp(what, "own_socket")) own_socket();
    else return 2;
    return 0;
}
