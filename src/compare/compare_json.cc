#include "compare/compare_json.h"

#include "base/json.h"

namespace starling {
namespace {

OrderedJson estimate_json(const Estimate& one) {
  if (!one.is_there()) return nullptr;
  OrderedJson json;
  json["mean"] = one.mean;
  json["low"] = one.half ? OrderedJson(one.low()) : OrderedJson();
  json["high"] = one.half ? OrderedJson(one.high()) : OrderedJson();
  json["seeds"] = one.count;
  return json;
}

OrderedJson point_json(const TrialPoint& point) {
  OrderedJson json;
  json["seconds"] = point.seconds;
  json["samples"] = point.samples;
  json["bytes"] = point.bytes;
  json["accuracy"] = point.accuracy;
  return json;
}

OrderedJson times_json(const TimeSplit& times) {
  OrderedJson json;
  json["input_s"] = times.input;
  json["compute_s"] = times.compute;
  json["communication_s"] = times.communication;
  json["waiting_s"] = times.waiting;
  json["hidden_s"] = times.hidden;
  return json;
}

OrderedJson seed_json(const SeedSummary& seed) {
  const TrialResult& result = seed.result;
  OrderedJson json;
  json["seed"] = seed.seed;
  json["over_budget"] = result.over_budget;
  json["accuracy"] = result.last().accuracy;
  json["test_accuracy"] = or_null(result.test_accuracy);
  json["goal"] = seed.goal ? point_json(*seed.goal) : OrderedJson();
  json["train_s"] = result.last().seconds;
  json["wall_s"] = result.wall_s;
  json["times"] = times_json(result.times);
  json["staleness"] = result.staleness;
  json["disagreement"] = or_null(result.disagreement);
  json["points"] = OrderedJson::array();
  for (const TrialPoint& point : result.points) json["points"].push_back(point_json(point));
  return json;
}

OrderedJson strategy_json(const StrategySummary& strategy) {
  OrderedJson json;
  json["strategy"] = strategy.label;
  json["folder"] = strategy.folder;
  json["reference"] = strategy.reference;
  json["seeds_reaching_goal"] = strategy.reached;
  json["seeds_over_budget"] = strategy.over_budget;
  json["accuracy"] = estimate_json(strategy.accuracy);
  json["time_to_goal_s"] = estimate_json(strategy.time_to_goal);
  json["samples_to_goal"] = estimate_json(strategy.samples_to_goal);
  json["bytes_to_goal"] = estimate_json(strategy.bytes_to_goal);
  json["samples_per_s"] = estimate_json(strategy.samples_per_s);
  json["bytes_per_sample"] = estimate_json(strategy.bytes_per_sample);
  json["exposed_communication"] = estimate_json(strategy.exposed);
  json["staleness"] = estimate_json(strategy.staleness);
  json["disagreement"] = estimate_json(strategy.disagreement);
  json["times"] = times_json(strategy.times);
  json["failures"] = strategy.failures;
  json["seeds"] = OrderedJson::array();
  for (const SeedSummary& seed : strategy.seeds) json["seeds"].push_back(seed_json(seed));
  return json;
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

OrderedJson recommendation_json(const Recommendation& one) {
  OrderedJson json;
  json["strategy"] = text_or_null(one.strategy);
  json["next"] = text_or_null(one.next);
  json["reaches_goal"] = one.reaches_goal;
  json["sure"] = one.sure;
  json["result"] = one.result;
  json["reason"] = one.reason;
  return json;
}

OrderedJson condition_json(const ConditionSummary& condition) {
  OrderedJson json;
  json["condition"] = condition.condition.label();
  json["workers"] = condition.condition.workers;
  json["slow_worker"] = condition.condition.slow;
  json["link_rate"] = text_or_null(condition.condition.link_rate);
  json["link_delay"] = text_or_null(condition.condition.link_delay);
  json["recommendation"] = recommendation_json(condition.recommendation);
  json["strategies"] = OrderedJson::array();
  for (const StrategySummary& strategy : condition.strategies)
    json["strategies"].push_back(strategy_json(strategy));
  return json;
}

}  // namespace

std::string summary_to_json(const Summary& summary) {
  OrderedJson json;
  json["job"] = summary.job;
  json["job_file"] = summary.target;
  json["budget"] = summary.budget;
  json["seeds"] = summary.seeds;
  json["goal"] = {{"accuracy", summary.goal}, {"reason", summary.goal_reason}};
  json["trials"] = {{"all", summary.trials}, {"done", summary.done}, {"failed", summary.failed}};
  json["recommendation"] = {{"strategy", text_or_null(summary.overall.strategy)},
                            {"sure", summary.overall.sure},
                            {"text", summary.overall.text}};
  json["notes"] = summary.notes;
  json["conditions"] = OrderedJson::array();
  for (const ConditionSummary& condition : summary.conditions)
    json["conditions"].push_back(condition_json(condition));
  json["version"] = STARLING_VERSION;
  return to_text(json, 2) + "\n";
}

}  // namespace starling
