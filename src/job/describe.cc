#include "job/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/isa.h"
#include "engine/executor.h"
#include "job/job_build.h"
#include "train/optimizer_transfer.h"
#include "train/state.h"

namespace starling {
namespace {

// 2.36e9 as "2.36 G".
std::string count_text(double count) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  for (; count >= 1000 && unit + 1 < std::size(kUnits); ++unit) count /= 1000;
  return unit == 0 ? fmt::format("{:.0f} ", count) : fmt::format("{:.3g} {}", count, kUnits[unit]);
}

double forward_flops(const Model& model) {
  double total = 0;
  for (const Node& node : model.graph().nodes()) {
    total += node.op->flops(model.graph().input_shapes(node));
  }
  return total;
}

std::string cost_text(const Job& job, const Model& model) {
  // The backward pass computes two gradients, each at the cost of the forward pass.
  const double forward = forward_flops(model), training = 3 * forward;
  return fmt::format(
      "cost       {}FLOP to predict one sample, about {}FLOP to train on it, {}FLOP a step\n",
      count_text(forward), count_text(training),
      count_text(training * static_cast<double>(job.training.batch * job.training.accumulate)));
}

std::string kernels_text(const Plan& plan) {
  std::string text = fmt::format("\nkernels of a micro-batch of {}\n", plan.rows());
  for (size_t i = 0; i < plan.kernels().size(); ++i) {
    text +=
        fmt::format("{:>4}  {:<9} {}\n", i + 1, i < plan.backward_begin() ? "forward" : "backward",
                    plan.kernels()[i]->label());
  }
  return text;
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string describe_job(const Job& job, const DescribeOptions& options) {
  cap_isa(job.isa);
  const Model model = build_model(job, input_shape(job));
  const TrainerOptions settings = trainer_options(job);
  settings.loss->label_shape(model.output_shape());  // throws when the output does not fit
  const TrainState state(model.graph(), settings.optimizer, settings.seed);
  const int lanes = settings.lanes > 0 ? settings.lanes : available_cores();
  const int shards = shard_count(job, model);
  const int64_t micro_batch =
      settings.micro_batch > 0 ? settings.micro_batch : default_micro_batch(model);
  Executor executor(model.graph(), settings.loss, settings.metrics, state.space, state.moments,
                    state.weights.data(),
                    {.lanes = lanes,
                     .shards = shards,
                     .micro_batch = micro_batch,
                     .precision = settings.precision,
                     .seed = settings.seed});
  const auto batch = static_cast<int64_t>(job.training.batch);
  // The stack with the most rows.
  const auto rows_of = [&](const ShardRange& stack) {
    return shard_begin(batch, stack.end, shards) - shard_begin(batch, stack.begin, shards);
  };
  const std::span<const ShardRange> stacks = executor.prepare(
      {.samples = batch * static_cast<int64_t>(job.training.accumulate), .batch = batch},
      {0, shards});
  const ShardRange stack = *std::max_element(
      stacks.begin(), stacks.end(),
      [&](const ShardRange& a, const ShardRange& b) { return rows_of(a) < rows_of(b); });
  const int64_t rows = executor.micro_batch(rows_of(stack), stack.size());

  std::string text = fmt::format("{}\n\n{}\n", job.name, model.summary());
  if (job.training.accumulate > 1)
    text += fmt::format("step       {} batches\n", job.training.accumulate);
  text += fmt::format("training   batch {} in {} shards, micro-batch {}, {} {}, {}, {}, {} {}\n",
                      batch, shards, rows, lanes, lanes == 1 ? "lane" : "lanes", job.precision,
                      isa_name(), job.optimizer.name, job.optimizer.learning_rate);
  text += cost_text(job, model);
  const size_t weights = state.space.total_floats() * sizeof(float);
  const bool sharded = job.strategy.name == "sharded" && job.workers > 1;
  const size_t optimizer = sharded ? split_optimizer_bytes(state.space, state.optimizer.kinds(),
                                                           static_cast<int>(job.workers),
                                                           static_cast<int>(job.strategy.replicas))
                                   : state.optimizer.bytes();
  const size_t parts[] = {weights, optimizer, executor.gradient_bytes(), executor.arena_bytes(),
                          executor.packed_bytes()};
  double total = 0;
  for (const size_t part : parts) total += static_cast<double>(part);
  text += fmt::format(
      "memory     {} = weights {} + optimizer {} + gradients {} + activations {} + packed weights "
      "{}\n",
      bytes_text(total), bytes_text(static_cast<double>(parts[0])),
      bytes_text(static_cast<double>(parts[1])), bytes_text(static_cast<double>(parts[2])),
      bytes_text(static_cast<double>(parts[3])), bytes_text(static_cast<double>(parts[4])));
  if (options.kernels) text += kernels_text(executor.plan(rows, stack.size()));
  return text;
}

}  // namespace starling
