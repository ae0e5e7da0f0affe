#include "starling/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "graph/graph.h"
#include "starling/error.h"
#include "strategy/make_strategy.h"
#include "tensor/weights_hash.h"
#include "train/checkpoint.h"
#include "train/safetensors_file.h"
#include "train/trainer_impl.h"

namespace starling {
namespace {

TrainerOptions checked(const Model& model, TrainerOptions options) {
  if (!options.loss) {
    throw input_error("the trainer has no loss", "set .loss, for instance softmax_cross_entropy()");
  }
  validate(options.optimizer);
  // Throws when the output does not fit.
  const Shape label = options.loss->label_shape(model.output_shape());
  if (options.lanes < 0 || options.lanes > 1024) {
    throw input_error(fmt::format("lanes = {} is out of range", options.lanes),
                      "use 1 … 1024, or 0 for one per core");
  }
  if (options.shards < 0 || options.shards > 1024) {
    throw input_error(fmt::format("shards = {} is out of range", options.shards),
                      "use 1 … 1024, or 0 for the default");
  }
  if (options.micro_batch < 0) {
    throw input_error(fmt::format("micro_batch = {} is negative", options.micro_batch),
                      "use 1 or more, or 0 for the default");
  }
  if (options.lanes == 0)
    options.lanes = options.cluster.world().is_crowded() ? 1 : available_cores();
  if (options.metrics.empty())
    options.metrics = options.loss->default_metrics(model.output_shape());
  for (const MetricPtr& metric : options.metrics) metric->check(model.output_shape(), label);
  return options;
}

}  // namespace

RowReader reader_of(const data::Dataset& dataset) {
  return [&dataset](std::span<const uint64_t> ids, float* features, float* labels) {
    dataset.read(ids, features, labels);
  };
}

Trainer::Impl::Impl(Model m, TrainerOptions o)
    : model(std::move(m)),
      options(checked(model, std::move(o))),
      state(model.graph(), options.optimizer, options.seed, world(),
            {.lanes = options.lanes,
             .splits_optimizer = splits_optimizer(options.strategy, world()),
             .seats = leases_apart(options.strategy),
             .has_outer = has_outer_velocity(options.strategy)}) {}

int Trainer::Impl::shards_of(uint64_t batch) const {
  return options.shards > 0 ? options.shards : default_shards(batch, model.parameter_count());
}

int Trainer::Impl::shards_of_lease(uint64_t batch) {
  if (state.moments.size() == 0)
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(options.lanes)));
  if (state.given) {
    lease_shards_ = {batch, state.given->manifest.at(kLeaseShards).get<int>()};
  } else if (lease_shards_.batch != batch) {
    const int each = shards_of(batch) / world().computing();
    lease_shards_ = {batch,
                     static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, each))))};
  }
  return lease_shards_.shards;
}

std::unique_ptr<Executor> Trainer::Impl::make_executor(int shards) const {
  const int64_t micro = options.micro_batch > 0 ? options.micro_batch : default_micro_batch(model);
  return std::make_unique<Executor>(model.graph(), options.loss, options.metrics, state.space,
                                    state.moments, state.weights.data(),
                                    ExecutorOptions{.lanes = options.lanes,
                                                    .shards = shards,
                                                    .micro_batch = micro,
                                                    .precision = options.precision,
                                                    .seed = options.seed});
}

Executor& Trainer::Impl::executor_for(uint64_t batch) {
  const int shards = trains_apart(options.strategy) ? shards_of_lease(batch) : shards_of(batch);
  if (!executor_ || executor_->options().shards != shards) {
    executor_.reset();  // its memory first
    executor_ = make_executor(shards);
  }
  return fresh();
}

Executor& Trainer::Impl::any_executor() { return executor_ ? fresh() : executor_for(64); }

Executor& Trainer::Impl::fresh() {
  if (stale_) executor_->refresh();
  stale_ = false;
  return *executor_;
}

void Trainer::Impl::check_data(const data::Dataset& dataset, const char* role) const {
  if (!dataset) {
    throw input_error(fmt::format("there is no {} data", role),
                      "give a data set, for instance data::fashion_mnist().train");
  }
  if (dataset.feature_shape() != model.input_shape()) {
    throw input_error(fmt::format("the model's input is {}, but samples of the {} data ({}) are {}",
                                  model.input_shape().to_string(), role, dataset.describe(),
                                  dataset.feature_shape().to_string()),
                      "change the model's input shape, or map the data to it");
  }
  const Shape labels = options.loss->label_shape(model.output_shape());
  if (dataset.label_shape() != labels) {
    throw input_error(
        fmt::format(
            "{} on an output of {} wants labels of shape {}, but those of the {} data are {}",
            options.loss->kind(), model.output_shape().to_string(), labels.to_string(), role,
            dataset.label_shape().to_string()),
        "choose another loss, change the last layer, or map the labels");
  }
}

