// ProgressBar: how far a run is, in one line that is drawn over and over.
//   epoch 2/3 ━━━━━━━━━━╸          512/938  41,230 samples/s  loss 0.3121  acc 89.1%  eta 00:12
// On a terminal it is redrawn at most 10 times a second, fits the width of the window, and leaves
// one line for each epoch. Elsewhere (a file, a pipe) only that line per epoch is written. Any
// thread may call; nothing blocks but the stream itself, and a terminal that is paused only at the
// end: meanwhile the bar is not drawn, and lines are kept.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "starling/history.h"

namespace starling {

struct ProgressOptions {
  bool enabled = true;                   // false: only print_line writes
  bool terminal = false;                 // the stream is a terminal
  bool unicode = true;                   // false: plain ASCII
  bool color = false;                    // colours of the terminal
  std::function<double()> clock_s = {};  // default: the steady clock
  std::function<int()> columns = {};     // default: asks the terminal, 80 when it does not know
  // Calls what writes to the stream, for who has to know of it: one that nobody reads holds the
  // writer up for as long as its reader likes. Default: calls it, and no more.
  std::function<void(FunctionRef<void()> write)> write_by = {};
};

// Of the terminal that `out` is; 80 when it does not say.
int terminal_columns(std::FILE* out);

class ProgressBar {
 public:
  struct Epoch {
    uint32_t epoch = 1;   // counted from 1
    uint32_t epochs = 1;  // of the whole run
    uint64_t steps = 0;   // of this epoch
    uint64_t done = 0;    // steps that a run resumed in the middle has behind it
  };
  struct Update {
    uint64_t done = 0;     // steps of this epoch so far
    uint64_t samples = 0;  // trained since begin_epoch
    double loss = 0;
    std::optional<double> accuracy = std::nullopt;  // 0 … 1
  };

  // `out` outlives the object.
  explicit ProgressBar(std::FILE* out, ProgressOptions options = {});
  // Ends an open line with a newline. Waits until all is written.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void begin_epoch(const Epoch& epoch);
  void update(const Update& update);
  // Writes the epoch's own line.
  void end_epoch(const EpochRecord& record);

  // Writes a line of something else (a warning) without tearing the bar.
  void print_line(std::string_view line);

 private:
  void write();
  void write_if_ready();
  void draw();
  void clear();
  std::string bar(int width, double fraction) const;
  std::string running_line(int columns) const;
  std::string epoch_line(const EpochRecord& record) const;

  std::FILE* out_;
  ProgressOptions options_;
  std::mutex mutex_;
  Epoch epoch_;
  Update update_;
  double begun_s_ = 0;
  double now_s_ = 0;
  std::optional<double> drawn_s_;  // when the bar was drawn last in this epoch
  bool line_open_ = false;
  std::string text_;  // that is not yet written
};

}  // namespace starling
