// The little that Starling needs around oneDNN: one engine, memory descriptors, and a primitive
// with its arguments bound to Refs, run without allocation of ours. Primitives are made with a
// user scratchpad, so oneDNN allocates none either; but it copies the arguments of each call into a
// hash map.
#pragma once

#include <dnnl.hpp>
#include <vector>

#include "engine/frame.h"
#include "tensor/buffer.h"

namespace starling {

dnnl::engine& onednn_engine();

// Whether it multiplies bf16 on this machine by anything better than its reference code.
bool onednn_has_bf16();

// Asserts that this thread runs oneDNN with exactly one OpenMP thread: bits depend on it.
void require_one_thread();

// Attributes that every primitive has.
dnnl::primitive_attr onednn_attributes();

// A primitive and where its arguments are. Not thread-safe: it belongs to one lane's plan.
class BoundPrimitive {
 public:
  BoundPrimitive() = default;
  explicit BoundPrimitive(const dnnl::primitive& primitive) : primitive_(primitive) {}

  // `argument` is one of DNNL_ARG_…
  void bind(int argument, const dnnl::memory::desc& desc, const Ref& ref);
  void bind_scratchpad(const dnnl::memory::desc& desc);
  void run(const Frame& frame);

 private:
  struct Slot {
    dnnl::memory memory;
    Ref ref;
    float* current = nullptr;
  };
  dnnl::primitive primitive_;
  dnnl::stream stream_{onednn_engine()};
  std::vector<Slot> slots_;
  std::vector<dnnl_exec_arg_t> arguments_;
  Buffer<std::byte> scratchpad_;
};

// A memory descriptor of plain f32 with these extents, and row-major strides.
dnnl::memory::desc plain_desc(const dnnl::memory::dims& extents);

}  // namespace starling
