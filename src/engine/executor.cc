#include "engine/executor.h"

#include <algorithm>
#include <atomic>

#include "base/cache_line.h"
#include "base/claim.h"
#include "engine/onednn.h"
#include "engine/reference.h"

namespace starling {
namespace {

// Rows of an evaluation chunk when the job says nothing: enough to keep products efficient.
constexpr int64_t kEvaluationRows = 32;

void grow(Buffer<float>& buffer, size_t floats) {
  if (buffer.size() < floats) buffer = Buffer<float>(floats);
}

}  // namespace

Executor::Executor(const Graph& graph, LossPtr loss, std::vector<MetricPtr> metrics,
                   const ParameterSpace& parameters, const MomentsLayout& moments,
                   const float* weights, ExecutorOptions options)
    : graph_(graph),
      loss_(std::move(loss)),
      metrics_(std::move(metrics)),
      parameters_(parameters),
      moments_(moments),
      weights_(weights),
      options_(options),
      raises_flags_(starling::raises_flags(graph, options.precision)),
      feature_floats_(graph.value(graph.inputs()[0]).shape.elements()),
      label_floats_(loss_->label_shape(graph.value(graph.output()).shape).elements()),
      packed_(weights),
      lanes_(options.lanes),
      lane_state_(static_cast<size_t>(options.lanes)),
      board_(std::make_unique<ShardBoard>(board_layout())) {}

ShardBoard::Layout Executor::board_layout() const {
  return {.shards = options_.shards, .metrics = metrics_.size(), .moments = moments_.size()};
}

void Executor::use_memory(ExecutorMemory memory) {
  memory_ = std::move(memory);
  board_ = std::make_unique<ShardBoard>(board_layout(), memory_.board);
  own_gradients_.clear();
  gradients_.clear();
  prepared_.clear();
  late_.clear();
  stacks_ = nullptr;
  packed_.use(weights_of(0));
  if (!memory_.weights.empty()) refresh();
}

void Executor::refresh() {
  if (!memory_.weights.empty()) {
    lanes_.run([&](int lane) {
      std::copy_n(weights_, parameters_.total_floats(),
                  memory_.weights[static_cast<size_t>(lane)].copy);
    });
  }
  refresh_updated();
}

void Executor::refresh_updated() {
  if (packed_.bytes() > 0) lanes_.run([&](int lane) { packed_.refresh(lane, lanes_.count()); });
}

void Executor::claim_weights(int lane) {
  const LaneWeights& own = memory_.weights[static_cast<size_t>(lane)];
  const auto claim_from = [&](size_t first, size_t last) {
    for (size_t i = first; i < last; i += kLineFloats) claim(own.copy + i);
  };
  claim_from(0, own.own_first);
  claim_from(own.own_last, parameters_.total_floats());
}

void Executor::move_to(const float* weights, float* gradient) {
  weights_ = weights;
  memory_.weights.clear();
  packed_.use(weights);
  if (gradients_.empty()) gradients_.push_back(gradient);
  gradients_[0] = gradient;
}

int64_t Executor::micro_batch(int64_t rows, int shards) const {
  const bool whole = shards > 1 || options_.micro_batch == 0 || moments_.size() > 0;
  return whole ? rows : std::min(rows, options_.micro_batch);
}

bool Executor::computes_together(const StepSize& step) const {
  return moments_.size() == 0 && can_stack(graph_, step.samples / options_.shards);
}

std::vector<ShardRange> Executor::stacks_of(const StepSize& step, ShardRange range) const {
  const int64_t rows = step.samples / options_.shards;
  int most = 1;
  if (computes_together(step)) {
    const int64_t most_rows = options_.micro_batch > 0 ? options_.micro_batch : step.samples;
    most = static_cast<int>(most_rows / std::max<int64_t>(rows, 1));
  } else if (micro_batch(rows, 1) == rows && adds_once(graph_, options_.precision, rows)) {
    most = 2;
  }
  return stack_shards(
      {.step = step, .shards = options_.shards, .lanes = lanes_.count(), .most = most}, range);
}

Plan& Executor::lane_plan(int lane, int64_t rows, int shards) {
  Lane& state = lane_state_[static_cast<size_t>(lane)];
  const LateGradients* const late = shards > 0 && stacks_ != nullptr ? stacks_->late : nullptr;
  const LateLayout* const layout = late != nullptr ? &late->layout() : nullptr;
  std::unique_ptr<Plan>& plan = state.plans[{rows, shards, layout}];
  if (!plan) {
    plan = std::make_unique<Plan>(graph_,
                                  PlanOptions{.rows = rows,
                                              .shards = std::max(shards, 1),
                                              .precision = options_.precision,
                                              .training = shards > 0,
                                              .loss = loss_,
                                              .metrics = metrics_,
                                              .fuse = options_.fuse,
                                              .late = layout},
                                  PlanResources{parameters_, moments_, packed_});
    grow(state.arena, plan->arena_floats());
    grow(state.features, static_cast<size_t>(rows * feature_floats_));
    grow(state.labels, static_cast<size_t>(rows * label_floats_));
    grow(state.losses, static_cast<size_t>(rows));
    grow(state.metrics, static_cast<size_t>(rows) * metrics_.size());
  }
  return *plan;
}

const LateLayout* Executor::late_layout(const StepSize& step) {
  const int64_t rows = step.samples / options_.shards;
  if (step.batches() != 1 || micro_batch(rows, 1) < rows) return nullptr;
  const LateLayout& layout =
      late_layouts_.try_emplace(step.samples, graph_, parameters_, step.samples, options_.shards)
          .first->second;
  return layout.empty() ? nullptr : &layout;
}

LateGradients* Executor::late_of(const StepSize& step) {
  const LateLayout* const layout = memory_.late ? late_layout(step) : nullptr;
  if (layout == nullptr) return nullptr;
  const auto found = late_.find(step.samples);
  if (found != late_.end()) return &found->second;
  float* const area = memory_.late(layout->floats());
  return &late_.try_emplace(step.samples, *layout, options_.precision, area, lanes_.count())
              .first->second;
}

std::span<const ShardRange> Executor::prepare(const StepSize& step, ShardRange range) {
  for (const Prepared& prepared : prepared_) {
    if (prepared.step != step || prepared.range != range) continue;
    stacks_ = &prepared;
    return prepared.ranges;
  }
  prepared_.push_back(
      {step, range, stacks_of(step, range), computes_together(step), late_of(step)});
  stacks_ = &prepared_.back();
  // Compiled here, by one thread, because plans share the packed weights; with one OpenMP thread,
  // because primitives remember how many they were made for.
  run_alone([&] {
    compile(step.batch_size(0));
    if (step.batches() > 1) compile(step.batch_size(step.batches() - 1));
  });
  for (Lane& lane : lane_state_) {
    if (lane.moments.size() < moments_.size()) lane.moments = Buffer<double>(moments_.size());
  }
  if (stack_lanes_.size() < stacks_->ranges.size()) stack_lanes_.resize(stacks_->ranges.size());
  while (gradients_.size() < stacks_->ranges.size()) {
    if (!memory_.gradient) own_gradients_.emplace_back(parameters_.total_floats());
    gradients_.push_back(memory_.gradient ? memory_.gradient(gradients_.size())
                                          : own_gradients_.back().data());
  }
  return stacks_->ranges;
}

void Executor::compile(int64_t samples) {
  const auto compile_part = [&](const ShardRange& part) {
    const int64_t rows = shard_begin(samples, part.end, options_.shards) -
                         shard_begin(samples, part.begin, options_.shards);
    if (rows == 0) return;
    const int64_t micro = micro_batch(rows, part.size());
    for (int lane = 0; lane < lanes_.count(); ++lane) {
      lane_plan(lane, micro, part.size());
      if (rows % micro != 0) lane_plan(lane, rows % micro, part.size());
    }
  };
  for (const ShardRange& stack : stacks_->ranges) for_parts(stack, compile_part);
}

int64_t Executor::stack_begin(const BatchRows& batch, int shard) const {
  return shard_begin(static_cast<int64_t>(batch.samples.size()), shard, options_.shards);
}

void Executor::gradient(const BatchRows& batch, ShardRange range, GradientWatch* watch) {
  const bool whole = batch.step.samples == 0;
  const size_t stacks =
      prepare(whole ? StepSize::of_batch(static_cast<int64_t>(batch.samples.size())) : batch.step,
              range)
          .size();
  for (int shard = range.begin; batch.index == 0 && shard < range.end; ++shard)
    board_->clear(shard);
  if (watch != nullptr) {
    const size_t buckets = watch->buckets().size();
    if (to_complete_.size() != buckets) to_complete_ = std::vector<std::atomic<int>>(buckets);
    const auto present =
        std::count_if(stacks_->ranges.begin(), stacks_->ranges.end(), [&](const ShardRange& stack) {
          return stack_begin(batch, stack.begin) < stack_begin(batch, stack.end);
        });
    for (std::atomic<int>& count : to_complete_) count = static_cast<int>(present);
  }
  std::atomic<size_t> next{0};
  lanes_.run([&](int lane) {
    require_one_thread();
    for (size_t stack = next++; stack < stacks; stack = next++)
      run_stack(lane, stack, batch, watch);
    if (!memory_.weights.empty()) claim_weights(lane);
  });
}

void Executor::backward_watched(int lane, Plan& plan, const Frame& frame, GradientWatch& watch) {
  std::vector<int>& ready = lane_state_[static_cast<size_t>(lane)].ready;
  ready.clear();
  for (const Bucket& bucket : watch.buckets())
    ready.push_back(plan.ready_after(parameters_, bucket));
  const auto after = [&](int kernel) {
    for (size_t bucket = 0; bucket < ready.size(); ++bucket) {
      // Makes what other lanes have written of the bucket known to the last.
      if (ready[bucket] == kernel &&
          to_complete_[bucket].fetch_sub(1, std::memory_order_acq_rel) == 1) {
        watch.complete(bucket);
      }
    }
  };
  after(-1);  // frozen parameters have no gradient
  plan.backward(frame, after);
}

template <typename Use>
void Executor::for_parts(const ShardRange& stack, Use use) const {
  if (stacks_->together) return use(stack);
  for (int shard = stack.begin; shard < stack.end; ++shard) use(ShardRange{shard, shard + 1});
}

void Executor::run_stack(int lane, size_t index, const BatchRows& batch, GradientWatch* watch) {
  const ShardRange& stack = stacks_->ranges[index];
  stack_lanes_[index] = lane;
  for_parts(stack, [&](const ShardRange& part) {
    run_part(lane, index, part, batch, part.end == stack.end ? watch : nullptr);
  });
}

void Executor::run_part(int lane, size_t index, ShardRange part, const BatchRows& batch,
                        GradientWatch* watch) {
  Lane& state = lane_state_[static_cast<size_t>(lane)];
  const bool is_first = part.begin == stacks_->ranges[index].begin;
  const int64_t begin = stack_begin(batch, part.begin), end = stack_begin(batch, part.end);
  const int64_t before = board_->samples(part.begin);  // in earlier batches of the step
  Frame frame;
  frame.base[static_cast<size_t>(Space::kGradients)] = gradients_[index];
  frame.moments = before > 0 ? state.moments.data() : board_->moments(part.begin);
  if (stacks_->late != nullptr)
    frame.base[static_cast<size_t>(Space::kLate)] = stacks_->late->area();
  frame.loss_scale = 1.0f / static_cast<float>(stacks_->step.samples);
  frame.context = {.training = true, .seed = options_.seed, .epoch = batch.epoch};
  const int64_t micro = micro_batch(end - begin, part.size());
  for (int64_t first = begin; first < end; first += micro) {
    const int64_t rows = std::min(micro, end - first), each = rows / part.size();
    Plan& plan = lane_plan(lane, rows, part.size());
    frame.accumulate = before > 0 || first > begin || !is_first;
    load_rows(lane, frame, batch, first, rows);
    plan.forward(frame);
    for (int shard = part.begin; shard < part.end; ++shard) {
      const int64_t from = (shard - part.begin) * each;
      board_->add(shard, state.losses.data(), state.metrics.data(), rows, from, each);
      board_->add_samples(shard, frame.context.samples.subspan(static_cast<size_t>(from),
                                                               static_cast<size_t>(each)));
    }
    if (watch != nullptr && first + micro >= end) {
      backward_watched(lane, plan, frame, *watch);
    } else {
      plan.backward(frame);
    }
  }
  if (moments_.size() > 0 && before > 0 && end > begin)
    moments_.merge(board_->moments(part.begin), before, state.moments.data(), end - begin);
}

void Executor::load_rows(int lane, Frame& frame, const BatchRows& batch, int64_t first,
                         int64_t rows) {
  Lane& state = lane_state_[static_cast<size_t>(lane)];
  const auto samples = batch.samples.subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
  float* features = state.features.data();
  float* labels = state.labels.data();
  if (batch.features != nullptr) {
    // Kernels only read their inputs: the cast is the price of one kind of Ref for all memory.
    features = const_cast<float*>(batch.features) + first * feature_floats_;
    labels = const_cast<float*>(batch.labels) + first * label_floats_;
  } else {
    (*batch.reader)(samples, features, labels);
  }
  const Shape& prediction = graph_.value(graph_.output()).shape;
  for (int64_t row = 0; batch.has_labels && row < rows; ++row) {
    loss_->check_labels(1, prediction, labels + row * label_floats_,
                        samples[static_cast<size_t>(row)]);
  }
  frame.base[static_cast<size_t>(Space::kArena)] = state.arena.data();
  frame.base[static_cast<size_t>(Space::kFeatures)] = features;
  frame.base[static_cast<size_t>(Space::kLabels)] = labels;
  frame.base[static_cast<size_t>(Space::kWeights)] = const_cast<float*>(weights_of(lane));
  frame.losses = state.losses.data();
  frame.metrics = state.metrics.data();
  frame.first_sample = first;
  frame.context.rows = rows;
  frame.context.samples = samples;
}

uint64_t Executor::chunk_rows() const {
  return static_cast<uint64_t>(options_.micro_batch > 0 ? options_.micro_batch : kEvaluationRows);
}

size_t Executor::chunk_count(uint64_t count) const {
  return (count + chunk_rows() - 1) / chunk_rows();
}

void Executor::run_inference(const RowReader& reader, uint64_t count, const float* statistics,
                             ChunkRange chunks, bool with_labels, ChunkUse use) {
  const uint64_t chunk_rows = this->chunk_rows();
  std::vector<uint64_t> ids(count);
  for (uint64_t i = 0; i < count; ++i) ids[i] = i;
  run_alone([&] {
    for (int lane = 0; lane < lanes_.count(); ++lane) {
      if (count >= chunk_rows) lane_plan(lane, static_cast<int64_t>(chunk_rows), 0);
      if (count % chunk_rows != 0) lane_plan(lane, static_cast<int64_t>(count % chunk_rows), 0);
    }
  });
  std::atomic<size_t> next{chunks.begin};
  const BatchRows batch{.samples = ids, .reader = &reader, .has_labels = with_labels};
  lanes_.run([&](int lane) {
    require_one_thread();
    Frame frame;
    frame.context = {.training = false, .seed = options_.seed};
    frame.statistics = statistics;
    for (size_t chunk = next++; chunk < chunks.end; chunk = next++) {
      const uint64_t first = chunk * chunk_rows, rows = std::min(chunk_rows, count - first);
      Plan& plan = lane_plan(lane, static_cast<int64_t>(rows), 0);
      if (!with_labels)
        std::fill_n(lane_state_[static_cast<size_t>(lane)].labels.data(),
                    rows * static_cast<uint64_t>(label_floats_), 0.0f);
      load_rows(lane, frame, batch, static_cast<int64_t>(first), static_cast<int64_t>(rows));
      plan.forward(frame);
      use(lane, chunk, plan, frame);
    }
  });
}

void Executor::evaluate(const RowReader& reader, uint64_t count, const float* statistics,
                        ChunkRange chunks, std::span<double> rows) {
  const size_t columns = 2 + metrics_.size();
  run_inference(reader, count, statistics, chunks, true,
                [&](int lane, size_t chunk, Plan& plan, const Frame&) {
                  const Lane& state = lane_state_[static_cast<size_t>(lane)];
                  const std::span<double> row = rows.subspan(chunk * columns, columns);
                  const auto sum = [&](const float* values) {
                    double total = 0;
                    for (int64_t i = 0; i < plan.rows(); ++i) total += double{values[i]};
                    return total;
                  };
                  row[0] = static_cast<double>(plan.rows());
                  row[1] = sum(state.losses.data());
                  for (size_t m = 0; m < metrics_.size(); ++m)
                    row[2 + m] = sum(state.metrics.data() + static_cast<int64_t>(m) * plan.rows());
                });
}

std::vector<float> Executor::predict(const RowReader& reader, uint64_t count,
                                     const float* statistics) {
  const size_t width = static_cast<size_t>(graph_.value(graph_.output()).shape.elements());
  std::vector<float> outputs(count * width);
  run_inference(reader, count, statistics, {0, chunk_count(count)}, false,
                [&](int, size_t, Plan& plan, const Frame& frame) {
                  const size_t first = frame.context.samples[0];
                  std::copy_n(plan.output(frame), static_cast<size_t>(plan.rows()) * width,
                              outputs.data() + first * width);
                });
  return outputs;
}

std::string Executor::find_non_finite(const BatchRows& batch, const float* statistics) {
  const int64_t n = static_cast<int64_t>(batch.samples.size());
  std::vector<float> features(static_cast<size_t>(n * feature_floats_)),
      labels(static_cast<size_t>(n * label_floats_));
  if (batch.reader != nullptr) {  // of what is in memory, some rows may be another worker's
    (*batch.reader)(batch.samples, features.data(), labels.data());
  } else {
    std::copy_n(batch.features, features.size(), features.begin());
    std::copy_n(batch.labels, labels.size(), labels.begin());
  }
  std::vector<double> scratch(moments_.size());
  ReferenceExecutor reference(graph_, loss_, parameters_, moments_);
  reference.forward({.context = {.rows = n,
                                 .training = true,
                                 .seed = options_.seed,
                                 .epoch = batch.epoch,
                                 .samples = batch.samples},
                     .features = features.data(),
                     .labels = labels.data(),
                     .weights = weights_of(0),
                     .statistics = statistics,
                     .shard_moments = scratch.data()});
  return reference.first_non_finite();
}

size_t Executor::arena_bytes() const {
  size_t sum = 0;
  for (const Lane& lane : lane_state_) sum += lane.arena.size() * sizeof(float);
  for (const auto& [samples, late] : late_) sum += late.bytes();
  return sum;
}

size_t Executor::packed_bytes() const {
  return packed_.bytes() + memory_.weights.size() * parameters_.total_floats() * sizeof(float);
}

size_t Executor::gradient_bytes() const {
  return gradients_.size() * parameters_.total_floats() * sizeof(float);
}

}  // namespace starling
