// One checkpoint's folder: its files, written and read. Who calls, and which folders stay, is
// checkpoint.h's subject.
#pragma once

#include <filesystem>
#include <string>

#include "train/checkpoint.h"

namespace starling {

// Writes the files of a checkpoint into `folder`, which exists and is empty, and flushes them.
void write_checkpoint_files(const Snapshot& snapshot, const std::filesystem::path& folder);

// Reads and verifies; throws input Error.
Snapshot read_checkpoint_files(const std::filesystem::path& folder);

}  // namespace starling
