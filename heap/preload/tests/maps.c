/* What programs do with memory that they map themselves: `maps WHAT`. Prints what came of it, which is the same wherever
 * the memory comes from; ends with 0 if all is as it has to be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { dprintf(2, "line %d: %s (%d)\n", __LINE__, #x, errno); _exit(1); } } while (0)
/* Says what an expression gives, and the error, if that is what it says. */
#define SAY(x) do { errno = 0; long r_ = (long)(x); printf("%d: %ld %d\n", __LINE__, r_, r_ == -1 ? errno : 0); } while (0)
#define PAGE 4096UL
#define MIB (1UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static sigjmp_buf back;
static void on_fault(int s) { siglongjmp(back, s); }
/* What is at an address, or -1 where it can't be read; whether it can be written to. */
static int get(volatile unsigned char *p) {
    if (sigsetjmp(back, 1)) return -1;
    return *p;
}
static int put(volatile unsigned char *p, int v) {
    if (sigsetjmp(back, 1)) return -1;
    *p = (unsigned char)v;
    return 0;
}
static unsigned char *map(size_t n) {
    unsigned char *p = mmap(0, n, RW, ANON, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}
static void fill(unsigned char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i += 64) p[i] = (unsigned char)(seed + i / 64 * 7 + 1);
}
static int is(unsigned char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i += 64) if (p[i] != (unsigned char)(seed + i / 64 * 7 + 1)) return 0;
    return 1;
}
static int zero(unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) if (p[i]) return 0;
    return 1;
}
static int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0) MUST(errno == EINTR);
    return status;
}
static int a_file(void) {
    int f = memfd_create("a", 0);
    MUST(f >= 0 && ftruncate(f, MIB) == 0);
    for (int i = 0; i < 256; i++) {
        unsigned char page[PAGE];
        memset(page, 200, PAGE);
        MUST(write(f, page, PAGE) == (long)PAGE);
    }
    return f;
}

static void zeros(void) {
    for (int i = 0; i < 50; i++) {
        size_t n = (size_t)(i * 77777 + 65536);
        unsigned char *p = map(n), *q = map(3 * MIB);
        size_t whole = (n + PAGE - 1) / PAGE * PAGE;
        MUST(zero(p, whole) && zero(q, 3 * MIB));
        memset(p, 0xee, whole);
        memset(q, 0xdd, 3 * MIB);
        MUST(munmap(p, n) == 0);
        MUST(get(p) == -1 && get(p + whole - 1) == -1);
        MUST(munmap(q, 3 * MIB) == 0);
    }
    unsigned char *large = map(100 * MIB);
    MUST(zero(large, 100 * MIB));
    memset(large, 1, 100 * MIB);
    MUST(munmap(large, 100 * MIB) == 0);
    large = map(100 * MIB);
    MUST(zero(large, 100 * MIB));
    MUST(munmap(large, 100 * MIB) == 0);
}

