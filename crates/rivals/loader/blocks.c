// Thread-locals from the loader's own allocator, without a thread: what they cost, and which promises they break (decision 70).
// Run by hand (x86_64, glibc):
//   cd crates/rivals/loader && gcc -O1 -shared -fPIC -o /tmp/late.so late.c && gcc -O1 -mfsgsbase -o /tmp/blocks blocks.c && /tmp/blocks /tmp/late.so
#define _GNU_SOURCE
#include <dlfcn.h>
#include <immintrin.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

static void *(*allocate)(void *);
static void (*deallocate)(void *, int);
static void (*call_destructors)(void);
static pthread_key_t key;
static int at_exit_ran, keys_ran;
static __thread int number = 7;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static void at_exit(void *p) { at_exit_ran++; }
static void key_ends(void *p) { keys_ran++; }
static void *idle(void *p) { return p; }
__attribute__((noinline)) static uintptr_t get(void) { return _readfsbase_u64(); }
__attribute__((noinline)) static void set(uintptr_t p) { _writefsbase_u64(p); }

// A block with what compiled code needs at once: its own address, twice, and the guards of stacks and pointers.
static char *block(void) {
    char *made = allocate(NULL), *own = (char *)get();
    *(void **)made = made;
    *(void **)(made + 16) = made;
    memcpy(made + 0x28, own + 0x28, 16);
    return made;
}

// What a fiber might do: a thread-local, a destructor of each kind, memory of many sizes.
__attribute__((noinline)) static void work(void) {
    number++;
    __cxa_thread_atexit_impl(at_exit, NULL, &__dso_handle);
    pthread_setspecific(key, (void *)1);
    for (int i = 0; i < 64; i++) free(malloc(24 + i * 16));
}

int main(int argc, char **argv) {
    allocate = dlsym(RTLD_DEFAULT, "_dl_allocate_tls");
    deallocate = dlsym(RTLD_DEFAULT, "_dl_deallocate_tls");
    call_destructors = dlsym(RTLD_DEFAULT, "__call_tls_dtors");
    if (argc < 2 || !allocate || !deallocate || !call_destructors) return puts("no such symbols, or no library"), 1;
    printf("symbols that would free caches: __libc_thread_freeres %s, __nptl_deallocate_tsd %s\n",
           dlsym(RTLD_DEFAULT, "__libc_thread_freeres") ? "yes" : "no", dlsym(RTLD_DEFAULT, "__nptl_deallocate_tsd") ? "yes" : "no");
    pthread_key_create(&key, key_ends);
    const int many = 20000, few = 300;
    double begin = now();
    for (int i = 0; i < many; i++) deallocate(block(), 1);
    printf("a block, made and freed: %.0f ns\n", (now() - begin) / many);
    begin = now();
    for (int i = 0; i < few; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, idle, NULL);
        pthread_join(thread, NULL);
    }
    printf("a thread, started and joined: %.0f ns\n", (now() - begin) / few);
    size_t before = mallinfo2().uordblks;
    uintptr_t own = get();
    for (int i = 0; i < 1000; i++) {
        char *one = block();
        set((uintptr_t)one), work(), call_destructors(), set(own);
        deallocate(one, 1);
    }
    printf("1000 blocks: destructors of thread-locals %d, of keys %d, bytes left behind by each %zu\n", at_exit_ran, keys_ran,
           (mallinfo2().uordblks - before) / 1000);
    char *one = block();
    void *late = dlopen(argv[1], RTLD_NOW);
    if (!late) return puts(dlerror()), 1;
    int (*ie)(void) = dlsym(late, "ie_get");
    int here = ie();
    set((uintptr_t)one);
    int there = ie();
    set(own);
    printf("a library that is loaded later, a thread-local that begins as 42: %d in a thread, %d in a block\n", here, there);
    return 0;
}
