// FitLoop: one call of Trainer::fit: epochs, steps, validation, callbacks, checkpoints and the
// ledger. What a checkpoint holds is exactly the state between two steps, so a run that goes on
// from it ends with the same bits as one that never stopped.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "data/ledger.h"
#include "data/loader.h"
#include "observe/stragglers.h"
#include "param/record_file.h"
#include "param/update_plan.h"
#include "starling/trainer.h"
#include "strategy/balancer.h"
#include "strategy/make_strategy.h"
#include "strategy/param_service.h"
#include "train/checkpoint.h"
#include "train/local_work.h"
#include "train/step.h"
#include "train/trainer_impl.h"

namespace starling {

class Apart;

class FitLoop {
 public:
  FitLoop(Trainer& trainer, Trainer::Impl& impl, const data::Dataset& train,
          const FitOptions& options);
  ~FitLoop();
  FitLoop(const FitLoop&) = delete;
  FitLoop& operator=(const FitLoop&) = delete;

  History run();

 private:
  // Where the loop is; all of it is in every checkpoint.
  struct Cursor {
    uint32_t epoch = 0;          // the one under way, counted over all fits
    uint64_t step_in_epoch = 0;  // steps done in it
    bool ended = false;          // a callback has ended the run
    uint64_t roll_backs = 0;     // in the epoch
    SampleRanges free;           // of the epoch, where workers train apart: not trained on yet
    Sums sums;                   // of the epoch so far
    double seconds = 0;          // of training in it, before this process took it up
  };

  // Makes the strategy for the world as it is. One unit: when it returns, the world may be another
  // already.
  void follow_world();
  // After a worker was lost: true if the step is to be completed, false if it is to be redone.
  bool recover(const LostWorker& lost);
  void add_batches();
  void save_at_end();
  // Writes a checkpoint, and waits until it is there; on all workers. False on a chief that could
  // not write it.
  bool save_for_all(const char* what);
  // Of an optimizer state that is split without copies: makes them, until it is split anew.
  void copy_slices();
  // Between two steps: workers join and leave.
  void change_workers();
  void start_loader();  // at the cursor
  // The rows of a batch of so many that this worker computes; called by the loader's thread.
  data::RowRange rows_of_shards(uint64_t rows) const;
  void open_store();
  void begin();
  void resume();
  void restore(const Snapshot& snapshot, const std::string& where);
  // Weights, optimizer state and statistics.
  void restore_callbacks(const Snapshot& snapshot);
  void restore_tensors(const Snapshot& snapshot);
  void restore_sums(const Json& sums, const std::string& where);
  void restore_free(const Json& manifest, const std::string& where);
  void restore_outer(const NamedTensor& tensor);
  Snapshot snapshot() const;
  // Weights, optimizer state and statistics are left out where they are shared.
  std::vector<std::byte> state_for_newcomers() const;
  // What must be the same (fit_fingerprint.cc).
  Json job_fingerprint() const;  // when a run goes on
  // On all workers, a line each: what they were given, and where they are.
  std::string job_text() const;
  std::string state_text() const;
  std::string data_text() const;  // a part of job_text()
  // Whether a checkpoint is to be written when the run has done so many steps.
  bool is_save_due(uint64_t steps) const;
  bool is_time_to_save(bool by_steps) const;  // or by time
  void save_if_due();
  // Of an optimizer state that is split: to the chief, by all.
  void gather_optimizer_state();
  void save_now();
  // When numbers are not finite (fit_roll_back.cc).
  bool rolls_back() const { return impl_.options.non_finite == NonFinite::kRollBack; }
  void check_roll_back() const;
  void save_start();  // so that there is something to go back to
  // After a step that changed nothing, which the cursor is behind.
  void roll_back();
  // The newest, from the chief's disk, on all workers; within a unit.
  Snapshot last_checkpoint();
  // Where workers train apart (fit_apart.cc).
  bool trains_apart() const;
  void check_apart() const;
  std::unique_ptr<Strategy> make_apart();
  bool run_epoch_apart();  // false: stopped in the middle
  void run_stretch();
  std::vector<Order> train_apart();  // what was ordered
  Stretch make_stretch() const;
  // Returns what this worker was lent last, as much as it may have at a time: its fate is in the
  // log.
  std::deque<ParamPeer::Lease> work_apart(ParamService& service);
  std::unique_ptr<LeaseWork> make_work(ParamService& service);
  // Whether workers make steps by themselves now: not in the first epochs, if they are to agree on
  // every step there.
  bool makes_own_steps() const;
  bool is_synchronous_first() const;
  bool own_weights_meet() const;  // they have weights of their own then, averaged in pairs
  // Whether an update waits for all, or most.
  bool makes_rounds() const;
  // Updates that the service has made.
  uint64_t service_version() const;
  // What an update of it counts for optimizers, if so many samples were trained on before.
  uint64_t optimizer_steps(uint64_t trained) const;
  // At these places in the order of the epoch.
  std::vector<uint64_t> samples_at(SampleRange places) const;
  // From here to the end of the stretch.
  UpdateRules update_rules() const;
  uint64_t samples_before() const;  // of this run, the cursor
  // The one of the epoch under way that comes after so many samples of this run, from 1.
  uint64_t step_after(uint64_t samples) const;
  bool is_save_due_apart(uint64_t updates) const;
  void account_for(std::span<const Order> log);
  void share_trained();
  // Slices for the next stretch in this view, by what each has served in this one; the same on all.
  void balance_slices(const std::vector<ServedLoad>& by_rank);
  void average_statistics(const std::vector<float>& own);
  void average(std::span<const float> own, std::span<float> mean);
  std::vector<std::vector<float>> local_optimizers() const;
  void note_disagreement();
  void average_optimizers(const std::vector<std::vector<float>>& own);
  void spread_optimizer();
  RecordedStretch begin_record() const;
  void tell_record(const RecordedStretch& stretch);
  // Where that is done again (fit_replay.cc).
  void open_replay();
  bool replay_epoch();  // false: the record ends in the middle
  void replay_stretch(const RecordedStretch& stretch);
  void check_recorded(const RecordedStretch& stretch) const;

