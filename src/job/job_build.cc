#include "job/job_build.h"

#include <fmt/format.h>

#include <charconv>

#include "data/catalog.h"
#include "starling/error.h"

namespace starling {
namespace {

bool is_known_set(const std::string& source) {
  return source == "fashion-mnist" || source == "mnist";
}

void require(const std::filesystem::path& path, const char* field, const std::string& source) {
  if (!path.empty()) return;
  throw input_error(fmt::format("data.source is \"{}\", but data.{} is not set", source, field),
                    fmt::format("name the file with {} = \"…\" in [data]", field));
}

data::Dataset open_pair(const DataJob& job, const std::filesystem::path& features,
                        const std::filesystem::path& labels) {
  if (job.source == "npy") {
    return data::npy(features, labels, {.scale = static_cast<float>(job.scale.value_or(1.0))});
  }
  data::IdxOptions options;
  if (job.scale) options.scale = static_cast<float>(*job.scale);
  return data::idx(features, labels, options);
}

data::TrainTest open_files(const DataJob& job) {
  require(job.train_features, "train_features", job.source);
  require(job.train_labels, "train_labels", job.source);
  data::TrainTest result;
  result.train = open_pair(job, job.train_features, job.train_labels);
  if (job.test_features.empty() && job.test_labels.empty()) return result;
  require(job.test_features, "test_features", job.source);
  require(job.test_labels, "test_labels", job.source);
  result.test = open_pair(job, job.test_features, job.test_labels);
  return result;
}

// Training and test samples are parts of one problem: they share its centres or weights.
data::TrainTest make_synthetic(const DataJob& job) {
  const uint64_t all = job.samples + job.test_samples;
  const auto noise = static_cast<float>(job.noise);
  const data::Dataset whole =
      job.source == "synthetic"
          ? data::synthetic({.samples = all,
                             .features = job.features,
                             .classes = static_cast<uint32_t>(job.classes),
                             .seed = job.seed,
                             .noise = noise})
          : data::synthetic_regression(
                {.samples = all, .features = job.features, .seed = job.seed, .noise = noise});
  return {whole.take(job.samples), whole.skip(job.samples)};
}

data::TrainTest open_source(const DataJob& job) {
  if (is_known_set(job.source)) return data::open(data::find_entry(job.source), job.folder);
  if (job.source == "idx" || job.source == "npy") return open_files(job);
  return make_synthetic(job);
}

Activation activation_of(const LayerJob& job) {
  Activation activation = activation_from_name(job.activation);
  if (activation.kind == Activation::Kind::kLeakyRelu) {
    activation.slope = static_cast<float>(job.slope);
  }
  return activation;
}

std::vector<Layer> make_layers(const std::vector<LayerJob>& jobs);

Layer make_layer(const LayerJob& job) {
  const std::string& type = job.type;
  if (type == "dense") {
    return dense(static_cast<int64_t>(job.units), activation_of(job),
                 {.bias = job.bias, .initializer = job.initializer});
  }
  if (type == "conv2d") {
    return conv2d(static_cast<int64_t>(job.filters), job.kernel, activation_of(job),
                  {.stride = job.stride,
                   .padding = job.padding,
                   .groups = static_cast<int64_t>(job.groups),
                   .bias = job.bias,
                   .initializer = job.initializer});
  }
  const PoolOptions pool{.stride = job.stride, .padding = job.padding};
  if (type == "max_pool2d") return max_pool2d(job.window, pool);
  if (type == "average_pool2d") return average_pool2d(job.window, pool);
  if (type == "global_average_pool2d") return global_average_pool2d();
  if (type == "global_max_pool2d") return global_max_pool2d();
  if (type == "flatten") return flatten();
  if (type == "reshape") return reshape(job.shape);
  if (type == "batch_norm") {
    return batch_norm(
        {.momentum = static_cast<float>(job.momentum), .epsilon = static_cast<float>(job.epsilon)});
  }
  if (type == "dropout") return dropout(static_cast<float>(job.rate));
  if (type == "softmax") return softmax();
  if (type == "sequence") return sequence(make_layers(job.layers));
  if (type == "residual") {
    return residual(make_layers(job.layers), activation_of(job), make_layers(job.shortcut));
  }
  if (type == "leaky_relu") return leaky_relu(static_cast<float>(job.slope));
  return activation_from_name(type);
}

std::vector<Layer> make_layers(const std::vector<LayerJob>& jobs) {
  std::vector<Layer> layers;
  for (const LayerJob& job : jobs) {
    Layer layer = make_layer(job);
    if (!job.name.empty()) layer = layer.named(job.name);
    if (job.frozen) layer = layer.frozen();
    if (job.weight_decay) layer = layer.with_weight_decay(*job.weight_decay);
    layers.push_back(std::move(layer));
  }
  return layers;
}

LossPtr make_loss(const std::string& name) {
  if (name == "binary_cross_entropy") return binary_cross_entropy();
  if (name == "mean_squared_error") return mean_squared_error();
  return softmax_cross_entropy();
}

MetricPtr make_metric(const std::string& name) {
  if (name == "accuracy") return accuracy();
  if (name == "absolute_error") return absolute_error();
  if (name.starts_with("top_")) {
    int k = 0;
    const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), k);
    if (error == std::errc() && end == name.data() + name.size() && k >= 1) return top_k(k);
  }
  throw input_error(fmt::format("training.metrics has \"{}\", which is no metric", name),
                    "metrics are accuracy, top_5 (or another number) and absolute_error");
}

