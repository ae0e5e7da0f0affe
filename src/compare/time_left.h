// TimeLeft: how long trials will take, by those that were done. A plain value.
#pragma once

#include <cstddef>
#include <map>

namespace starling {

class TimeLeft {
 public:
  // `least`: what each takes at least, as far as is known before one is over; 0: nothing is.
  explicit TimeLeft(double least = 0) : least_(least) {}

  void add(size_t entry, double seconds) {
    for (Mean* const mean : {&all_, &entries_[entry]}) {
      mean->sum += seconds;
      ++mean->count;
    }
  }

  // Of a trial of this entry: as its others, or as all. The least when none was done yet.
  double expected(size_t entry) const {
    const auto found = entries_.find(entry);
    const Mean& mean = found == entries_.end() ? all_ : found->second;
    return mean.count == 0 ? least_ : mean.sum / mean.count;
  }

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  double least_;
  Mean all_;
  std::map<size_t, Mean> entries_;
};

}  // namespace starling
