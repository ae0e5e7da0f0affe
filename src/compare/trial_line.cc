#include "compare/trial_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/texts.h"
#include "observe/progress.h"

namespace starling {
namespace {

constexpr std::chrono::seconds kShowEvery{1};

}  // namespace

std::string progress_text(const TrialProgress& progress) {
  std::string text;
  if (progress.done > 0) {
    text = fmt::format("epoch {}", progress.done);
    if (progress.epochs > 0) text += fmt::format(" of {}", progress.epochs);
    text += fmt::format(", {}, ", percent_text(progress.accuracy));
  }
  text += whole_seconds_text(progress.seconds);
  // One that takes longer than it should is not said to be almost done.
  if (progress.expected > progress.seconds)
    text += fmt::format(" of {}", about_time_text(progress.expected));
  return text;
}

TrialLine::TrialLine(Options options) : options_(std::move(options)) {
  if (!options_.columns) options_.columns = [out = options_.out] { return terminal_columns(out); };
}

void TrialLine::write(const std::string& text) const {
  if (options_.out == nullptr) return;
  std::fputs(text.c_str(), options_.out);
  std::fflush(options_.out);
}

// A line that is wider than the window could not be drawn over; the last column stays free, as some
// terminals wrap when it is written.
void TrialLine::redraw(const std::string& text) const {
  const auto room = static_cast<size_t>(std::max(0, options_.columns() - 1));
  write("\r" + cut_text(text, room) + "\x1b[K");
}

void TrialLine::begin(const std::string& head) {
  head_ = head + " … ";
  said_.clear();
  shown_.reset();
  if (options_.out == nullptr) return;
  options_.terminal ? redraw(head_) : write(head_);
}

bool TrialLine::is_due() const {
  return options_.out != nullptr && options_.terminal && said_.empty() &&
         (!shown_ || Clock::now() - *shown_ >= kShowEvery);
}

void TrialLine::show(const std::string& text) {
  if (!is_due()) return;
  shown_ = Clock::now();
  redraw(head_ + text);
}

void TrialLine::say_once(const std::string& text) {
  if (options_.out == nullptr || !said_.empty()) return;
  said_ = text;
  options_.terminal ? redraw(head_ + said_) : write(said_);
}

void TrialLine::end(const std::string& text) {
  if (options_.out == nullptr) return;
  write(options_.terminal ? "\r" + head_ + said_ + text + "\x1b[K\n" : text + "\n");
}

}  // namespace starling
