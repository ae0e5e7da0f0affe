// Lowering: turns groups of nodes into the kernels of a Plan. It knows where each value and each
// gradient lies while the plan is built; the files lower_*.cc know one family of operators each.
//
// Gradients: a value that several nodes read gets a contribution from each. The first one makes
// the gradient's buffer, later ones are added. Two gradients that are equal (both inputs of an
// add) share a buffer until one of them must change; only a buffer with one user is changed in
// place.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/fusion.h"
#include "engine/plan.h"

namespace starling {

// How an operand that is rounded to bf16 lies in memory.
enum class OperandForm : uint8_t { kRounded, kBf16 };  // as f32, or in half the bytes

class Lowering {
 public:
  Lowering(Plan& plan, const Graph& graph, PlanResources resources);
  void run();

  // --- what is compiled ---
  const Graph& graph;
  const PlanOptions& options;
  const PlanResources resources;
  const Node& node(const Group& group) const { return graph.node(group.main); }
  int64_t rows() const { return options.rows; }
  // Floats of `value` in this plan's rows.
  size_t floats(ValueId value) const;
  const Backward::Step& backward_step(const Group& group) const;

  // --- values ---
  Ref value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  Ref make_value(ValueId id);                  // a place of its own
  void set_value(ValueId id, const Ref& ref);  // the same place as another: a view
  // A value that must survive from a group's forward to its backward besides inputs and output.
  Ref& saved(const Group& group) { return saved_[group.main]; }

  // --- parameters ---
  const Slice& slice(const Node& node, size_t index) const;
  Ref weights(const Node& node, size_t index) const;
  // The weights that are read next after those of the group: where they are, and how many.
  struct Weights {
    Ref ref;
    size_t floats;
  };
  Weights next_weights(const Group& group) const;
  // Where the gradient of the parameter goes. `adds` tells whether an earlier kernel of this plan
  // writes it too; otherwise it adds only when frame.accumulate says so.
  struct Target {
    Ref ref;
    bool adds;
  };
  Target parameter_gradient(const Node& node, size_t index);

  // --- gradients of values ---
  bool has_gradient(ValueId id) const { return backward_.has_gradient[static_cast<size_t>(id)]; }
  Ref gradient(ValueId id) const { return gradients_[static_cast<size_t>(id)]; }
  // Where a kernel may write `changed` gradient of `id`: in place if nobody else needs it as it is.
  Ref gradient_to_change(ValueId id);
  // The place for a contribution to the gradient of `id`; the kernel writes it whole. Then
  // `contributed` adds it to what is there.
  Ref contribution(ValueId id);
  void contributed(ValueId id, const Ref& ref);
  // The contribution equals `ref`, which lies in another gradient's buffer.
  void contribute_alias(ValueId id, const Ref& ref);

  // --- kernels ---
  Ref scratch(size_t floats);
  // `touched` are all Refs that the kernel reads or writes.
  void emit(std::unique_ptr<Kernel> kernel, const std::vector<Ref>& touched);
  template <typename Function>
  void emit(std::string label, const std::vector<Ref>& touched, Function function) {
    emit(std::make_unique<FunctionKernel<Function>>(std::move(label), std::move(function)),
         touched);
  }

  // --- bf16 ---
  // A copy of `ref` rounded to bf16. That of a value is kept.
  Ref operand(const Ref& ref, size_t floats, const std::string& label, OperandForm form);
  Ref value_operand(ValueId id, const std::string& label, OperandForm form);

 private:
  void lower_forward(const Group& group);
  void lower_backward(const Group& group);
  void lower_loss();
  void release_gradient(ValueId id);
  // `ref` is live up to the kernel emitted last.
  void keep(const Ref& ref);

  Plan& plan_;
  std::vector<Group> groups_;
  Backward backward_;
  std::vector<Ref> values_, gradients_;
  std::map<std::pair<ValueId, OperandForm>, Ref> operands_;
  std::map<int, Ref> saved_;
  std::map<int, const Backward::Step*> steps_;
  std::map<const ArenaBuffer*, int> gradient_users_;
};

// One family of operators: can it lower this node, and how. Whatever no family knows runs through
// the Operator itself (lower_custom).
struct Family {
  bool (*knows)(const Operator& op);
  void (*forward)(Lowering& lowering, const Group& group);
  void (*backward)(Lowering& lowering, const Group& group);
};
extern const Family kDenseFamily, kConvFamily, kPoolFamily, kGlobalPoolFamily, kReshapeFamily,
    kActivationFamily, kSoftmaxFamily, kDropoutFamily, kBatchNormFamily, kAddFamily, kCustomFamily;
const Family& family_of(const Operator& op);

// Shared by dense and convolution: the gradient at the product itself, given the group's output
// gradient: through the activation, to the residual, and summed into the bias. `rows` × `columns`
// is the product's output.
Ref product_gradient(Lowering& lowering, const Group& group, int64_t rows, int64_t columns);

// What rides along with a product, as a pass of its own over its output y (`rows` × `columns`):
// the bias if `with_bias`, the residual and the activation. Why not in the product: fusion.h.
void emit_epilogue(Lowering& lowering, const Group& group, const Ref& y, int64_t rows,
                   int64_t columns, bool with_bias);

}  // namespace starling
