#include "train/state_transfer.h"

#include <cstring>

#include "starling/error.h"

namespace starling {
namespace {

constexpr const char* kWhere = "the state that another worker gave";

// A length, then so many bytes.
void put(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  const uint64_t length = bytes.size();
  const auto head = std::as_bytes(std::span(&length, 1));
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::span<const std::byte> take(std::span<const std::byte>& in) {
  uint64_t length = 0;
  if (in.size() >= sizeof length) std::memcpy(&length, in.data(), sizeof length);
  if (in.size() < sizeof length || length > in.size() - sizeof length)
    throw run_error(std::string(kWhere) + " is cut short", "start the worker again");
  const auto bytes = in.subspan(sizeof length, length);
  in = in.subspan(sizeof length + length);
  return bytes;
}

void put_tensors(std::vector<std::byte>& out, const std::vector<NamedTensor>& tensors) {
  std::vector<std::byte> file;
  file.reserve(safetensors_bytes(tensors, {}));
  write_safetensors(tensors, {}, [&](std::span<const std::byte> piece) {
    file.insert(file.end(), piece.begin(), piece.end());
  });
  put(out, file);
}

std::vector<NamedTensor> take_tensors(std::span<const std::byte>& in) {
  return to_named_tensors(parse_safetensors(take(in), kWhere), kWhere);
}

}  // namespace

std::vector<std::byte> pack_snapshot(const Snapshot& snapshot) {
  std::vector<std::byte> bytes;
  const std::string manifest = to_text(snapshot.manifest);
  put(bytes, std::as_bytes(std::span(manifest)));
  for (const auto* tensors : {&snapshot.weights, &snapshot.optimizer, &snapshot.statistics})
    put_tensors(bytes, *tensors);
  return bytes;
}

Snapshot unpack_snapshot(std::span<const std::byte> bytes) {
  Snapshot snapshot;
  const std::span<const std::byte> manifest = take(bytes);
  snapshot.manifest = parse_json({reinterpret_cast<const char*>(manifest.data()), manifest.size()});
  if (!snapshot.manifest.is_object())
    throw run_error(std::string(kWhere) + " has no manifest", "start the worker again");
  for (auto* tensors : {&snapshot.weights, &snapshot.optimizer, &snapshot.statistics})
    *tensors = take_tensors(bytes);
  return snapshot;
}

}  // namespace starling
