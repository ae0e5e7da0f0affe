// History: what a run measured, one record per epoch. It is what fit() returns, what history.csv
// holds and what the curves are drawn from. A plain value; no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace starling {

struct EpochRecord {
  uint32_t epoch = 0;  // counted from 1
  uint64_t step = 0;   // steps until its end, of all calls of fit(), skipped ones among them
  double seconds = 0;  // of the epoch: training and validation
  // In the order in which they are to be shown: train_loss, val_loss, val_accuracy (0 … 1),
  // learning_rate, samples_per_s, …
  std::vector<std::pair<std::string, double>> values;

  uint64_t samples = 0;      // trained on until its end, through resumes
  double train_seconds = 0;  // of the epoch: training alone, by the worker that took longest
  uint64_t bytes_sent = 0;   // in the epoch, by all workers: docs/workers.md

  // The value of that name; NaN when there is none.
  double value(std::string_view name) const;

  friend bool operator==(const EpochRecord&, const EpochRecord&) = default;
};

class History {
 public:
  void append(EpochRecord record) { epochs_.push_back(std::move(record)); }

  const std::vector<EpochRecord>& epochs() const { return epochs_; }
  bool empty() const { return epochs_.empty(); }
  size_t size() const { return epochs_.size(); }

  // The names of all values, in the order of their first appearance.
  std::vector<std::string> names() const;
  // One number per epoch, NaN where an epoch lacks it; "epoch", "step", "seconds", "samples",
  // "train_seconds" and "bytes_sent" are columns too.
  std::vector<double> column(std::string_view name) const;

  // One line per epoch below a line of names; a missing value is an empty field. Numbers are
  // written so that they are read back exactly.
  std::string to_csv() const;
  // Writes the file whole or not at all; throws Error.
  void write_csv(const std::filesystem::path& path) const;

  friend bool operator==(const History&, const History&) = default;

 private:
  std::vector<EpochRecord> epochs_;
};

}  // namespace starling
