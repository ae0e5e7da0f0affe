#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "job/job_fields.h"
#include "starling/error.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLayers = "\n[[model.layers]]\ntype = \"dense\"\nunits = 10\n";

Job parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  std::vector<Setting> settings;
  for (const std::string& set : sets) settings.push_back(parse_setting(set));
  return parse_job(text, "job.toml", "folder", settings);
}

// The message and hint of the input Error that parsing ends with.
std::string parse_error(const std::string& text, const std::vector<std::string>& sets = {}) {
  return refusal([&] { parse(text, sets); });
}

TEST(JobParse, LeavesDefaultsWhereTheFileSaysNothing) {
  const Job job = parse(kLayers);
  EXPECT_EQ(job.name, "run");
  EXPECT_EQ(job.training.batch, 64u);
  EXPECT_FALSE(job.training.early_stopping);
  ASSERT_EQ(job.model.layers.size(), 1u);
  EXPECT_EQ(job.model.layers[0].units, 10u);
}

TEST(JobParse, ReadsEveryKindOfValue) {
  const Job job = parse(R"(
name = "a"
seed = 7
[data]
source = "npy"
train_features = "x.npy"
test_features = "/data/x.npy"
scale = 2
[model]
input = [28, 28, 1]
layers = [
  {type = "conv2d", filters = 8, kernel = [3, 5], stride = 2, padding = "same", bias = false},
  {type = "max_pool2d", padding = [1, 2]},
  {type = "residual", layers = [{type = "relu"}], shortcut = [{type = "sequence", layers = [{type = "tanh"}]}]},
  {type = "reshape", shape = [4, 2]},
]
[training]
metrics = ["accuracy", "top_3"]
shuffle = false
[training.early_stopping]
[optimizer]
clip_norm = 1.5
[optimizer.schedule]
name = "step"
milestones = [10, 20]
)");
  EXPECT_EQ(job.seed, 7u);
  EXPECT_EQ(job.data.train_features, "folder/x.npy");
  EXPECT_EQ(job.data.test_features, "/data/x.npy");
  EXPECT_EQ(job.data.scale, 2.0);
  EXPECT_EQ(job.model.input, (Shape{28, 28, 1}));
  const LayerJob& conv = job.model.layers[0];
  EXPECT_EQ(conv.kernel.h, 3);
  EXPECT_EQ(conv.kernel.w, 5);
  EXPECT_EQ(conv.stride.w, 2);
  EXPECT_TRUE(conv.padding.same);
  EXPECT_FALSE(conv.bias);
  EXPECT_EQ(job.model.layers[1].padding.each.w, 2);
  EXPECT_EQ(job.model.layers[2].shortcut[0].layers[0].type, "tanh");
  EXPECT_EQ(job.model.layers[3].shape, (Shape{4, 2}));
  EXPECT_THAT(job.training.metrics, testing::ElementsAre("accuracy", "top_3"));
  EXPECT_FALSE(job.training.shuffle);
  ASSERT_TRUE(job.training.early_stopping) << "an empty section turns it on";
  EXPECT_EQ(job.training.early_stopping->patience, 3u);
  EXPECT_EQ(job.optimizer.clip_norm, 1.5);
  EXPECT_THAT(job.optimizer.schedule.milestones, testing::ElementsAre(10, 20));
}

TEST(JobParse, SettingsReachEveryField) {
  const Job job =
      parse(kLayers, {"training.epochs=5", "optimizer.name=sgd", "model.layers.0.units=64",
                      "model.input=[4, 4]", "name=2024", "training.save_best.value=val_loss",
                      "data.folder=here", "optimizer.learning_rate=1"});
  EXPECT_EQ(job.training.epochs, 5u);
  EXPECT_EQ(job.optimizer.name, "sgd");
  EXPECT_EQ(job.model.layers[0].units, 64u);
  EXPECT_EQ(job.model.input, (Shape{4, 4}));
  EXPECT_EQ(job.name, "2024") << "a text needs no quotes";
  EXPECT_TRUE(job.training.save_best);
  EXPECT_EQ(job.data.folder, "here") << "relative to the current folder";
  EXPECT_EQ(job.optimizer.learning_rate, 1.0);
}

