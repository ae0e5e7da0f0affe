// One set of tensors in one safetensors file: the weights of a "best" model, for instance.
// Saving is atomic (base/atomic_file.h); loading checks everything and throws input Error.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "train/safetensors.h"

namespace starling {

struct WrittenFile {
  uint64_t bytes = 0;
  std::string sha256;
};

struct Weights {
  std::vector<NamedTensor> tensors;  // by name
  Metadata metadata;
};

WrittenFile save_weights(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const Metadata& metadata = {});
Weights load_weights(const std::filesystem::path& path);
Metadata load_metadata(const std::filesystem::path& path);

}  // namespace starling
