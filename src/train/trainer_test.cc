// Weights of a trainer: saved, loaded, frozen, decayed; models built by hand.
#include "graph/graph.h"
#include "train/fit_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TrainerOptions trainer_options(Optimizer optimizer = adam(1e-2), uint64_t seed = 1) {
  return {.optimizer = optimizer, .loss = softmax_cross_entropy(), .seed = seed, .lanes = 2};
}

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST_F(FitTest, SavedWeightsGiveTheSamePredictions) {
  const data::Dataset data = small_data(60).cached();
  Trainer trained(small_cnn(), trainer_options()),
      loaded(small_cnn(), trainer_options(sgd(0.1), 99));
  trained.fit(data, {.epochs = 2, .batch = 8});
  ASSERT_NE(loaded.predict(data), trained.predict(data));  // and so packs the weights that it has
  trained.save(folder_ / "weights.safetensors");
  loaded.load(folder_ / "weights.safetensors");
  EXPECT_EQ(loaded.weights_sha256(), trained.weights_sha256());
  EXPECT_EQ(loaded.predict(data), trained.predict(data));
  EXPECT_EQ(loaded.snapshot(), trained.snapshot());
}

TEST_F(FitTest, CheckpointCanBeLoadedAsWeights) {
  const data::Dataset data = small_data(60).cached();
  Trainer trained(small_cnn(), trainer_options()), loaded(small_cnn(), trainer_options());
  trained.fit(data, {.batch = 8, .checkpoints = {.folder = folder_ / "checkpoints"}});
  loaded.load(folder_ / "checkpoints" / "step-00000008");
  EXPECT_EQ(loaded.predict(data), trained.predict(data));
}

TEST_F(FitTest, WeightsOfAnotherModelAreRefused) {
  const auto path = folder_ / "weights.safetensors";
  Trainer(Sequential({6, 6, 1}, {flatten(), dense(20, relu), dense(4)}), trainer_options())
      .save(path);
  Trainer trainer(small_mlp(), trainer_options());
  const std::vector<float> before = trainer.snapshot();
  EXPECT_THAT(error_of([&] { trainer.load(path); }).what(),
              AllOf(HasSubstr("dense_"), HasSubstr("20"), HasSubstr("16")));
  Trainer(Sequential({6, 6, 1}, {flatten(), dense(4)}), trainer_options()).save(path);
  EXPECT_THAT(error_of([&] { trainer.load(path); }).what(), HasSubstr("dense_2"));
  Trainer(Sequential({6, 6, 1}, {flatten(), dense(16, relu), dense(4), dense(4)}),
          trainer_options())
      .save(path);
  EXPECT_THAT(error_of([&] { trainer.load(path); }).what(), HasSubstr("dense_3"));
  EXPECT_EQ(trainer.snapshot(), before);
}

TEST_F(FitTest, WeightsWithoutStatisticsAreRefusedAndChangeNothing) {
  const auto path = folder_ / "weights.safetensors";
  const Sequential plain({6, 6, 1}, {flatten(), dense(4)});
  const Sequential normalised({6, 6, 1},
                              {flatten(), dense(4).named("dense_1"), batch_norm().named("norm")});
  Trainer trainer(normalised, trainer_options(adam(1e-2), 5));
  const std::vector<float> before = trainer.snapshot();
  Trainer(normalised, trainer_options(adam(1e-2), 6)).save(path);
  EXPECT_NO_THROW(Trainer(normalised, trainer_options()).load(path));
  Trainer(plain, trainer_options()).save(path);
  EXPECT_THROW(trainer.load(path), Error);
  // The same parameters, but the statistics of other layers.
  class Bare : public Operator {
    std::string kind() const override { return "bare"; }
    Shape infer(std::span<const Shape> inputs) const override { return inputs[0]; }
    std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
      return {{.name = "scale", .shape = {inputs[0].back()}, .initializer = "ones"},
              {.name = "shift", .shape = {inputs[0].back()}, .initializer = "zeros"}};
    }
    void forward(const ForwardArgs&) const override {}
    void backward(const BackwardArgs&) const override {}
  };
  const Sequential bare({6, 6, 1},
                        {flatten(), dense(4), Layer(std::make_shared<Bare>()).named("norm")});
  Trainer(bare, trainer_options()).save(path);
  EXPECT_THAT(error_of([&] { trainer.load(path); }).what(), HasSubstr("norm.running_mean"));
  EXPECT_EQ(trainer.snapshot(), before);
  EXPECT_THROW(trainer.load(folder_ / "absent.safetensors"), Error);
}