TEST(JobParse, LastSettingWins) { EXPECT_EQ(parse(kLayers, {"seed=3", "seed=4"}).seed, 4u); }

TEST(JobParse, NamesTheNearestKeyAndThePlace) {
  EXPECT_THAT(parse_error("[training]\n  epoch = 3" + std::string(kLayers)),
              AllOf(HasSubstr("job.toml:2:3"), HasSubstr("unknown key training.epoch"),
                    HasSubstr("did you mean training.epochs?")));
  EXPECT_THAT(parse_error("[trianing]\nepochs = 3" + std::string(kLayers)),
              HasSubstr("did you mean training?"));
  EXPECT_THAT(parse_error("epochs = 3" + std::string(kLayers)),
              HasSubstr("did you mean training.epochs?"));
  EXPECT_THAT(parse_error("[[model.layers]]\ntype = \"dense\"\nunit = 3"),
              AllOf(HasSubstr("job.toml:3:1"), HasSubstr("did you mean units?")));
  EXPECT_THAT(
      parse_error(kLayers, {"optimizer.lerning_rate=1"}),
      AllOf(HasSubstr("--set optimizer.lerning_rate=1"), HasSubstr("optimizer.learning_rate")));
  EXPECT_THAT(parse_error("[data]\nqqqqqq = 3" + std::string(kLayers)),
              HasSubstr("[data] has: source, folder"));
}

TEST(JobParse, SaysWhatWasFoundAndWhatIsWanted) {
  EXPECT_THAT(parse_error("[training]\nbatch = \"many\"" + std::string(kLayers)),
              AllOf(HasSubstr("job.toml:2:9"), HasSubstr("training.batch is \"many\" (a text)"),
                    HasSubstr("whole number, 1 … 1048576")));
  EXPECT_THAT(parse_error("seed = 1.5" + std::string(kLayers)),
              HasSubstr("seed is 1.5 (a number)"));
  EXPECT_THAT(parse_error("name = 3" + std::string(kLayers)),
              HasSubstr("name is 3 (a whole number)"));
  EXPECT_THAT(parse_error("training = 3" + std::string(kLayers)),
              HasSubstr("training is a section"));
  EXPECT_THAT(parse_error("[training]\nshuffle = 1" + std::string(kLayers)),
              HasSubstr("true or false"));
  EXPECT_THAT(parse_error("[model]\ninput = 3" + std::string(kLayers)),
              HasSubstr("list of up to 6"));
  EXPECT_THAT(parse_error("[model]\nlayers = 3"), HasSubstr("is a list of at least one layer"));
  EXPECT_THAT(parse_error("[model]\nlayers = [3]"), HasSubstr("a layer is a table"));
  EXPECT_THAT(parse_error(kLayers, {"training.epochs=soon"}),
              HasSubstr("training.epochs is \"soon\""));
}

TEST(JobParse, RefusesValuesOutOfRange) {
  EXPECT_THAT(parse_error("[training]\nbatch = 0" + std::string(kLayers)),
              HasSubstr("training.batch = 0 is out of range"));
  EXPECT_THAT(parse_error("seed = -1" + std::string(kLayers)),
              HasSubstr("seed = -1 is out of range"));
  EXPECT_THAT(parse_error(kLayers, {"optimizer.learning_rate=0"}), HasSubstr("greater than 0"));
  EXPECT_THAT(parse_error(kLayers, {"optimizer.beta1=1"}), HasSubstr("below 1"));
  EXPECT_THAT(parse_error(kLayers, {"optimizer.learning_rate=nan"}), HasSubstr("out of range"));
  EXPECT_THAT(parse_error(kLayers, {"model.input=[4, 0]"}),
              HasSubstr("model.input = 0 is out of range"));
  EXPECT_THAT(parse_error(kLayers, {"model.input=[1000000000, 1000000000]"}),
              HasSubstr("elements in all"));
  EXPECT_THAT(parse_error(kLayers, {"model.layers.0.units=0"}), HasSubstr("out of range"));
}

