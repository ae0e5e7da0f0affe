#include "job/job_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "error_of.h"
#include "golden.h"
#include "graph/graph.h"
#include "job/job_fields.h"
#include "starling/error.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Job job_of(const std::string& layers, const std::string& rest = "") {
  return parse_job("[model]\ninput = [8, 8, 2]\nlayers = [" + layers + "]\n" + rest, "job.toml");
}

TEST(JobBuild, BuildsEveryTypeOfLayer) {
  // The options that a type must have, to be built on 8×8×2.
  const std::map<std::string_view, std::string> required = {
      {"dense", ", units = 3"},
      {"conv2d", ", filters = 4"},
      {"reshape", ", shape = [16, 8]"},
      {"dropout", ", rate = 0.5"},
      {"sequence", ", layers = [{type = \"relu\"}]"},
      {"residual", ", layers = [{type = \"relu\"}]"},
  };
  std::set<std::string> with_golden_numbers;
  for (const auto& c : golden::load_operator_cases()) with_golden_numbers.insert(c.op->kind());
  for (const LayerType& type : layer_types()) {
    const auto options = required.find(type.name);
    const std::string layer = "{type = \"" + std::string(type.name) + "\"" +
                              (options == required.end() ? "" : options->second) + "}";
    const Model model = build_model(job_of(layer), {8, 8, 2});
    const bool composed = type.name == "sequence" || type.name == "residual";
    if (!composed) {
      EXPECT_EQ(model.graph().nodes()[0].op->kind(), type.name);
      EXPECT_TRUE(with_golden_numbers.contains(std::string(type.name))) << type.name;
    }
  }
}

