// How FitLoop does again what workers that trained apart have done: the same epochs, callbacks and
// accounts, with stretches from a record.
#include <fmt/format.h>

#include "starling/error.h"
#include "train/fit.h"
#include "train/stretch_replay.h"

namespace starling {

void FitLoop::open_replay() {
  if (impl_.world().workers() > 1 || trains_apart() || options_.checkpoints.resume)
    throw input_error("a record is replayed by one process, from the beginning",
                      "leave workers, strategy and resume away");
  replayed_ = RecordFile::read(options_.replay->record);
}

bool FitLoop::replay_epoch() {
  epoch_begin_ = std::chrono::steady_clock::now();
  epoch_seconds_ = 0;
  epoch_samples_ = 0;
  tell_progress({});
  while (!cursor_.free.empty()) {
    if (next_replayed_ == replayed_.size()) return false;
    const auto begin = std::chrono::steady_clock::now();
    replay_stretch(replayed_[next_replayed_++]);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    epoch_seconds_ += seconds;
    impl_.summary.training_seconds += seconds;
  }
  return true;
}

void FitLoop::replay_stretch(const RecordedStretch& stretch) {
  check_recorded(stretch);
  const StretchReplay::Options options{
      .reader = &reader_,
      .samples_at = [this](SampleRange places) { return samples_at(places); },
      .rules = {.optimizer = stretch.optimizer,
                .batch = options_.batch,
                .usual = stretch.usual,
                .total_steps = stretch.epochs * steps_per_epoch(),
                .apart = stretch.apart,
                .damping = stretch.damping},
      .samples = samples_before(),
      .timing_seed = options_.replay->timing_seed,
      .obeyed =
          [this](const Order& order) {
            account_for(std::span(&order, 1));
            if (order.kind == Order::Kind::kApply) tell_progress({});
          }};
  if (!replayer_ || replayer_->options().shards != stretch.shards)
    replayer_ = impl_.make_executor(stretch.shards);
  StretchReplay(*replayer_, impl_.state, options).run(stretch);
  impl_.weights_changed();
  impl_.any_executor();
}

// That it is of this job, as far as one can see.
void FitLoop::check_recorded(const RecordedStretch& stretch) const {
  bool fits = stretch.epoch == cursor_.epoch && stretch.version == impl_.state.step &&
              stretch.optimizer.kind == impl_.options.optimizer.kind;
  SampleRanges free = cursor_.free;
  for (const Order& order : stretch.log) {
    if (order.kind == Order::Kind::kLend) fits = fits && free.has(order.samples);
    for (const Push& push : order.pushes) {
      fits = fits && free.has(push.samples);
      if (fits) free.remove(push.samples);
    }
  }
  if (fits) return;
  throw input_error(
      fmt::format("{} is not of this job: its stretch after update {}, in epoch {}, does not "
                  "follow on what was done before",
                  options_.replay->record.string(), stretch.version, stretch.epoch + 1),
      "replay a run's folder as `starling train --record` has left it");
}

}  // namespace starling
