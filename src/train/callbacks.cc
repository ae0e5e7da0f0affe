#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/lost_worker.h"
#include "starling/error.h"
#include "starling/trainer.h"

namespace starling {
namespace {

// Follows one value of the history and tells when it is the best so far.
class Best {
 public:
  explicit Best(std::string name) : name_(std::move(name)) {
    lower_ = name_.ends_with("loss") || name_.ends_with("error");
    reset();
  }

  void reset() {
    value_ =
        lower_ ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  }

  // Throws Error when the record has no such value.
  bool improves(const EpochRecord& record, double min_delta) {
    const double now = record.value(name_);
    const auto has_name = [&](const auto& value) { return value.first == name_; };
    if (std::none_of(record.values.begin(), record.values.end(), has_name)) {
      std::string known;
      for (const auto& [name, value] : record.values) known += (known.empty() ? "" : ", ") + name;
      throw input_error(
          fmt::format("a callback watches \"{}\", which this run does not have", name_),
          fmt::format("it has: {}; values that begin with val_ need validation data", known));
    }
    // A value that is not a number compares as no better.
    const bool better = lower_ ? now < value_ - min_delta : now > value_ + min_delta;
    if (better) value_ = now;
    return better;
  }

  const std::string& name() const { return name_; }
  double value() const { return value_; }
  void set(double value) { value_ = value; }

 private:
  std::string name_;
  bool lower_;
  double value_;
};

class EarlyStopping final : public Callback {
 public:
  EarlyStopping(std::string value, EarlyStoppingOptions options)
      : best_(std::move(value)), options_(options) {
    if (options.patience < 1) {
      throw input_error(fmt::format("early stopping with patience = {}", options.patience),
                        "use 1 or more epochs");
    }
  }

  void reset() override {
    best_.reset();
    waited_ = 0;
    weights_.clear();
  }

  bool epoch_end(Trainer& trainer, const EpochRecord& record) override {
    if (best_.improves(record, options_.min_delta)) {
      waited_ = 0;
      if (options_.restore_best) weights_ = trainer.snapshot();
      return true;
    }
    return ++waited_ < options_.patience;
  }

  void train_end(Trainer& trainer) override {
    if (options_.restore_best && !weights_.empty()) trainer.restore(weights_);
  }

  std::string name() const override { return "early_stopping " + best_.name(); }
  CallbackState save() const override {
    return {fmt::format("{} {}", waited_, best_.value()), weights_};
  }
  void restore(const CallbackState& state) override {
    const size_t space = state.text.find(' ');
    if (space == std::string::npos) return;
    double value = best_.value();
    std::from_chars(state.text.data(), state.text.data() + space, waited_);
    std::from_chars(state.text.data() + space + 1, state.text.data() + state.text.size(), value);
    best_.set(value);
    weights_ = state.values;
  }

 private:
  Best best_;
  EarlyStoppingOptions options_;
  int waited_ = 0;
  std::vector<float> weights_;
};

class SaveBest final : public Callback {
 public:
  SaveBest(std::filesystem::path path, SaveBestOptions options)
      : path_(std::move(path)), best_(options.value) {
    if (path_.extension() != ".safetensors") path_ += ".safetensors";
  }

  void reset() override { best_.reset(); }

  bool epoch_end(Trainer& trainer, const EpochRecord& record) override {
    const double saved = best_.value();
    if (!best_.improves(record, 0)) return true;
    try {
      trainer.save_together(path_);
    } catch (const LostWorker&) {
      throw;
    } catch (const Error& error) {
      best_.set(saved);
      note_ = fmt::format("the best weights were not saved, training goes on: {}", error.what());
    }
    return true;
  }

  std::string note() override { return std::exchange(note_, {}); }

  std::string name() const override { return "save_best " + best_.name(); }
  CallbackState save() const override { return {fmt::format("{}", best_.value()), {}}; }
  void restore(const CallbackState& state) override {
    double value = best_.value();
    std::from_chars(state.text.data(), state.text.data() + state.text.size(), value);
    best_.set(value);
  }

 private:
  std::filesystem::path path_;
  Best best_;
  std::string note_;
};

class TimeLimit final : public Callback {
 public:
  explicit TimeLimit(double seconds) : limit_(seconds) {
    if (!(seconds > 0))
      throw input_error(fmt::format("a time limit of {} s", seconds), "use more than 0 seconds");
  }

  void reset() override { passed_ = 0; }
  bool epoch_end(Trainer&, const EpochRecord& record) override {
    passed_ += record.train_seconds;
    return passed_ < limit_;
  }

  std::string name() const override { return "time_limit"; }
  CallbackState save() const override { return {fmt::format("{}", passed_), {}}; }
  void restore(const CallbackState& state) override {
    std::from_chars(state.text.data(), state.text.data() + state.text.size(), passed_);
  }

 private:
  double limit_;
  double passed_ = 0;  // seconds
};

class OnEpochEnd final : public Callback {
 public:
  using Function = std::function<bool(Trainer&, const EpochRecord&)>;
  explicit OnEpochEnd(Function function) : function_(std::move(function)) {}
  bool epoch_end(Trainer& trainer, const EpochRecord& record) override {
    return function_(trainer, record);
  }

 private:
  Function function_;
};

}  // namespace

CallbackPtr early_stopping(std::string value, EarlyStoppingOptions options) {
  return std::make_shared<EarlyStopping>(std::move(value), options);
}
CallbackPtr save_best(std::filesystem::path path, SaveBestOptions options) {
  return std::make_shared<SaveBest>(std::move(path), std::move(options));
}
CallbackPtr time_limit(double seconds) { return std::make_shared<TimeLimit>(seconds); }
CallbackPtr on_epoch_end(std::function<bool(Trainer&, const EpochRecord&)> function) {
  return std::make_shared<OnEpochEnd>(std::move(function));
}

}  // namespace starling
