// The part of FitLoop that saves and resumes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>

#include "base/atomic_file.h"
#include "base/json.h"
#include "observe/history_json.h"
#include "starling/error.h"
#include "train/fit.h"
#include "train/numbers.h"
#include "train/optimizer_transfer.h"
#include "train/recoveries_json.h"
#include "train/state_transfer.h"

namespace starling {
namespace {

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(bytes.size() * 2, '0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    text[2 * i] = kDigits[std::to_integer<size_t>(bytes[i] >> 4)];
    text[2 * i + 1] = kDigits[std::to_integer<size_t>(bytes[i] & std::byte{15})];
  }
  return text;
}

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 2);
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
  }
  return bytes;
}

// What the ledger tells of the epochs before this one. Others are computed again now, and told
// once; what is no entry (a line half written by a process that died) goes too.
std::string ledger_before(const std::filesystem::path& path, uint32_t epoch) {
  std::ifstream file(path);
  std::string kept, line;
  while (std::getline(file, line)) {
    const Json entry = parse_json(line);
    if (entry.is_object() && entry.contains("epoch") && entry["epoch"].is_number_integer() &&
        entry["epoch"].get<int64_t>() < epoch) {
      kept += line + '\n';
    }
  }
  return kept;
}

uint64_t count(const Json& object, const char* key) { return object.at(key).get<uint64_t>(); }

constexpr std::string_view kCallbackPrefix = "callback/";
constexpr const char* kOuterName = "outer";
constexpr const char* kNumbers = "numbers";

std::string callback_name(size_t index) { return fmt::format("{}{}", kCallbackPrefix, index); }

}  // namespace

void FitLoop::open_store() {
  store_ = std::make_unique<CheckpointStore>(options_.checkpoints.folder,
                                             CheckpointOptions{.keep = options_.checkpoints.keep});
}

std::vector<std::byte> FitLoop::state_for_newcomers() const {
  Snapshot state = snapshot();
  state.manifest["recoveries"] = recoveries_to_json(impl_.world().recoveries());
  if (trains_apart()) state.manifest[kLeaseShards] = executor_.options().shards;
  if (impl_.state.splits_optimizer()) {  // they get their part when it is split anew
    state.manifest["owners"] = impl_.state.owners().members();
    state.manifest["keepers"] = impl_.state.owners().keepers();
    state.manifest["replicas"] = impl_.state.owners().replicas();
    state.manifest["cuts"] = impl_.state.owners().block_cuts();
  }
  if (const auto place = impl_.state.shared_place()) {
    std::erase_if(state.optimizer, [](const NamedTensor& tensor) {
      return !tensor.name.starts_with(kCallbackPrefix);
    });
    state.weights.clear();
    state.statistics.clear();
    Json& shared = state.manifest["shared"];
    shared["process"] = place->process;
    shared["descriptor"] = place->descriptor;
    shared["slots"] = place->slots;
  }
  return pack_snapshot(state);
}

