#include "cluster/run_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/request_socket.h"
#include "starling/error.h"

namespace starling {

OrderedJson RunStatus::to_json() const {
  OrderedJson list = OrderedJson::array();
  for (const WorkerStatus& w : workers) {
    list.push_back({{"worker", w.worker},
                    {"process", w.process},
                    {"serves", w.serves},
                    {"state", w.state},
                    {"step", w.step},
                    {"silent_s", w.silent}});
  }
  return {{"state", state},
          {"view", view},
          {"step", step},
          {"steps", steps},
          {"min_workers", min_workers},
          {"seconds", seconds},
          {"workers", std::move(list)}};
}

RunStatus RunStatus::from_json(const Json& json) try {
  RunStatus status{.state = json.at("state").get<std::string>(),
                   .view = json.at("view").get<int64_t>(),
                   .step = json.at("step").get<uint64_t>(),
                   .steps = json.at("steps").get<uint64_t>(),
                   .min_workers = json.at("min_workers").get<int>(),
                   .seconds = json.at("seconds").get<double>()};
  for (const Json& w : json.at("workers")) {
    status.workers.push_back({.worker = w.at("worker").get<int>(),
                              .process = w.at("process").get<int>(),
                              .serves = w.at("serves").get<bool>(),
                              .state = w.at("state").get<std::string>(),
                              .step = w.at("step").get<uint64_t>(),
                              .silent = w.at("silent_s").get<double>()});
  }
  return status;
} catch (const Json::exception& error) {
  throw run_error(fmt::format("the run's answer makes no sense: {}", error.what()),
                  "ask with the version of starling that runs it");
}

const WorkerStatus* RunStatus::find(int worker) const {
  const auto found = std::find_if(workers.begin(), workers.end(),
                                  [&](const WorkerStatus& w) { return w.worker == worker; });
  return found == workers.end() ? nullptr : &*found;
}

int RunStatus::working() const {
  return static_cast<int>(std::count_if(workers.begin(), workers.end(), [](const WorkerStatus& w) {
    return w.state == "working" && !w.serves;
  }));
}

std::string refusal(const std::string& why, const std::string& hint) {
  return to_text(OrderedJson{{"error", why}, {"hint", hint}});
}

Json request(const std::string& folder, const std::string& words) {
  const std::optional<std::string> answer = ask_run(folder, words);
  if (!answer) {
    throw input_error(fmt::format("no run is under way in {}", folder),
                      "give the folder of a run (by default runs/<name>) that has not ended");
  }
  Json json = parse_json(*answer);
  if (!json.is_object()) throw run_error("the run's answer makes no sense", "ask again");
  if (json.contains("error"))
    throw input_error(json["error"].get<std::string>(),
                      json.value("hint", std::string("ask again")));
  return json;
}

}  // namespace starling
