#include "job/fault_table.h"

#include <set>

#include "job/faults_file.h"

namespace starling {
namespace {

// Numbers of workers are never given anew, so each is lost once at most.
void add_loss(Report::Fault& row, const std::vector<Recovery>& recoveries,
              std::set<int>& explained) {
  for (const Recovery& recovery : recoveries) {
    for (const auto& [worker, detection, resumption] : recovery.lost) {
      const bool is_of_link = row.peer && worker == row.peer;
      if (row.worker && worker != *row.worker && !is_of_link) continue;
      if (!detection && !row.peer) continue;  // that was not planned
      if (!explained.insert(worker).second) continue;
      row.lost = worker;
      row.detection = detection;
      row.resumption = resumption;
      row.work_lost = recovery.work_lost;
      return;
    }
  }
}

}  // namespace

std::vector<Report::Fault> fault_table(const std::vector<Fault>& plan,
                                       const std::vector<Recovery>& recoveries) {
  std::vector<Report::Fault> rows;
  std::set<int> explained;  // workers whose loss a row has
  for (const Fault& fault : plan) {
    Report::Fault& row = rows.emplace_back();
    row.action = name_of(fault.action);
    if (fault.worker != Fault::kEveryWorker) row.worker = fault.worker;
    if (fault.action == Fault::Action::kLink) row.peer = fault.peer;
    row.at = fault.at;
    const bool costs = !fault.lasts() && fault.action != Fault::Action::kCorrupt;
    if (!fault.at) {
      row.step = fault.step;
      if (costs) row.point = name_of(fault.point);
    }
    if (costs) add_loss(row, recoveries, explained);
  }
  return rows;
}

}  // namespace starling
