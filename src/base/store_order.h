// What one process stores, seen by others in the order of the program: for memory that is shared
// with processes that may die between any two stores.
#pragma once

#include <atomic>

namespace starling {

// What was stored before is seen before what is stored after. The stores of x86 keep their order by
// themselves: there this binds the compiler alone.
inline void keep_store_order() {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#else
  __sync_synchronize();  // not std::atomic_thread_fence: g++ refuses it under tsan
#endif
}

}  // namespace starling