std::vector<std::string> Trainer::Impl::metric_names() const {
  std::vector<std::string> names;
  for (const MetricPtr& metric : options.metrics) names.push_back(metric->kind());
  return names;
}

// Workers share the chunks; all get the sums of all, and add them up in one order.
Sums Trainer::Impl::evaluate_chunks(const data::Dataset& dataset) {
  Executor& executor = any_executor();
  World& world = options.cluster.world();
  const size_t chunks = executor.chunk_count(dataset.size());
  const size_t columns = 2 + options.metrics.size();
  const auto workers = static_cast<size_t>(world.workers());
  const auto rank = static_cast<size_t>(world.rank());
  std::vector<double> rows(chunks * columns);
  executor.evaluate(reader_of(dataset), dataset.size(), state.statistics.data(),
                    {rank * chunks / workers, (rank + 1) * chunks / workers}, rows);
  std::vector<size_t> cuts;
  for (size_t r = 0; r <= workers; ++r)
    cuts.push_back(r * chunks / workers * columns * sizeof(double));
  world.all_gather("evaluation", std::as_writable_bytes(std::span(rows)), std::move(cuts));
  Sums total{.metrics = std::vector<double>(options.metrics.size(), 0.0)};
  for (const double* row = rows.data(); row != rows.data() + rows.size(); row += columns) {
    total.samples += static_cast<int64_t>(row[0]);
    total.loss += row[1];
    for (size_t m = 0; m < total.metrics.size(); ++m) total.metrics[m] += row[2 + m];
  }
  return total;
}

Evaluation Trainer::Impl::evaluate(const data::Dataset& dataset) {
  check_data(dataset, "evaluation");
  Sums sums;
  world().agree("evaluation", [&] {
    world().pass(FaultPoint::kEvaluation);
    sums = evaluate_chunks(dataset);
  });
  const double n = static_cast<double>(sums.samples);
  Evaluation evaluation{.samples = dataset.size(), .values = {{"loss", sums.loss / n}}};
  const std::vector<std::string> names = metric_names();
  for (size_t i = 0; i < names.size(); ++i)
    evaluation.values.emplace_back(names[i], sums.metrics[i] / n);
  return evaluation;
}

double Evaluation::operator[](const std::string& name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return value;
  }
  throw input_error(fmt::format("the evaluation has no value \"{}\"", name),
                    "ask for loss or for one of the metrics");
}

Trainer::Trainer(Model model, TrainerOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(options))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const FitSummary& Trainer::summary() const { return impl_->summary; }
void Trainer::check(const data::Dataset& dataset, const std::string& role) const {
  impl_->check_data(dataset, role.c_str());
}
Evaluation Trainer::evaluate(const data::Dataset& dataset) { return impl_->evaluate(dataset); }

std::vector<float> Trainer::predict(std::span<const float> features) {
  const size_t width = static_cast<size_t>(impl_->model.input_shape().elements());
  if (features.size() % width != 0) {
    throw input_error(fmt::format("{} numbers are not a whole number of samples of {}",
                                  features.size(), impl_->model.input_shape().to_string()),
                      "give one sample after another, each whole");
  }
  const RowReader reader = [&](std::span<const uint64_t> ids, float* rows, float*) {
    for (size_t i = 0; i < ids.size(); ++i)
      std::copy_n(features.begin() + static_cast<std::ptrdiff_t>(ids[i] * width), width,
                  rows + i * width);
  };
  return impl_->any_executor().predict(reader, features.size() / width,
                                       impl_->state.statistics.data());
}

std::vector<float> Trainer::predict(const data::Dataset& dataset) {
  if (dataset.feature_shape() != impl_->model.input_shape()) impl_->check_data(dataset, "given");
  // Labels of the data set are read and dropped: they may be of any shape.
  const size_t label_width = static_cast<size_t>(dataset.label_shape().elements());
  const RowReader reader = [&](std::span<const uint64_t> ids, float* rows, float*) {
    std::vector<float> labels(ids.size() * label_width);
    dataset.read(ids, rows, labels.data());
  };
  return impl_->any_executor().predict(reader, dataset.size(), impl_->state.statistics.data());
}

