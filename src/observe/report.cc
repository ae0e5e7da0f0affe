#include "observe/report.h"

#include <algorithm>

#include "base/atomic_file.h"
#include "base/json.h"
#include "observe/stragglers.h"

namespace starling {
namespace {

OrderedJson times_to_json(const std::vector<Report::Times>& times) {
  OrderedJson workers = OrderedJson::array();
  for (const Report::Times& worker : times) {
    OrderedJson& split = workers.emplace_back();
    split["worker"] = worker.worker;
    split["input_s"] = worker.input;
    split["compute_s"] = worker.compute;
    split["communication_s"] = worker.communication;
    split["hidden_s"] = worker.hidden;
    split["waiting_s"] = worker.waiting;
    split["shards"] = worker.shards;
    split["shard_s"] = worker.shard;
    split["bytes_sent"] = worker.bytes_sent;
  }
  return workers;
}

OrderedJson stragglers_to_json(const std::vector<Report::Times>& times) {
  OrderedJson names = OrderedJson::array();
  for (const Report::Times& worker : stragglers(times)) names.push_back(worker.worker);
  return names;
}

OrderedJson faults_to_json(const std::vector<Report::Fault>& faults) {
  OrderedJson list = OrderedJson::array();
  for (const Report::Fault& fault : faults) {
    OrderedJson& entry = list.emplace_back();
    entry["action"] = fault.action;
    entry["worker"] = or_null(fault.worker);
    if (fault.peer) entry["peer"] = *fault.peer;
    entry["point"] = or_null(fault.point);
    entry["step"] = or_null(fault.step);
    entry["at"] = or_null(fault.at);
    entry["lost"] = or_null(fault.lost);
    entry["detection_s"] = or_null(fault.detection);
    entry["resumption_s"] = or_null(fault.resumption);
    entry["work_lost_s"] = or_null(fault.work_lost);
  }
  return list;
}

OrderedJson recoveries_to_json(const std::vector<Report::Recovery>& recoveries) {
  OrderedJson list = OrderedJson::array();
  for (const Report::Recovery& recovery : recoveries) {
    OrderedJson& entry = list.emplace_back();
    entry["lost"] = recovery.lost;
    entry["joined"] = recovery.joined;
    entry["retired"] = recovery.retired;
    entry["how"] = recovery.how;
    entry["noticed_in"] = recovery.operation;
    entry["redone"] = recovery.redone;
    entry["detection_s"] = or_null(recovery.detection);
    entry["resumption_s"] = recovery.resumption;
    entry["work_lost_s"] = recovery.work_lost;
  }
  return list;
}

}  // namespace

std::vector<Report::Times> stragglers(const std::vector<Report::Times>& times) {
  std::vector<double> seconds;
  for (const Report::Times& worker : times) seconds.push_back(worker.shard);
  const double limit = kStragglerFactor * usual_seconds(seconds);
  std::vector<Report::Times> slow;
  std::copy_if(times.begin(), times.end(), std::back_inserter(slow),
               [&](const Report::Times& worker) { return worker.shard > limit; });
  return slow;
}

std::string report_to_json(const Report& report) {
  OrderedJson json;
  json["strategy"] = report.strategy;
  json["workers"] = report.workers;
  json["servers"] = report.servers;
  if (!report.link_rate.empty()) json["link_rate"] = report.link_rate;
  if (!report.link_delay.empty()) json["link_delay"] = report.link_delay;
  if (report.link) {
    json["link"]["latency_us"] = report.link->latency_us;
    json["link"]["gbit_per_s"] = report.link->gbit_per_s;
  }
  if (report.consistency != "sync") json["consistency"] = report.consistency;
  if (report.apart) {
    json["partition"] = report.partition;
    json["staleness"] = report.staleness;
    json["dropped_gradients"] = report.dropped_gradients;
  }
  if (report.period > 0) json["period"] = report.period;
  const bool tasks = report.strategy == "incremental";
  if (tasks || report.strategy == "local_sgd") {
    json["outer"] = report.outer;
    json["local_state"] = report.local_state;
  }
  if (report.period > 0) json["post_local_after"] = report.post_local_after;
  if (tasks) json["tasks"] = report.tasks;
  if (report.strategy == "gossip") {
    json["match"] = report.match;
    json["meetings"] = report.meetings;
  }
  if (report.strategy == "elastic_averaging") json["beta"] = report.beta;
  if (report.disagreement) json["disagreement"] = *report.disagreement;
  json["lanes"] = report.lanes;
  json["shards"] = report.shards;
  json["micro_batch"] = report.micro_batch;
  json["exact"] = report.exact;
  json["precision"] = report.precision;
  json["isa"] = report.isa;
  json["epochs"] = report.epochs;
  json["batch"] = report.batch;
  json["accumulate"] = report.accumulate;
  json["seed"] = report.seed;
  json["steps"] = report.steps;
  json["samples"] = report.samples;
  json["wall_s"] = report.wall_s;
  json["samples_per_s"] = report.samples_per_s;
  json["train_loss"] = or_null(report.train_loss);
  json["test_loss"] = or_null(report.test_loss);
  json["test_accuracy"] = or_null(report.test_accuracy);
  json["weights_sha256"] = or_null(report.weights_sha256);
  json["bytes_sent"] = report.bytes_sent;
  json["optimizer_bytes"] = report.optimizer_bytes;
  json["worker_times"] = times_to_json(report.times);
  json["stragglers"] = stragglers_to_json(report.times);
  json["balance"] = report.balance;
  json["rebalances"] = report.rebalances;
  json["recoveries"] = recoveries_to_json(report.recoveries);
  if (!report.faults.empty()) json["faults"] = faults_to_json(report.faults);
  json["samples_unique"] = or_null(report.samples_unique);
  json["samples_duplicated"] = or_null(report.samples_duplicated);
  json["samples_missing"] = or_null(report.samples_missing);
  json["skipped_steps"] = report.skipped_steps;
  json["roll_backs"] = report.roll_backs;
  json["resumed_from"] = or_null(report.resumed_from);
  json["stopped_by"] = or_null(report.stopped_by);
  json["version"] = report.version.empty() ? STARLING_VERSION : report.version;
  return to_text(json, 2) + "\n";
}

void write_report(const Report& report, const std::filesystem::path& path) {
  write_file_atomically(path, report_to_json(report));
}

}  // namespace starling
