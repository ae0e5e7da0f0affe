// Frames: how a message lies in a stream of bytes. A header of fixed size, then the message; or, in
// shared memory, the handle of where the message lies. Numbers are little-endian. What a peer sends
// is checked here before anyone acts on it. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/fabric.h"

namespace starling {

enum class FrameKind : uint32_t { kMessage = 1, kInPlace = 2 };

struct FrameHeader {
  FrameKind kind = FrameKind::kMessage;
  uint64_t length = 0;  // of the message
  Tag tag = 0;
  uint64_t view = 0;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr size_t kHandleBytes = 8;

void write_frame_header(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);
// Nothing when these bytes are no header, or the message would be longer than `length_most`.
std::optional<FrameHeader> parse_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                              uint64_t length_most);

// Little-endian numbers of `count` ≤ 8 bytes.
void write_little_endian(std::byte* out, uint64_t value, size_t count);
uint64_t read_little_endian(const std::byte* bytes, size_t count);

}  // namespace starling
