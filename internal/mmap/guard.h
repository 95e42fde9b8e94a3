// The fault guard of mapped files. See guard.go.
#include <stddef.h>
#include <stdint.h>

// guard_slots bounds the ranges that are guarded at once.
enum { guard_slots = 16384 };

// guard_install puts the handler before the one that is there. It returns 0 or an errno.
int guard_install(void);

// guard_add guards [start, start+size) under a free slot, whole pages.
void guard_add(int slot, uintptr_t start, size_t size);

// guard_remove ends that. Nobody touches the range any more.
void guard_remove(int slot);

// guard_lost tells whether a part of the range turned out to be gone since it was added.
int guard_lost(int slot);
