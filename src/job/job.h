// Job: everything that a job file says, as plain data. docs/job.md documents every field; the
// tables in job_fields.h connect fields, file and documentation. A plain value; no threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "starling/layer.h"
#include "starling/shape.h"

namespace starling {

// One layer of the model. Which of the options a type has is said by the table of layers.
struct LayerJob {
  std::string type;
  std::string name;  // empty: numbered by its type
  bool frozen = false;
  std::optional<double> weight_decay;  // unset: the optimizer's

  std::string activation = "linear";
  double slope = 0.01;  // of leaky_relu
  uint64_t units = 0;
  uint64_t filters = 0;
  Extent kernel = 0;
  Extent window = 0;
  Extent stride = 0;  // 0: the size of the window
  Padding padding = valid;
  uint64_t groups = 1;
  bool bias = true;
  std::string initializer = "glorot_uniform";
  Shape shape;
  double rate = 0;
  double momentum = 0.1;
  double epsilon = 1e-5;
  std::vector<LayerJob> layers;    // of sequence and residual
  std::vector<LayerJob> shortcut;  // of residual
};

struct DataJob {
  std::string source = "fashion-mnist";
  std::filesystem::path folder;  // empty: where the data set is found
  std::filesystem::path train_features, train_labels, test_features, test_labels;
  std::optional<double> scale;  // unset: 1/255 for bytes in IDX files, else 1
  double validation_split = 0;
  // Of the synthetic sources.
  uint64_t samples = 10000;
  uint64_t test_samples = 1000;
  Shape features{32};
  uint64_t classes = 10;
  double noise = 1;
  uint64_t seed = 1;
};

struct ModelJob {
  Shape input;  // rank 0: that of the data
  std::vector<LayerJob> layers;
};

struct EarlyStoppingJob {
  std::string value = "val_loss";
  uint64_t patience = 3;
  double min_delta = 0;
  bool restore_best = true;
};

struct SaveBestJob {
  std::string value = "val_loss";
};

struct TrainingJob {
  uint64_t epochs = 1;
  uint64_t batch = 64;
  uint64_t accumulate = 1;
  std::string loss = "softmax_cross_entropy";
  std::vector<std::string> metrics;  // empty: accuracy, where labels are classes
  bool shuffle = true;
  double time_limit = 0;  // seconds; 0: none
  std::optional<EarlyStoppingJob> early_stopping;
  std::optional<SaveBestJob> save_best;
};

struct ScheduleJob {
  std::string name = "constant";
  uint64_t warmup_steps = 0;
  uint64_t every = 0;
  std::vector<uint64_t> milestones;
  double gamma = 0.1;
  double floor = 0;
};

struct OptimizerJob {
  std::string name = "adam";
  double learning_rate = 1e-3;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::optional<double> weight_decay;  // unset: 0.01 for adamw, else 0
  std::optional<double> clip_value;
  std::optional<double> clip_norm;
  ScheduleJob schedule;
};

struct CheckpointJob {
  bool enabled = true;
  double every_seconds = 60;
  uint64_t every_steps = 0;
  uint64_t keep = 3;
};

struct StrategyJob {
  std::string name = "auto";  // single for one worker, all_reduce for more
  std::string fabric = "shm";
  std::string link_rate, link_delay;  // empty: those of the machine
  bool exact = true;
  bool overlap = true;
  uint64_t replicas = 1;
  uint64_t servers = 0;
  std::string consistency = "sync";
  uint64_t staleness = 3;
  uint64_t backup = 1;
  std::string partition = "dynamic";
  uint64_t ahead = 0;
  double damping = 0;
  uint64_t period = 16;
  std::string outer = "average";
  std::string local_state = "kept";
  uint64_t post_local_after = 0;
  uint64_t tasks = 0;
  std::string match = "random";
  double beta = 0.9;
  bool adjust_momentum = true;
  std::string balance = "even";
  uint64_t check_every = 0;
  bool survive = true;
  bool respawn = false;
  uint64_t min_workers = 1;
  double wait_for_workers = 60;
  double heartbeat_limit = 2;
  double progress_limit = 60;
};

struct Job {
  std::string name = "run";
  uint64_t seed = 1;
  uint64_t shards = 0;       // 0: default_shards()
  uint64_t micro_batch = 0;  // 0: default_micro_batch()
  std::string precision = "f32";
  std::string isa = "native";
  uint64_t workers = 1;
  uint64_t lanes = 0;  // of each worker; 0: one per core
  std::string non_finite = "stop";

  DataJob data;
  ModelJob model;
  TrainingJob training;
  OptimizerJob optimizer;
  CheckpointJob checkpoint;
  StrategyJob strategy;
};

// A change of one field from the command line: --set training.epochs=5.
struct Setting {
  std::string key;
  std::string value;
};

// Reads a job file and applies the settings, in order. Relative paths in the file are relative to
// its folder, those of settings to the current one. Throws input Error that says file, line and
// column, what was found and what is wanted.
Job load_job(const std::filesystem::path& path, const std::vector<Setting>& settings = {});

// The same from a text; `where` is its name in messages.
Job parse_job(const std::string& text, const std::string& where,
              const std::filesystem::path& folder = {}, const std::vector<Setting>& settings = {});

// "key=value" of --set. Throws input Error when there is no "=".
Setting parse_setting(const std::string& text);

// The job as a file that load_job reads back to the same job: every field, with defaults, in the
// order of docs/job.md.
std::string job_to_toml(const Job& job);

}  // namespace starling