Snapshot FitLoop::snapshot() const {
  Snapshot snapshot;
  snapshot.weights = impl_.state.weight_tensors();
  if (gathered_) {
    snapshot.optimizer = impl_.state.optimizer_tensors(*gathered_);
  } else if (!impl_.state.splits_optimizer()) {
    snapshot.optimizer = impl_.state.optimizer_tensors(impl_.state.optimizer);
  }
  if (const std::span<const float> outer = impl_.state.outer.span(); !outer.empty())
    snapshot.optimizer.push_back(
        {kOuterName, {static_cast<int64_t>(outer.size())}, {outer.begin(), outer.end()}});
  snapshot.statistics = impl_.state.statistics_tensors();
  Json callbacks = Json::array();
  for (size_t i = 0; i < options_.callbacks.size(); ++i) {
    CallbackState state = options_.callbacks[i]->save();
    callbacks.push_back({{"name", options_.callbacks[i]->name()}, {"text", state.text}});
    if (state.values.empty()) continue;
    const Shape shape{static_cast<int64_t>(state.values.size())};
    snapshot.optimizer.push_back({callback_name(i), shape, std::move(state.values)});
  }
  const FitSummary& summary = impl_.summary;
  Json& manifest = snapshot.manifest;
  manifest["step"] = summary.steps;
  manifest["updates"] = impl_.state.step;
  manifest["skipped"] = impl_.state.skipped;
  manifest["epoch"] = cursor_.epoch;
  manifest["step_in_epoch"] = cursor_.step_in_epoch;
  if (trains_apart()) {
    Json& free = manifest["free"] = Json::array();
    for (const SampleRange& range : cursor_.free.ranges()) free.push_back({range.begin, range.end});
  }
  manifest["epoch_seconds"] = cursor_.seconds + epoch_seconds_;
  manifest["ended"] = cursor_.ended;
  manifest["roll_backs"] = cursor_.roll_backs;
  manifest["job"] = job_fingerprint();
  manifest[kNumbers] = numbers_json();
  Json& sums = manifest["sums"];
  sums["samples"] = cursor_.sums.samples;
  sums["loss"] = cursor_.sums.loss;
  sums["metrics"] = cursor_.sums.metrics;
  sums["names"] = impl_.metric_names();
  manifest["history"] = history_to_json(history_);
  manifest["callbacks"] = callbacks;
  manifest["ledger"] = to_hex(ledger_.save());
  Json& totals = manifest["totals"];
  totals["samples"] = summary.samples;
  totals["unique"] = summary.samples_unique;
  totals["duplicated"] = summary.samples_duplicated;
  totals["missing"] = summary.samples_missing;
  totals["skipped"] = summary.skipped_steps;
  totals["roll_backs"] = summary.roll_backs;
  totals["staleness"] = summary.staleness;
  totals["dropped"] = summary.dropped_gradients;
  totals["meetings"] = summary.meetings;
  totals["rebalances"] = rebalances();
  return snapshot;
}

// Other strategies, and another outer optimizer, do without it.
void FitLoop::restore_outer(const NamedTensor& tensor) {
  Buffer<float>& outer = impl_.state.outer;
  if (outer.size() == tensor.values.size())
    std::copy(tensor.values.begin(), tensor.values.end(), outer.begin());
}

void FitLoop::resume() {
  if (!store_)
    throw input_error("there is nothing to resume from", "give a folder for checkpoints");
  const std::optional<CheckpointStore::Loaded> loaded = store_->load_latest();
  if (!loaded) {
    note(fmt::format("nothing to resume in {}: starting at the beginning",
                     store_->folder().string()));
    return;
  }
  for (const std::string& skipped : loaded->skipped)
    note("a damaged checkpoint was passed over: " + skipped);
  try {
    restore(loaded->snapshot, loaded->path.string());
  } catch (const Json::exception& error) {
    throw input_error(
        fmt::format("the manifest of {} lacks something: {}", loaded->path.string(), error.what()),
        "it was not written by this version of Starling; start anew without --resume");
  }
  if (impl_.world().is_chief() && std::filesystem::exists(options_.ledger))
    write_file_atomically(options_.ledger, ledger_before(options_.ledger, cursor_.epoch));
  impl_.summary.resumed_from = loaded->path.string();
  if (options_.on_resume) options_.on_resume(history_);
  note(fmt::format("resumed from {} (epoch {}, step {})", loaded->path.string(), cursor_.epoch + 1,
                   cursor_.step_in_epoch));
  const std::string changed = numbers_changed(loaded->snapshot.manifest.value(kNumbers, Json()));
  if (!changed.empty()) note("the weights go on, but not with the same bits: " + changed);
  if (cursor_.ended) note("a callback had ended this run: it is not trained further");
}

