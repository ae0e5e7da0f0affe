// A snapshot as one run of bytes, for a worker that joins a run. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "train/checkpoint.h"

namespace starling {

std::vector<std::byte> pack_snapshot(const Snapshot& snapshot);
// Throws Error when these are not such bytes.
Snapshot unpack_snapshot(std::span<const std::byte> bytes);

}  // namespace starling
