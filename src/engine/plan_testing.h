// For tests: a graph with weights, inputs and labels of its own, run by a Plan and by the
// reference executor.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/lanes.h"
#include "engine/plan.h"
#include "engine/reference.h"
#include "tensor/buffer.h"

namespace starling::testing_plans {

using Floats = std::vector<float>;

inline Floats random_floats(size_t count, uint64_t seed) {
  const RandomStream stream(seed, Draw::kSynthetic);
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 2 * stream.uniform(i) - 1;
  return values;
}

// As state.cc lays parameters out: the order in which the backward pass finishes them.
inline ParameterSpace space_of(const Graph& graph) {
  ParameterSpace space;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const auto& parameters = graph.nodes()[i].parameters;
    for (size_t p = parameters.size(); p-- > 0;)
      space.add(parameters[p].name, parameters[p].shape, {});
  }
  return space;
}

// Relative to the largest expected value.
inline void expect_close(std::span<const float> actual, std::span<const float> expected,
                         float tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  float largest = 1e-3f;
  for (float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << what << " element " << i;
  }
}

struct Rig {
  Rig(const Graph& g, LossPtr l, int64_t r, uint64_t draws = 5)
      : graph(g),
        loss(std::move(l)),
        rows(r),
        space(space_of(g)),
        moments(g),
        weights(space.total_floats()),
        packed(nullptr) {
    const Floats drawn = random_floats(weights.size(), draws);
    std::copy(drawn.begin(), drawn.end(), weights.begin());
    for (float& w : weights) w *= 0.5f;
    features = random_floats(
        static_cast<size_t>(rows * graph.value(graph.inputs()[0]).shape.elements()), draws + 1);
    const Shape out = graph.value(graph.output()).shape;
    grad_output = random_floats(static_cast<size_t>(rows * out.elements()), draws + 2);
    if (loss) {
      labels =
          random_floats(static_cast<size_t>(rows * loss->label_shape(out).elements()), draws + 3);
      const bool classes = loss->kind() == "softmax_cross_entropy";
      for (size_t i = 0; i < labels.size(); ++i) {
        labels[i] =
            classes ? static_cast<float>(static_cast<int64_t>(i) % out[0]) : std::abs(labels[i]);
      }
    }
    for (int64_t i = 0; i < rows; ++i) samples.push_back(static_cast<uint64_t>(i * 7 + 1));
    statistics.assign(moments.size(), 0.5f);
    shard_moments.resize(moments.size());
    losses.resize(static_cast<size_t>(rows));
    packed = PackedWeights(weights.data());
  }

  RowsContext context(bool training) const {
    return {.rows = rows, .training = training, .seed = seed, .epoch = epoch, .samples = samples};
  }

  std::unique_ptr<Plan> compile(PlanOptions options) {
    std::unique_ptr<Plan> plan;
    options.rows = rows;
    options.loss = loss;
    Lanes(1).run([&](int) {
      plan = std::make_unique<Plan>(graph, options, PlanResources{space, moments, packed});
    });
    arena = Buffer<float>(std::max(arena.size(), plan->arena_floats()));
    // Whatever is read before it is written shows up as NaN.
    std::fill(arena.begin(), arena.end(), std::numeric_limits<float>::quiet_NaN());
    return plan;
  }

  Frame frame(Floats& gradients, bool training, bool accumulate) {
    Frame f;
    f.base[static_cast<size_t>(Space::kArena)] = arena.data();
    f.base[static_cast<size_t>(Space::kFeatures)] = features.data();
    f.base[static_cast<size_t>(Space::kLabels)] = labels.data();
    f.base[static_cast<size_t>(Space::kWeights)] = weights.data();
    f.base[static_cast<size_t>(Space::kGradients)] = gradients.data();
    f.base[static_cast<size_t>(Space::kGradOutput)] = grad_output.data();
    f.context = context(training);
    f.loss_scale = 0.25f;
    f.accumulate = accumulate;
    f.losses = losses.data();
    f.moments = shard_moments.data();
    f.statistics = statistics.data();
    return f;
  }

  struct Outcome {
    Floats output, losses, gradients, input_gradient;
    std::vector<double> moments;
  };

  // One micro-batch by a plan. Gradients start at `start` and are added to if `accumulate`.
  Outcome run_plan(PlanOptions options, float start = 0, bool accumulate = false) {
    const std::unique_ptr<Plan> plan = compile(options);
    Floats gradients(space.total_floats(), start);
    Frame f = frame(gradients, options.training, accumulate);
    Outcome outcome;
    Lanes(1).run([&](int) {
      plan->forward(f);
      const float* y = plan->output(f);
      outcome.output.assign(y, y + grad_output.size());
      if (!options.training) return;
      plan->backward(f);
      if (options.input_gradients) {
        const float* dx = plan->input_gradient(f);
        outcome.input_gradient.assign(dx, dx + features.size());
      }
    });
    outcome.losses = losses;
    outcome.gradients = only_parameters(gradients);
    outcome.moments = shard_moments;
    return outcome;
  }

  // The same by the reference.
  Outcome run_reference(bool training, bool input_gradients, float start = 0) {
    ReferenceExecutor reference(graph, loss, space, moments);
    const ReferenceExecutor::Inputs in{.context = context(training),
                                       .features = features.data(),
                                       .labels = loss ? labels.data() : nullptr,
                                       .weights = weights.data(),
                                       .statistics = statistics.data(),
                                       .shard_moments = shard_moments.data(),
                                       .loss_scale = 0.25f,
                                       .grad_output = grad_output.data(),
                                       .input_gradients = input_gradients};
    Floats gradients(space.total_floats(), start);
    reference.forward(in);
    Outcome outcome;
    outcome.output = reference.output();
    if (training) {
      reference.backward(in, gradients.data());
      outcome.input_gradient = reference.gradient(graph.inputs()[0]);
    }
    outcome.losses = reference.losses();
    outcome.gradients = only_parameters(gradients);
    outcome.moments = shard_moments;
    return outcome;
  }

  // Without the floats between slices.
  Floats only_parameters(const Floats& flat) const {
    Floats values;
    for (const Slice& slice : space.slices()) {
      values.insert(values.end(), flat.begin() + static_cast<std::ptrdiff_t>(slice.offset),
                    flat.begin() + static_cast<std::ptrdiff_t>(slice.offset + slice.size));
    }
    return values;
  }

  const Graph graph;
  LossPtr loss;
  int64_t rows;
  ParameterSpace space;
  MomentsLayout moments;
  Buffer<float> weights, arena;
  PackedWeights packed;
  Floats features, labels, grad_output, statistics, losses;
  std::vector<double> shard_moments;
  std::vector<uint64_t> samples;
  uint64_t seed = 11;
  uint32_t epoch = 2;
};

}  // namespace starling::testing_plans
