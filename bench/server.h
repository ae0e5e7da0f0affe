// A server of measurements: a program that sets a model up once and then does what it is told on
// standard input, one line of answer each, so that two programs can take turns while both are
// alive. One thread. Plain C++17, because the peers include it too.
//
//   run N     N timed training steps after some that are not timed; answers the seconds
//   loss N    N training steps; answers the loss of the last one
//   memory    answers {"peak_bytes", "base_bytes", "activation_bytes"} as JSON
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

namespace bench {

// A model in training.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual void step() = 0;
  // Of the last step: the mean over its samples.
  virtual double loss() = 0;
  // What a step needs besides weights, their gradients, optimizer state and its samples.
  virtual size_t activation_bytes() = 0;
};

// Options as "--name value".
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0 || i + 1 == argc)
        throw std::runtime_error("not an option with its value: " + name);
      values_[name.substr(2)] = argv[i + 1];
    }
  }
  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  long number(const std::string& name, long otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : std::stol(found->second);
  }
  double real(const std::string& name, double otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : std::stod(found->second);
  }

 private:
  std::map<std::string, std::string> values_;
};

// "VmHWM" (the most that was ever resident) or "VmRSS" (now) of this process, in bytes.
inline size_t process_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoul(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

inline double timed_steps(Subject& subject, long steps) {
  const auto begin = std::chrono::steady_clock::now();
  for (long i = 0; i < steps; ++i) subject.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What a server does with one line, and its answer. `base_bytes` were resident before the model was
// made.
inline std::string answer_to(const std::string& line, Subject& subject, size_t base_bytes) {
  std::istringstream words(line);
  std::string command;
  long steps = 1;
  words >> command >> steps;
  char text[256];
  if (command == "run") {
    // The other program had the caches in the meantime.
    timed_steps(subject, std::max(1L, steps / 10));
    std::snprintf(text, sizeof text, "%.9f", timed_steps(subject, steps));
  } else if (command == "loss") {
    timed_steps(subject, steps);
    std::snprintf(text, sizeof text, "%.9g", subject.loss());
  } else if (command == "memory") {
    std::snprintf(text, sizeof text,
                  "{\"peak_bytes\": %zu, \"base_bytes\": %zu, \"activation_bytes\": %zu}",
                  process_bytes("VmHWM"), base_bytes, subject.activation_bytes());
  } else {
    throw std::runtime_error("unknown command: " + line);
  }
  return text;
}

// Until standard input ends.
inline void serve(Subject& subject, size_t base_bytes) {
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%s\n", answer_to(line, subject, base_bytes).c_str());
    std::fflush(stdout);
  }
}

// What main() of a server does: an exception becomes a line on standard error and exit code 1.
template <typename Run>
int run_program(int argc, char** argv, Run run) {
  try {
    run(Options(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

}  // namespace bench
