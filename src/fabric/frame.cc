#include "fabric/frame.h"

namespace starling {
namespace {

// "SLF1": a stream that lost its place is told from one that has it.
constexpr uint32_t kFrameMagic = 0x31464C53;

}  // namespace

void write_little_endian(std::byte* out, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t read_little_endian(const std::byte* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

void write_frame_header(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out) {
  write_little_endian(&out[0], kFrameMagic, 4);
  write_little_endian(&out[4], static_cast<uint32_t>(header.kind), 4);
  write_little_endian(&out[8], header.length, 8);
  write_little_endian(&out[16], header.tag, 8);
  write_little_endian(&out[24], header.view, 8);
}

std::optional<FrameHeader> parse_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                              uint64_t length_most) {
  const uint64_t kind = read_little_endian(&bytes[4], 4);
  const FrameHeader header{.kind = static_cast<FrameKind>(kind),
                           .length = read_little_endian(&bytes[8], 8),
                           .tag = read_little_endian(&bytes[16], 8),
                           .view = read_little_endian(&bytes[24], 8)};
  const bool known = header.kind == FrameKind::kMessage || header.kind == FrameKind::kInPlace;
  if (read_little_endian(&bytes[0], 4) != kFrameMagic || !known || header.length > length_most) {
    return std::nullopt;
  }
  return header;
}

}  // namespace starling
