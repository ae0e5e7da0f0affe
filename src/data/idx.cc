#include "data/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "data/gzip.h"
#include "starling/error.h"
#include "tensor/buffer.h"

namespace starling::data {
namespace {

// The header with the most axes that are supported; longer ones are refused by their fourth byte.
constexpr size_t kIdxHeaderMost = 4 + 4 * (Shape::kMaxRank + 1);

Error not_idx(const std::string& name, const std::string& what) {
  return input_error(fmt::format("{}: is not an IDX file: {}", name, what),
                     "IDX files begin with two zero bytes, a type and the number of axes; check "
                     "that the path is right and the file is complete");
}

ElementType element_type(const std::string& name, unsigned code) {
  switch (code) {
    case 0x08:
      return ElementType::kU8;
    case 0x09:
      return ElementType::kI8;
    case 0x0B:
      return ElementType::kI16;
    case 0x0C:
      return ElementType::kI32;
    case 0x0D:
      return ElementType::kF32;
    case 0x0E:
      return ElementType::kF64;
    default:
      throw not_idx(name, fmt::format("unknown type 0x{:02x}", code));
  }
}

// `head` is the beginning of the file, or all of it if that is shorter than kIdxHeaderMost.
ArrayLayout parse_header(const std::string& name, std::span<const std::byte> head) {
  const auto byte = [&](size_t i) { return std::to_integer<unsigned>(head[i]); };
  if (head.size() < 4) throw not_idx(name, fmt::format("it has only {} bytes", head.size()));
  if (byte(0) != 0 || byte(1) != 0) {
    throw not_idx(name, fmt::format("it begins with 0x{:02x}{:02x}", byte(0), byte(1)));
  }
  const ElementType type = element_type(name, byte(2));
  const size_t axes = byte(3);
  std::array<uint64_t, (kIdxHeaderMost - 4) / 4> extents{};
  if (axes == 0 || axes > extents.size()) {
    throw not_idx(name, fmt::format("it has {} axes, 1 to {} are supported", axes, extents.size()));
  }
  const size_t header_bytes = 4 + 4 * axes;
  if (head.size() < header_bytes) {
    throw not_idx(name, fmt::format("it ends in its header, after {} bytes", head.size()));
  }
  for (size_t axis = 0; axis < axes; ++axis) {
    for (size_t i = 0; i < 4; ++i) extents[axis] = extents[axis] << 8 | byte(4 + 4 * axis + i);
  }
  return make_layout(name, type, true, {extents.data(), axes}, header_bytes);
}

Array unpack(const FileBytes& packed) {
  GzipReader reader(packed.bytes, packed.name);
  std::array<std::byte, kIdxHeaderMost> head;
  const size_t head_bytes = reader.read(head);
  const ArrayLayout layout = parse_header(packed.name, std::span(head).first(head_bytes));
  const uint64_t declared = layout.file_bytes();
  if (declared / kMaxGzipRatio > packed.bytes.size()) {
    throw input_error(
        fmt::format("{}: the header declares {} bytes, more than {} packed bytes can hold",
                    packed.name, declared, packed.bytes.size()),
        "the file is damaged: make or fetch it again");
  }
  const auto too_long = [&] {
    return input_error(fmt::format("{}: unpacks to more than the {} bytes that its header declares",
                                   packed.name, declared),
                       "the file is damaged or holds something else besides");
  };
  if (head_bytes > declared) throw too_long();
  auto memory = std::make_shared<Buffer<std::byte>>(static_cast<size_t>(declared));
  std::copy_n(head.begin(), head_bytes, memory->begin());
  const size_t rest = reader.read(memory->span().subspan(head_bytes));
  check_length(packed.name, layout, head_bytes + rest);
  std::byte beyond;
  if (reader.read({&beyond, 1}) != 0) throw too_long();
  return {layout, {packed.name, memory->span(), memory}, false};
}

}  // namespace

Array parse_idx(FileBytes file) {
  Array array;
  if (is_gzip(file.bytes)) {
    array = unpack(file);
  } else {
    const size_t head_bytes = std::min(file.bytes.size(), kIdxHeaderMost);
    array.layout = parse_header(file.name, file.bytes.first(head_bytes));
    check_length(file.name, array.layout, file.bytes.size());
    array.file = std::move(file);
  }
  return array;
}

Dataset join_idx(Array features, Array labels, const IdxOptions& options) {
  ArrayLayout& layout = features.layout;
  const bool bytes = layout.type == ElementType::kU8;
  if (bytes && layout.sample.rank() == 2) layout.sample = {layout.sample[0], layout.sample[1], 1};
  const float scale = options.scale.value_or(bytes ? 1.0f / 255 : 1.0f);
  return join(std::move(features), std::move(labels), scale);
}

Dataset idx(const std::filesystem::path& features, const std::filesystem::path& labels,
            const IdxOptions& options) {
  return join_idx(parse_idx(map_bytes(features)), parse_idx(map_bytes(labels)), options);
}

}  // namespace starling::data
