#include "data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "starling/error.h"

namespace starling::data {

Loader::Loader(Dataset dataset, const Options& options)
    : dataset_(std::move(dataset)), options_(options), cheap_(dataset_.cheap()) {
  const uint64_t size = dataset_.size();
  if (options_.batch == 0 || options_.prefetch < 1) {
    throw input_error(fmt::format("a loader cannot have a batch of {} and read {} ahead",
                                  options_.batch, options_.prefetch),
                      "both are at least 1");
  }
  const uint64_t whole = size / options_.batch;
  steps_ = whole + (!options_.drop_last && size % options_.batch != 0 ? 1 : 0);
  if (steps_ == 0) {
    throw input_error(
        fmt::format("a batch of {} is never full with {} samples", options_.batch, size),
        "make the batch smaller, or keep the last one (drop_last = false)");
  }
  next_step_ = oldest_ = filled_ = steps_;

  const size_t rows = static_cast<size_t>(std::min(options_.batch, size));
  slots_.resize(cheap_ ? 1 : static_cast<size_t>(options_.prefetch) + 1);
  for (Slot& slot : slots_) {
    slot.ids.resize(rows);
    if (cheap_) continue;
    slot.features = Buffer<float>(rows * static_cast<size_t>(dataset_.feature_shape().elements()));
    slot.labels = Buffer<float>(rows * static_cast<size_t>(dataset_.label_shape().elements()));
  }
  if (!cheap_) thread_ = std::thread([this] { read_ahead(); });
}

Loader::~Loader() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::start_epoch(uint32_t epoch, uint64_t first_step) {
  if (first_step > steps_) {
    throw input_error(fmt::format("step {} is beyond an epoch of {} steps", first_step, steps_),
                      "the run was saved with other data or another batch size");
  }
  next_step_ = first_step;
  {
    const std::lock_guard lock(mutex_);
    order_.reset();
    if (options_.shuffle) order_.emplace(dataset_.size(), options_.seed, epoch);
    ++run_;
    oldest_ = filled_ = first_step;
    failed_ = false;
  }
  changed_.notify_all();
}

const Batch& Loader::next() {
  if (next_step_ >= steps_) {
    throw run_error(fmt::format("a batch was asked for after the {} of the epoch", steps_),
                    "call start_epoch first");
  }
  const uint64_t step = next_step_;
  if (cheap_) {
    ++next_step_;
    current_ = {step, fill_ids(step, order_, slots_[0].ids), nullptr, nullptr};
    return current_;
  }
  {
    std::unique_lock lock(mutex_);
    oldest_ = step;  // the batch before this one is no longer in use
    changed_.notify_all();
    changed_.wait(lock, [&] { return filled_ > step; });
  }
  Slot& ready = slot(step);
  if (ready.error) {
    // There is nothing after it: another call without start_epoch is an error of its own.
    next_step_ = steps_;
    std::rethrow_exception(std::exchange(ready.error, nullptr));
  }
  ++next_step_;
  const size_t rows =
      static_cast<size_t>(std::min(options_.batch, dataset_.size() - step * options_.batch));
  current_ = {step, {ready.ids.data(), rows}, ready.features.data(), ready.labels.data()};
  return current_;
}

// The body of the thread: fills free slots in the order of their steps.
void Loader::read_ahead() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      return stop_ || (!failed_ && filled_ < steps_ && filled_ - oldest_ < slots_.size());
    });
    if (stop_) return;
    const uint64_t run = run_, step = filled_;
    const std::optional<Permutation> order = order_;
    lock.unlock();

    Slot& target = slot(step);
    target.error = nullptr;
    try {
      read(fill_ids(step, order, target.ids), target);
    } catch (...) {
      target.error = std::current_exception();
    }

    lock.lock();
    if (run != run_) continue;
    failed_ = target.error != nullptr;
    ++filled_;
    changed_.notify_all();
  }
}

void Loader::read(std::span<const uint64_t> ids, Slot& target) const {
  const RowRange rows = options_.needed ? options_.needed(ids.size()) : RowRange{0, ids.size()};
  if (rows.begin == rows.end) return;
  const auto floats = [&](const Shape& shape) {
    return static_cast<size_t>(rows.begin) * static_cast<size_t>(shape.elements());
  };
  dataset_.read(ids.subspan(rows.begin, rows.end - rows.begin),
                target.features.data() + floats(dataset_.feature_shape()),
                target.labels.data() + floats(dataset_.label_shape()));
}

std::span<const uint64_t> Loader::fill_ids(uint64_t step, const std::optional<Permutation>& order,
                                           std::vector<uint64_t>& ids) const {
  const uint64_t first = step * options_.batch;
  const size_t rows = static_cast<size_t>(std::min(options_.batch, dataset_.size() - first));
  const std::span<uint64_t> result(ids.data(), rows);
  if (order) {
    for (size_t i = 0; i < rows; ++i) result[i] = (*order)(first + i);
  } else {
    std::iota(result.begin(), result.end(), first);
  }
  return result;
}

}  // namespace starling::data
