#include "job/tune.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/isa.h"
#include "graph/graph.h"
#include "job/job_build.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

class Tuner {
 public:
  Tuner(const Job& job, const TuneOptions& options)
      : job_(job),
        options_(options),
        data_(open_data(job)),
        model_(build_model(
            job, job.model.input.rank() > 0 ? job.model.input : data_.train.feature_shape())),
        whole_shards_(std::any_of(model_.graph().nodes().begin(), model_.graph().nodes().end(),
                                  [](const Node& node) { return node.moments.has_value(); })) {}

  std::vector<TuneCandidate> run() {
    const auto parameters = model_.parameter_count();
    const auto shards = static_cast<uint64_t>(default_shards(job_.training.batch, parameters));
    const auto micro = static_cast<uint64_t>(default_micro_batch(model_));
    // First the micro-batch, at the default shards; then the shards, at the best micro-batch.
    for (const uint64_t factor : {4, 2, 1}) measure(shards, std::max<uint64_t>(1, micro / factor));
    for (const uint64_t factor : {2, 4, 8}) measure(shards, micro * factor);
    const uint64_t best_micro = best().micro_batch;
    for (uint64_t count = 1; count <= std::min<uint64_t>(16, job_.training.batch); count *= 2) {
      measure(count, best_micro);
    }
    // Fewer shards leave room for a larger micro-batch.
    const TuneCandidate quickest = best();
    for (const uint64_t factor : {2, 4}) measure(quickest.shards, quickest.micro_batch * factor);
    std::stable_sort(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) {
      return a.samples_per_s > b.samples_per_s;
    });
    return candidates_;
  }

 private:
  const TuneCandidate& best() const {
    return *std::max_element(
        candidates_.begin(), candidates_.end(),
        [](const auto& a, const auto& b) { return a.samples_per_s < b.samples_per_s; });
  }

  void measure(uint64_t shards, uint64_t micro_batch) {
    // A micro-batch is never larger than a shard.
    const uint64_t shard = std::max<uint64_t>(1, (job_.training.batch + shards - 1) / shards);
    micro_batch = whole_shards_ ? shard : std::min(micro_batch, shard);
    for (const TuneCandidate& known : candidates_) {
      if (known.shards == shards && known.micro_batch == micro_batch) return;
    }
    // The better of two: what else runs on the machine only ever makes it slower.
    TuneCandidate candidate{shards, micro_batch, 0};
    for (int i = 0; i < 2; ++i) {
      candidate.samples_per_s = std::max(candidate.samples_per_s, speed(shards, micro_batch));
    }
    candidates_.push_back(candidate);
    if (options_.on_measured) options_.on_measured(candidate);
  }

  double speed(uint64_t shards, uint64_t micro_batch) const {
    TrainerOptions settings = trainer_options(job_);
    settings.strategy = {};  // here one worker computes
    settings.non_finite = NonFinite::kStop;
    settings.shards = static_cast<int>(shards);
    settings.micro_batch = static_cast<int64_t>(micro_batch);
    Trainer trainer(model_, settings);
    FitOptions fit;
    fit.epochs = 1 << 20;  // until the time is up
    fit.batch = job_.training.batch;
    fit.accumulate = job_.training.accumulate;
    fit.shuffle = job_.training.shuffle;
    const auto begin = Clock::now();
    Progress first{}, last{};
    fit.on_step = [&](const Progress& progress) { (first.samples == 0 ? first : last) = progress; };
    // At least one step after the first, which also compiles plans and fills caches.
    fit.should_stop = [&] {
      return last.samples > 0 &&
             std::chrono::duration<double>(Clock::now() - begin).count() >= options_.seconds_each;
    };
    trainer.fit(data_.train, fit);
    return static_cast<double>(last.samples - first.samples) /
           std::max(last.seconds - first.seconds, 1e-9);
  }

  const Job& job_;
  const TuneOptions& options_;
  const JobData data_;
  const Model model_;
  const bool whole_shards_;  // batch normalisation: the micro-batch is the shard
  std::vector<TuneCandidate> candidates_;
};

}  // namespace

std::vector<TuneCandidate> tune_job(const Job& job, const TuneOptions& options) {
  cap_isa(job.isa);
  return Tuner(job, options).run();
}

}  // namespace starling
