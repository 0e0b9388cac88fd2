/* What ThreadSanitizer cannot see of Rust's standard library, told to it. Built and linked in by .ci/tsan only.
 *
 * std comes compiled, without instrumentation. Its locks are half visible: the fast paths are inlined into our crates and
 * instrumented, the slow ones are not, so a lock taken after waiting looks like no lock at all. The linker's --wrap sends the
 * calls that our crates make into std's slow paths through the functions below, which announce exactly the order that
 * the function guarantees, and no more. The names are std's mangled ones, found by .ci/tsan.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

#define WRAP(symbol) __asm__("__wrap_" symbol)
#define REAL(symbol) __asm__("__real_" symbol)

/* Mutex: what was done before the unlock (visible, it is inlined) is seen after the lock. */
void lock_contended_real(void *mutex) REAL(LOCK_CONTENDED);
void lock_contended(void *mutex) WRAP(LOCK_CONTENDED);
void lock_contended(void *mutex) {
    lock_contended_real(mutex);
    __tsan_acquire(mutex);
}

/* Condvar: unlocks the mutex, waits, locks it again. */
void condvar_wait_real(void *condvar, void *mutex) REAL(CONDVAR_WAIT);
void condvar_wait(void *condvar, void *mutex) WRAP(CONDVAR_WAIT);
void condvar_wait(void *condvar, void *mutex) {
    __tsan_release(mutex);
    condvar_wait_real(condvar, mutex);
    __tsan_acquire(mutex);
}

bool condvar_wait_timeout_real(void *condvar, void *mutex, uint64_t secs, uint32_t nanos) REAL(CONDVAR_WAIT_TIMEOUT);
bool condvar_wait_timeout(void *condvar, void *mutex, uint64_t secs, uint32_t nanos) WRAP(CONDVAR_WAIT_TIMEOUT);
bool condvar_wait_timeout(void *condvar, void *mutex, uint64_t secs, uint32_t nanos) {
    __tsan_release(mutex);
    bool notified = condvar_wait_timeout_real(condvar, mutex, secs, nanos);
    __tsan_acquire(mutex);
    return notified;
}

/* RwLock: both kinds of lock see what was done before the unlock, which is inlined. */
void read_contended_real(void *lock) REAL(READ_CONTENDED);
void read_contended(void *lock) WRAP(READ_CONTENDED);
void read_contended(void *lock) {
    read_contended_real(lock);
    __tsan_acquire(lock);
}

void write_contended_real(void *lock) REAL(WRITE_CONTENDED);
void write_contended(void *lock) WRAP(WRITE_CONTENDED);
void write_contended(void *lock) {
    write_contended_real(lock);
    __tsan_acquire(lock);
}

/* Once (OnceLock, LazyLock): what the initialiser did is seen by every thread that finds it completed. The release must come
 * before std marks it completed, so the initialiser itself (a `&mut dyn FnMut(&OnceState)`) is wrapped. */
struct fn_mut_vtable {
    void (*drop)(void *);
    size_t size, align;
    void (*call_once)(void *, void *);
    void (*call_mut)(void *, void *);
};
struct initialiser {
    void *data, *once;
    const struct fn_mut_vtable *vtable;
};
static void call_and_release(void *data, void *state) {
    struct initialiser *inner = data;
    inner->vtable->call_mut(inner->data, state);
    __tsan_release(inner->once);
}
static const struct fn_mut_vtable announced = {
    NULL, sizeof(struct initialiser), sizeof(void *), call_and_release, call_and_release,
};
void once_call_real(void *once, bool ignore, void *data, const struct fn_mut_vtable *vtable, void *caller) REAL(ONCE_CALL);
void once_call(void *once, bool ignore, void *data, const struct fn_mut_vtable *vtable, void *caller) WRAP(ONCE_CALL);
void once_call(void *once, bool ignore, void *data, const struct fn_mut_vtable *vtable, void *caller) {
    struct initialiser inner = {data, once, vtable};
    once_call_real(once, ignore, &inner, &announced, caller);
    __tsan_acquire(once);
}

/* Barrier (not generic, so all of it is invisible): what was done before any arrival is seen after every departure. Its result is
 * one bool. */
bool barrier_wait_real(void *barrier) REAL(BARRIER_WAIT);
bool barrier_wait(void *barrier) WRAP(BARRIER_WAIT);
bool barrier_wait(void *barrier) {
    __tsan_release(barrier);
    bool leader = barrier_wait_real(barrier);
    __tsan_acquire(barrier);
    return leader;
}

/* Backtraces: printed (by the panic hook) and captured under one lock, inside which std walks the stack, looks up names in a cache and
 * writes them. All of that happens in callbacks of this function. */
static char backtrace_lock;
int __real__Unwind_Backtrace(void *callback, void *argument);
int __wrap__Unwind_Backtrace(void *callback, void *argument) {
    __tsan_acquire(&backtrace_lock);
    int code = __real__Unwind_Backtrace(callback, argument);
    __tsan_release(&backtrace_lock);
    return code;
}

/* thread::scope: a thread's last step is to count itself out, and the scope's owner reads that count (visibly) before it goes on. The
 * count is one of the first three words of the record; where, std does not say. */
void count_thread_out_real(void **scope, bool panicked) REAL(SCOPE_COUNT_OUT);
void count_thread_out(void **scope, bool panicked) WRAP(SCOPE_COUNT_OUT);
void count_thread_out(void **scope, bool panicked) {
    for (int word = 0; word < 3; word++)
        __tsan_release(scope + word);
    count_thread_out_real(scope, panicked);
}

/* Arc: drops with a Release decrement, and only the last one acquires, by a fence, which the tool does not follow. A Release
 * decrement of a 64-bit counter counts as AcqRel here: that is the order the fence gives. (fibra itself has no such decrement:
 * .ci/tsan looks.) */
enum { RELEASE = 3, ACQ_REL = 4 };
uint64_t __real___tsan_atomic64_fetch_sub(volatile uint64_t *counter, uint64_t n, int order);
uint64_t __wrap___tsan_atomic64_fetch_sub(volatile uint64_t *counter, uint64_t n, int order) {
    return __real___tsan_atomic64_fetch_sub(counter, n, order == RELEASE ? ACQ_REL : order);
}