TEST(JobBuild, OptionsReachTheLayers) {
  const Model model = build_model(
      job_of(
          R"({type = "conv2d", name = "first", filters = 6, kernel = [3, 1], stride = 2, )"
          R"(padding = "same", groups = 2, bias = false, activation = "leaky_relu", slope = 0.3, )"
          R"(initializer = "he_normal", frozen = true},
                {type = "max_pool2d", window = 2, stride = 1},
                {type = "residual", activation = "relu", )"
          R"(layers = [{type = "batch_norm", momentum = 0.2}], )"
          R"(shortcut = [{type = "dropout", rate = 0.5}]},
                {type = "sequence", weight_decay = 0.25, layers = [{type = "dense", units = 3}, )"
          R"({type = "dense", units = 3, weight_decay = 0}]})"),
      {8, 8, 2});
  const auto nodes = model.graph().nodes();
  const auto& conv = dynamic_cast<const Conv2dOp&>(*nodes[0].op);
  EXPECT_EQ(nodes[0].name, "first");
  EXPECT_FALSE(nodes[0].trainable);
  EXPECT_EQ(conv.options.filters, 6);
  EXPECT_EQ(conv.options.window.kernel_h, 3);
  EXPECT_EQ(conv.options.window.kernel_w, 1);
  EXPECT_EQ(conv.options.window.stride_w, 2);
  EXPECT_TRUE(conv.options.window.same);
  EXPECT_EQ(conv.options.groups, 2);
  EXPECT_FALSE(conv.options.bias);
  EXPECT_EQ(conv.options.initializer, "he_normal");
  EXPECT_EQ(dynamic_cast<const ActivationOp&>(*nodes[1].op).slope, 0.3f);
  EXPECT_EQ(dynamic_cast<const Pool2dOp&>(*nodes[2].op).window.stride_h, 1);
  EXPECT_EQ(dynamic_cast<const DropoutOp&>(*nodes[3].op).rate, 0.5f);
  EXPECT_EQ(dynamic_cast<const BatchNormOp&>(*nodes[4].op).options.momentum, 0.2f);
  EXPECT_EQ(model.output_shape(), (Shape{3, 3, 3}));
  EXPECT_EQ(nodes[0].parameters[0].weight_decay, std::nullopt);
  EXPECT_EQ(nodes[7].parameters[0].weight_decay, 0.25);
  EXPECT_EQ(nodes[8].parameters[0].weight_decay, 0);
}

TEST(JobBuild, NamesTheLayerAndBothShapes) {
  const Job job =
      job_of(R"({type = "conv2d", filters = 4}, {type = "conv2d", filters = 4, kernel = 9})");
  EXPECT_THAT(refusal([&] {
                build_model(job, {8, 8, 2});
              }),
              AllOf(HasSubstr("layer conv2d_2:"), HasSubstr("6×6×4"), HasSubstr("9×9")));
}

TEST(JobBuild, NamesTheLayerWhoseWeightDecayIsOutOfRange) {
  EXPECT_THAT(refusal([] { dense(3).with_weight_decay(-1)(input({4})); }),
              AllOf(HasSubstr("weight_decay = -1"), HasSubstr("dense_1")));
  EXPECT_THAT(refusal([] { job_of(R"({type = "dense", units = 3, weight_decay = -1})"); }),
              HasSubstr("weight_decay"));
}

TEST(JobBuild, OptimizerFieldsReachTheOptimizer) {
  const TrainerOptions options = trainer_options(job_of("{type = \"flatten\"}", R"(
[optimizer]
name = "nesterov"
learning_rate = 0.5
momentum = 0.8
weight_decay = 0.1
clip_norm = 2
[optimizer.schedule]
name = "step"
every = 7
gamma = 0.5
warmup_steps = 3
)"));
  EXPECT_EQ(options.optimizer.kind, OptimizerKind::kNesterov);
  EXPECT_EQ(options.optimizer.learning_rate, 0.5);
  EXPECT_EQ(options.optimizer.momentum, 0.8);
  EXPECT_EQ(options.optimizer.weight_decay, 0.1);
  EXPECT_EQ(options.optimizer.clip_norm, 2.0);
  EXPECT_EQ(options.optimizer.schedule.every, 7u);
  EXPECT_EQ(options.optimizer.schedule.gamma, 0.5);
  EXPECT_EQ(options.optimizer.schedule.warmup_steps, 3u);
}

TEST(JobBuild, WeightDecayOfAdamWHasItsOwnDefault) {
  EXPECT_EQ(trainer_options(job_of("{type = \"relu\"}", "[optimizer]\nname = \"adamw\"\n"))
                .optimizer.weight_decay,
            0.01);
  EXPECT_EQ(trainer_options(job_of("{type = \"relu\"}")).optimizer.weight_decay, 0.0);
}

TEST(JobBuild, ConflictingFieldsAreRefused) {
  EXPECT_THAT(refusal([] {
                trainer_options(
                    job_of("{type = \"relu\"}", "[optimizer]\nclip_norm = 1\nclip_value = 1\n"));
              }),
              HasSubstr("clip_value and clip_norm are both set"));
  EXPECT_THAT(
      refusal([] {
        trainer_options(job_of("{type = \"relu\"}", "[optimizer.schedule]\nname = \"step\"\n"));
      }),
      HasSubstr("either every or milestones"));
  EXPECT_THAT(refusal([] {
                trainer_options(job_of("{type = \"relu\"}", "[training]\nmetrics = [\"top_0\"]\n"));
              }),
              HasSubstr("which is no metric"));
}

TEST(JobBuild, TestDataIsTheValidationUnlessThereIsASplit) {
  const std::string data = "[data]\nsource = \"synthetic\"\nsamples = 100\ntest_samples = 20\n";
  const JobData plain = open_data(job_of("{type = \"relu\"}", data));
  EXPECT_EQ(plain.train.size(), 100u);
  EXPECT_EQ(plain.validation.size(), 20u);
  const JobData split = open_data(job_of("{type = \"relu\"}", data + "validation_split = 0.25\n"));
  EXPECT_EQ(split.train.size(), 75u);
  EXPECT_EQ(split.validation.size(), 25u);
  EXPECT_EQ(split.test.size(), 20u);
}

TEST(JobBuild, FilesThatAreNotNamedAreAskedFor) {
  EXPECT_THAT(refusal([] { open_data(job_of("{type = \"relu\"}", "[data]\nsource = \"npy\"\n")); }),
              HasSubstr("data.train_features is not set"));
}

TEST(JobBuild, CallbacksAndCheckpointsFollowTheJob) {
  const FitOptions off =
      fit_options(job_of("{type = \"relu\"}", "[checkpoint]\nenabled = false\n"), "run");
  EXPECT_TRUE(off.callbacks.empty());
  EXPECT_TRUE(off.checkpoints.folder.empty());
  const FitOptions on = fit_options(job_of("{type = \"relu\"}",
                                           "[checkpoint]\nevery_steps = 5\nkeep = "
                                           "2\n[training.save_best]\n[training.early_stopping]\n"),
                                    "run");
  EXPECT_EQ(on.callbacks.size(), 2u);
  EXPECT_EQ(on.checkpoints.folder, "run/checkpoints");
  EXPECT_EQ(on.checkpoints.every_steps, 5u);
  EXPECT_EQ(on.checkpoints.keep, 2);
}

}  // namespace
}  // namespace starling
