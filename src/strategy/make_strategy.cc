#include "strategy/make_strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "starling/error.h"
#include "strategy/all_reduce_messages.h"
#include "strategy/all_reduce_shared.h"
#include "strategy/sharded.h"
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
    if (placement.empty()) return place_workers(executor.options().shards, computing(world));
    return {placement.begin(), placement.end()};
  }
};

std::unique_ptr<Strategy> single(const Parts& parts) {
  if (parts.world.workers() > 1) {
    throw input_error(
        fmt::format("strategy \"single\" is for one worker, there are {}", parts.world.workers()),
        "use strategy.name = \"all_reduce\", or --workers 1");
  }
  return std::make_unique<SingleStrategy>(parts.executor, parts.space);
}

std::unique_ptr<Strategy> shared(const char* name, const Parts& parts) {
  return std::make_unique<AllReduceShared>(name, parts.world, parts.executor, parts.space,
                                           parts.ranges(), parts.steps);
}

std::unique_ptr<Strategy> all_reduce(const Parts& parts) {
  if (parts.world.workers() == 1 && !parts.world.survives()) return single(parts);
  if (parts.world.shares_memory()) return shared("all_reduce", parts);
  return std::make_unique<AllReduceMessages>(
      parts.world, parts.executor, parts.space, parts.ranges(),
      AllReduceMessagesOptions{.exact = parts.options.exact,
                               .overlap = parts.options.overlap,
                               .costs = parts.world.link_costs()});
}

std::unique_ptr<Strategy> split(const char* name, const Parts& parts) {
  if (!splits_optimizer(parts.options, parts.world)) return single(parts);
  return std::make_unique<Sharded>(
      parts.world, parts.executor, parts.space, parts.ranges(),
      Sharded::Options{
          .name = name, .replicas = parts.options.replicas, .overlap = parts.options.overlap});
}

std::unique_ptr<Strategy> sharded(const Parts& parts) {
  if (parts.world.shares_memory()) {
    throw input_error(
        "strategy \"sharded\" is for workers that share no memory: with fabric = \"shm\" there is "
        "one optimizer state for all of them",
        "use strategy.fabric = \"tcp\", or strategy.name = \"all_reduce\"");
  }
  return split("sharded", parts);
}

// All gradients of a step go to those who serve, which update their slices when all have come:
// where memory is shared, by reading them there.
std::unique_ptr<Strategy> parameter_server(const Parts& parts) {
  if (parts.world.workers() == 1 && !parts.world.survives()) return single(parts);
  if (parts.world.shares_memory()) return shared("parameter_server", parts);
  return split("parameter_server", parts);
}

struct Entry {
  const char* name;
  std::unique_ptr<Strategy> (*make)(const Parts& parts);
};
constexpr Entry kStrategies[] = {{"single", single},
                                 {"all_reduce", all_reduce},
                                 {"sharded", sharded},
                                 {"parameter_server", parameter_server}};
constexpr const char *kLocalSgd = "local_sgd", *kElastic = "elastic_averaging",
                     *kIncremental = "incremental", *kGossip = "gossip";

}  // namespace

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kStrategies) names.emplace_back(entry.name);
  for (const char* const name : {kLocalSgd, kElastic, kIncremental, kGossip})
    names.emplace_back(name);
  return names;
}

std::vector<bool> computing(const World& world) {
  std::vector<bool> computes;
  for (int rank = 0; rank < world.workers(); ++rank) computes.push_back(world.computes(rank));
  return computes;
}

bool trains_apart(const StrategyOptions& options) {
  return makes_local_steps(options) ||
         (options.name == "parameter_server" && options.consistency != "sync");
}

bool makes_local_steps(const StrategyOptions& options) {
  return agrees_in_rounds(options) || has_centre(options) || has_meetings(options);
}

bool has_centre(const StrategyOptions& options) { return options.name == kElastic; }

bool has_meetings(const StrategyOptions& options) { return options.name == kGossip; }

bool agrees_in_rounds(const StrategyOptions& options) {
  return options.name == kLocalSgd || has_tasks(options);
}

bool has_tasks(const StrategyOptions& options) { return options.name == kIncremental; }

bool has_outer_velocity(const StrategyOptions& options) {
  return agrees_in_rounds(options) && options.outer == "nesterov";
}

size_t leases_apart(const StrategyOptions& options) {
  if (!trains_apart(options)) return 0;
  const bool lends_ahead = !makes_local_steps(options) && options.consistency != "backup";
  return lends_ahead ? 1 + static_cast<size_t>(options.ahead) : 1;
}

bool splits_optimizer(const StrategyOptions& options, const World& world) {
  return (options.name == "sharded" || options.name == "parameter_server") &&
         !world.shares_memory() && (world.survives() || world.workers() > 1);
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