void FitLoop::restore(const Snapshot& snapshot, const std::string& where) {
  const Json& manifest = snapshot.manifest;
  const Json now = job_fingerprint();
  for (const auto& [key, value] : now.items()) {
    const std::string before = to_text(manifest.at("job").at(key)), after = to_text(value);
    if (before == after) continue;
    throw input_error(
        fmt::format("{} was made with {} = {}, but the job now says {}", where, key, before, after),
        fmt::format("set {} back, or start anew in another run folder", key));
  }
  restore_tensors(snapshot);
  if (manifest.contains("owners")) {
    impl_.state.split(
        Ownership::restored(impl_.state.space, manifest.at("owners").get<std::vector<int>>(),
                            manifest.at("replicas").get<int>(),
                            manifest.at("keepers").get<std::vector<int>>(),
                            manifest.at("cuts").get<std::vector<size_t>>()),
        OptimizerState(impl_.state.optimizer.kinds()));
  }
  impl_.state.step = count(manifest, "updates");
  impl_.state.skipped = count(manifest, "skipped");
  cursor_.epoch = static_cast<uint32_t>(count(manifest, "epoch"));
  cursor_.step_in_epoch = count(manifest, "step_in_epoch");
  cursor_.seconds = manifest.value("epoch_seconds", 0.0);
  cursor_.roll_backs = manifest.value("roll_backs", uint64_t{0});
  restore_free(manifest, where);
  // Without callbacks nothing is left that could have ended it.
  cursor_.ended = manifest.value("ended", false) && !options_.callbacks.empty();
  restore_sums(manifest.at("sums"), where);
  history_ = history_from_json(manifest.at("history"));
  restore_callbacks(snapshot);
  ledger_.restore(from_hex(manifest.at("ledger").get<std::string>()));
  const Json& totals = manifest.at("totals");
  FitSummary& summary = impl_.summary;
  summary.steps = updates_saved_ = count(manifest, "step");
  summary.samples = count(totals, "samples");
  summary.samples_unique = count(totals, "unique");
  summary.samples_duplicated = count(totals, "duplicated");
  summary.samples_missing = count(totals, "missing");
  summary.skipped_steps = count(totals, "skipped");
  summary.roll_backs = totals.value("roll_backs", uint64_t{0});
  summary.staleness = totals.value("staleness", std::vector<uint64_t>());
  summary.dropped_gradients = totals.value("dropped", uint64_t{0});
  summary.meetings = totals.value("meetings", uint64_t{0});
  rebalances_before_ = totals.value("rebalances", uint64_t{0});
}

// Of the epoch under way. Between two epochs there are none, and metrics may be others from then
// on.
void FitLoop::restore_sums(const Json& sums, const std::string& where) {
  const auto samples = static_cast<int64_t>(count(sums, "samples"));
  auto metrics = sums.at("metrics").get<std::vector<double>>();
  const Json names = impl_.metric_names();
  const bool as_before = sums.value("names", names) == names && metrics.size() == names.size();
  if (as_before) {
    cursor_.sums = {samples, sums.at("loss").get<double>(), std::move(metrics)};
  } else if (samples > 0) {
    throw input_error(where + " was made with other metrics, in the middle of an epoch",
                      "set training.metrics back until the epoch is over, or start anew in another "
                      "run folder");
  }
}

void FitLoop::restore_callbacks(const Snapshot& snapshot) {
  std::vector<CallbackPtr> left = options_.callbacks;
  const Json& saved = snapshot.manifest.at("callbacks");
  for (size_t i = 0; i < saved.size(); ++i) {
    if (!saved[i].is_object()) continue;  // of a version that gave them no names
    const std::string name = saved[i].at("name").get<std::string>();
    const auto found = std::find_if(left.begin(), left.end(),
                                    [&](const CallbackPtr& one) { return one->name() == name; });
    if (found == left.end()) continue;
    CallbackState state{.text = saved[i].at("text").get<std::string>(), .values = {}};
    for (const NamedTensor& tensor : snapshot.optimizer) {
      if (tensor.name == callback_name(i)) state.values = tensor.values;
    }
    (*found)->restore(state);
    left.erase(found);
  }
}

void FitLoop::restore_tensors(const Snapshot& snapshot) {
  std::vector<NamedTensor> optimizer;
  for (const NamedTensor& tensor : snapshot.optimizer) {
    if (tensor.name == kOuterName) {
      restore_outer(tensor);
    } else if (!tensor.name.starts_with(kCallbackPrefix)) {
      optimizer.push_back(tensor);
    }
  }
  if (!snapshot.manifest.contains("shared")) {  // else they are here
    impl_.state.load_weights(snapshot.weights);
    if (!snapshot.manifest.contains("owners")) impl_.state.load_optimizer(optimizer);
    impl_.state.load_statistics(snapshot.statistics);
  }
  impl_.weights_changed();
  impl_.executor_for(options_.batch);  // refreshes packed copies
}

