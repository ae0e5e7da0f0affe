#include "job/job_fields.h"

#include "optim/initializers.h"
#include "starling/optimizer.h"

namespace starling {
namespace {

constexpr std::string_view kPrecisions[] = {"f32", "bf16"};
constexpr std::string_view kIsas[] = {"native", "avx512", "avx2", "sse4"};
constexpr std::string_view kNonFinite[] = {"stop", "skip", "roll_back"};
constexpr std::string_view kSources[] = {"fashion-mnist", "mnist",     "idx",
                                         "npy",           "synthetic", "synthetic-regression"};
constexpr std::string_view kLosses[] = {"softmax_cross_entropy", "binary_cross_entropy",
                                        "mean_squared_error"};
constexpr std::string_view kStrategies[] = {"auto",
                                            "single",
                                            "all_reduce",
                                            "sharded",
                                            "parameter_server",
                                            "local_sgd",
                                            "elastic_averaging",
                                            "incremental",
                                            "gossip"};
constexpr std::string_view kFabrics[] = {"shm", "tcp"};
constexpr std::string_view kConsistencies[] = {"sync", "async", "ssp", "backup"};
constexpr std::string_view kPartitions[] = {"dynamic", "equal", "weighted"};
constexpr std::string_view kOuters[] = {"average", "nesterov"};
constexpr std::string_view kMatches[] = {"random", "ring"};
constexpr std::string_view kLocalStates[] = {"kept", "averaged", "reset"};
constexpr std::string_view kBalances[] = {"even", "speed"};

constexpr Range kAtLeastOne{.min = 1};
constexpr Range kPositive{.min = 0, .without_min = true};
constexpr Range kFraction{.min = 0, .max = 1, .without_max = true};

std::vector<Section> make_sections() {
  std::vector<Section> sections;
  sections.push_back({"",
                      "What the run is called, and what its numbers depend on.",
                      {
                          {"name", "The run's name; results go to runs/<name>.",
                           [](Job& j) -> Slot { return &j.name; }},
                          {"seed", "Seed of everything random: weights, shuffling, dropout.",
                           [](Job& j) -> Slot { return &j.seed; }},
                          {"shards",
                           "Parts that a batch is cut into; 0: chosen from batch and model.",
                           [](Job& j) -> Slot { return &j.shards; },
                           {.max = 1024}},
                          {"micro_batch",
                           "Samples computed at once; 0: chosen from the model.",
                           [](Job& j) -> Slot { return &j.micro_batch; },
                           {.max = 1 << 20}},
                          {"precision",
                           "What products and convolutions round their operands to.",
                           [](Job& j) -> Slot { return &j.precision; },
                           {},
                           kPrecisions},
                          {"isa",
                           "The largest instruction set that is used.",
                           [](Job& j) -> Slot { return &j.isa; },
                           {},
                           kIsas},
                          {"workers",
                           "Processes that train together. Never changes the numbers.",
                           [](Job& j) -> Slot { return &j.workers; },
                           {.min = 1, .max = 1024}},
                          {"lanes",
                           "Threads of each worker; 0: one per core. Never changes the numbers.",
                           [](Job& j) -> Slot { return &j.lanes; },
                           {.max = 1024}},
                          {"non_finite",
                           "What to do when a loss or gradient is not finite.",
                           [](Job& j) -> Slot { return &j.non_finite; },
                           {},
                           kNonFinite},
                      }});
  sections.push_back(
      {"data",
       "Where samples come from.",
       {
           {"source",
            "The kind of data.",
            [](Job& j) -> Slot { return &j.data.source; },
            {},
            kSources},
           {"folder", "Where the files of fashion-mnist or mnist lie, if not in their usual place.",
            [](Job& j) -> Slot { return &j.data.folder; }},
           {"train_features", "idx, npy: features to train on.",
            [](Job& j) -> Slot { return &j.data.train_features; }},
           {"train_labels", "idx, npy: labels to train on.",
            [](Job& j) -> Slot { return &j.data.train_labels; }},
           {"test_features", "idx, npy: features to test on.",
            [](Job& j) -> Slot { return &j.data.test_features; }},
           {"test_labels", "idx, npy: labels to test on.",
            [](Job& j) -> Slot { return &j.data.test_labels; }},
           {"scale",
            "idx, npy: features are multiplied by this.",
            [](Job& j) -> Slot { return &j.data.scale; },
            {.min = -1e30, .max = 1e30}},
           {"validation_split", "Fraction of the training data kept for validation.",
            [](Job& j) -> Slot { return &j.data.validation_split; }, kFraction},
           {"samples",
            "synthetic: samples to train on.",
            [](Job& j) -> Slot { return &j.data.samples; },
            {.min = 1, .max = 1e12}},
           {"test_samples",
            "synthetic: samples to test on.",
            [](Job& j) -> Slot { return &j.data.test_samples; },
            {.min = 1, .max = 1e12}},
           {"features", "synthetic: shape of a sample.",
            [](Job& j) -> Slot { return &j.data.features; }, kAtLeastOne},
           {"classes",
            "synthetic: number of classes.",
            [](Job& j) -> Slot { return &j.data.classes; },
            {.min = 1, .max = 1 << 20}},
           {"noise",
            "synthetic: standard deviation of the noise.",
            [](Job& j) -> Slot { return &j.data.noise; },
            {.max = 1e6}},
           {"seed", "synthetic: which problem is made.",
            [](Job& j) -> Slot { return &j.data.seed; }},
       }});
  sections.push_back({"model",
                      "The layers, one after another.",
                      {
                          {"input", "Shape of a sample; unset: that of the data.",
                           [](Job& j) -> Slot { return &j.model.input; }, kAtLeastOne},
                          {.key = "layers",
                           .description = "The layers, each as [[model.layers]].",
                           .slot = [](Job& j) -> Slot { return &j.model.layers; },
                           .required = true},
                      }});
  return sections;
}

// Naming a field of one of these turns the section on.
EarlyStoppingJob& early_stopping_of(Job& job) {
  if (!job.training.early_stopping) job.training.early_stopping.emplace();
  return *job.training.early_stopping;
}
SaveBestJob& save_best_of(Job& job) {
  if (!job.training.save_best) job.training.save_best.emplace();
  return *job.training.save_best;
}

void add_training_sections(std::vector<Section>& sections) {
  sections.push_back(
      {"training",
       "How long and on what the model is trained.",
       {
           {"epochs",
            "Passes over the training data.",
            [](Job& j) -> Slot { return &j.training.epochs; },
            {.min = 1, .max = 1e6}},
           {"batch",
            "Samples per batch.",
            [](Job& j) -> Slot { return &j.training.batch; },
            {.min = 1, .max = 1 << 20}},
           {"accumulate",
            "Batches per step.",
            [](Job& j) -> Slot { return &j.training.accumulate; },
            {.min = 1, .max = 1 << 20}},
           {"loss",
            "What is minimised.",
            [](Job& j) -> Slot { return &j.training.loss; },
            {},
            kLosses},
           {"metrics", "What is measured besides: accuracy, top_5 (or another k), absolute_error.",
            [](Job& j) -> Slot { return &j.training.metrics; }},
           {"shuffle", "A new order of samples in every epoch.",
            [](Job& j) -> Slot { return &j.training.shuffle; }},
           {"time_limit",
            "Seconds of training after which the run ends, with the epoch under way; 0: no limit.",
            [](Job& j) -> Slot { return &j.training.time_limit; },
            {.min = 0, .max = 1e9}},
       }});
  sections.push_back(
      {"training.early_stopping",
       "Ends training when a value no longer improves; off unless the section is there.",
       {
           {"value", "Column of the history to watch.",
            [](Job& j) -> Slot { return &early_stopping_of(j).value; }},
           {"patience",
            "Epochs without an improvement before training ends.",
            [](Job& j) -> Slot { return &early_stopping_of(j).patience; },
            {.min = 1, .max = 1e6}},
           {"min_delta",
            "A smaller change is no improvement.",
            [](Job& j) -> Slot { return &early_stopping_of(j).min_delta; },
            {.max = 1e30}},
           {"restore_best", "Put back the best weights at the end.",
            [](Job& j) -> Slot { return &early_stopping_of(j).restore_best; }},
       },
       [](Job& j) { early_stopping_of(j); },
       [](const Job& j) { return j.training.early_stopping.has_value(); }});
  sections.push_back({"training.save_best",
                      "Keeps the weights of the best epoch as best.safetensors; off unless the "
                      "section is there.",
                      {
                          {"value", "Column of the history to watch.",
                           [](Job& j) -> Slot { return &save_best_of(j).value; }},
                      },
                      [](Job& j) { save_best_of(j); },
                      [](const Job& j) { return j.training.save_best.has_value(); }});
}

void add_optimizer_sections(std::vector<Section>& sections) {
  sections.push_back({"optimizer",
                      "How weights follow from gradients.",
                      {
                          {"name",
                           "Which one.",
                           [](Job& j) -> Slot { return &j.optimizer.name; },
                           {},
                           optimizer_names()},
                          {"learning_rate",
                           "Size of a step.",
                           [](Job& j) -> Slot { return &j.optimizer.learning_rate; },
                           {.max = 1e30, .without_min = true}},
                          {"momentum", "momentum, nesterov: weight of the steps before.",
                           [](Job& j) -> Slot { return &j.optimizer.momentum; }, kFraction},
                          {"beta1", "adam, adamw: decay of the mean of gradients.",
                           [](Job& j) -> Slot { return &j.optimizer.beta1; }, kFraction},
                          {"beta2", "adam, adamw: decay of the mean of their squares.",
                           [](Job& j) -> Slot { return &j.optimizer.beta2; }, kFraction},
                          {"epsilon",
                           "adam, adamw: added to the denominator.",
                           [](Job& j) -> Slot { return &j.optimizer.epsilon; },
                           {.max = 1e30, .without_min = true}},
                          {"weight_decay",
                           "Pull of weights towards 0; unset: 0.01 for adamw, else 0.",
                           [](Job& j) -> Slot { return &j.optimizer.weight_decay; },
                           {.max = 1e30}},
                          {"clip_value", "Every value of the gradient is kept within ± this.",
                           [](Job& j) -> Slot { return &j.optimizer.clip_value; }, kPositive},
                          {"clip_norm", "The gradient's Euclidean norm is kept at or below this.",
                           [](Job& j) -> Slot { return &j.optimizer.clip_norm; }, kPositive},
                      }});
  sections.push_back({"optimizer.schedule",
                      "How the learning rate changes.",
                      {
                          {"name",
                           "Which one.",
                           [](Job& j) -> Slot { return &j.optimizer.schedule.name; },
                           {},
                           schedule_names()},
                          {"warmup_steps", "Steps in which the rate rises to its full size.",
                           [](Job& j) -> Slot { return &j.optimizer.schedule.warmup_steps; }},
                          {"every", "step: multiply by gamma each time this many steps are done.",
                           [](Job& j) -> Slot { return &j.optimizer.schedule.every; }},
                          {"milestones", "step: multiply by gamma at each of these steps.",
                           [](Job& j) -> Slot { return &j.optimizer.schedule.milestones; }},
                          {"gamma",
                           "step: the factor.",
                           [](Job& j) -> Slot { return &j.optimizer.schedule.gamma; },
                           {.max = 1, .without_min = true}},
                          {"floor",
                           "cosine: fraction of the learning rate at the end.",
                           [](Job& j) -> Slot { return &j.optimizer.schedule.floor; },
                           {.max = 1}},
                      }});
}

void add_run_sections(std::vector<Section>& sections) {
  sections.push_back({"checkpoint",
                      "When the state of the run is saved.",
                      {
                          {"enabled", "Save checkpoints at all.",
                           [](Job& j) -> Slot { return &j.checkpoint.enabled; }},
                          {"every_seconds",
                           "Seconds between two; 0: not by time.",
                           [](Job& j) -> Slot { return &j.checkpoint.every_seconds; },
                           {.max = 1e9}},
                          {"every_steps", "Steps between two; 0: not by steps.",
                           [](Job& j) -> Slot { return &j.checkpoint.every_steps; }},
                          {"keep",
                           "How many of the newest stay.",
                           [](Job& j) -> Slot { return &j.checkpoint.keep; },
                           {.min = 1, .max = 1e6}},
                      }});
  sections.push_back(
      {"strategy",
       "How training is spread over workers.",
       {
           {"name", "Which one.", [](Job& j) -> Slot { return &j.strategy.name; }, {}, kStrategies},
           {"fabric",
            "How workers of one host talk.",
            [](Job& j) -> Slot { return &j.strategy.fabric; },
            {},
            kFabrics},
           {"link_rate",
            "tcp: what each worker's network is to carry, as \"100mbit\"; empty: what it does.",
            [](Job& j) -> Slot { return &j.strategy.link_rate; }},
           {"link_delay",
            "tcp: how long each byte is to be on its way, as \"5ms\"; empty: as it is.",
            [](Job& j) -> Slot { return &j.strategy.link_delay; }},
           {"exact", "Whether sums over workers keep the bits of one worker.",
            [](Job& j) -> Slot { return &j.strategy.exact; }},
           {"overlap", "tcp: exchange gradients while the rest of them is computed.",
            [](Job& j) -> Slot { return &j.strategy.overlap; }},
           {"replicas",
            "sharded: copies of a worker's optimizer state on another; with 1 none is lost with "
            "it.",
            [](Job& j) -> Slot { return &j.strategy.replicas; },
            {.max = 1}},
           {"servers",
            "Where workers use the parameter service: processes beside them that only serve; 0: "
            "every worker serves a slice.",
            [](Job& j) -> Slot { return &j.strategy.servers; },
            {.max = 64}},
           {"consistency",
            "parameter_server: when servers apply the workers' gradients.",
            [](Job& j) -> Slot { return &j.strategy.consistency; },
            {},
            kConsistencies},
           {"staleness",
            "ssp: by how many gradients a worker may be ahead of the slowest.",
            [](Job& j) -> Slot { return &j.strategy.staleness; },
            {.max = 1e6}},
           {"backup",
            "backup: how many gradients of a round are not waited for.",
            [](Job& j) -> Slot { return &j.strategy.backup; },
            {.max = 1023}},
           {"partition",
            "async, ssp, backup: how samples are divided between the workers.",
            [](Job& j) -> Slot { return &j.strategy.partition; },
            {},
            kPartitions},
           {"ahead",
            "async, ssp: how many leases come while a worker computes.",
            [](Job& j) -> Slot { return &j.strategy.ahead; },
            {.max = 7}},
           {"damping",
            "async, ssp: how much less a gradient counts for each update that its weights had "
            "missed.",
            [](Job& j) -> Slot { return &j.strategy.damping; },
            {.min = 0, .max = 10}},
           {"adjust_momentum",
            "async, ssp: whether momentum is lowered, as stale gradients act like some.",
            [](Job& j) -> Slot { return &j.strategy.adjust_momentum; }},
           {"period",
            "local_sgd, elastic_averaging, incremental, gossip: steps that workers make by "
            "themselves before they agree.",
            [](Job& j) -> Slot { return &j.strategy.period; },
            {.min = 1, .max = 1e6}},
           {"outer",
            "local_sgd, incremental: what is made of the mean of the workers' changes.",
            [](Job& j) -> Slot { return &j.strategy.outer; },
            {},
            kOuters},
           {"local_state",
            "local_sgd, incremental: what becomes of the workers' optimizer state when they "
            "agree.",
            [](Job& j) -> Slot { return &j.strategy.local_state; },
            {},
            kLocalStates},
           {"post_local_after",
            "local_sgd, elastic_averaging, incremental, gossip: so many epochs are synchronous "
            "first.",
            [](Job& j) -> Slot { return &j.strategy.post_local_after; },
            {.max = 1e6}},
           {"tasks",
            "incremental: how many tasks a round is cut into; 0: one for each worker.",
            [](Job& j) -> Slot { return &j.strategy.tasks; },
            {.max = 1e6}},
           {"match",
            "gossip: who averages with whom.",
            [](Job& j) -> Slot { return &j.strategy.match; },
            {},
            kMatches},
           {"beta",
            "elastic_averaging: how strongly all workers together pull the centre.",
            [](Job& j) -> Slot { return &j.strategy.beta; },
            {.min = 0, .max = 1, .without_min = true}},
           {"balance",
            "How many shards each worker computes: as many, or by its speed.",
            [](Job& j) -> Slot { return &j.strategy.balance; },
            {},
            kBalances},
           {"check_every", "Steps between two comparisons of all workers' weights; 0: never.",
            [](Job& j) -> Slot { return &j.strategy.check_every; }},
           {"survive", "Whether the others go on when a worker is killed or frozen.",
            [](Job& j) -> Slot { return &j.strategy.survive; }},
           {"respawn", "Whether a lost worker is replaced by a new one.",
            [](Job& j) -> Slot { return &j.strategy.respawn; }},
           {"min_workers",
            "With fewer workers left the others save, and wait for some to join.",
            [](Job& j) -> Slot { return &j.strategy.min_workers; },
            {.min = 1, .max = 1024}},
           {"wait_for_workers",
            "For so many seconds; then the run ends with an error.",
            [](Job& j) -> Slot { return &j.strategy.wait_for_workers; },
            {.min = 0, .max = 1e6}},
           {"heartbeat_limit",
            "Seconds without a sign of life after which a worker counts as frozen, and is killed.",
            [](Job& j) -> Slot { return &j.strategy.heartbeat_limit; },
            {.min = 0.2, .max = 1e6}},
           {"progress_limit",
            "Seconds without progress after which a worker counts as stuck, and is killed.",
            [](Job& j) -> Slot { return &j.strategy.progress_limit; },
            {.min = 1, .max = 1e6}},
       }});
}

}  // namespace

std::span<const Section> job_sections() {
  static const std::vector<Section> sections = [] {
    std::vector<Section> all = make_sections();
    add_training_sections(all);
    add_optimizer_sections(all);
    add_run_sections(all);
    return all;
  }();
  return sections;
}

std::string default_text(const JobField& field) {
  if (field.required) return "required";
  Job job;
  return value_text(field.slot(job));
}

std::string default_text(const LayerType& type, const LayerField& field) {
  if (field.required) return "required";
  LayerJob layer = type.defaults;
  return value_text(field.slot(layer));
}

}  // namespace starling
