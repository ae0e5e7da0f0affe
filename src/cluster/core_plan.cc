#include "cluster/core_plan.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace starling {
namespace {

// The lowest number of the hardware threads of its core; its own if the system doesn't tell.
int core_of(int cpu) {
  std::ifstream list(
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  int first = cpu;
  return list >> first ? first : cpu;
}

}  // namespace

std::vector<Cpu> available_cpus() {
  cpu_set_t set;
  std::vector<Cpu> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back({cpu, core_of(cpu)});
  }
  return cpus;
}

std::vector<int> place_worker(const std::vector<Cpu>& cpus, int workers, int lanes, int rank) {
  const int all = static_cast<int>(cpus.size());
  const int each = lanes > 0 ? lanes : std::max(1, all / workers);
  if (each > all / workers) return {};
  std::vector<Cpu> order = cpus;
  std::stable_sort(order.begin(), order.end(),
                   [](const Cpu& a, const Cpu& b) { return a.core < b.core; });
  std::set<int> cores;
  std::vector<Cpu> one_of_each;
  for (const Cpu& cpu : order) {
    if (cores.insert(cpu.core).second) one_of_each.push_back(cpu);
  }
  if (static_cast<int>(cores.size()) / workers >= each) order = one_of_each;
  std::vector<int> own;
  for (int lane = 0; lane < each; ++lane)
    own.push_back(order[static_cast<size_t>(rank * each + lane)].number);
  return own;
}

}  // namespace starling
