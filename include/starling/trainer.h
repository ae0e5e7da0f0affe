// Trainer: a model with weights, and the ways to train, test and use it.
//
//   Trainer trainer(model, {.optimizer = adam(1e-3), .loss = softmax_cross_entropy()});
//   History history = trainer.fit(data.train, {.epochs = 3, .validation = data.test});
//
// Weights are the same for the same seed, whatever the number of lanes. One thread at a time uses
// a Trainer; it runs lanes of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/callback.h"
#include "starling/cluster.h"
#include "starling/data.h"
#include "starling/history.h"
#include "starling/loss.h"
#include "starling/model.h"
#include "starling/optimizer.h"
#include "starling/precision.h"

namespace starling {

// What to do when a loss or a gradient is not finite.
enum class NonFinite {
  kStop,  // end with an error that names step and layer; weights are those before the step
  kSkip,  // leave the step out, and go on
  // Go on with weights, optimizer and statistics of the last checkpoint, and the samples that come
  // next: all steps since it are left out. Requires a folder for checkpoints; one is written before
  // the first step. More than 10 times in an epoch is an error. Not for workers that train apart.
  kRollBack,
};

struct TrainerOptions {
  Optimizer optimizer = {};
  LossPtr loss = nullptr;               // required
  std::vector<MetricPtr> metrics = {};  // none: those of the loss
  uint64_t seed = 1;
  int lanes = 0;            // threads; 0: one per core
  int shards = 0;           // 0: default_shards()
  int64_t micro_batch = 0;  // 0: default_micro_batch()
  Precision precision = Precision::kF32;
  NonFinite non_finite = NonFinite::kStop;
  Cluster cluster = {};  // the workers that train together; by default this one alone
  StrategyOptions strategy = {};
};

// Where training is, told after every step.
struct Progress {
  uint32_t epoch, epochs;
  uint64_t step_in_epoch, steps_per_epoch;
  uint64_t samples;  // trained on since fit() began
  double seconds;    // of training since fit() began
  double loss;       // mean of the epoch so far
  std::vector<std::pair<std::string, double>> metrics;
};

struct CheckpointPolicy {
  std::filesystem::path folder = {};  // empty: none are written
  double every_seconds = 60;          // 0: only by steps
  uint64_t every_steps = 0;           // 0: only by time
  int keep = 3;
  bool resume = false;  // go on from the newest good one, if there is one
};

// What workers that trained apart did, to be done again by one process (docs/parameter_service.md).
struct ReplayOptions {
  std::filesystem::path record;  // that FitOptions::record has written
  bool stopped = false;          // the run was, after what the record has
  uint64_t timing_seed = 1;      // of the moments at which gradients are computed: for no bits
};

struct FitOptions {
  uint32_t epochs = 1;
  uint64_t batch = 64;
  // Batches whose gradients make one step: the mean over the samples of all of them. The last step
  // of an epoch has what is left.
  uint64_t accumulate = 1;
  data::Dataset validation = {};
  std::vector<CallbackPtr> callbacks = {};
  bool shuffle = true;
  CheckpointPolicy checkpoints = {};
  std::function<void(const Progress&)> on_step = {};
  std::function<void(const EpochRecord&)> on_epoch = {};
  // Told the epochs that the run has behind it when it goes on from a checkpoint.
  std::function<void(const History&)> on_resume = {};
  std::function<void(const std::string&)> on_note = {};  // what a person should know, one line each
  // Asked after every step: true ends training after a checkpoint. For Ctrl-C.
  std::function<bool()> should_stop = {};
  std::filesystem::path ledger = {};  // ledger.jsonl: proof of every epoch's samples
  // Where workers train apart: a file for what they do, in its order. It can be replayed.
  std::filesystem::path record = {};
  std::optional<ReplayOptions> replay = {};  // instead of training anew; by one process
};

// Values by name: "loss", "accuracy".
struct Evaluation {
  uint64_t samples = 0;
  std::vector<std::pair<std::string, double>> values;
  // Throws Error when there is no such value.
  double operator[](const std::string& name) const;
};

// Where a worker's time went in a fit(), in seconds.
struct WorkerTimes {
  int worker = 0;            // its name
  double input = 0;          // waiting for samples
  double compute = 0;        // gradients and updates, with what is read from other workers' memory
  double communication = 0;  // gradients on their way, over tcp, when there was nothing to compute
  double hidden = 0;         // gradients on their way while computing: a part of `compute`
  double waiting = 0;        // for other workers, where that can be told from communication
  int shards = 0;            // of a batch that it computed, at the end; 0 where workers train apart
  double shard = 0;          // what one took, over all full steps; 0: there was none
  uint64_t bytes_sent = 0;
};

// What a fit() did, beside the history: in the whole run, through resumes, unless it says
// otherwise.
struct FitSummary {
  uint64_t steps = 0, samples = 0;
  double training_seconds = 0;   // of this call, without evaluation and start-up
  uint64_t trained_samples = 0;  // of this call
  uint64_t samples_unique = 0, samples_duplicated = 0, samples_missing = 0;  // over whole epochs
  uint64_t skipped_steps = 0;      // that the weights have nothing of: a number was not finite …
  uint64_t roll_backs = 0;         // … and they went back so often, to before other steps as well
  std::string strategy;            // its name
  uint64_t bytes_moved = 0;        // of gradients between workers, by all of them, lost ones too
  std::vector<WorkerTimes> times;  // by worker, of this call
  std::vector<uint64_t> optimizer_bytes;  // of optimizer state that each worker keeps
  uint64_t rebalances = 0;                // how often shards were placed otherwise
  // Where workers train apart: of how many gradients the weights had missed 0, 1, 2 …
  // updates when they were applied; and how many came too late.
  std::vector<uint64_t> staleness;
  uint64_t dropped_gradients = 0;
  uint64_t meetings = 0;  // in which two workers averaged their weights
  // Where they make steps by themselves: how far one was from where all agreed then, of the length
  // of the weights, in the mean over this call.
  std::optional<double> disagreement = {};
  bool stopped = false;      // by should_stop
  std::string resumed_from;  // the checkpoint's path; empty if none
};

class Trainer {
 public:
  Trainer(Model model, TrainerOptions options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  History fit(const data::Dataset& train, const FitOptions& options);
  const FitSummary& summary() const;

  // Throws Error when samples don't fit the model or the loss; `role` is "training" or the like.
  void check(const data::Dataset& dataset, const std::string& role) const;

  Evaluation evaluate(const data::Dataset& dataset);
  // The model's outputs, row by row. `features` is a whole number of samples.
  std::vector<float> predict(std::span<const float> features);
  std::vector<float> predict(const data::Dataset& dataset);

  // Weights and running statistics as safetensors; of several workers only the chief writes. load
  // also takes the folder of a checkpoint; it throws Error, and changes nothing, when names or
  // shapes differ.
  void save(const std::filesystem::path& path) const;
  // The same by all workers at the same time, as callbacks are called: if the chief is lost
  // meanwhile, the next one writes it; what can't be written is an Error for all of them.
  void save_together(const std::filesystem::path& path) const;
  void load(const std::filesystem::path& path);

  const Model& model() const;
  // The weights of a parameter ("dense_1.weight"), row-major; to look at or to change.
  std::span<float> weights(const std::string& parameter);
  std::vector<std::string> parameter_names() const;
  // SHA-256 over all weights in name order: equal bits, equal text.
  std::string weights_sha256() const;
  int lanes() const;
  int shards() const;           // of the last fit
  int64_t micro_batch() const;  // of the last fit
  // Bytes that training takes.
  struct Memory {
    size_t weights, optimizer, gradients, activations, packed;
  };
  Memory memory() const;

  // The weights and running statistics as they are now, and put back: for callbacks.
  std::vector<float> snapshot() const;
  void restore(std::span<const float> snapshot);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// The number of shards of a batch, when the job says nothing: a pure function of the batch and the
// size of the parameters, because it is part of the job's numbers. Each shard costs a write of the
// whole gradient, so large models get few.
int default_shards(uint64_t batch, int64_t parameters);
// Rows of a micro-batch, by the model: activations should stay in the cache, weights be used often.
int64_t default_micro_batch(const Model& model);

// The version of the library.
const char* version();

}  // namespace starling
