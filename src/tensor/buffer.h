// Buffer: owned memory, aligned for every vector width and zeroed at birth; or a view of memory
// that workers share.
// Large buffers sit on huge-page boundaries and ask the kernel for huge pages: a training step
// walks the whole parameter space, and page-table misses cost as much as the bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace starling {

inline constexpr size_t kAlignment = 64;  // bytes: a cache line and an AVX-512 vector

// The smallest multiple of `step` that is at least `value`.
constexpr size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

// `bytes` of zeroed memory, aligned to kAlignment.
std::unique_ptr<std::byte[], void (*)(std::byte*)> allocate_aligned(size_t bytes);

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size) : memory_(allocate_aligned(size * sizeof(T))), size_(size) {}
  // Over memory of somebody else's, which outlives it.
  static Buffer view(T* memory, size_t size) {
    Buffer buffer;
    buffer.memory_ = {reinterpret_cast<std::byte*>(memory), [](std::byte*) {}};
    buffer.size_ = size;
    return buffer;
  }

  T* data() { return reinterpret_cast<T*>(memory_.get()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.get()); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  std::unique_ptr<std::byte[], void (*)(std::byte*)> memory_{nullptr, nullptr};
  size_t size_ = 0;
};

}  // namespace starling
