#include "observe/progress.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace starling {
namespace {

constexpr double kRedrawInterval_s = 0.1;
constexpr int kBarColumnsMin = 10;
constexpr int kBarColumnsMax = 30;
constexpr int kBarColumnsOfFinishedEpoch = 12;

double steady_clock_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Whether the stream takes something without a wait, as far as can be told: a terminal that is
// paused does not.
bool is_ready(std::FILE* out) {
  pollfd polled{.fd = fileno(out), .events = POLLOUT, .revents = 0};
  return polled.fd < 0 || poll(&polled, 1, 0) != 0;
}

// 41230 as "41,230".
std::string grouped(double number) {
  std::string text = fmt::format("{:.0f}", std::clamp(number, 0.0, 1e15));
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string duration(double seconds) {
  const auto total = static_cast<uint64_t>(std::clamp(std::ceil(seconds), 0.0, 3.6e8));
  const uint64_t hours = total / 3600, minutes = total / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60)
                   : fmt::format("{:02}:{:02}", minutes, total % 60);
}

// Four digits that matter, whatever the size.
std::string value_text(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || size == 0 || (size >= 1e-3 && size < 1000)) {
    return fmt::format("{:.4f}", value);
  }
  return fmt::format("{:.3e}", value);
}

// A value of an epoch's record for a person: "train_loss" is the loss, accuracies are percentages.
std::string labelled(const std::string& name, double value) {
  if (name == "samples_per_s") return grouped(value) + " samples/s";
  std::string label = name.starts_with("train_") ? name.substr(6) : name;
  std::replace(label.begin(), label.end(), '_', ' ');
  if (!name.ends_with("accuracy")) return fmt::format("{} {}", label, value_text(value));
  label.resize(label.size() - 5);  // "acc"
  return fmt::format("{} {:.1f}%", label, 100 * value);
}

}  // namespace

int terminal_columns(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

ProgressBar::ProgressBar(std::FILE* out, ProgressOptions options)
    : out_(out), options_(std::move(options)) {
  if (!options_.clock_s) options_.clock_s = steady_clock_s;
  if (!options_.columns) options_.columns = [out] { return terminal_columns(out); };
  if (!options_.write_by) options_.write_by = [](FunctionRef<void()> print) { print(); };
}

ProgressBar::~ProgressBar() {
  if (line_open_) text_ += "\n";
  if (!text_.empty()) write();
}

void ProgressBar::write() {
  options_.write_by([&] {
    std::fwrite(text_.data(), 1, text_.size(), out_);
    std::fflush(out_);
  });
  text_.clear();
}

void ProgressBar::write_if_ready() {
  if (!options_.terminal || is_ready(out_)) write();
}

void ProgressBar::clear() {
  if (line_open_) text_ += "\r\x1b[K";
  line_open_ = false;
}

void ProgressBar::begin_epoch(const Epoch& epoch) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  update_ = {.done = epoch.done};
  begun_s_ = now_s_ = options_.clock_s();
  drawn_s_.reset();
}

void ProgressBar::update(const Update& update) {
  if (!options_.enabled || !options_.terminal) return;
  const std::lock_guard lock(mutex_);
  update_ = update;
  now_s_ = options_.clock_s();
  if (drawn_s_ && now_s_ - *drawn_s_ < kRedrawInterval_s) return;
  drawn_s_ = now_s_;
  if (!is_ready(out_)) return;
  draw();
  write();
}

void ProgressBar::draw() {
  const int columns = options_.columns();
  text_ += "\r" + running_line(columns) + "\x1b[K";
  line_open_ = true;
}

void ProgressBar::end_epoch(const EpochRecord& record) {
  if (!options_.enabled) return;
  const std::lock_guard lock(mutex_);
  clear();
  text_ += epoch_line(record) + "\n";
  write_if_ready();
}

void ProgressBar::print_line(std::string_view line) {
  const std::lock_guard lock(mutex_);
  const bool redraw = line_open_;
  clear();
  text_.append(line) += "\n";
  if (redraw) draw();
  write_if_ready();
}

