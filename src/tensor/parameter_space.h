// ParameterSpace: all parameters of a model as named slices of one flat float array. Gradients
// and optimizer state have the same layout, so that whatever distributes or updates them works on
// spans of flat memory. The space is only the layout: it owns no floats.
//
// Slices lie in the order in which they are added, which is the order in which the backward pass
// finishes them; each starts on a cache line, and the floats between slices belong to nobody.
// A slice is cut into blocks of kBlockElements, the unit of the update and of norms; buckets, the
// unit of exchange, are runs of blocks. Once built it is immutable and shared by all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "starling/shape.h"

namespace starling {

inline constexpr size_t kBlockElements = 4096;             // 16 KiB: a block's gradient stays in L1
inline constexpr size_t kBucketBytes = size_t{4} << 20;    // about what one exchange should carry
inline constexpr size_t kMaxParameters = size_t{1} << 34;  // floats that a RandomStream can address

// What a slice carries besides its name and shape; see ParameterSpec in starling/operator.h.
struct SliceAttributes {
  std::optional<double> weight_decay = {};  // instead of the optimizer's; 0: none
  std::string initializer = "zeros";
  int64_t fan_in = 1;
  int64_t fan_out = 1;
};

struct Slice {
  std::string name;
  Shape shape;
  size_t offset;  // floats from the start of the space
  size_t size;    // floats, without padding
  std::optional<double> weight_decay;
  std::string initializer;
  int64_t fan_in, fan_out;
  size_t first_block;  // index in blocks(); its blocks follow one another
  size_t block_count;
};

struct Block {
  uint32_t slice;  // index in slices()
  size_t offset;   // floats from the start of the space
  uint32_t size;   // floats, at most kBlockElements
};

// The blocks first_block … first_block + block_count − 1. The floats of consecutive buckets touch:
// together they cover the whole space, padding included.
struct Bucket {
  size_t first_block;
  size_t block_count;
  size_t offset;  // floats
  size_t size;    // floats, with padding
};

class ParameterSpace {
 public:
  // Appends a slice and returns its index. Throws Error for a name that is there already, and for
  // a space of more than kMaxParameters floats.
  size_t add(std::string name, const Shape& shape, SliceAttributes attributes);

  std::span<const Slice> slices() const { return slices_; }
  // In the order of the space.
  std::span<const Block> blocks() const { return blocks_; }
  // The slice of this name, or null. Valid until the next add.
  const Slice* find(std::string_view name) const;

  size_t total_floats() const { return total_floats_; }    // with padding
  size_t element_count() const { return element_count_; }  // without

  // Runs of blocks of at most `bucket_bytes`, or of one block where that is larger.
  std::vector<Bucket> buckets(size_t bucket_bytes = kBucketBytes) const;

  // Of the blocks first … last − 1, cut into shares of as many floats, to the nearest block: the
  // first one of share `index` of `count`; `last` for the one behind the last share.
  size_t share_begin(size_t first, size_t last, size_t index, size_t count) const;

  // Indices of the slices, sorted by name, byte by byte.
  std::vector<size_t> name_order() const;

 private:
  std::vector<Slice> slices_;
  std::vector<Block> blocks_;
  std::map<std::string, size_t, std::less<>> by_name_;
  size_t total_floats_ = 0;
  size_t element_count_ = 0;
};

}  // namespace starling
