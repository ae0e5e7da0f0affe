// The update of the weights: the sum of the shards' gradients, clipping, weight decay and the
// optimizer's formula, fused into one pass over memory, block by block
// (tensor/parameter_space.h): roots and divisions take the time in which memory brings what is
// next. Blocks are independent of one another, so lanes and workers split them as they like and get
// the same bits. Nothing here allocates or keeps anything; all is thread-safe for distinct blocks.
//
// Without clip_norm one call of update_block per block does it all. With it there are two passes:
// block_square_sum for every block, global_norm and clip_scale once, then update_block on the sums.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "starling/optimizer.h"
#include "tensor/parameter_space.h"

namespace starling {

// The scalars of one step, computed once in f64 and rounded to f32.
struct UpdateSettings {
  // `rate` is the step's learning rate; `step` is the number of updates before this one. Clipping
  // by norm is not among them: set gradient_scale.
  UpdateSettings(const Optimizer& optimizer, double rate, uint64_t step);

  OptimizerKind kind;
  float rate;
  float momentum;
  float beta1, beta1_rest;  // β and 1 − β
  float beta2, beta2_rest;
  float epsilon;
  float adam_rate;     // rate / (1 − β1ᵗ)
  float adam_root;     // 1 / √(1 − β2ᵗ)
  float weight_decay;  // added to the gradient; 0 for AdamW
  float shrink;        // what AdamW multiplies the weight by first; 1 for the others
  // What a weight decay is multiplied by: the rate for AdamW, else 1. With 0 nothing decays.
  double decay_rate;
  float clip_value;  // the largest float when there is no such clipping
  float gradient_scale = 1;

  // Another weight decay than the optimizer's, at decay_rate.
  void set_weight_decay(double decay);
};

// How many floats an optimizer keeps per weight, each kind in an array of the space's layout, zero
// at the start, and what they are called in a checkpoint.
inline constexpr int kMaxStates = 2;
int state_count(OptimizerKind kind);
const char* state_name(OptimizerKind kind, int index);

// Where an update keeps what it is about to overwrite, so that others can undo it if this process
// dies meanwhile; in memory that is shared. Elements are overwritten kElements at a time: those
// under way are in the log, those before them are updated, those behind are not. Two such groups
// take turns in the log: while one is written, the other is whole.
struct UndoLog {
  static constexpr size_t kElements = 64;
  static constexpr size_t kArrays = 1 + kMaxStates;  // weights, states
  static constexpr size_t kFloats = 2 * kArrays * kElements;

  std::atomic<uint64_t>* under_way;  // elements(), as they are told to others
  float* floats;                     // kFloats of them
  size_t first = 0;                  // where the update begins; a multiple of kElements

  static uint64_t elements(size_t first, size_t count) { return uint64_t{first} << 32 | count; }
  static size_t first_of(uint64_t elements) { return elements >> 32; }
  static size_t count_of(uint64_t elements) { return elements & UINT32_MAX; }
  // Of the group that begins with element `first`, the part of an array.
  static float* place(float* floats, size_t first, size_t array) {
    return floats + (first / kElements % 2 * kArrays + array) * kElements;
  }
};

// What others have to do with the memory of an update.
struct UpdateSharing {
  const UndoLog* undo = nullptr;
  // Copies of weights that get the new ones, too; the block begins at this element of each.
  std::span<float* const> copies = {};
  size_t offset = 0;
  uint32_t claimed = 0;  // bit i: others write gradient i next (base/claim.h)
};

// Updates the n ≤ kBlockElements weights and states of one block, from undo->first on if there is
// an undo log. The gradient is the sum of `gradients` along the tree, 1 to kTreeLeavesInRegisters
// arrays. Returns false at a sum that is not finite: at most UndoLog::kElements elements before it,
// nothing is changed any more. `weight_decay` is the slice's.
bool update_block(const UpdateSettings& settings, const std::optional<double>& weight_decay,
                  std::span<const float* const> gradients, size_t n, float* weights,
                  float* const* states, const UpdateSharing& sharing = {});

// The sum of the squares of one block's gradient: not finite if one of its values isn't.
double block_square_sum(const float* gradient, size_t n);

// The Euclidean norm of the whole gradient from the square sums of blocks(), one for each.
double global_norm(const ParameterSpace& space, std::span<const double> block_sums);

// What to multiply a gradient of this norm by, so that its norm is at most clip_norm.
float clip_scale(double norm, double clip_norm);

}  // namespace starling
