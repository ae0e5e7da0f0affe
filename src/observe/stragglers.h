// Stragglers: workers that take longer for their work than most. By what a shard takes, not by how
// long they compute: who has fewer shards because it is slow is slow all the same.
#pragma once

#include <map>
#include <set>
#include <span>
#include <vector>

namespace starling {

// How much longer than most a straggler takes.
inline constexpr double kStragglerFactor = 1.25;

// What most take: the lower median of what is known, which is above 0; 0 if nothing is.
double usual_seconds(std::span<const double> seconds);

// Says of a worker that it is a straggler when it has been one for a while, and only once. A plain
// object; no threads.
class StragglerWatch {
 public:
  // Workers by name, what a shard takes each of them, and the time now. Returns the places in
  // `workers` of those to be named.
  std::vector<size_t> look(std::span<const int> workers, std::span<const double> seconds,
                           double now_s);

 private:
  struct Slow {
    double since_s;
    int looks = 0;
  };
  std::map<int, Slow> slow_;  // at every look since then, by name
  std::set<int> named_;
};

}  // namespace starling
