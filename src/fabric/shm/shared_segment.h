// SharedSegment: memory that processes of one host share. It has no name anywhere: it is a file
// descriptor that child processes inherit, and vanishes with the last process that has it, however
// that dies. All its pages are there from the start, and it can't be cut short: touching it never
// ends a process (SIGBUS). Fresh memory is zero.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace starling {

class SharedSegment {
 public:
  // Throws Error (run_error) when there is no room. `name` is for people who look into /proc.
  static SharedSegment create(const std::string& name, size_t bytes);
  // Maps one that was inherited or received; `fd` stays the caller's. Throws Error (run_error) when
  // it is no such segment.
  static SharedSegment map(int fd);

  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  // Its descriptor, closed on exec unless keep_on_exec() was called (between fork and exec).
  int fd() const { return fd_; }
  void keep_on_exec() const;

  std::span<std::byte> bytes() const { return bytes_; }
  // Where `data` lies in it, if all `length` bytes do.
  std::optional<size_t> offset_of(const void* data, size_t length) const;

 private:
  explicit SharedSegment(int fd) : fd_(fd) {}  // takes it over, and has no memory yet
  void map_all(size_t bytes);

  int fd_ = -1;
  std::span<std::byte> bytes_;
};

// A segment in equal parts, one per rank: what lies at the same offset in each.
struct RankRegions {
  std::span<std::byte> memory;
  size_t stride = 0;  // bytes from one rank's part to the next's

  std::byte* at(int rank, size_t offset) const {
    return memory.data() + static_cast<size_t>(rank) * stride + offset;
  }
  std::span<std::byte> of(int rank) const {
    return memory.subspan(static_cast<size_t>(rank) * stride, stride);
  }
};

}  // namespace starling
