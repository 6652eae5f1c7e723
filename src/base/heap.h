// The process's heap, as managed by the C library.
#pragma once

namespace hetccl {

/// Returns freed memory of all of malloc's arenas to the system. glibc gives each thread an arena
/// and keeps what the thread has freed: a thread that lives for one call of a vendor's library
/// leaves 40 MB there. Takes milliseconds; other threads that allocate may wait for it. Does
/// nothing with another C library.
void return_freed_memory();

}  // namespace hetccl