void Trainer::save(const std::filesystem::path& path) const {
  if (!impl_->world().is_chief()) return;
  std::vector<NamedTensor> tensors = impl_->state.weight_tensors();
  for (NamedTensor& tensor : impl_->state.statistics_tensors())
    tensors.push_back(std::move(tensor));
  save_weights(path, tensors,
               {{"format", "starling"},
                {"version", version()},
                {"step", std::to_string(impl_->summary.steps)}});
}

void Trainer::save_together(const std::filesystem::path& path) const {
  constexpr const char* kWhat = "saving weights";
  World& world = impl_->world();
  const auto tell = [&](std::string& text) {
    uint64_t length = text.size();
    world.broadcast(kWhat, std::as_writable_bytes(std::span(&length, 1)));
    text.resize(length);
    world.broadcast(kWhat, std::as_writable_bytes(std::span(text)));
  };
  std::string failure, hint;
  world.agree(kWhat, [&] {
    failure = hint = {};
    world.pass(FaultPoint::kWeights);
    try {
      save(path);
    } catch (const Error& error) {
      failure = error.what();
      hint = error.hint();
    }
    tell(failure);
    tell(hint);
  });
  if (!failure.empty()) throw run_error(failure, hint);
}

void Trainer::load(const std::filesystem::path& path) {
  std::vector<NamedTensor> weights, statistics;
  std::error_code unreadable;  // reading it says why
  if (std::filesystem::is_directory(path, unreadable)) {
    CheckpointStore::Loaded loaded = CheckpointStore::load(path);
    weights = std::move(loaded.snapshot.weights);
    statistics = std::move(loaded.snapshot.statistics);
  } else {
    for (NamedTensor& tensor : starling::load_weights(path).tensors) {
      const bool is_statistic =
          tensor.name.ends_with(".running_mean") || tensor.name.ends_with(".running_variance");
      (is_statistic ? statistics : weights).push_back(std::move(tensor));
    }
  }
  const std::vector<float> before = snapshot();
  try {
    impl_->state.load_weights(weights);
    impl_->state.load_statistics(statistics);
  } catch (...) {
    restore(before);
    throw;
  }
  impl_->weights_changed();
}

const Model& Trainer::model() const { return impl_->model; }

std::span<float> Trainer::weights(const std::string& parameter) {
  const Slice* slice = impl_->state.space.find(parameter);
  if (slice == nullptr) {
    throw input_error(fmt::format("the model has no parameter \"{}\"", parameter),
                      fmt::format("it has: {}", fmt::join(parameter_names(), ", ")));
  }
  impl_->weights_changed();  // by the caller, before the next use
  return {impl_->state.weights.data() + slice->offset, slice->size};
}

std::vector<std::string> Trainer::parameter_names() const {
  std::vector<std::string> names;
  for (size_t i : impl_->state.space.name_order())
    names.push_back(impl_->state.space.slices()[i].name);
  return names;
}

std::string Trainer::weights_sha256() const {
  return starling::weights_sha256(impl_->state.space, impl_->state.weights.span());
}

int Trainer::lanes() const { return impl_->options.lanes; }
int Trainer::shards() const { return impl_->any_executor().options().shards; }
int64_t Trainer::micro_batch() const { return impl_->any_executor().options().micro_batch; }

Trainer::Memory Trainer::memory() const {
  const TrainState& state = impl_->state;
  const Executor& executor = impl_->any_executor();
  const size_t space = state.space.total_floats() * sizeof(float);
  return {.weights = space,
          .optimizer = state.optimizer.bytes(),
          .gradients = executor.gradient_bytes(),
          .activations = executor.arena_bytes(),
          .packed = executor.packed_bytes()};
}

std::vector<float> Trainer::snapshot() const {
  std::vector<float> all(impl_->state.weights.begin(), impl_->state.weights.end());
  all.insert(all.end(), impl_->state.statistics.begin(), impl_->state.statistics.end());
  return all;
}

void Trainer::restore(std::span<const float> snapshot) {
  TrainState& state = impl_->state;
  if (snapshot.size() != state.weights.size() + state.statistics.size()) {
    throw input_error("the snapshot is not of this model",
                      "restore what snapshot() of this trainer gave");
  }
  std::copy_n(snapshot.begin(), state.weights.size(), state.weights.begin());
  std::copy_n(snapshot.begin() + static_cast<std::ptrdiff_t>(state.weights.size()),
              state.statistics.size(), state.statistics.begin());
  impl_->weights_changed();
}

const char* version() { return STARLING_VERSION; }

}  // namespace starling
