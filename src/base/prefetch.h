// Asking for memory before it is needed.
#pragma once

namespace starling {

// For a line that is about to be written. On x86 the compiler's own is a hint to read, unless it may
// assume more of the processor than AVX-512: then a line that another core has read too is fetched
// once more when it is written, and stores wait for it one behind the other. Processors that do not
// know the instruction take it for none.
inline void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace starling
