#include "tensor/parameter_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "starling/error.h"
#include "tensor/buffer.h"

namespace starling {

size_t ParameterSpace::add(std::string name, const Shape& shape, SliceAttributes attributes) {
  if (by_name_.contains(name)) {
    throw input_error(fmt::format("two parameters have the name \"{}\"", name),
                      "give each layer a name of its own");
  }
  const size_t size = static_cast<size_t>(shape.elements());
  if (size > kMaxParameters - total_floats_) {
    throw input_error(fmt::format("with \"{}\" ({}) the model has more than {} parameters", name,
                                  shape.to_string(), kMaxParameters),
                      "make the layer smaller");
  }
  const size_t index = slices_.size();
  const size_t first_block = blocks_.size();
  for (size_t at = 0; at < size; at += kBlockElements) {
    blocks_.push_back({.slice = static_cast<uint32_t>(index),
                       .offset = total_floats_ + at,
                       .size = static_cast<uint32_t>(std::min(kBlockElements, size - at))});
  }
  by_name_.emplace(name, index);
  slices_.push_back({.name = std::move(name),
                     .shape = shape,
                     .offset = total_floats_,
                     .size = size,
                     .weight_decay = attributes.weight_decay,
                     .initializer = std::move(attributes.initializer),
                     .fan_in = attributes.fan_in,
                     .fan_out = attributes.fan_out,
                     .first_block = first_block,
                     .block_count = blocks_.size() - first_block});
  total_floats_ += round_up(size, kAlignment / sizeof(float));
  element_count_ += size;
  return index;
}

const Slice* ParameterSpace::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &slices_[found->second];
}

std::vector<Bucket> ParameterSpace::buckets(size_t bucket_bytes) const {
  const size_t limit = bucket_bytes / sizeof(float);
  std::vector<Bucket> result;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const size_t end = i + 1 < blocks_.size() ? blocks_[i + 1].offset : total_floats_;
    if (result.empty() || end - result.back().offset > limit) {
      result.push_back(
          {.first_block = i, .block_count = 0, .offset = blocks_[i].offset, .size = 0});
    }
    ++result.back().block_count;
    result.back().size = end - result.back().offset;
  }
  return result;
}

size_t ParameterSpace::share_begin(size_t first, size_t last, size_t index, size_t count) const {
  if (first == last) return first;
  const auto all = blocks().subspan(first, last - first);
  const size_t begin = all.front().offset, floats = all.back().offset + all.back().size - begin;
  const auto is_before = [&](const Block& block) {
    return (block.offset + block.size / 2 - begin) * count < index * floats;
  };
  const auto found = std::partition_point(all.begin(), all.end(), is_before);
  return first + static_cast<size_t>(found - all.begin());
}

std::vector<size_t> ParameterSpace::name_order() const {
  std::vector<size_t> order;
  order.reserve(by_name_.size());
  for (const auto& [name, index] : by_name_) order.push_back(index);
  return order;
}

}  // namespace starling
