#include "train/safetensors_file.h"

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/read_file.h"
#include "base/sha256.h"

namespace starling {

WrittenFile save_weights(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const Metadata& metadata) {
  AtomicFile file(path, safetensors_bytes(tensors, metadata));
  Sha256 hash;
  write_safetensors(tensors, metadata, [&](std::span<const std::byte> bytes) {
    hash.update(bytes);
    file.write(bytes);
  });
  file.commit();
  return {file.bytes(), hash.hex()};
}

Weights load_weights(const std::filesystem::path& path) {
  const FileBytes bytes = read_bytes(path, UINT64_MAX);
  SafetensorsView view = parse_safetensors(bytes.span(), path.string());
  return {to_named_tensors(view, path.string()), std::move(view.metadata)};
}

Metadata load_metadata(const std::filesystem::path& path) {
  return parse_safetensors(MappedFile(path).bytes(), path.string()).metadata;
}

}  // namespace starling