TEST(Trainer, WeightsCanBeSet) {
  Trainer trainer(Sequential({2}, {dense(2)}), trainer_options());
  const std::vector<float> weight{1, 2, 3, 4};
  EXPECT_EQ(trainer.parameter_names(),
            (std::vector<std::string>{"dense_1.bias", "dense_1.weight"}));
  trainer.predict(std::vector<float>{1, 1});
  std::copy(weight.begin(), weight.end(), trainer.weights("dense_1.weight").begin());
  trainer.weights("dense_1.bias")[1] = 10;
  EXPECT_EQ(trainer.predict(std::vector<float>{1, 10}), (std::vector<float>{21, 53}));
  EXPECT_THAT(error_of([&] { trainer.weights("dense_1.kernel"); }).hint(),
              HasSubstr("dense_1.bias, dense_1.weight"));
}

TEST(Trainer, SnapshotsArePutBack) {
  const data::Dataset data = small_data(40).cached();
  Trainer trainer(small_cnn(), trainer_options());
  trainer.fit(data, {.batch = 8});
  const std::vector<float> snapshot = trainer.snapshot(), predictions = trainer.predict(data);
  trainer.fit(data, {.batch = 8});
  ASSERT_NE(trainer.predict(data), predictions);
  trainer.restore(snapshot);
  EXPECT_EQ(trainer.predict(data), predictions);
  EXPECT_THROW(trainer.restore(std::vector<float>(3)), Error);
}

TEST(Frozen, LayersStayBitForBit) {
  const data::Dataset data = small_data(60).cached();
  for (const Optimizer& optimizer :
       {sgd(0.1, {.weight_decay = 0.1}), adam(1e-2, {.weight_decay = 0.1, .clip_norm = 1.0}),
        adamw(1e-2)}) {
    const Sequential model(
        {6, 6, 1}, {conv2d(8, 3).frozen().named("first"), batch_norm().frozen().named("norm"), relu,
                    conv2d(8, 3).named("second"), relu, flatten(), dense(8).frozen().named("third"),
                    dense(4).named("last")});
    Trainer trainer(model, trainer_options(optimizer));
    std::map<std::string, std::vector<float>> before;
    for (const std::string& name : trainer.parameter_names())
      before[name] = copy(trainer.weights(name));
    trainer.fit(data, {.epochs = 2, .batch = 8});
    for (const auto& [name, values] : before) {
      const bool moves = name.starts_with("second") || name.starts_with("last");
      EXPECT_EQ(copy(trainer.weights(name)) != values, moves) << name;
    }
  }
}

TEST(Frozen, ASequenceFreezesAllItHolds) {
  const Sequential model(
      {6, 6, 1},
      {sequence({flatten(), residual({dense(36, relu)})}).named("base").frozen(), dense(4)});
  Trainer trainer(model, trainer_options());
  std::vector<std::string> moved;
  std::map<std::string, std::vector<float>> before;
  for (const std::string& name : trainer.parameter_names())
    before[name] = copy(trainer.weights(name));
  trainer.fit(small_data(40).cached(), {.batch = 8});
  for (const auto& [name, values] : before) {
    if (copy(trainer.weights(name)) != values) moved.push_back(name);
  }
  EXPECT_THAT(moved, testing::ElementsAre("dense_2.bias", "dense_2.weight"));
}

