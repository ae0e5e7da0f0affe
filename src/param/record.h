// A record: what workers that train apart did, as text, so that it can be done again. It is a
// function of the conductor's log, and holds no numbers of gradients: who was lent which samples,
// which version of the weights that was, and in which order gradients were applied or dropped.
//
//   starling-record 1
//   stretch 0 12 4           in epoch 0, after 12 updates, of a run of 4 epochs
//   shards 2                 into how many a lease is cut, for the lanes
//   numbers 0.1.0 avx2       who computed: version and instruction set
//   optimizer momentum learning_rate=0.1 …
//   update 16 4 0            samples of a usual update, workers whose momentum counts, damping
//   workers 0 1 2            who is lent samples
//   lend 0 96 104            worker 0: the samples at places 96 … 103 of the epoch's order
//   apply 0:96-104@12 …      an update of worker 0's gradient of them, computed with version 12;
//                            ! behind it: not finite, so it changes nothing
//   drop 1                   worker 1's gradient is forgotten
//   averaged 0 2             whose running statistics are averaged at the end
//   end 13 3f0c…             after 13 updates; SHA-256 of the stretch up to here
//
// Pure. What is read is checked: a stretch that makes no sense is an input Error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "param/conductor.h"
#include "starling/optimizer.h"

namespace starling {

struct RecordedStretch {
  uint32_t epoch = 0;
  uint64_t version = 0;  // updates before it
  uint32_t epochs = 0;   // of the run, as it was to be then: for schedules
  int shards = 1;        // of a lease
  std::string numbers;   // what bits depend on beside the job
  Optimizer optimizer;   // as it was then: a run may go on with another learning rate
  double usual = 1;      // of UpdateRules; and the next two
  size_t apart = 1;
  double damping = 0;
  std::vector<int> workers;
  std::vector<Order> log;  // without kOver, and without sums of pushes
  std::vector<int> averaged;

  uint64_t end_version() const;
};

// The first line of a record.
std::string record_header();
std::string to_text(const RecordedStretch& stretch);

// Reads a record piece by piece. `name` is for errors.
class RecordReader {
 public:
  RecordReader(std::string_view text, std::string name);

  bool is_over() const { return at_ == text_.size(); }
  RecordedStretch next();
  size_t position() const { return at_; }  // bytes read

 private:
  std::string_view line();
  // The words of a line that begins with this one.
  std::vector<std::string_view> line_of(const char* first);
  RecordedStretch read();
  void read_order(std::string_view line, RecordedStretch& stretch);
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view text_;
  std::string name_;
  size_t at_ = 0;
  uint64_t line_ = 0;
};

}  // namespace starling
