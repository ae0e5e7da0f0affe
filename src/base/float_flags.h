// What arithmetic has met on this thread: the processor's own flags, which stay up until they are
// cleared. Each thread has its own.
#pragma once

namespace starling {

// Whether arithmetic overflowed, divided by zero or had no result since flags were cleared.
bool arithmetic_raised();
void clear_arithmetic_flags();
// For arithmetic that does not do it itself.
void raise_overflow();

}  // namespace starling