// One step from the same weights: what decay adds is rate · decay · weight, and nothing elsewhere.
TEST(WeightDecay, TouchesOnlyParametersThatDecay) {
  const data::Dataset data = small_data(8).cached();
  constexpr double kRate = 0.25, kDecay = 0.5;
  const std::map<std::string, double> decays = {
      {"usual.weight", kDecay}, {"outer.weight", 2}, {"own.weight", 0.125}};
  const Layer usual = conv2d(4, 3).named("usual"), outer = dense(6).named("outer"),
              own = dense(5).named("own"), none = dense(4).named("none");
  const Sequential without({6, 6, 1}, {usual, batch_norm(), flatten(), outer, own, none});
  const Sequential with({6, 6, 1},
                        {usual, batch_norm(), flatten(),
                         sequence({outer, own.with_weight_decay(0.125)}).with_weight_decay(2),
                         none.with_weight_decay(0)});
  Trainer plain(without, trainer_options(sgd(kRate))),
      decayed(with, trainer_options(sgd(kRate, {.weight_decay = kDecay})));
  for (const std::string& name : plain.parameter_names()) {
    for (Trainer* trainer : {&plain, &decayed}) {
      for (float& weight : trainer->weights(name)) weight += 0.125f;  // biases start at zero
    }
  }
  std::map<std::string, std::vector<float>> before;
  for (const std::string& name : plain.parameter_names()) before[name] = copy(plain.weights(name));
  plain.fit(data, {.batch = 8});
  decayed.fit(data, {.batch = 8});
  for (const auto& [name, start] : before) {
    const std::span<const float> a = plain.weights(name), b = decayed.weights(name);
    const auto decay = decays.find(name);
    for (size_t i = 0; i < start.size(); ++i) {
      if (decay != decays.end()) {
        EXPECT_NEAR(a[i] - b[i], kRate * decay->second * start[i], 1e-6) << name;
      } else {
        EXPECT_EQ(a[i], b[i]) << name;
      }
    }
  }
}

// --- models built by hand

TEST(FunctionalModel, ResidualByHandIsTheResidualLayer) {
  const Conv2dOptions keep{.padding = same, .bias = false};
  const Sequential layers(
      {6, 6, 1},
      {conv2d(8, 3, relu), residual({conv2d(8, 3, relu, keep), conv2d(8, 3, linear, keep)}, relu),
       global_average_pool2d(), dense(4)});
  const Symbol x = input({6, 6, 1});
  const Symbol a = conv2d(8, 3, relu)(x);
  const Symbol b = conv2d(8, 3, linear, keep)(conv2d(8, 3, relu, keep)(a));
  const Model by_hand(x, dense(4)(global_average_pool2d()(Layer(relu)(add(a, b)))));

  EXPECT_EQ(by_hand.input_shape(), layers.input_shape());
  EXPECT_EQ(by_hand.output_shape(), layers.output_shape());
  EXPECT_EQ(by_hand.parameter_count(), layers.parameter_count());
  EXPECT_EQ(b.shape(), (Shape{4, 4, 8}));
  const data::Dataset data = small_data(40).cached();
  Trainer first(layers, trainer_options()), second(by_hand, trainer_options());
  EXPECT_EQ(first.parameter_names(), second.parameter_names());
  first.fit(data, {.epochs = 2, .batch = 8});
  second.fit(data, {.epochs = 2, .batch = 8});
  EXPECT_EQ(first.weights_sha256(), second.weights_sha256());
}

TEST(FunctionalModel, LeavesOutWhatItsOutputDoesNotNeed) {
  const Symbol x = input({6, 6, 1});
  const Symbol flat = flatten()(x);
  const Symbol unused = dropout(0.5f)(batch_norm()(dense(7).named("unused")(flat)));
  const Symbol hidden = dense(16, relu).named("hidden")(flat);
  const Model model(x, dense(4).named("head")(hidden)), side(x, dense(3).named("side")(unused));

  EXPECT_EQ(model.parameter_count(), 36 * 16 + 16 + 16 * 4 + 4);
  EXPECT_THAT(model.summary(), Not(HasSubstr("unused")));
  EXPECT_EQ(side.output_shape(), (Shape{3}));
  EXPECT_THAT(side.summary(), AllOf(HasSubstr("unused"), Not(HasSubstr("hidden"))));

  Trainer trainer(model, trainer_options());
  EXPECT_THAT(trainer.parameter_names(), Not(Contains(HasSubstr("unused"))));
  const data::Dataset data = small_data(80).cached();
  const History history = trainer.fit(data, {.epochs = 8, .batch = 8});
  EXPECT_LT(history.epochs().back().value("train_loss"),
            0.7 * history.epochs().front().value("train_loss"));
}