TEST(JobParse, RefusesUnknownChoices) {
  EXPECT_THAT(parse_error(kLayers, {"precision=f23"}), HasSubstr("did you mean \"f32\"?"));
  EXPECT_THAT(parse_error(kLayers, {"strategy.name=ring"}),
              AllOf(HasSubstr("strategy.name is one of: auto, single, all_reduce"),
                    HasSubstr("later versions")));
  EXPECT_THAT(parse_error(kLayers, {"strategy.balance=sped"}),
              HasSubstr("did you mean \"speed\"?"));
  EXPECT_THAT(parse_error("[[model.layers]]\ntype = \"conv\"\n"),
              HasSubstr("did you mean \"conv2d\"?"));
  EXPECT_THAT(parse_error(kLayers, {"model.layers.0.activation=rleu"}),
              HasSubstr("did you mean \"relu\"?"));
}

TEST(JobParse, NamesWhatIsMissing) {
  EXPECT_THAT(parse_error("seed = 1"), HasSubstr("model.layers is missing"));
  EXPECT_THAT(parse_error("[[model.layers]]\nunits = 3"), HasSubstr("model.layers.0 has no type"));
  EXPECT_THAT(parse_error("[[model.layers]]\ntype = \"dense\""),
              HasSubstr("model.layers.0 (dense) has no units"));
}

TEST(JobParse, RefusesWhatIsNotToml) {
  EXPECT_THAT(parse_error("seed = = 1"), AllOf(HasSubstr("job.toml:1"), HasSubstr("is not TOML")));
  EXPECT_THAT(parse_error("seed = 1\nseed = 2"), HasSubstr("job.toml:2"));
  EXPECT_THAT(parse_error(std::string("\xff\xfe\x00 = 1", 7)), HasSubstr("is not TOML"));
}

TEST(JobParse, RefusesSettingsThatNameNoField) {
  EXPECT_THAT(parse_error(kLayers, {"model.layers.3.units=1"}), HasSubstr("there is no element 3"));
  EXPECT_THAT(parse_error(kLayers, {"model.layers.0=1"}), HasSubstr("not a field"));
  EXPECT_THAT(parse_error("seed = 1" + std::string(kLayers), {"seed.x=1"}),
              HasSubstr("is not a section"));
  EXPECT_THAT(parse_error(kLayers, {"training=1"}), HasSubstr("is a section"));
  for (const char* text : {"seed", "=1", ".seed=1", "seed.=1"})
    EXPECT_THROW(parse_setting(text), Error) << text;
}

TEST(JobParse, RefusesLayersThatLieTooDeep) {
  std::string layer = "{type = \"relu\"}";
  for (int i = 0; i < 40; ++i) layer = "{type = \"sequence\", layers = [" + layer + "]}";
  EXPECT_THAT(parse_error("model.layers = [" + layer + "]"), HasSubstr("deep"));
}

TEST(JobToToml, ReadsBackToTheSameJob) {
  const Job job = parse(R"(
name = "quoted \" \\ \u0007 ü"
seed = 9
[data]
scale = 0.1
[model]
input = [8, 8, 3]
layers = [
  {type = "conv2d", name = "first", frozen = true, filters = 8, kernel = [3, 5], stride = 2, padding = 1},
  {type = "max_pool2d", window = 3, padding = "same"},
  {type = "residual", activation = "leaky_relu", slope = 0.3, layers = [{type = "relu"}]},
  {type = "dropout", rate = 0.25, weight_decay = 0.1},
]
[training.save_best]
value = "train_loss"
[optimizer]
weight_decay = 1e-4
[optimizer.schedule]
milestones = [3]
)");
  const std::string text = job_to_toml(job);
  const Job again = parse_job(text, "again");
  EXPECT_EQ(job_to_toml(again), text);
  EXPECT_EQ(again.name, job.name);
  EXPECT_EQ(again.model.layers[0].kernel.w, 5);
  EXPECT_EQ(again.model.layers[2].slope, 0.3);
  EXPECT_EQ(again.model.layers[2].weight_decay, std::nullopt);
  EXPECT_EQ(again.model.layers[3].weight_decay, 0.1);
  EXPECT_EQ(again.optimizer.weight_decay, 1e-4);
  EXPECT_TRUE(again.training.save_best);
  EXPECT_FALSE(again.training.early_stopping) << "what is off stays off";
}

}  // namespace
}  // namespace starling