std::string ProgressBar::bar(int width, double fraction) const {
  const double filled = std::clamp(fraction, 0.0, 1.0) * width;
  const int whole = static_cast<int>(filled);
  const bool half = whole < width && filled - whole >= 0.5;
  std::string done, rest;
  for (int i = 0; i < whole; ++i) done += options_.unicode ? "━" : "=";
  if (half) done += options_.unicode ? "╸" : ">";
  const char* track = options_.color && options_.unicode ? "━" : options_.unicode ? " " : ".";
  for (int i = whole + (half ? 1 : 0); i < width; ++i) rest += track;
  if (!options_.color) return done + rest;
  return "\x1b[36m" + done + "\x1b[0m\x1b[90m" + rest + "\x1b[0m";
}

std::string ProgressBar::running_line(int columns) const {
  const double elapsed_s = now_s_ - begun_s_;
  const uint64_t here = update_.done - std::min(update_.done, epoch_.done);
  const std::string head = fmt::format("epoch {}/{}", epoch_.epoch, epoch_.epochs);
  // What stands right of the bar, with the order in which it gives way to a narrow window.
  struct Piece {
    std::string text;
    int importance;
  };
  std::vector<Piece> pieces = {{fmt::format("{}/{}", update_.done, epoch_.steps), 5}};
  if (elapsed_s > 0 && update_.samples > 0) {
    pieces.push_back({grouped(static_cast<double>(update_.samples) / elapsed_s) + " samples/s", 1});
  }
  pieces.push_back({"loss " + value_text(update_.loss), 4});
  if (update_.accuracy) pieces.push_back({fmt::format("acc {:.1f}%", 100 * *update_.accuracy), 2});
  if (elapsed_s > 0 && here > 0) {  // to the end of the run
    const uint64_t left = epoch_.steps - std::min(epoch_.steps, update_.done) +
                          (epoch_.epochs - std::min(epoch_.epochs, epoch_.epoch)) * epoch_.steps;
    const double eta_s = elapsed_s / static_cast<double>(here) * static_cast<double>(left);
    pieces.push_back({"eta " + duration(eta_s), 3});
  }
  const auto width_of = [&] {
    size_t width = head.size();
    for (const Piece& piece : pieces) width += piece.text.size() + 2;
    return static_cast<int>(width);
  };
  // The last column stays free: some terminals wrap when it is written.
  const int usable = columns - 1;
  const auto less = [](const Piece& a, const Piece& b) { return a.importance < b.importance; };
  while (!pieces.empty() && width_of() + 1 + kBarColumnsMin > usable) {
    if (pieces.size() <= 2 && width_of() <= usable) break;  // rather no bar than no numbers
    pieces.erase(std::min_element(pieces.begin(), pieces.end(), less));
  }
  std::string line = head;
  const int bar_columns = std::min(kBarColumnsMax, usable - width_of() - 1);
  if (bar_columns >= kBarColumnsMin) {
    const double fraction =
        epoch_.steps == 0 ? 0
                          : static_cast<double>(update_.done) / static_cast<double>(epoch_.steps);
    line += " " + bar(bar_columns, fraction);
  }
  for (const Piece& piece : pieces) line += "  " + piece.text;
  if (pieces.empty()) line.resize(std::min(head.size(), static_cast<size_t>(std::max(usable, 0))));
  return line;
}

std::string ProgressBar::epoch_line(const EpochRecord& record) const {
  std::string numbers;
  for (const auto& [name, value] : record.values) {
    if (name != "learning_rate") numbers += "  " + labelled(name, value);
  }
  numbers += fmt::format("  {:.1f} s", record.seconds);
  const std::string head = fmt::format("epoch {}/{}", record.epoch, epoch_.epochs);
  if (!options_.terminal) return head + numbers;
  const int usable = options_.columns() - 1;
  const int bar_columns = std::min(kBarColumnsOfFinishedEpoch,
                                   usable - static_cast<int>(head.size() + numbers.size()) - 1);
  return bar_columns < kBarColumnsMin ? head + numbers : head + " " + bar(bar_columns, 1) + numbers;
}

}  // namespace starling
