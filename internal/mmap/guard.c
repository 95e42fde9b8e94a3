#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// A slot is written by one thread while handlers read it. A handler that looks for an address within a range
// that stays finds it, whatever happens to other slots meanwhile.
static struct {
	_Atomic uintptr_t start; // 0: free
	_Atomic uintptr_t end;
	atomic_int lost;
} table[guard_slots];

static atomic_int used; // slots at or behind it have never been taken
static uintptr_t page_mask;
static struct sigaction before;

// take answers for a fault at an address: from its page to the end of the range there is private, zeroed
// memory, and the range is lost. It uses nothing but atomics and one system call.
static int take(uintptr_t at) {
	int n = atomic_load_explicit(&used, memory_order_acquire);
	for (int i = 0; i < n; i++) {
		uintptr_t start = atomic_load_explicit(&table[i].start, memory_order_acquire);
		uintptr_t end = atomic_load_explicit(&table[i].end, memory_order_acquire);
		if (start == 0 || at < start || at >= end) {
			continue;
		}
		uintptr_t page = at & page_mask;
		atomic_store_explicit(&table[i].lost, 1, memory_order_release);
		void *zeros = mmap((void *)page, end - page, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		return zeros != MAP_FAILED;
	}
	return 0;
}

static void handle(int sig, siginfo_t *info, void *context) {
	int kept = errno;
	int taken = info->si_code == BUS_ADRERR && take((uintptr_t)info->si_addr);
	errno = kept;
	if (taken) {
		return;
	}
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context); // Go's: a panic or the end
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(sig);
	} else {
		signal(sig, SIG_DFL); // the access comes again and ends the process
	}
}

int guard_install(void) {
	page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	if (sigaction(SIGBUS, NULL, &before) != 0) {
		return errno;
	}
	// What Go's own handler runs with: on the signal stack, with every signal held back.
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = handle;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
	sigfillset(&action.sa_mask);
	return sigaction(SIGBUS, &action, NULL) == 0 ? 0 : errno;
}

void guard_add(int slot, uintptr_t start, size_t size) {
	atomic_store_explicit(&table[slot].lost, 0, memory_order_relaxed);
	atomic_store_explicit(&table[slot].end, start + size, memory_order_release);
	atomic_store_explicit(&table[slot].start, start, memory_order_release);
	if (slot >= atomic_load_explicit(&used, memory_order_relaxed)) {
		atomic_store_explicit(&used, slot + 1, memory_order_release);
	}
}

void guard_remove(int slot) {
	atomic_store_explicit(&table[slot].start, 0, memory_order_release);
	atomic_store_explicit(&table[slot].end, 0, memory_order_release);
}

int guard_lost(int slot) { return atomic_load_explicit(&table[slot].lost, memory_order_acquire); }
