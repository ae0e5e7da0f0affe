// Callbacks: what a user wants done while a model trains. They run on the caller's thread, after
// each epoch, in the order in which they were given.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/history.h"

namespace starling {

class Trainer;

struct CallbackState {
  std::string text;
  std::vector<float> values;
};

class Callback {
 public:
  virtual ~Callback() = default;
  // Forgets what an earlier fit() taught it. Every fit() begins with this; one that resumes then
  // calls restore().
  virtual void reset() {}
  virtual void train_begin(Trainer&) {}
  // `record` is the epoch's line in the history. Returns false to end training.
  virtual bool epoch_end(Trainer&, const EpochRecord& record) = 0;
  virtual void train_end(Trainer&) {}
  // What people should know of the epoch, if anything: asked for after epoch_end().
  virtual std::string note() { return {}; }

  // What it is and follows. What a checkpoint remembers of callbacks is given to those of the same
  // name, of several in their order; others begin afresh.
  virtual std::string name() const { return {}; }
  // What it must remember through a checkpoint.
  virtual CallbackState save() const { return {}; }
  virtual void restore(const CallbackState&) {}
};
using CallbackPtr = std::shared_ptr<Callback>;

struct EarlyStoppingOptions {
  int patience = 3;      // epochs without an improvement before training ends
  double min_delta = 0;  // what counts as one
  bool restore_best = true;
};
// Ends training when `value` (a column of the history: "val_loss") no longer improves, and puts
// back the best weights. A name that ends in "loss" or "error" is better when lower, any other
// when higher.
CallbackPtr early_stopping(std::string value, EarlyStoppingOptions options = {});

struct SaveBestOptions {
  std::string value = "val_loss";
};
// Saves the weights as `path`.safetensors whenever the value is better than before in this fit().
// A file that can't be written is told of, and training goes on: the next epoch that is better than
// the one that was saved is tried.
CallbackPtr save_best(std::filesystem::path path, SaveBestOptions options = {});

// Ends training with the epoch in which so many seconds of training have passed; evaluation does
// not count.
CallbackPtr time_limit(double seconds);

// A user's own: returns false to end training.
CallbackPtr on_epoch_end(std::function<bool(Trainer&, const EpochRecord&)> function);

}  // namespace starling