// What was not trained on yet, of the epoch under way. Of workers that trained apart it is not what
// follows a step, but this is the nearest that the others can begin with.
void FitLoop::restore_free(const Json& manifest, const std::string& where) {
  const uint64_t step_samples = options_.batch * options_.accumulate;
  cursor_.free = {};
  if (!manifest.contains("free")) {
    const uint64_t used = std::min(cursor_.step_in_epoch * step_samples, train_.size());
    return cursor_.free.add({used, train_.size()});
  }
  uint64_t behind = 0;  // samples that were looked at
  for (const Json& pair : manifest.at("free")) {
    const SampleRange range{pair.at(0).get<uint64_t>(), pair.at(1).get<uint64_t>()};
    if (range.begin < behind || range.end <= range.begin || range.end > train_.size()) {
      throw input_error(fmt::format("{} speaks of samples {} to {}, of {} that there are", where,
                                    range.begin, range.end, train_.size()),
                        "it is damaged: remove it to resume from the one before, or start anew");
    }
    cursor_.free.add(range);
    behind = range.end;
  }
  const uint64_t used = train_.size() - cursor_.free.size();
  cursor_.step_in_epoch = used / step_samples;
  const bool is_prefix = cursor_.free.empty() || cursor_.free.ranges()[0].begin == used;
  if (trains_apart() || (is_prefix && used % step_samples == 0)) return;
  note(fmt::format(
      "the workers had trained apart: epoch {} goes on at step {}, and some of its samples are "
      "trained on twice or not at all",
      cursor_.epoch + 1, cursor_.step_in_epoch));
}

void FitLoop::tell_ledger(const std::string& line) {
  World& world = impl_.world();
  if (options_.ledger.empty()) return;
  if (ledger_lines_.empty()) ledger_lines_epoch_ = cursor_.epoch;
  ledger_lines_.push_back(line);
  world.agree("the ledger", [&] {
    world.pass(FaultPoint::kLedger);
    if (world.is_chief()) write_ledger();
  });
}

void FitLoop::write_ledger() {
  try {
    // A chief that was lost may have told of this epoch, or half of it, or had no room for others.
    // At once: the next one may know of fewer epochs than this.
    if (impl_.world().view() > 1 || ledger_is_behind_) {
      std::string text = ledger_before(options_.ledger, ledger_lines_epoch_);
      for (const std::string& line : ledger_lines_) text += line + '\n';
      write_file_atomically(options_.ledger, text);
    } else {
      append_line(options_.ledger, ledger_lines_.back());
    }
    ledger_is_behind_ = false;
  } catch (const Error& error) {
    if (!ledger_is_behind_)
      note(fmt::format("the ledger was not written, training goes on: {}", error.what()));
    ledger_is_behind_ = true;
  }
}

bool FitLoop::is_save_due(uint64_t steps) const {
  const uint64_t every = options_.checkpoints.every_steps;
  return is_time_to_save(every > 0 && steps % every == 0);
}

bool FitLoop::is_time_to_save(bool by_steps) const {
  if (options_.checkpoints.folder.empty() || !impl_.world().is_chief()) return false;
  const CheckpointPolicy& policy = options_.checkpoints;
  const double waited =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - last_save_).count();
  const bool by_time = policy.every_seconds > 0 && waited >= policy.every_seconds;
  return by_steps || by_time;
}

void FitLoop::gather_optimizer_state() {
  const TrainState& state = impl_.state;
  if (state.splits_optimizer())
    gathered_ = gather_optimizer(impl_.world(), {state.owners(), state.optimizer});
}

void FitLoop::save_if_due() {
  World& world = impl_.world();
  if (!impl_.state.splits_optimizer()) {
    // Where workers train apart, steps are not counted one by one.
    const bool due = trains_apart()
                         ? wishes_.save && world.is_chief() && !options_.checkpoints.folder.empty()
                         : is_save_due(impl_.summary.steps);
    if (due) save_now();
  } else if (!options_.checkpoints.folder.empty() && (wishes_.save || wishes_.change)) {
    // All know of these wishes. Who leaves may take a slice of the state with it.
    world.agree("a checkpoint", [&] {
      gather_optimizer_state();
      if (world.is_chief()) save_now();
    });
    gathered_.reset();
  }
}

void FitLoop::save_now() {
  if (ledger_is_behind_) write_ledger();  // who resumes expects it
  if (!store_) open_store();              // this worker has become the chief
  store_->save(snapshot());
  impl_.world().pass(FaultPoint::kCheckpoint);
  last_save_ = std::chrono::steady_clock::now();
  if (const auto failure = store_->failure())
    note("a checkpoint was not saved, training goes on: " + *failure);
}

}  // namespace starling
