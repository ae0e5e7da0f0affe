// Places buffers with known lifetimes in one arena, so that buffers that are never live together
// share memory. Greedy: those that are live when most is come first, the longest-lived of them
// before the others, each at the lowest place where it collides with nothing that lives at the
// same time. So the fullest moment has no holes, and is mostly the size of the arena.
#pragma once

#include <deque>

#include "engine/frame.h"

namespace starling {

// Sets every buffer's offset (a multiple of 16 floats) and returns the floats needed in all.
size_t place_buffers(std::deque<ArenaBuffer>& buffers);

}  // namespace starling
