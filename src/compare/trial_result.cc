#include "compare/trial_result.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/read_file.h"
#include "base/words.h"
#include "starling/error.h"

namespace starling {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;

TrialPoint between(const TrialPoint& a, const TrialPoint& b, double part) {
  const auto mix = [part](double from, double to) { return from + part * (to - from); };
  return {mix(a.seconds, b.seconds), mix(a.samples, b.samples), mix(a.bytes, b.bytes),
          mix(a.accuracy, b.accuracy)};
}

std::optional<double> number(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Requires that the first point is within the limit.
void cut_at(std::vector<TrialPoint>& points, double seconds) {
  const auto beyond = std::find_if(points.begin(), points.end(), [&](const TrialPoint& point) {
    return point.seconds > seconds;
  });
  if (beyond == points.end()) return;
  const TrialPoint& before = *(beyond - 1);
  *beyond =
      between(before, *beyond, (seconds - before.seconds) / (beyond->seconds - before.seconds));
  points.erase(beyond + 1, points.end());
}

double number_of(const Json& object, const char* name) {
  return object.at(name).is_number() ? object.at(name).get<double>() : 0;
}

// Of workers; the servers are numbered after them.
TimeSplit read_times(const Json& report, uint64_t workers) {
  TimeSplit mean;
  double count = 0;
  for (const Json& one : report.at("worker_times")) {
    if (one.at("worker").get<uint64_t>() >= workers) continue;
    mean.input += number_of(one, "input_s");
    mean.compute += number_of(one, "compute_s");
    mean.communication += number_of(one, "communication_s");
    mean.hidden += number_of(one, "hidden_s");
    mean.waiting += number_of(one, "waiting_s");
    ++count;
  }
  for (double* const part :
       {&mean.input, &mean.compute, &mean.communication, &mean.hidden, &mean.waiting})
    *part /= std::max(count, 1.0);
  return mean;
}

bool has_lost(const Json& report) {
  const Json& recoveries = report.at("recoveries");
  return std::any_of(recoveries.begin(), recoveries.end(),
                     [](const Json& one) { return !one.at("lost").empty(); });
}

}  // namespace

// Seconds and bytes of the file are those of each epoch; those of a point are from the beginning.
std::vector<TrialPoint> parse_points(const std::string& history) {
  const std::vector<std::string> lines = split_words(history, '\n');
  const std::vector<std::string> names = split_words(lines.front(), ',');
  const auto place = [&](const char* name) {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const size_t seconds = place("train_seconds"), samples = place("samples"),
               bytes = place("bytes_sent"), accuracy = place("val_accuracy");
  std::vector<TrialPoint> points;
  TrialPoint so_far;
  for (size_t i = 1; i < lines.size() && !lines[i].empty(); ++i) {
    const std::vector<std::string> fields = split_words(lines[i], ',');
    if (std::max({seconds, samples, bytes, accuracy}) >= fields.size()) return {};
    const auto took = number(fields[seconds]), seen = number(fields[samples]),
               sent = number(fields[bytes]), correct = number(fields[accuracy]);
    if (!took || !seen || !sent || !correct) return {};
    so_far = {so_far.seconds + *took, *seen, so_far.bytes + *sent, *correct};
    points.push_back(so_far);
  }
  return points;
}

std::optional<TrialPoint> TrialResult::reaches(double accuracy) const {
  if (over_budget) return std::nullopt;
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].accuracy < accuracy) continue;
    if (i == 0) return points[0];
    const TrialPoint& before = points[i - 1];
    return between(before, points[i],
                   (accuracy - before.accuracy) / (points[i].accuracy - before.accuracy));
  }
  return std::nullopt;
}

TrialOutcome parse_trial(const std::string& report_text, const std::string& history,
                         const TrialLimits& limits) {
  const Json report = parse_json(report_text);
  if (!report.is_object()) return {};
  TrialResult result;
  try {
    if (report.at("stopped_by") == "signal") return {};
    if (has_lost(report)) return {std::nullopt, "a worker was lost, so its times say nothing"};
    result.times = read_times(report, limits.workers);
    result.wall_s = number_of(report, "wall_s");
    if (report.at("test_accuracy").is_number())
      result.test_accuracy = report.at("test_accuracy").get<double>();
    if (report.contains("staleness"))
      result.staleness = report.at("staleness").get<std::vector<uint64_t>>();
    if (report.contains("disagreement")) result.disagreement = number_of(report, "disagreement");
  } catch (const Json::exception&) {
    return {};
  }
  result.points = parse_points(history);
  if (result.points.empty()) return {};
  result.over_budget = limits.seconds > 0 && result.points.front().seconds > limits.seconds;
  if (result.over_budget) {
    result.points.resize(1);  // there is nothing but that to show
  } else if (limits.seconds > 0) {
    cut_at(result.points, limits.seconds);
  }
  return {std::move(result), ""};
}

TrialOutcome read_trial(const std::filesystem::path& folder, const TrialLimits& limits) {
  try {
    return parse_trial(read_text(folder / "report.json", kMaxTextBytes),
                       read_text(folder / "history.csv", kMaxTextBytes), limits);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace starling