static void errors(void) {
    unsigned char *p = map(MIB);
    SAY(mmap(0, 0, RW, ANON, -1, 0));
    SAY(mmap(0, MIB, RW, MAP_ANONYMOUS, -1, 0));
    SAY(mmap(0, MIB, RW, MAP_PRIVATE, -1, 0));
    SAY(mmap(0, SIZE_MAX - 5000, RW, ANON, -1, 0));
    SAY(mmap(0, 1UL << 60, RW, ANON, -1, 0));
    SAY(munmap(p + 1, PAGE));
    SAY(munmap(p, 0));
    SAY(munmap(p, SIZE_MAX));
    SAY(mprotect(p + 1, PAGE, PROT_READ));
    SAY(mprotect(p, PAGE, 0x70000000));
    SAY(mprotect(p, 0, PROT_READ));
    SAY(madvise(p, PAGE, 12345));
    SAY(madvise(p + 5, PAGE, MADV_DONTNEED));
    SAY(madvise(p, 0, MADV_DONTNEED));
    SAY(msync(p, PAGE, MS_SYNC | MS_ASYNC));
    SAY(msync(p + 9, PAGE, MS_SYNC));
    SAY(msync(p, MIB, MS_SYNC));
    SAY(mremap(p, MIB, 0, MREMAP_MAYMOVE));
    SAY(mremap(p + 1, MIB, MIB, MREMAP_MAYMOVE));
    SAY(mremap(p, MIB, MIB, 64));
    SAY(mremap(p, MIB, MIB, MREMAP_FIXED, p + 8 * MIB));
    SAY(mremap(p, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE));
    SAY(mremap(p, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p + 10));
    SAY(mremap(p, MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
    SAY(mremap(p, 0, MIB, MREMAP_MAYMOVE));
    errno = 77;
    unsigned char *q = map(MIB);
    MUST(errno == 77 && mprotect(q, PAGE, PROT_READ) == 0 && errno == 77);
    MUST(madvise(q, MIB, MADV_DONTNEED) == 0 && munmap(q, MIB) == 0 && errno == 77);
    MUST(munmap(p, MIB) == 0);
}

static void parts(void) {
    unsigned char *p = map(64 * PAGE), vector[64];
    fill(p, 64 * PAGE, 1);
    SAY(munmap(p + 10 * PAGE, 20 * PAGE));
    SAY(get(p + 10 * PAGE)); SAY(get(p + 30 * PAGE - 1)); SAY(put(p + 20 * PAGE, 1));
    SAY(is(p, 10 * PAGE, 1));
    SAY(p[30 * PAGE]);
    SAY(mprotect(p, 64 * PAGE, PROT_READ));
    SAY(put(p + 5, 1)); SAY(put(p + 40 * PAGE, 1) == 0 || get(p + 40 * PAGE) >= 0);
    SAY(mprotect(p, 10 * PAGE, RW)); SAY(mprotect(p + 30 * PAGE, 34 * PAGE, RW));
    SAY(mincore(p, 64 * PAGE, vector));
    SAY(mincore(p, 10 * PAGE, vector));
    SAY(msync(p, 64 * PAGE, MS_ASYNC));
    SAY(mremap(p, 64 * PAGE, 100 * PAGE, MREMAP_MAYMOVE));
    SAY(madvise(p, 64 * PAGE, MADV_DONTNEED));
    SAY(zero(p, 10 * PAGE)); SAY(zero(p + 30 * PAGE, 34 * PAGE));
    SAY(munmap(p, 64 * PAGE)); SAY(munmap(p, 64 * PAGE));
    SAY(get(p)); SAY(get(p + 63 * PAGE));

    /* Several mappings at once, of several kinds. */
    p = map(8 * MIB);
    fill(p, 8 * MIB, 2);
    int f = a_file();
    unsigned char *q = p + MIB;
    SAY(mmap(q, 100 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, f, 0) == q);
    SAY(mmap(p + 2 * MIB, MIB, PROT_NONE, ANON | MAP_FIXED, -1, 0) == p + 2 * MIB);
    SAY(mmap(p + 4 * MIB, MIB, RW, MAP_SHARED | MAP_FIXED, f, 0) == p + 4 * MIB);
    SAY(mmap(p + 5 * MIB, MIB, RW, ANON | MAP_FIXED, -1, 0) == p + 5 * MIB);
    SAY(mmap(p + 6 * MIB, MIB, RW, MAP_PRIVATE | MAP_FIXED, 999, 0));
    SAY(is(p, MIB, 2)); SAY(q[0]); SAY(q[100 * PAGE - 1]);
    SAY(get(p + 2 * MIB)); SAY(get(p + 3 * MIB - 1)); SAY(p[4 * MIB]); SAY(zero(p + 5 * MIB, MIB));
    SAY(mprotect(p + 2 * MIB, MIB, RW)); SAY(zero(p + 2 * MIB, MIB));
    unsigned char *others[40];
    for (int i = 0; i < 40; i++) {
        others[i] = map(MIB);
        MUST(others[i] + MIB <= p || others[i] >= p + 8 * MIB);
        memset(others[i], 9, MIB);
    }
    SAY(q[0]); SAY(p[4 * MIB + 1]); SAY(zero(p + 5 * MIB, MIB));
    p[4 * MIB] = 77;
    unsigned char c;
    SAY(pread(f, &c, 1, 0)); SAY(c);
    SAY(madvise(p, 8 * MIB, MADV_DONTNEED));
    SAY(zero(p, MIB)); SAY(q[5]); SAY(p[4 * MIB]); SAY(p[7 * MIB]);
    SAY(munmap(p + MIB / 2, 7 * MIB));
    SAY(get(q)); SAY(get(p + 4 * MIB)); SAY(get(p + 5 * MIB)); SAY(zero(p, MIB / 2));
    SAY(munmap(p, 8 * MIB));
    for (int i = 0; i < 40; i++) MUST(others[i][MIB - 1] == 9 && munmap(others[i], MIB) == 0);

    /* At a place that was given up. */
    p = map(MIB);
    fill(p, MIB, 3);
    SAY(mmap(p, MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    SAY(is(p, MIB, 3));
    SAY(munmap(p, MIB));
    SAY(mmap(p, MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p);
    SAY(zero(p, MIB));
    q = map(MIB);
    SAY(q + MIB <= p || q >= p + MIB);
    SAY(munmap(p, MIB)); SAY(munmap(q, MIB));
    close(f);
}

static void moves(void) {
    unsigned char *p = map(4 * MIB), *q, *r;
    fill(p, 4 * MIB, 1);
    SAY(mremap(p, 4 * MIB, MIB, 0) == p);
    SAY(is(p, MIB, 1)); SAY(get(p + MIB)); SAY(get(p + 4 * MIB - 1));
    q = mremap(p, MIB, 9 * MIB, MREMAP_MAYMOVE);
    SAY(q != MAP_FAILED); SAY(is(q, MIB, 1)); SAY(zero(q + MIB, 8 * MIB));
    fill(q, 9 * MIB, 2);
    SAY(q != p ? get(p) : -1);
    /* No room behind it. */
    SAY(mmap(q + 5 * MIB, MIB, PROT_NONE, ANON | MAP_FIXED, -1, 0) == q + 5 * MIB);
    SAY(mremap(q, 5 * MIB, 6 * MIB, 0));
    SAY(is(q, 5 * MIB, 2));
    r = mremap(q, 5 * MIB, 6 * MIB, MREMAP_MAYMOVE);
    SAY(r != MAP_FAILED && r != q); SAY(is(r, 5 * MIB, 2)); SAY(zero(r + 5 * MIB, MIB)); SAY(get(q));
    SAY(munmap(q, 9 * MIB));
    /* A part of it moves. */
    fill(r, 6 * MIB, 3);
    q = mremap(r + MIB, 2 * MIB, 5 * MIB, MREMAP_MAYMOVE);
    SAY(q != MAP_FAILED); SAY(q[0] == r[0] && q[64] == r[64]); SAY(q[2 * MIB - 64] == r[4 * MIB - 64]);
    SAY(zero(q + 2 * MIB, 3 * MIB)); SAY(get(r + MIB)); SAY(get(r + 3 * MIB - 1)); SAY(r[3 * MIB]);
    SAY(munmap(q, 5 * MIB)); SAY(munmap(r, 6 * MIB));
    /* To a place, and over what is there. */
    unsigned char *place = mmap(0, 8 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    p = map(2 * MIB);
    fill(p, 2 * MIB, 4);
    q = mremap(p, 2 * MIB, 3 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, place + MIB);
    SAY(q == place + MIB); SAY(is(q, 2 * MIB, 4)); SAY(zero(q + 2 * MIB, MIB)); SAY(get(p)); SAY(get(place));
    p = map(2 * MIB);
    fill(p, 2 * MIB, 5);
    r = map(MIB);
    fill(r, MIB, 6);
    SAY(mremap(r, MIB, MIB / 2, MREMAP_MAYMOVE | MREMAP_FIXED, p + MIB) == p + MIB);
    SAY(is(p, MIB, 5)); SAY(is(p + MIB, MIB / 2, 6)); SAY(p[2 * MIB - 64] == p[MIB - 64]); SAY(get(r)); SAY(get(r + MIB - 1));
    /* From elsewhere over ours. */
    SAY(mremap(q, 3 * MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
    SAY(is(p, MIB, 4)); SAY(get(q)); SAY(is(p + MIB, MIB / 2, 6));
    /* What has come there is no more what was there before. */
    SAY(mprotect(p + MIB, MIB / 2, PROT_READ)); SAY(madvise(p + MIB, MIB / 2, MADV_DONTNEED)); SAY(zero(p + MIB, MIB / 2)); SAY(put(p + MIB, 1));
    SAY(munmap(p, 2 * MIB)); SAY(get(p)); SAY(get(p + MIB));
    SAY(munmap(place, 8 * MIB));
    /* The old place stays, and is zeros. */
    p = map(MIB);
    fill(p, MIB, 7);
    q = mremap(p, MIB, MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    SAY(q != MAP_FAILED && q != p); SAY(is(q, MIB, 7)); SAY(zero(p, MIB)); SAY(put(p, 1));
    SAY(munmap(p, MIB)); SAY(munmap(q, MIB));
    /* What may be done with it stays. */
    p = map(MIB);
    fill(p, MIB, 8);
    SAY(mprotect(p, MIB, PROT_READ));
    SAY(mmap(p + MIB / 2, PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0) == p + MIB / 2);
    q = mremap(p, MIB / 2, MIB, MREMAP_MAYMOVE);
    SAY(is(q, MIB / 2, 8)); SAY(put(q, 1)); SAY(put(q + MIB - 1, 1)); SAY(mprotect(q, MIB, RW)); SAY(put(q + MIB - 1, 1));
    SAY(munmap(p, MIB)); SAY(munmap(q, MIB));
    p = map(MIB);
    fill(p, MIB, 9);
    SAY(mprotect(p, MIB, PROT_NONE));
    SAY(mmap(p + MIB / 2, PAGE, PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == p + MIB / 2);
    q = mremap(p, MIB / 2, 3 * MIB, MREMAP_MAYMOVE);
    SAY(get(q)); SAY(mprotect(q, 3 * MIB, RW)); SAY(is(q, MIB / 2, 9)); SAY(zero(q + MIB / 2, 2 * MIB));
    SAY(munmap(p, MIB)); SAY(munmap(q, 3 * MIB));
    /* By and by, as a vector that grows. */
    size_t n = 16 * PAGE;
    p = map(n);
    fill(p, n, 10);
    while (n < 200 * MIB) {
        size_t more = n * 3 / 2 / PAGE * PAGE;
        p = mremap(p, n, more, MREMAP_MAYMOVE);
        MUST(p != MAP_FAILED);
        MUST(is(p, n, 10) && zero(p + n, more - n));
        n = more;
        fill(p, n, 10);
    }
    SAY(munmap(p, n));
}

static void rights(void) {
    unsigned char *p = map(MIB);
    fill(p, MIB, 1);
    SAY(mprotect(p + 10 * PAGE, 10 * PAGE, PROT_READ));
    SAY(mprotect(p + 20 * PAGE, 10 * PAGE, PROT_NONE));
    SAY(put(p + 10 * PAGE, 1)); SAY(get(p + 10 * PAGE) == p[0] || 1); SAY(get(p + 20 * PAGE)); SAY(put(p + 29 * PAGE, 1));
    SAY(put(p + 30 * PAGE, p[30 * PAGE]));
    int ends[2];
    MUST(pipe(ends) == 0);
    MUST(write(ends[1], "hello", 5) == 5);
    SAY(read(ends[0], p + 20 * PAGE, 5)); SAY(read(ends[0], p + 10 * PAGE, 5)); SAY(read(ends[0], p, 5)); SAY(memcmp(p, "hello", 5));
    SAY(write(ends[1], p + 20 * PAGE, 5));
    p[0] = 1;
    for (int i = 1; i < 5; i++) p[i] = 0;
    SAY(mprotect(p + 15 * PAGE, 10 * PAGE, RW));
    SAY(put(p + 10 * PAGE, 1)); SAY(put(p + 15 * PAGE, p[15 * PAGE])); SAY(put(p + 24 * PAGE, p[24 * PAGE])); SAY(get(p + 25 * PAGE));
    SAY(mprotect(p, MIB, RW)); SAY(is(p, MIB, 1));
    SAY(munmap(p, MIB));
    /* What was unmapped with fewer rights has all when it is mapped anew. */
    p = map(MIB);
    memset(p, 9, MIB);
    SAY(mprotect(p, MIB, PROT_NONE)); SAY(munmap(p, MIB));
    p = map(MIB);
    SAY(zero(p, MIB)); SAY(put(p, 1));
    SAY(munmap(p, MIB));
    /* With a key. */
    p = map(MIB);
    fill(p, MIB, 2);
    SAY(mprotect(p + PAGE, PAGE, PROT_NONE));
    SAY(pkey_mprotect(p, 4 * PAGE, PROT_READ, -1)); SAY(put(p + PAGE, 1)); SAY(is(p, MIB, 2));
    SAY(mprotect(p + PAGE, PAGE, PROT_NONE));
    SAY(pkey_mprotect(p, 8 * PAGE, PROT_READ, 0)); SAY(put(p, 1)); SAY(is(p + 8 * PAGE, PAGE, 2) || p[8 * PAGE]);
    SAY(mprotect(p, MIB, RW)); SAY(is(p, MIB, 2)); SAY(put(p + PAGE, 9));
    SAY(madvise(p, MIB, MADV_DONTNEED)); SAY(zero(p, MIB));
    SAY(munmap(p, MIB)); SAY(get(p)); SAY(get(p + MIB - 1));
    /* Code that is written first, then run. */
    static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
    p = map(MIB);
    memcpy(p + 5 * PAGE, code, sizeof code);
    SAY(mprotect(p + 5 * PAGE, PAGE, PROT_READ | PROT_EXEC));
    SAY(((int (*)(void))(void *)(p + 5 * PAGE))());
    SAY(put(p + 5 * PAGE, 1));
    SAY(mprotect(p + 5 * PAGE, PAGE, RW | PROT_EXEC));
    p[5 * PAGE + 1] = 43;
    SAY(((int (*)(void))(void *)(p + 5 * PAGE))());
    SAY(zero(p, 5 * PAGE)); SAY(zero(p + 6 * PAGE, MIB - 6 * PAGE));
    SAY(munmap(p, MIB)); SAY(get(p + 5 * PAGE));
}

static void advice(void) {
    unsigned char *p = map(4 * MIB);
    fill(p, 4 * MIB, 1);
    SAY(madvise(p + MIB, MIB, MADV_DONTNEED));
    SAY(is(p, MIB, 1)); SAY(zero(p + MIB, MIB)); SAY(p[2 * MIB] == p[0]);
    SAY(madvise(p + 1 * PAGE, 100, MADV_DONTNEED));
    SAY(zero(p + PAGE, PAGE)); SAY(p[0] == 2); SAY(p[2 * PAGE] != 0);
    SAY(mprotect(p + 2 * MIB, MIB / 2, PROT_READ)); SAY(mprotect(p + 2 * MIB + MIB / 2, MIB / 2, PROT_NONE));
    SAY(madvise(p + 2 * MIB, MIB, MADV_DONTNEED));
    SAY(zero(p + 2 * MIB, MIB / 2)); SAY(get(p + 3 * MIB - 1));
    SAY(put(p + 2 * MIB, 1));
    SAY(mprotect(p + 2 * MIB, MIB, RW)); SAY(zero(p + 2 * MIB, MIB)); SAY(p[3 * MIB] == p[0]);
    fill(p, 4 * MIB, 2);
    SAY(madvise(p, MIB, MADV_FREE));
    SAY(p[PAGE] == 0 || p[PAGE] == (unsigned char)(2 + PAGE / 64 * 7 + 1));
    static const int harmless[] = { MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_DONTDUMP, MADV_DODUMP, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD,
        MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_REMOVE };
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        errno = 0;
        int r = madvise(p + MIB, 2 * MIB, harmless[i]);
        printf("advice %d: %d %d\n", harmless[i], r, errno);
    }
    SAY(posix_madvise(p, MIB, POSIX_MADV_WILLNEED));
    SAY(p[MIB] == p[0] && p[3 * MIB] == p[0]);
    SAY(mprotect(p, MIB, PROT_NONE)); SAY(madvise(p, MIB, MADV_POPULATE_READ)); SAY(mprotect(p, MIB, PROT_READ));
    SAY(madvise(p, MIB, MADV_POPULATE_WRITE));
    SAY(mlock(p, MIB / 16)); SAY(munlock(p, MIB / 16));
    SAY(munmap(p, 4 * MIB));
    p = mmap(0, MIB, RW, ANON | MAP_POPULATE, -1, 0);
    SAY(zero(p, MIB)); SAY(munmap(p, MIB));
    SAY(madvise(p, MIB, MADV_NORMAL));
}

/* Children have what their parents have, for themselves. */
static void forks(void) {
    unsigned char *p = map(20 * MIB), *q = map(MIB), *none = map(3 * MIB), *read = map(MIB), *wiped = map(3 * MIB), *gone = map(MIB), *other = map(3 * MIB);
    fill(p, 20 * MIB, 1); fill(q, MIB, 2); fill(none, 3 * MIB, 3); fill(read, MIB, 4); fill(wiped, 3 * MIB, 5); fill(gone, MIB, 6); fill(other, 3 * MIB, 7);
    int f = a_file();
    SAY(mmap(other + MIB, MIB, RW, MAP_PRIVATE | MAP_FIXED, f, 0) == other + MIB);
    SAY(munmap(other, PAGE * 10));
    SAY(mprotect(none, 3 * MIB, PROT_NONE)); SAY(mprotect(read, MIB, PROT_READ));
    SAY(madvise(wiped, 2 * MIB, MADV_WIPEONFORK)); SAY(madvise(gone, MIB, MADV_DONTFORK));
    SAY(madvise(q, MIB, MADV_WIPEONFORK)); SAY(madvise(q, MIB, MADV_KEEPONFORK));
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        MUST(is(p, 20 * MIB, 1) && is(q, MIB, 2) && is(read, MIB, 4));
        MUST(get(none) == -1 && get(none + 3 * MIB - 1) == -1 && put(read, 1) == -1);
        MUST(mprotect(none, 3 * MIB, RW) == 0 && is(none, 3 * MIB, 3));
        MUST(zero(wiped, 2 * MIB) && wiped[2 * MIB] == 6);
        MUST(get(gone) == -1 && get(gone + MIB - 1) == -1);
        MUST(get(other) == -1 && other[MIB] == 200 && other[2 * MIB] == other[2 * MIB - 64] + 0 - 200 + other[2 * MIB]);
        fill(p, 20 * MIB, 11); fill(q, MIB, 12); fill(none, 3 * MIB, 13); fill(wiped, 3 * MIB, 15); fill(other + MIB, MIB, 16);
        pid_t grandchild = fork();
        MUST(grandchild >= 0);
        if (!grandchild) {
            MUST(is(p, 20 * MIB, 11) && is(q, MIB, 12) && is(none, 3 * MIB, 13) && zero(wiped, 2 * MIB));
            unsigned char *more = map(30 * MIB);
            MUST(zero(more, 30 * MIB));
            fill(more, 30 * MIB, 1); fill(p, 20 * MIB, 20);
            _exit(0);
        }
        MUST(wait_for(grandchild) == 0);
        MUST(is(p, 20 * MIB, 11) && is(none, 3 * MIB, 13) && is(wiped, 3 * MIB, 15));
        MUST(munmap(p, 20 * MIB) == 0 && munmap(none, 3 * MIB) == 0);
        p = map(20 * MIB);
        MUST(zero(p, 20 * MIB));
        exit(0);
    }
    SAY(wait_for(child));
    SAY(is(p, 20 * MIB, 1)); SAY(is(q, MIB, 2)); SAY(is(read, MIB, 4)); SAY(is(wiped, 3 * MIB, 5)); SAY(is(gone, MIB, 6));
    SAY(get(none)); SAY(mprotect(none, 3 * MIB, RW)); SAY(is(none, 3 * MIB, 3)); SAY(put(read, 1)); SAY(other[MIB]);
    SAY(munmap(p, 20 * MIB));
}

/* A child that asks for nothing has all that its parent has. */
static void copies(void) {
    unsigned char *p = map(20 * MIB), *q = map(MIB), *read = map(MIB);
    fill(p, 20 * MIB, 1); fill(q, MIB, 2); fill(read, MIB, 3);
    SAY(mprotect(read, MIB, PROT_READ));
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        MUST(is(p, 20 * MIB, 1) && is(q, MIB, 2) && is(read, MIB, 3) && put(read, 1) == -1);
        fill(p, 20 * MIB, 11); fill(q, MIB, 12);
        MUST(is(p, 20 * MIB, 11) && is(q, MIB, 12) && is(read, MIB, 3));
        MUST(madvise(p, MIB, MADV_DONTNEED) == 0 && zero(p, MIB) && munmap(p, 20 * MIB) == 0 && get(p) == -1);
        _exit(0);
    }
    SAY(wait_for(child));
    SAY(is(p, 20 * MIB, 1)); SAY(is(q, MIB, 2)); SAY(is(read, MIB, 3));
    SAY(munmap(p, 20 * MIB)); SAY(munmap(q, MIB));
}

/* A fork on a stack that the program has mapped itself. */
static ucontext_t main_context, fork_context;
static int fork_result = -1;
static void __attribute__((noinline)) deep(int n) {
    volatile unsigned char room[1000];
    for (int i = 0; i < 1000; i++) room[i] = (unsigned char)n;
    if (n < 20) {
        deep(n + 1);
    } else {
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            for (int i = 0; i < 1000; i++) MUST(room[i] == (unsigned char)n);
            alarm(20);
            unsigned char *more = map(MIB);
            MUST(zero(more, MIB));
            _exit(7);
        }
        fork_result = WEXITSTATUS(wait_for(child));
    }
    for (int i = 0; i < 1000; i++) MUST(room[i] == (unsigned char)n);
}
static void on_stack(void) { deep(0); }
static void stacks(void) {
    size_t n = 256 << 10;
    unsigned char *stack = map(n);
    MUST(mprotect(stack, PAGE, PROT_NONE) == 0);
    for (int i = 0; i < 20; i++) {
        MUST(getcontext(&fork_context) == 0);
        fork_context.uc_stack.ss_sp = stack;
        fork_context.uc_stack.ss_size = n;
        fork_context.uc_link = &main_context;
        makecontext(&fork_context, on_stack, 0);
        fork_result = -1;
        MUST(swapcontext(&main_context, &fork_context) == 0);
        MUST(fork_result == 7);
    }
    SAY(munmap(stack, n));
}

/* Handlers that map memory, while what they interrupt does so, too, and while it allocates. */
static _Atomic long handled;
static unsigned char *kept;
static void on_timer(int s) {
    (void)s;
    unsigned char *p = mmap(0, 128 << 10, RW, ANON, -1, 0);
    MUST(p != MAP_FAILED && p[5] == 0);
    p[5] = 1;
    MUST(mprotect(p, PAGE, PROT_READ) == 0 && madvise(kept, PAGE, MADV_DONTNEED) == 0);
    MUST(munmap(p, 128 << 10) == 0);
    handled++;
}
static void handlers(void) {
    struct sigaction a = { .sa_handler = on_timer, .sa_flags = SA_RESTART };
    kept = map(MIB);
    MUST(sigaction(SIGALRM, &a, 0) == 0);
    struct itimerval t = { { 0, 200 }, { 0, 200 } };
    MUST(setitimer(ITIMER_REAL, &t, 0) == 0);
    for (int i = 0; i < 4000 || handled < 300; i++) {
        size_t n = (size_t)(i % 50 + 16) * PAGE;
        unsigned char *p = map(n), *q = malloc(n), *r = malloc((i % 8 + 1) * MIB * 2);
        MUST(p[n - 1] == 0 && q && r);
        p[n - 1] = 1; q[0] = 2;
        MUST(munmap(p, n) == 0);
        free(q); free(r);
        if (i % 200 == 0) {
            pid_t child = fork();
            MUST(child >= 0);
            if (!child) _exit(0);
            MUST(wait_for(child) == 0);
        }
    }
    struct itimerval none = { { 0, 0 }, { 0, 0 } };
    MUST(setitimer(ITIMER_REAL, &none, 0) == 0);
}

/* Threads at random, against a model: what each page of their own mappings has to be. */
#define PAGES 300
#define OWN 12
enum { NOTHING = 0, ZERO = 1 };
struct own { unsigned char *p; size_t n; unsigned short is[PAGES * 2]; unsigned char right[PAGES * 2]; };
static void check(struct own *o, size_t at) {
    unsigned char *p = o->p + at * PAGE;
    if (o->is[at] == NOTHING || !(o->right[at] & PROT_READ)) return;
    for (size_t i = 0; i < PAGE; i += 8) {
        unsigned long want = o->is[at] == ZERO ? 0 : o->is[at] * 0x0001000100010001UL;
        if (*(unsigned long *)(p + i) != want) {
            dprintf(2, "page %zu of %zu at %p: %lx instead of %lx\n", at, o->n, (void *)p, *(unsigned long *)(p + i), want);
            _exit(1);
        }
    }
}
static void paint(struct own *o, size_t at, unsigned short with) {
    if (o->is[at] == NOTHING || o->right[at] != RW) return;
    unsigned long *w = (unsigned long *)(o->p + at * PAGE);
    for (size_t i = 0; i < PAGE / 8; i++) w[i] = with * 0x0001000100010001UL;
    o->is[at] = with;
}
static void drop(struct own *o) {
    for (size_t i = 0, end; i < o->n; i = end + 1) {
        for (end = i; end < o->n && o->is[end] != NOTHING;) end++;
        if (end > i) MUST(munmap(o->p + i * PAGE, (end - i) * PAGE) == 0);
    }
    o->p = 0;
}
static void *at_random(void *arg) {
    unsigned long r = (unsigned long)(uintptr_t)arg * 7919 + 3;
    struct own *all = calloc(OWN, sizeof *all);
    int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 6000;
    for (int round = 0; round < rounds; round++) {
        r = r * 6364136223846793005UL + 1442695040888963407UL;
        struct own *o = &all[(r >> 20) % OWN];
        unsigned a = (unsigned)(r >> 33), b = (unsigned)(r >> 45);
        unsigned short with = (unsigned short)(2 + (r >> 30) % 60000);
        if (!o->p) {
            o->n = a % PAGES + 1;
            o->p = map(o->n * PAGE);
            for (size_t i = 0; i < o->n; i++) { o->is[i] = ZERO; o->right[i] = RW; check(o, i); }
        }
        size_t from = a % o->n, n = b % (o->n - from) + 1;
        unsigned char *p = o->p + from * PAGE;
        for (size_t i = from; i < from + n; i++) check(o, i);
        /* (Another thread's mapping may be in a hole.) */
        int whole = 1, holes = 0;
        for (size_t i = from; i < from + n; i++) holes |= o->is[i] == NOTHING;
        for (size_t i = 0; i < o->n; i++) whole &= o->is[i] != NOTHING && o->right[i] == o->right[0];
        switch ((r >> 12) % 9) {
        case 0: case 1: case 2:
            for (size_t i = from; i < from + n; i++) paint(o, i, with);
            break;
        case 3:
            if (holes) break;
            MUST(munmap(p, n * PAGE) == 0);
            for (size_t i = from; i < from + n; i++) o->is[i] = NOTHING;
            break;
        case 4: {
            int right = b % 3 == 0 ? PROT_NONE : b % 3 == 1 ? PROT_READ : RW;
            if (holes) break;
            MUST(mprotect(p, n * PAGE, right) == 0);
            for (size_t i = from; i < from + n; i++) o->right[i] = (unsigned char)right;
            break;
        }
        case 5:
            if (holes) break;
            MUST(madvise(p, n * PAGE, MADV_DONTNEED) == 0);
            for (size_t i = from; i < from + n; i++) o->is[i] = ZERO;
            break;
        case 6:
            if (holes) break;
            MUST(mmap(p, n * PAGE, RW, ANON | MAP_FIXED, -1, 0) == p);
            for (size_t i = from; i < from + n; i++) { o->is[i] = ZERO; o->right[i] = RW; }
            break;
        case 7: {
            size_t to = a % (PAGES * 2) + 1;
            if (!whole) break;
            p = mremap(o->p, o->n * PAGE, to * PAGE, MREMAP_MAYMOVE);
            /* (What is two mappings to the system is refused.) */
            if (p == MAP_FAILED) { MUST(errno == EFAULT); break; }
            o->p = p;
            for (size_t i = o->n; i < to; i++) { o->is[i] = ZERO; o->right[i] = o->right[0]; }
            o->n = to;
            break;
        }
        case 8:
            if (b % 4) break;
            drop(o);
            break;
        }
        if (o->p) for (size_t i = 0; i < o->n; i++) check(o, i);
    }
    for (int i = 0; i < OWN; i++) {
        struct own *o = &all[i];
        if (!o->p) continue;
        for (size_t k = 0; k < o->n; k++) check(o, k);
        drop(o);
    }
    free(all);
    return 0;
}
static void threads(void) {
    pthread_t t[6];
    for (long i = 0; i < 6; i++) MUST(!pthread_create(&t[i], 0, at_random, (void *)(i + 1)));
    for (int i = 0; i < 6; i++) MUST(!pthread_join(t[i], 0));
}

/* Where memory is: what libc maps for itself, for stacks of threads above all, is none of the pool's. */
static int in_pool(void *at) {
    char line[512];
    FILE *f = fopen("/proc/self/maps", "r");
    MUST(f);
    int found = -1;
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        char rights[8];
        MUST(sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3);
        if ((unsigned long)at >= from && (unsigned long)at < to) found = rights[3] == 's';
    }
    fclose(f);
    return found;
}
static void *stack_place(void *arg) {
    int local = 0;
    (void)arg;
    return (void *)(intptr_t)in_pool(&local);
}
static void places(void) {
    int taken = getenv("NONE_TAKEN") == 0;
    pthread_t t;
    void *found;
    MUST(!pthread_create(&t, 0, stack_place, 0) && !pthread_join(t, &found));
    MUST((intptr_t)found == 0);
    MUST(in_pool(map(MIB)) == taken && in_pool(map(64 << 10)) == taken);
    MUST(in_pool(map(60 << 10)) == 0);
    static const int left[] = { MAP_NORESERVE, MAP_STACK, MAP_GROWSDOWN, MAP_LOCKED, MAP_32BIT };
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        void *p = mmap(0, MIB, RW, ANON | left[i], -1, 0);
        MUST(p == MAP_FAILED || in_pool(p) == 0);
    }
    MUST(in_pool(mmap(0, MIB, PROT_READ, ANON, -1, 0)) == 0);
    MUST(in_pool(mmap(0, MIB, RW | PROT_EXEC, ANON, -1, 0)) == 0);
    MUST(in_pool(mmap((void *)0x200000000000, MIB, RW, ANON, -1, 0)) == 0);
}

/* Programs close descriptors that aren't theirs. */
static void closes(void) {
    unsigned char *p = map(MIB), *q, *unused = map(8 * MIB);
    fill(p, MIB, 1);
    memset(unused, 5, 8 * MIB);
    for (int i = 3; i < 2000; i++) close(i);
    /* ... and have their own there. */
    int f = a_file();
    for (int i = 500; i < 600; i++) MUST(dup2(f, i) == i);
    MUST(munmap(unused, 8 * MIB) == 0);
    for (int i = 0; i < 20; i++) {
        q = map(MIB);
        MUST(zero(q, MIB));
        fill(q, MIB, 2);
        MUST(is(p, MIB, 1));
        MUST(mprotect(p, MIB, PROT_NONE) == 0 && madvise(p, MIB / 2, MADV_DONTNEED) == 0);
        MUST(mprotect(p, MIB, RW) == 0 && zero(p, MIB / 2));
        fill(p, MIB, 1);
        if (i % 2) MUST(munmap(q, MIB) == 0);
    }
    unsigned char *block = malloc(30 * MIB);
    MUST(block);
    fill(block, 30 * MIB, 3);
    MUST(is(p, MIB, 1) && is(block, 30 * MIB, 3));
    unsigned char c;
    for (int i = 0; i < 256; i++) MUST(pread(f, &c, 1, i * (long)PAGE) == 1 && c == 200);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*what)(void); } all[] = {
        { "zeros", zeros }, { "errors", errors }, { "parts", parts }, { "moves", moves }, { "rights", rights }, { "advice", advice },
        { "forks", forks }, { "copies", copies }, { "stacks", stacks }, { "handlers", handlers }, { "threads", threads }, { "places", places }, { "closes", closes },
    };
    struct sigaction a = { .sa_handler = on_fault };
    MUST(argc == 2 && sigaction(SIGSEGV, &a, 0) == 0 && sigaction(SIGBUS, &a, 0) == 0);
    alarm(100);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(argv[1], all[i].name)) continue;
        all[i].what();
        return 0;
    }
    return 2;
}
