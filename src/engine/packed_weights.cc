#include "engine/packed_weights.h"

#include "engine/onednn.h"
#include "tensor/kernels.h"

namespace starling {
namespace {

Ref fixed_ref(Buffer<std::byte>& memory) {
  return {.space = Space::kFixed, .fixed = reinterpret_cast<float*>(memory.data())};
}

}  // namespace

Ref PackedWeights::require(size_t offset, const dnnl::memory::desc& from,
                           const dnnl::memory::desc& to) {
  return require(offset, from, to, false);
}

Ref PackedWeights::require_rounded(size_t offset, const dnnl::memory::desc& from,
                                   const dnnl::memory::desc& to) {
  return require(offset, from, to, true);
}

Ref PackedWeights::require(size_t offset, const dnnl::memory::desc& from,
                           const dnnl::memory::desc& to, bool rounded) {
  for (Copy& copy : copies_) {
    // A square matrix and its transpose may want the same layout.
    if (copy.offset == offset && copy.form.empty() && copy.from == from && copy.to == to &&
        copy.rounded == rounded) {
      return fixed_ref(copy.memory);
    }
  }
  Copy& copy = copies_.emplace_back(
      Copy{offset, "", from, to, rounded, Buffer<std::byte>(to.get_size()), {}});
  dnnl::memory source(from, onednn_engine(), const_cast<float*>(weights_ + offset));
  dnnl::memory target(to, onednn_engine(), copy.memory.data());
  dnnl::reorder reorder(dnnl::reorder::primitive_desc(onednn_engine(), from, onednn_engine(), to));
  const bool same = from == to;
  const int64_t floats = static_cast<int64_t>(to.get_size() / sizeof(float));
  copy.refresh = [=, values = reinterpret_cast<float*>(copy.memory.data()),
                  stream = dnnl::stream(onednn_engine())](const float* weights) mutable {
    if (rounded && same) {
      round_bf16(floats, weights, values);
      return;
    }
    source.set_data_handle(const_cast<float*>(weights));
    reorder.execute(stream, source, target);
    if (rounded) round_bf16(floats, values, values);
  };
  copy.refresh(weights_ + offset);
  return fixed_ref(copy.memory);
}

Ref PackedWeights::require(size_t offset, const std::string& form, size_t floats,
                           const Pack& pack) {
  for (Copy& copy : copies_) {
    if (copy.offset == offset && copy.form == form) return fixed_ref(copy.memory);
  }
  Copy& copy = copies_.emplace_back(
      Copy{offset, form, {}, {}, false, Buffer<std::byte>(floats * sizeof(float)), {}});
  copy.refresh = [pack, to = reinterpret_cast<float*>(copy.memory.data())](const float* weights) {
    pack(weights, to);
  };
  copy.refresh(weights_ + offset);
  return fixed_ref(copy.memory);
}

void PackedWeights::refresh(int lane, int lanes) {
  int index = 0;
  for (Copy& copy : copies_) {
    if (index++ % lanes == lane) copy.refresh(weights_ + copy.offset);
  }
}

size_t PackedWeights::bytes() const {
  size_t sum = 0;
  for (const Copy& copy : copies_) sum += copy.memory.size();
  return sum;
}

}  // namespace starling
