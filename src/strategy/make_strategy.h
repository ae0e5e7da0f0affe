// The strategies by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/world.h"
#include "engine/executor.h"
#include "starling/cluster.h"
#include "strategy/strategy.h"

namespace starling {

// All of them, with those that train apart.
std::vector<std::string> strategy_names();

// By rank: who computes shards.
std::vector<bool> computing(const World& world);

// How many leases a worker may have at a time where workers train apart; else 0.
size_t leases_apart(const StrategyOptions& options);

// Whether workers make steps by themselves with weights of their own, and are pulled to a centre.
bool has_centre(const StrategyOptions& options);
// Whether workers have weights of their own that they average in pairs, and nobody serves.
bool has_meetings(const StrategyOptions& options);
// Whether workers that make steps by themselves all agree on one set of weights, in rounds.
bool agrees_in_rounds(const StrategyOptions& options);
// Whether a round is cut into tasks, which count once, whoever does them.
bool has_tasks(const StrategyOptions& options);
// Whether updates by what is handed in have a velocity, one for each weight.
bool has_outer_velocity(const StrategyOptions& options);

// Whether each worker has only a part of the optimizer state.
bool splits_optimizer(const StrategyOptions& options, const World& world);

// `steps` are the sizes that steps will have, `placement` the shards of each worker; none: as many
// for each. All but these and the options outlive the strategy. Throws Error for a name that is not
// known, or that does not fit the world. Not where workers train apart (strategy/apart.h).
std::unique_ptr<Strategy> make_strategy(const StrategyOptions& options, World& world,
                                        Executor& executor, const ParameterSpace& space,
                                        const std::vector<StepSize>& steps,
                                        std::span<const ShardRange> placement = {});

}  // namespace starling
