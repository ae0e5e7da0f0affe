#include "compare/misfit.h"

#include <fmt/format.h>

#include "fabric/paced/link_options.h"
#include "job/job_build.h"

namespace starling {

bool has_servers(const StrategyJob& strategy) {
  if (strategy.name == "gossip") return false;
  return strategy.name == "parameter_server" || trains_apart(strategy_options(strategy));
}

std::string misfit(const Job& job, const JobSize& size) {
  const StrategyJob& strategy = job.strategy;
  const TrainingJob& training = job.training;
  const bool apart = trains_apart(strategy_options(strategy));
  if (job.workers > size.shards && !apart)
    return fmt::format("a batch has {} shards, so some workers would have none (--set shards={})",
                       size.shards, job.workers);
  if (strategy.min_workers > job.workers)
    return fmt::format("strategy.min_workers = {} is more than there are", strategy.min_workers);
  if (strategy.name == "sharded" && strategy.fabric != "tcp")
    return "workers have to talk over tcp (--set strategy.fabric=tcp)";
  if (strategy.consistency != "sync" && strategy.name != "parameter_server")
    return fmt::format("strategy.consistency = \"{}\" is for parameter_server",
                       strategy.consistency);
  if (strategy.fabric != "tcp" && parse_link(strategy.link_rate, strategy.link_delay).paces())
    return "only workers that talk over tcp have links (--set strategy.fabric=tcp)";
  if (strategy.consistency == "backup" && strategy.backup >= job.workers)
    return fmt::format("strategy.backup = {} leaves no worker to wait for", strategy.backup);
  if (!apart) return "";
  if (!strategy.survive) return "workers that train apart need strategy.survive = true";
  if (training.accumulate > 1)
    return "workers that train apart can't accumulate (--set training.accumulate=1)";
  if (strategy.name == "incremental" && strategy.partition != "dynamic")
    return "who is ready takes the next task (--set strategy.partition=dynamic)";
  if (strategy.name == "incremental" && strategy.tasks > strategy.period * training.batch)
    return fmt::format("a round has no more than {} samples, and is to have {} tasks",
                       strategy.period * training.batch, strategy.tasks);
  const uint64_t steps = training.epochs * ((size.samples + training.batch - 1) /
                                            std::max<uint64_t>(1, training.batch));
  if (strategy.name == "elastic_averaging" && 2 * strategy.period > steps)
    return fmt::format("strategy.period = {} is too long for {} steps", strategy.period, steps);
  return "";
}

}  // namespace starling
