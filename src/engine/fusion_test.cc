// Which nodes run as one kernel. A group is told by the names of its nodes, main node first:
// "dense_1+add_1+relu_1".
#include "engine/fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/operators_testing.h"
#include "engine/plan_testing.h"

namespace starling {
namespace {

using testing::ElementsAre;
using namespace testing_plans;

Graph image_chain(const std::vector<OperatorPtr>& operators) { return chain({4, 4, 4}, operators); }

std::vector<std::string> groups(const Graph& graph, bool enabled = true, bool pooled = false) {
  std::vector<std::string> result;
  for (const Group& group : fuse(graph, enabled, pooled)) {
    std::string text = graph.node(group.main).name;
    if (group.residual >= 0) text += "+" + graph.node(group.residual).name;
    if (group.activation >= 0) text += "+" + graph.node(group.activation).name;
    if (group.pool >= 0) text += "+" + graph.node(group.pool).name;
    result.push_back(text);
  }
  return result;
}

TEST(Fusion, ActivationsToldByTheirOutputRideWithAProduct) {
  for (const ActivationKind kind : {ActivationKind::kRelu, ActivationKind::kLeakyRelu,
                                    ActivationKind::kSigmoid, ActivationKind::kTanh}) {
    const std::string name = activation_name(kind);
    EXPECT_THAT(groups(chain({3}, {dense(), activation(kind), dense()})),
                ElementsAre("dense_1+" + name + "_1", "dense_2"));
    EXPECT_THAT(groups(image_chain({conv(), activation(kind), conv()})),
                ElementsAre("conv2d_1+" + name + "_1", "conv2d_2"));
  }
}

// Its derivative needs the value before it, which fusion would not keep.
TEST(Fusion, GeluStaysAlone) {
  const ActivationKind gelu = ActivationKind::kGelu;
  EXPECT_THAT(groups(chain({3}, {dense(), activation(gelu)})), ElementsAre("dense_1", "gelu_1"));
  EXPECT_THAT(groups(image_chain({conv(), activation(gelu)})), ElementsAre("conv2d_1", "gelu_1"));
}

TEST(Fusion, OnlyTheFirstOfTwoActivationsRides) {
  EXPECT_THAT(groups(chain({3}, {dense(), relu(), activation(ActivationKind::kTanh)})),
              ElementsAre("dense_1+relu_1", "tanh_1"));
}

TEST(Fusion, ResidualRidesWithTheLastConvolution) {
  Graph graph;
  const ValueId x = graph.add_input({4, 4, 4});
  const ValueId a = graph.add(relu(), {graph.add(conv(), {x})});
  const ValueId b = graph.add(conv(), {a});
  graph.add(relu(), {graph.add(add(), {a, b})});
  EXPECT_THAT(groups(graph), ElementsAre("conv2d_1+relu_1", "conv2d_2+add_1+relu_2"));
  const Group last = fuse(graph).back();
  EXPECT_EQ(last.residual_input, a);
  EXPECT_EQ(last.output, graph.output());
  EXPECT_EQ(last.inputs, std::vector<ValueId>{a});
}

TEST(Fusion, ResidualWithAProjectionRidesWithTheProductThatComesLast) {
  Graph graph;
  const ValueId x = graph.add_input({4, 4, 4});
  const ValueId along = graph.add(conv(), {x}, "along");
  const ValueId through = graph.add(conv(), {x}, "through");
  graph.add(add(), {along, through});
  EXPECT_THAT(groups(graph), ElementsAre("along", "through+add_1"));
}

TEST(Fusion, ResidualThatIsNotThereYetDoesNotRide) {
  Graph graph;
  const ValueId x = graph.add_input({4});
  const ValueId early = graph.add(dense(), {x});
  const ValueId late = graph.add(activation(ActivationKind::kGelu), {x});
  graph.add(relu(), {graph.add(add(), {early, late})});
  EXPECT_THAT(groups(graph), ElementsAre("dense_1", "gelu_1", "add_1+relu_1"));
}

TEST(Fusion, BatchNormTakesReluAndNothingElse) {
  EXPECT_THAT(groups(image_chain({batch_norm(), relu(), conv()})),
              ElementsAre("batch_norm_1+relu_1", "conv2d_1"));
  EXPECT_THAT(groups(image_chain({batch_norm(), activation(ActivationKind::kTanh)})),
              ElementsAre("batch_norm_1", "tanh_1"));
}

TEST(Fusion, ResidualAndReluRideWithBatchNorm) {
  Graph graph;
  const ValueId x = graph.add_input({4, 4, 4});
  const ValueId a = graph.add(batch_norm(), {graph.add(conv(), {x})});
  graph.add(relu(), {graph.add(add(), {x, a})});
  EXPECT_THAT(groups(graph), ElementsAre("conv2d_1", "batch_norm_1+add_1+relu_1"));
  Graph other;
  const ValueId y = other.add_input({4, 4, 4});
  const ValueId b = other.add(batch_norm(), {y});
  other.add(activation(ActivationKind::kTanh), {other.add(add(), {b, y})});
  EXPECT_THAT(groups(other), ElementsAre("batch_norm_1+add_1", "tanh_1"));
}

TEST(Fusion, ReluBeforeAMaxPoolGoesWithThePool) {
  EXPECT_THAT(groups(image_chain({relu(), max_pool()})), ElementsAre("max_pool2d_1+relu_1"));
  EXPECT_THAT(groups(image_chain({conv(), relu(), max_pool()})),
              ElementsAre("conv2d_1", "max_pool2d_1+relu_1"));
  EXPECT_THAT(groups(image_chain({batch_norm(), relu(), max_pool()})),
              ElementsAre("batch_norm_1", "max_pool2d_1+relu_1"));
}

// Where the plan allows it; other images have too many channels, or are nobody's input.
TEST(Fusion, PoolsRideWithTheConvolutionOfAnImage) {
  const auto pooled = [](const Shape& shape, const std::vector<OperatorPtr>& operators) {
    return groups(chain(shape, operators), true, true);
  };
  EXPECT_THAT(pooled({6, 6, 3}, {conv(8), relu(), max_pool(), conv(8), relu(), max_pool()}),
              ElementsAre("conv2d_1+relu_1+max_pool2d_1", "conv2d_2", "max_pool2d_2+relu_2"));
  EXPECT_THAT(pooled({6, 6, 1}, {conv(8), max_pool()}), ElementsAre("conv2d_1+max_pool2d_1"));
  EXPECT_THAT(groups(chain({6, 6, 1}, {conv(8), max_pool()})),
              ElementsAre("conv2d_1", "max_pool2d_1"));
  EXPECT_THAT(pooled({6, 6, 5}, {conv(8), max_pool()}), ElementsAre("conv2d_1", "max_pool2d_1"));
  EXPECT_THAT(pooled({6, 6, 1}, {conv(7), max_pool()}), ElementsAre("conv2d_1", "max_pool2d_1"));
  EXPECT_THAT(pooled({6, 6, 1}, {conv(8), activation(ActivationKind::kTanh), max_pool()}),
              ElementsAre("conv2d_1+tanh_1", "max_pool2d_1"));
  EXPECT_THAT(pooled({6, 6, 1}, {conv(8), pool(Pool2dOp::Mode::kAverage)}),
              ElementsAre("conv2d_1", "average_pool2d_1"));
}

// They don't commute with the pool, or not with this one.
TEST(Fusion, OtherPoolsAndActivationsStayApart) {
  const OperatorPtr average = pool(Pool2dOp::Mode::kAverage);
  EXPECT_THAT(groups(image_chain({conv(), relu(), average})),
              ElementsAre("conv2d_1+relu_1", "average_pool2d_1"));
  EXPECT_THAT(groups(image_chain({activation(ActivationKind::kTanh), max_pool()})),
              ElementsAre("tanh_1", "max_pool2d_1"));
}

TEST(Fusion, NothingRidesWhereAValueHasTwoReaders) {
  Graph product;  // the product is read by the relu and by the add
  const ValueId z = product.add(dense(), {product.add_input({4})});
  product.add(add(), {product.add(relu(), {z}), z});
  EXPECT_THAT(groups(product), ElementsAre("dense_1", "relu_1", "add_1"));

  Graph twice;  // the add reads the product as both of its inputs
  const ValueId y = twice.add(dense(), {twice.add_input({4})});
  twice.add(add(), {y, y});
  EXPECT_THAT(groups(twice), ElementsAre("dense_1", "add_1"));

  Graph pooled;  // the relu is read by the pool and by the convolution: it may ride with what makes
                 // it
  const ValueId r = pooled.add(relu(), {pooled.add(conv(), {pooled.add_input({4, 4, 4})})});
  const ValueId a = pooled.add(max_pool(), {r});
  const ValueId b = pooled.add(pool(Pool2dOp::Mode::kAverage), {r});
  pooled.add(add(), {a, b});
  EXPECT_THAT(groups(pooled),
              ElementsAre("conv2d_1+relu_1", "max_pool2d_1", "average_pool2d_1", "add_1"));
}

TEST(Fusion, TheOutputOfTheGraphIsAlwaysMade) {
  Graph graph = chain({3}, {dense(), relu(), dense()});
  graph.set_output(graph.node(0).output);
  EXPECT_THAT(groups(graph), ElementsAre("dense_1", "relu_1", "dense_2"));

  Graph pooled = image_chain({conv(), relu(), max_pool()});
  pooled.set_output(pooled.node(1).output);
  EXPECT_THAT(groups(pooled), ElementsAre("conv2d_1+relu_1", "max_pool2d_1"));
}

TEST(Fusion, DisabledLeavesEveryNodeAlone) {
  EXPECT_THAT(groups(image_chain({conv(), relu(), max_pool()}), false),
              ElementsAre("conv2d_1", "relu_1", "max_pool2d_1"));
}

// Every node is in exactly one group, and a group runs after those that make what it reads.
TEST(Fusion, GroupsCanRunInTheirOrder) {
  Graph graph;
  const ValueId x = graph.add_input({4, 4, 4});
  const ValueId a = graph.add(relu(), {graph.add(batch_norm(), {graph.add(conv(), {x})})});
  const ValueId p = graph.add(max_pool(), {graph.add(relu(), {graph.add(conv(), {a})})});
  const ValueId q = graph.add(max_pool(), {a});
  graph.add(relu(), {graph.add(add(), {p, graph.add(conv(), {q})})});
  std::vector<bool> made(graph.values().size(), false), ran(graph.nodes().size(), false);
  made[static_cast<size_t>(x)] = true;
  for (const Group& group : fuse(graph)) {
    for (const ValueId input : group.inputs) EXPECT_TRUE(made[static_cast<size_t>(input)]);
    EXPECT_TRUE(group.residual < 0 || made[static_cast<size_t>(group.residual_input)]);
    made[static_cast<size_t>(group.output)] = true;
    for (const int node : {group.main, group.activation, group.residual}) {
      if (node < 0) continue;
      EXPECT_FALSE(ran[static_cast<size_t>(node)]);
      ran[static_cast<size_t>(node)] = true;
    }
  }
  for (size_t node = 0; node < ran.size(); ++node)
    EXPECT_TRUE(ran[node]) << graph.node(static_cast<int>(node)).name;
}

// oneDNN has several convolutions, chosen by the shape and the CPU; each must add the residual.
TEST(Fusion, EveryConvolutionAddsItsResidual) {
  for (const int64_t channels : {4, 8, 12, 16}) {
    for (const int64_t kernel : {1, 3}) {
      for (const int64_t convolution_groups : {int64_t{1}, int64_t{4}, channels}) {
        SCOPED_TRACE(testing::Message() << channels << " channels in " << convolution_groups
                                        << " groups, kernel " << kernel);
        Graph graph;
        const ValueId x = graph.add_input({5, 5, channels});
        const ValueId a =
            graph.add(std::make_shared<Conv2dOp>(Conv2dOp::Options{
                          .filters = channels,
                          .window = {.kernel_h = kernel, .kernel_w = kernel, .same = true},
                          .groups = convolution_groups}),
                      {x});
        graph.add(activation(ActivationKind::kLeakyRelu), {graph.add(add(), {x, a})});
        ASSERT_THAT(groups(graph), ElementsAre("conv2d_1+add_1+leaky_relu_1"));
        Rig rig(graph, mean_squared_error(), 3);
        const Rig::Outcome expected = rig.run_reference(true, true),
                           actual = rig.run_plan({.input_gradients = true});
        expect_close(actual.output, expected.output, 1e-4f, "output");
        expect_close(actual.gradients, expected.gradients, 1e-4f, "gradients");
        expect_close(actual.input_gradient, expected.input_gradient, 1e-4f, "input gradient");
      }
    }
  }
}

// There is no kernel of ours for so many places: relu runs before it.
TEST(Fusion, ReluIsNotLostBeforeALargeMaxPool) {
  for (const bool after_conv : {false, true}) {
    std::vector<OperatorPtr> operators{relu(), max_pool(17)};
    if (after_conv) operators.insert(operators.begin(), conv());
    const Graph graph = chain({18, 18, 4}, operators);
    EXPECT_THAT(groups(graph).back(), "max_pool2d_1");
    Rig rig(graph, mean_squared_error(), 3);
    // Below zero, but for a few.
    for (float& value : rig.features) value -= value < 0.9f ? 3.0f : 0.0f;
    const Rig::Outcome expected = rig.run_reference(true, true),
                       actual = rig.run_plan({.input_gradients = true});
    expect_close(actual.output, expected.output, 1e-4f, "output");
    expect_close(actual.gradients, expected.gradients, 1e-4f, "gradients");
    expect_close(actual.input_gradient, expected.input_gradient, 1e-4f, "input gradient");
  }
}

// A layer whose parameters are frozen still passes gradients through whatever it is fused with.
TEST(Fusion, FrozenLayersPassGradientsThrough) {
  for (int frozen = 0; frozen < 6; ++frozen) {
    SCOPED_TRACE(frozen);
    Graph graph;
    int index = 0;
    const auto layer = [&](OperatorPtr op, ValueId from) {
      return graph.add(std::move(op), {from}, "", {.trainable = index++ != frozen});
    };
    const ValueId x = graph.add_input({4, 4, 4});
    const ValueId a = graph.add(relu(), {layer(conv(), x)});                             // 0
    const ValueId b = graph.add(add(), {a, layer(conv(), a)});                           // 1
    const ValueId c = graph.add(relu(), {layer(batch_norm(), graph.add(relu(), {b}))});  // 2
    const ValueId d = graph.add(max_pool(), {graph.add(relu(), {layer(conv(), c)})});    // 3
    const ValueId e = graph.add(std::make_shared<ReshapeOp>(std::nullopt), {d});
    const ValueId f = graph.add(activation(ActivationKind::kTanh), {layer(dense(6), e)});  // 4
    layer(dense(5), f);                                                                    // 5
    Rig rig(graph, softmax_cross_entropy(), 3);
    for (const bool input_gradients : {false, true}) {
      const Rig::Outcome expected = rig.run_reference(true, input_gradients);
      const Rig::Outcome actual = rig.run_plan({.input_gradients = input_gradients});
      expect_close(actual.gradients, expected.gradients, 1e-4f, "gradients");
      if (input_gradients)
        expect_close(actual.input_gradient, expected.input_gradient, 1e-4f, "input gradient");
    }
  }
}

// A frozen node whose input wants no gradient has no backward pass, but what is added to it has.
TEST(Fusion, ResidualsOfFrozenLayersGetTheirGradient) {
  for (const bool norm : {false, true}) {
    Graph graph;
    const ValueId x = graph.add_input({4, 4, 4});
    const ValueId along = graph.add(conv(), {x});
    const ValueId frozen = graph.add(norm ? batch_norm() : conv(), {x}, "", {.trainable = false});
    graph.add(relu(), {graph.add(add(), {along, frozen})});
    Rig rig(graph, mean_squared_error(), 3);
    expect_close(rig.run_plan({}).gradients, rig.run_reference(true, false).gradients, 1e-4f,
                 "gradients");
  }
}

}  // namespace
}  // namespace starling
