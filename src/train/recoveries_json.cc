#include "train/recoveries_json.h"

namespace starling {

Json recoveries_to_json(const std::vector<Recovery>& recoveries) {
  Json list = Json::array();
  for (const Recovery& r : recoveries) {
    Json lost = Json::array();
    for (const auto& [worker, detection, resumption] : r.lost)
      lost.push_back({worker, detection ? Json(*detection) : Json(), resumption});
    list.push_back({{"lost", std::move(lost)},
                    {"joined", r.joined},
                    {"retired", r.retired},
                    {"left", r.left},
                    {"news", r.news},
                    {"operation", r.operation},
                    {"redone", r.redone},
                    {"work_lost", r.work_lost},
                    {"seconds", r.seconds}});
  }
  return list;
}

std::vector<Recovery> recoveries_from_json(const Json& json) {
  std::vector<Recovery> recoveries;
  for (const Json& r : json) {
    Recovery& recovery = recoveries.emplace_back();
    for (const Json& lost : r.at("lost")) {
      recovery.lost.push_back({lost.at(0).get<int>(), std::nullopt, lost.at(2).get<double>()});
      if (!lost.at(1).is_null()) recovery.lost.back().detection = lost.at(1).get<double>();
    }
    recovery.joined = r.at("joined").get<std::vector<int>>();
    recovery.retired = r.at("retired").get<std::vector<int>>();
    recovery.left = r.at("left").get<std::vector<int>>();
    recovery.news = r.at("news").get<std::string>();
    recovery.operation = r.at("operation").get<std::string>();
    recovery.redone = r.at("redone").get<bool>();
    recovery.work_lost = r.at("work_lost").get<double>();
    recovery.seconds = r.at("seconds").get<double>();
  }
  return recoveries;
}

}  // namespace starling