Optimizer make_optimizer(const OptimizerJob& job) {
  Optimizer optimizer = optimizer_from_name(job.name, job.learning_rate);
  optimizer.momentum = job.momentum;
  optimizer.beta1 = job.beta1;
  optimizer.beta2 = job.beta2;
  optimizer.epsilon = job.epsilon;
  if (job.weight_decay) optimizer.weight_decay = *job.weight_decay;
  optimizer.clip_value = job.clip_value;
  optimizer.clip_norm = job.clip_norm;
  optimizer.schedule = {.kind = schedule_from_name(job.schedule.name),
                        .warmup_steps = job.schedule.warmup_steps,
                        .every = job.schedule.every,
                        .milestones = job.schedule.milestones,
                        .gamma = job.schedule.gamma,
                        .floor = job.schedule.floor};
  validate(optimizer);
  return optimizer;
}

}  // namespace

JobData open_data(const Job& job) {
  const data::TrainTest source = open_source(job.data);
  if (job.data.validation_split > 0) {
    const auto [train, validation] = source.train.split(job.data.validation_split, job.seed);
    return {train, validation, source.test};
  }
  return {source.train, source.test, source.test};
}

Shape input_shape(const Job& job) {
  if (job.model.input.rank() > 0) return job.model.input;
  if (is_known_set(job.data.source)) return {28, 28, 1};
  if (job.data.source.starts_with("synthetic")) return job.data.features;
  return open_source(job.data).train.feature_shape();
}

Model build_model(const Job& job, const Shape& input) {
  return Sequential(input, make_layers(job.model.layers));
}

int shard_count(const Job& job, const Model& model) {
  return job.shards > 0 ? static_cast<int>(job.shards)
                        : default_shards(job.training.batch, model.parameter_count());
}

StrategyOptions strategy_options(const StrategyJob& job) {
  return {.name = job.name == "auto" ? "" : job.name,
          .exact = job.exact,
          .overlap = job.overlap,
          .replicas = static_cast<int>(job.replicas),
          .consistency = job.consistency,
          .staleness = static_cast<int>(job.staleness),
          .backup = static_cast<int>(job.backup),
          .partition = job.partition,
          .ahead = static_cast<int>(job.ahead),
          .damping = job.damping,
          .adjust_momentum = job.adjust_momentum,
          .period = job.period,
          .outer = job.outer,
          .local_state = job.local_state,
          .post_local_after = job.post_local_after,
          .match = job.match,
          .tasks = job.tasks,
          .beta = job.beta,
          .balance = job.balance == "speed" ? Balance::kSpeed : Balance::kEven,
          .min_workers = job.min_workers,
          .check_every = job.check_every};
}

TrainerOptions trainer_options(const Job& job) {
  TrainerOptions options;
  options.optimizer = make_optimizer(job.optimizer);
  options.loss = make_loss(job.training.loss);
  for (const std::string& metric : job.training.metrics) {
    options.metrics.push_back(make_metric(metric));
  }
  options.seed = job.seed;
  options.lanes = static_cast<int>(job.lanes);
  options.shards = static_cast<int>(job.shards);
  options.micro_batch = static_cast<int64_t>(job.micro_batch);
  options.precision = precision_from_name(job.precision);
  options.non_finite = job.non_finite == "skip"        ? NonFinite::kSkip
                       : job.non_finite == "roll_back" ? NonFinite::kRollBack
                                                       : NonFinite::kStop;
  options.strategy = strategy_options(job.strategy);
  return options;
}

FitOptions fit_options(const Job& job, const std::filesystem::path& folder) {
  FitOptions options;
  options.epochs = static_cast<uint32_t>(job.training.epochs);
  options.batch = job.training.batch;
  options.accumulate = job.training.accumulate;
  options.shuffle = job.training.shuffle;
  if (const auto& best = job.training.save_best) {
    options.callbacks.push_back(save_best(folder / "best", {.value = best->value}));
  }
  if (const auto& stopping = job.training.early_stopping) {
    options.callbacks.push_back(
        early_stopping(stopping->value, {.patience = static_cast<int>(stopping->patience),
                                         .min_delta = stopping->min_delta,
                                         .restore_best = stopping->restore_best}));
  }
  if (job.training.time_limit > 0) options.callbacks.push_back(time_limit(job.training.time_limit));
  if (job.checkpoint.enabled) {
    options.checkpoints = {.folder = folder / "checkpoints",
                           .every_seconds = job.checkpoint.every_seconds,
                           .every_steps = job.checkpoint.every_steps,
                           .keep = static_cast<int>(job.checkpoint.keep)};
  }
  return options;
}

}  // namespace starling
