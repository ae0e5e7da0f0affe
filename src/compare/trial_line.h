// TrialLine: the line of a trial on the screen. On a terminal it is drawn over and over while the
// trial runs, at most once a second and within the width of the window; elsewhere (a file, a pipe)
// it is written once, from left to right. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

namespace starling {

// How far a trial is.
struct TrialProgress {
  size_t done = 0;      // epochs
  uint64_t epochs = 0;  // of all of it; 0: as many as fit into a time
  double accuracy = 0;  // after those that are done
  double seconds = 0;   // since it was started
  double expected = 0;  // of all of it; 0: is not known
};

// "epoch 3 of 10, 86.1%, 14 s of about 40 s"; what is not known is left away.
std::string progress_text(const TrialProgress& progress);

class TrialLine {
 public:
  struct Options {
    std::FILE* out = nullptr;           // null: nothing is written
    bool terminal = false;              // it is one
    std::function<int()> columns = {};  // of it; default: it is asked
  };
  explicit TrialLine(Options options);

  // Of the next trial: "[3/42] 2 workers · gossip · seed 1".
  void begin(const std::string& head);
  // Whether it is time to show() something new.
  bool is_due() const;
  // What is so now; the next takes its place. Only on a terminal.
  void show(const std::string& text);
  // What stays before what comes: said once, however often it is called.
  void say_once(const std::string& text);
  void end(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  void write(const std::string& text) const;
  void redraw(const std::string& text) const;

  Options options_;
  std::string head_, said_;
  std::optional<Clock::time_point> shown_;
};

}  // namespace starling
