#include "strategy/make_strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "starling/error.h"
#include "strategy/all_reduce_messages.h"
#include "strategy/all_reduce_shared.h"
#include "strategy/single.h"

namespace starling {
namespace {

struct Parts {
  const StrategyOptions& options;
  World& world;
  Executor& executor;
  const ParameterSpace& space;
  const std::vector<StepSize>& steps;
  std::span<const ShardRange> placement;

  // The shards of each worker.
  std::vector<ShardRange> ranges() const {
    if (placement.empty()) return place_workers(executor.options().shards, world.workers());
    return {placement.begin(), placement.end()};
  }
};

std::unique_ptr<Strategy> single(const Parts& parts) {
  if (parts.world.workers() > 1) {
    throw input_error(
        fmt::format("strategy \"single\" is for one worker, there are {}", parts.world.workers()),
        "use strategy.name = \"all_reduce\", or --workers 1");
  }
  return std::make_unique<SingleStrategy>(parts.executor, parts.space.blocks().size());
}

std::unique_ptr<Strategy> all_reduce(const Parts& parts) {
  if (parts.world.workers() == 1 && !parts.world.survives()) return single(parts);
  if (parts.world.shares_memory()) {
    return std::make_unique<AllReduceShared>(parts.world, parts.executor, parts.space,
                                             parts.ranges(), parts.steps);
  }
  return std::make_unique<AllReduceMessages>(
      parts.world, parts.executor, parts.space, parts.ranges(),
      AllReduceMessagesOptions{.exact = parts.options.exact, .overlap = parts.options.overlap});
}

struct Entry {
  const char* name;
  std::unique_ptr<Strategy> (*make)(const Parts& parts);
};
constexpr Entry kStrategies[] = {{"single", single}, {"all_reduce", all_reduce}};

}  // namespace

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kStrategies) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Strategy> make_strategy(const StrategyOptions& options, World& world,
                                        Executor& executor, const ParameterSpace& space,
                                        const std::vector<StepSize>& steps,
                                        std::span<const ShardRange> placement) {
  const std::string name = !options.name.empty()                       ? options.name
                           : world.workers() == 1 && !world.survives() ? "single"
                                                                       : "all_reduce";
  world.require_shards(executor.options().shards);
  for (const Entry& entry : kStrategies) {
    if (name == entry.name) return entry.make({options, world, executor, space, steps, placement});
  }
  throw input_error(fmt::format("strategy.name = \"{}\" is not known", name),
                    fmt::format("use one of: {}", fmt::join(strategy_names(), ", ")));
}

}  // namespace starling
