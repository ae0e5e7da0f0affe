// The conditions under which strategies are compared: how many workers, whether one of them is
// slow, and what their links can do. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/job.h"

namespace starling {

struct Condition {
  uint64_t workers = 2;
  double slow = 1;  // the last worker takes so many times as long; 1: as the others
  std::string link_rate, link_delay;  // of strategy.link_rate and link_delay; empty: no limit

  bool has_links() const { return !link_rate.empty() || !link_delay.empty(); }
  // Nothing but the number of workers: what one process would have as well.
  bool is_plain() const { return slow == 1 && !has_links(); }

  // "4 workers, the last 4x slower, links of 100mbit with 5ms".
  std::string label() const;
  // The same as the name of a folder.
  std::string slug() const;
  // Fields of the job that make it so.
  std::vector<Setting> settings() const;
  // A file of faults (docs/faults.md) that makes it so; empty when none is needed.
  std::string faults() const;

  friend bool operator==(const Condition&, const Condition&) = default;
};

// Lists as they are given: "2,4", "none,4x", "none,100mbit", "none,5ms". Empty: none.
struct ConditionLists {
  std::string workers, slow_worker, link_rate, link_delay;
};

// All combinations. Throws input Error.
std::vector<Condition> make_conditions(const ConditionLists& lists);

}  // namespace starling
