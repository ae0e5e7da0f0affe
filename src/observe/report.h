// Report: what a run was and what came of it, as report.json in its folder. The field names are an
// interface: programs read them. A plain value; no threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace starling {

struct Report {
  // What was run.
  std::string strategy = "single";
  int workers = 1;
  int servers = 0;                    // beside them, that compute nothing
  std::string link_rate, link_delay;  // of the network that they were to see; empty: as it was
  struct Link {
    double latency_us, gbit_per_s;
  };
  std::optional<Link> link;            // as it was measured
  std::string consistency = "sync";    // of parameter_server
  std::string partition;               // where workers train apart
  std::vector<uint64_t> staleness;     // gradients by updates that their weights had missed
  uint64_t dropped_gradients = 0;      // that came too late
  bool apart = false;                  // workers train apart
  uint64_t period = 0;                 // where workers make steps by themselves; else 0
  std::string outer, local_state;      // of local_sgd and incremental
  uint64_t post_local_after = 0;       // where there is a period
  uint64_t tasks = 0;                  // of incremental
  std::string match;                   // of gossip
  uint64_t meetings = 0;               // likewise
  double beta = 0;                     // of elastic_averaging
  std::optional<double> disagreement;  // of workers that make steps by themselves
  int lanes = 1;
  int shards = 1;
  int micro_batch = 0;
  bool exact = true;
  std::string precision = "f32";
  std::string isa;
  std::string version;  // of Starling; empty: the version that was compiled
  uint64_t epochs = 0;
  uint64_t batch = 0;
  uint64_t accumulate = 1;
  uint64_t seed = 0;

  // How it went. `wall_s` is all of it; `samples_per_s` is over training time only, without
  // start-up and evaluation.
  uint64_t steps = 0;
  uint64_t samples = 0;
  double wall_s = 0;
  double samples_per_s = 0;
  uint64_t bytes_sent = 0;
  std::vector<uint64_t> optimizer_bytes;  // of optimizer state, by worker
  std::optional<double> train_loss;
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  // Over the weights as little-endian row-major f32, parameters in name order.
  std::optional<std::string> weights_sha256;

  // The sample ledger: over all epochs, samples seen exactly once, more often, never.
  std::optional<uint64_t> samples_unique;
  std::optional<uint64_t> samples_duplicated;
  std::optional<uint64_t> samples_missing;

  // Where each worker's time of training went, in seconds; docs/workers.md says what counts as
  // what.
  struct Times {
    int worker = 0;  // its name
    double input = 0, compute = 0, communication = 0, hidden = 0, waiting = 0;
    int shards = 0;    // at the end; 0 where workers train apart
    double shard = 0;  // what one took, over the run; 0: was not measured
    uint64_t bytes_sent = 0;
  };
  // Workers that were lost, and how the others went on.
  struct Recovery {
    std::vector<int> lost, joined, retired;
    std::string how, operation;
    bool redone = false;  // the step under way was; else completed
    // Seconds: from the loss to the launcher's noticing it, if that was planned; from that to the
    // new view; of work that is redone. The worst of those that were lost together.
    std::optional<double> detection;
    double resumption = 0, work_lost = 0;
  };
  std::vector<Recovery> recoveries;
  // What was planned to go wrong, and what came of it.
  struct Fault {
    std::string action;
    std::optional<int> worker, peer;  // none: all
    std::optional<std::string> point;
    std::optional<uint64_t> step;
    std::optional<double> at;
    // Of faults that cost a worker: who it was, if it came so far, and as in Recovery.
    std::optional<int> lost;
    std::optional<double> detection, resumption, work_lost;
  };
  std::vector<Fault> faults;
  std::vector<Times> times;  // by worker
  std::string balance = "even";
  uint64_t rebalances = 0;  // how often shards or slices were placed otherwise

  uint64_t skipped_steps = 0;  // that the weights have nothing of, because a number was not finite
  uint64_t roll_backs = 0;     // to the last checkpoint, for that

  std::optional<std::string> resumed_from;  // the checkpoint
  // "early_stopping", "time_limit" or "signal"; absent: it ran through.
  std::optional<std::string> stopped_by;
};

// The workers that took a quarter longer for a shard than most.
std::vector<Report::Times> stragglers(const std::vector<Report::Times>& times);

// Absent fields, and numbers that are not finite, are null.
std::string report_to_json(const Report& report);

// Writes the file whole or not at all; throws Error.
void write_report(const Report& report, const std::filesystem::path& path);

}  // namespace starling