  uint64_t steps_per_epoch() const;
  StepSize step_size() const;  // of the next step
  bool run_epoch();            // false: stopped in the middle
  void run_step();
  // After a step of this size: whether shards are to be placed otherwise before the next one. All
  // workers come to the same answer.
  bool balance(const StepSize& size);
  std::string placement_text() const;
  void name_stragglers();
  // Throws Error when the weights of all workers were to be compared now, and differ.
  void check_weights();
  void begin_ledger();
  // By the chief, once for every epoch.
  void tell_ledger(const std::string& line);
  void write_ledger();  // by the chief
  void finish_epoch();
  void measure_epoch(EpochRecord& record);
  uint64_t rebalances() const;  // of the run
  void finish_summary();
  void gather_summary();
  // Where workers train apart: what is known of the stretch under way.
  struct Ahead {
    uint64_t samples = 0;
    double seconds = 0;
    const Sums* sums = nullptr;  // of this worker's
  };
  void tell_progress(const Ahead& ahead) const;
  void note(const std::string& text) const;

  Trainer& trainer_;
  Trainer::Impl& impl_;
  const data::Dataset& train_;
  const FitOptions& options_;
  Executor& executor_;
  std::unique_ptr<Strategy> strategy_;
  Apart* apart_ = nullptr;                // the strategy, where workers train apart
  ServedLoad served_;                     // then: by this worker in the last stretch
  std::unique_ptr<LeaseWork> work_;       // likewise, until all have agreed
  OwnWeights own_weights_;                // likewise, where each has some
  LeaseWork::Disagreement disagreement_;  // likewise, in all of them
  struct SliceShares {
    int64_t view = 0;  // for which they hold
    std::vector<double> shares;
    uint64_t changes = 0;
  } slice_shares_;
  uint64_t rebalances_before_ = 0;  // of the run, before this call
  std::optional<TrainStep> step_;
  int64_t strategy_view_ = 0;  // the world's, for which it was made
  std::atomic<ShardRange> own_shards_{};
  const StepSize full_step_;
  Balancer balancer_;
  std::string data_text_;
  std::vector<int> strategy_members_;  // names, by rank
  std::vector<int> computing_;         // those of them that compute
  std::vector<int> averaged_;          // whose statistics were averaged last
  std::optional<RecordFile> record_;
  std::vector<RecordedStretch> replayed_;  // all of them, where it is a replay
  size_t next_replayed_ = 0;
  std::unique_ptr<Executor> replayer_;  // for what the last of them was cut into
  StragglerWatch straggler_watch_;
  double shard_seconds_ = 0;  // of this worker, a shard each time, over all full steps
  uint64_t full_steps_ = 0;
  Wishes wishes_;                     // of all workers, for after this step
  uint64_t gradients_ = 0;            // of this worker, where it trains apart
  uint64_t updates_saved_ = 0;        // likewise: when the last checkpoint was written
  Speeds speeds_;                     // likewise: of all workers
  Strategy::Seconds seconds_before_;  // of strategies for earlier worlds
  uint64_t bytes_before_ = 0;
  uint64_t bytes_told_ = 0;  // in the records of epochs
  data::Loader loader_;
  data::Ledger ledger_;
  // Of all epochs of this fit, on every worker: what there was no room for is written later, by
  // whoever is the chief then.
  std::vector<std::string> ledger_lines_;
  uint32_t ledger_lines_epoch_ = 0;  // of the first
  bool ledger_is_behind_ = false;    // of the chief
  RowReader reader_;
  const uint32_t first_epoch_;
  uint32_t end_epoch_;
  uint32_t schedule_epochs_;  // for which schedules are made
  Cursor cursor_;
  History history_;
  std::optional<OptimizerState> gathered_;  // for the checkpoint that is being written
  std::unique_ptr<CheckpointStore> store_;
  std::chrono::steady_clock::time_point last_save_;
  std::chrono::steady_clock::time_point epoch_begin_;
  double epoch_seconds_ = 0;    // of training in this epoch
  double input_seconds_ = 0;    // of waiting for batches, in this call
  uint64_t epoch_samples_ = 0;  // of this process in this epoch
  mutable Progress progress_;
  mutable Sums progress_sums_;
};

}  // namespace starling