// a · b + c · b, element by element, with one learned number c.
class MixOp : public Operator {
 public:
  std::string kind() const override { return "mix"; }
  Shape infer(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<ParameterSpec> parameters(std::span<const Shape>) const override {
    return {{.name = "c", .shape = {1}, .initializer = "ones"}};
  }
  void forward(const ForwardArgs& args) const override {
    const int64_t n = args.context.rows * args.input_shapes[0].elements();
    for (int64_t i = 0; i < n; ++i)
      args.output[i] = (args.inputs[0][i] + args.parameters[0][0]) * args.inputs[1][i];
  }
  void backward(const BackwardArgs& args) const override {
    const int64_t n = args.context.rows * args.input_shapes[0].elements();
    for (int64_t i = 0; i < n; ++i) {
      const float dy = args.grad_output[i];
      if (args.grad_inputs[0]) args.grad_inputs[0][i] += dy * args.inputs[1][i];
      if (args.grad_inputs[1])
        args.grad_inputs[1][i] += dy * (args.inputs[0][i] + args.parameters[0][0]);
      if (args.grad_parameters[0]) args.grad_parameters[0][0] += dy * args.inputs[1][i];
    }
  }
};

TEST(FunctionalModel, AnOperatorOfOnesOwnTakesTwoValues) {
  const Symbol x = input({6, 6, 1});
  const Symbol flat = flatten()(x);
  const Layer mix = std::make_shared<MixOp>();
  const Symbol gate = dense(16, sigmoid)(flat), value = dense(16)(flat);
  const Symbol mixed = mix.named("gate").frozen()({mix({value, gate}), gate});
  Trainer trainer(Model(x, dense(4)(mixed)), trainer_options());
  EXPECT_THAT(trainer.parameter_names(), testing::IsSupersetOf({"mix_1.c", "gate.c"}));
  const History history = trainer.fit(small_data(80).cached(), {.epochs = 8, .batch = 8});
  EXPECT_LT(history.epochs().back().value("train_loss"),
            0.7 * history.epochs().front().value("train_loss"));
  EXPECT_NE(trainer.weights("mix_1.c")[0], 1);
  EXPECT_EQ(trainer.weights("gate.c")[0], 1);
}

TEST(FunctionalModel, RefusesListsThatDoNotFit) {
  const Symbol x = input({4}), y = input({4});
  const Layer mix = std::make_shared<MixOp>();
  EXPECT_THROW(mix({x, y}), Error) << "of two models";
  EXPECT_THROW(mix(std::vector<Symbol>{}), Error);
  EXPECT_THROW(dense(2)({x, x}), Error);
  EXPECT_THROW(sequence({dense(2)})({x, x}), Error);
  EXPECT_THROW(residual({dense(4)})({x, x}), Error);
}

TEST(FunctionalModel, RefusesWhatIsNotOneModel) {
  const Symbol x = input({4}), y = input({4});
  EXPECT_THROW(add(x, y), Error);
  EXPECT_THROW(Model(x, dense(2)(y)), Error);
  EXPECT_THROW(Model(x, x), Error);
  EXPECT_THROW(Sequential({4}, {}), Error);
  EXPECT_THROW(Sequential({4}, {dense(2).named("a"), dense(2).named("a")}), Error);
  const Error error = error_of([] { Sequential({6, 6, 1}, {conv2d(4, 7).named("wide")}); });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("wide"), HasSubstr("7"), HasSubstr("6×6×1")));
}

}  // namespace
}  // namespace starling
