#include "graph/graph.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "starling/error.h"

namespace starling {
namespace {

OperatorPtr dense(int64_t units) {
  return std::make_shared<DenseOp>(DenseOp::Options{.units = units});
}
OperatorPtr relu() { return std::make_shared<ActivationOp>(ActivationKind::kRelu); }

Graph two_layers() {
  Graph graph;
  ValueId x = graph.add_input({8});
  x = graph.add(dense(4), {x});
  x = graph.add(relu(), {x});
  graph.add(dense(2), {x});
  return graph;
}

TEST(Graph, NamesLayersByKindAndInfersShapes) {
  const Graph graph = two_layers();
  EXPECT_EQ(graph.node(0).name, "dense_1");
  EXPECT_EQ(graph.node(2).name, "dense_2");
  EXPECT_EQ(graph.node(2).parameters[0].name, "dense_2.weight");
  EXPECT_EQ(graph.value(graph.output()).shape, (Shape{2}));
}

TEST(Graph, ErrorNamesTheLayerAndBothShapes) {
  Graph graph;
  const ValueId a = graph.add_input({8}), b = graph.add_input({9});
  const std::string message = refusal([&] {
    graph.add(std::make_shared<AddOp>(), {a, b}, "join");
  });
  for (const char* part : {"join", "8", "9"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Graph, RefusesTwoLayersOfOneName) {
  Graph graph;
  const ValueId x = graph.add_input({8});
  graph.add(dense(4), {x}, "head");
  EXPECT_THROW(graph.add(dense(4), {x}, "head"), Error);
}

TEST(Differentiate, LeavesOutWhatNoParameterNeeds) {
  const Graph graph = two_layers();
  const Backward backward = differentiate(graph, false);
  ASSERT_EQ(backward.steps.size(), 3u);
  EXPECT_EQ(backward.steps[0].node, 2);
  EXPECT_FALSE(backward.steps[2].wants_input[0]);
  EXPECT_TRUE(differentiate(graph, true).steps[2].wants_input[0]);
}

TEST(Differentiate, StopsAtFrozenLayers) {
  Graph graph;
  ValueId x = graph.add_input({8});
  x = graph.add(dense(4), {x}, "frozen", {.trainable = false});
  graph.add(dense(2), {x});
  const Backward backward = differentiate(graph, false);
  ASSERT_EQ(backward.steps.size(), 1u);
  EXPECT_FALSE(backward.steps[0].wants_input[0]);
}

TEST(Subgraph, KeepsNamesAndOperatorIds) {
  const Graph graph = two_layers();
  const Graph part = graph.subgraph(1, 3);
  ASSERT_EQ(part.nodes().size(), 2u);
  EXPECT_EQ(part.node(1).name, "dense_2");
  EXPECT_EQ(part.node(1).operator_id, 2u);
  EXPECT_EQ(part.value(part.inputs()[0]).shape, (Shape{4}));
  EXPECT_EQ(part.value(part.output()).shape, (Shape{2}));
}

TEST(Subgraph, RefusesACutThroughAResidual) {
  Graph graph;
  const ValueId x = graph.add_input({4});
  const ValueId a = graph.add(dense(4), {x});
  const ValueId b = graph.add(dense(4), {a});
  graph.add(std::make_shared<AddOp>(), {a, b});
  EXPECT_THROW(graph.subgraph(0, 2), Error);
  EXPECT_NO_THROW(graph.subgraph(0, 3));
}

TEST(Subgraph, RefusesNodesThatAreNotThere) {
  const Graph graph = two_layers();
  EXPECT_NO_THROW(graph.subgraph(0, 3));
  EXPECT_THROW(graph.subgraph(0, 4), Error);
  EXPECT_THROW(graph.subgraph(-1, 2), Error);
  EXPECT_THROW(graph.subgraph(2, 2), Error);
}

}  // namespace
}  // namespace starling
