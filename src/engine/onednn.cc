#include "engine/onednn.h"

#include <omp.h>

#include <string_view>

#include "base/isa.h"
#include "starling/error.h"

namespace starling {

dnnl::engine& onednn_engine() {
  static dnnl::engine engine = [] {
    settle_isa();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

bool onednn_has_bf16() {
  static const bool has = [] {
    using Desc = dnnl::memory::desc;
    const dnnl::memory::dims square{64, 64};
    const Desc operand(square, dnnl::memory::data_type::bf16, dnnl::memory::format_tag::ab);
    const Desc result(square, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab);
    try {
      const dnnl::matmul::primitive_desc product({operand, operand, result}, onednn_engine());
      return std::string_view(product.impl_info_str()).find("ref") == std::string_view::npos;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return has;
}

void require_one_thread() {
  if (omp_get_max_threads() != 1) {
    throw run_error("a lane has more than one OpenMP thread",
                    "don't change OpenMP's thread count in threads that Starling uses");
  }
}

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

void BoundPrimitive::bind(int argument, const dnnl::memory::desc& desc, const Ref& ref) {
  slots_.push_back({dnnl::memory(desc, onednn_engine(), nullptr), ref});
  arguments_.push_back({argument, slots_.back().memory.get()});
}

void BoundPrimitive::bind_scratchpad(const dnnl::memory::desc& desc) {
  if (desc.get_size() == 0) return;
  scratchpad_ = Buffer<std::byte>(desc.get_size());
  dnnl::memory memory(desc, onednn_engine(), scratchpad_.data());
  slots_.push_back({memory, Ref{}, reinterpret_cast<float*>(scratchpad_.data())});
  arguments_.push_back({DNNL_ARG_SCRATCHPAD, memory.get()});
}

void BoundPrimitive::run(const Frame& frame) {
  for (Slot& slot : slots_) {
    if (!slot.ref) continue;
    float* now = slot.ref.in(frame);
    if (now == slot.current) continue;
    slot.memory.set_data_handle(now);
    slot.current = now;
  }
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    throw run_error("oneDNN failed to run a kernel (status " + std::to_string(status) + ")",
                    "this is a fault in Starling or oneDNN: please report it with the job file");
  }
}

dnnl::memory::desc plain_desc(const dnnl::memory::dims& extents) {
  dnnl::memory::dims strides(extents.size());
  int64_t stride = 1;
  for (size_t axis = extents.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= extents[axis];
  }
  return {extents, dnnl::memory::data_type::f32, strides};
}

}  // namespace starling
