// The part of FitLoop that goes back to the last checkpoint when a number is not finite.
//
// The state goes back, the data go on: the next step has the samples that come next. Had the data
// gone back too, the steps since the checkpoint would be made again to the same bits, and lead to
// the same number; all that would come of it is what skipping the one step gives at once. And so a
// run never makes the same step twice, and gets to its end.
#include <fmt/format.h>

#include "base/json.h"
#include "starling/error.h"
#include "train/fit.h"
#include "train/state_transfer.h"

namespace starling {
namespace {

// In an epoch: more than some bad samples need; a run that needs more learns nothing.
constexpr uint64_t kMostRollBacks = 10;

uint64_t count(const Json& object, const char* key) { return object.at(key).get<uint64_t>(); }

}  // namespace

void FitLoop::check_roll_back() const {
  constexpr const char* kUse = "use non_finite = \"skip\" or \"stop\"";
  if (trains_apart()) throw input_error("workers that train apart don't roll back", kUse);
  if (options_.checkpoints.folder.empty())
    throw input_error("non_finite = \"roll_back\" without checkpoints to go back to",
                      fmt::format("have checkpoints written (checkpoint.enabled), or {}", kUse));
}

// It sets aside what an earlier run has left in the folder: a run goes back to its own.
void FitLoop::save_start() {
  if (save_for_all("the state at the start")) return;
  throw run_error("there is nothing to roll back to: the state at the start could not be saved",
                  "make room for checkpoints, or use non_finite = \"skip\" or \"stop\"");
}

void FitLoop::roll_back() {
  if (++cursor_.roll_backs > kMostRollBacks) {
    throw run_error(
        fmt::format("epoch {} step {}: a number was not finite after {} roll backs in this epoch",
                    cursor_.epoch + 1, cursor_.step_in_epoch, kMostRollBacks),
        "lower the learning rate, clip gradients (clip_norm = 1.0), or look at the data; "
        "checkpoint.every_steps says how far a run goes back");
  }
  ++impl_.summary.roll_backs;
  uint64_t steps_before = 0;
  impl_.world().agree("rolling back", [&] {
    const Snapshot good = last_checkpoint();
    restore_tensors(good);
    TrainState& state = impl_.state;
    state.step = count(good.manifest, "updates");
    steps_before = count(good.manifest, "step");
    const uint64_t undone = impl_.summary.steps - steps_before;
    state.skipped = count(good.manifest, "skipped") + undone;
    impl_.summary.skipped_steps = count(good.manifest.at("totals"), "skipped") + undone;
    if (UpdateJournal* const journal = state.journal()) journal->reset(state.step);
  });
  note(
      fmt::format("epoch {} step {}: rolled back, a number was not finite; the run goes on with "
                  "the weights of step {}",
                  cursor_.epoch + 1, cursor_.step_in_epoch, steps_before));
}

Snapshot FitLoop::last_checkpoint() {
  World& world = impl_.world();
  std::vector<std::byte> bytes;
  if (world.is_chief()) {
    if (!store_) open_store();  // this worker has become the chief
    store_->wait();
    const std::optional<CheckpointStore::Loaded> loaded = store_->load_latest();
    if (!loaded)
      throw run_error(fmt::format("there is no checkpoint in {} any more to roll back to",
                                  store_->folder().string()),
                      "leave them there while a run goes on");
    bytes = pack_snapshot(loaded->snapshot);
  }
  uint64_t length = bytes.size();
  world.broadcast("rolling back", std::as_writable_bytes(std::span(&length, 1)));
  bytes.resize(length);
  world.broadcast("rolling back", bytes);
  return unpack_snapshot(bytes);
}

}  // namespace starling
