#include <fmt/format.h>
#include <sys/prctl.h>

#include "base/retired_worker.h"
#include "base/say.h"
#include "base/words.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "cluster/enough_shards.h"
#include "cluster/launcher.h"
#include "cluster/world.h"
#include "fabric/paced/link_options.h"
#include "job/faults_file.h"
#include "job/job_build.h"
#include "job/run.h"
#include "starling/error.h"

namespace starling {
namespace {

// Workers whose launcher has died end without it: the step under way and a checkpoint must be done
// in this time.
constexpr std::chrono::seconds kFarewell{10};

// 41230 as "41,230".
std::string grouped(double number) {
  std::string text = fmt::format("{:.0f}", number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

std::string resume_line(const Arguments& arguments, const RunResult& result) {
  std::string line = fmt::format("starling train {} --resume --run-dir {}",
                                 shell_word(arguments.target), shell_word(result.folder.string()));
  if (arguments.record) line += " --record";
  for (const Setting& setting : arguments.settings) {
    line += " --set " + shell_word(fmt::format("{}={}", setting.key, setting.value));
  }
  return line;
}

// Workers and servers.
int processes(const Job& job) { return static_cast<int>(job.workers + job.strategy.servers); }

void check_strategy(const StrategyJob& strategy, uint64_t workers) {
  if (strategy.servers > 0 && strategy.name != "parameter_server" &&
      (!trains_apart(strategy_options(strategy)) || strategy.name == "gossip"))
    throw input_error(fmt::format("strategy \"{}\" has no servers, but strategy.servers = {}",
                                  strategy.name, strategy.servers),
                      "use --strategy parameter_server, or leave --servers away");
  if (strategy.consistency != "sync" && strategy.name != "parameter_server")
    throw input_error(fmt::format("strategy \"{}\" with strategy.consistency = \"{}\"",
                                  strategy.name, strategy.consistency),
                      "use --strategy parameter_server for it, or leave it away");
  if (strategy.consistency == "backup" && strategy.backup >= workers)
    throw input_error(fmt::format("strategy.backup = {} of {} workers: none is left to wait for",
                                  strategy.backup, workers),
                      "use fewer than there are workers");
  if (strategy.min_workers > workers)
    throw input_error(
        fmt::format("strategy.min_workers = {}, but there are {} workers to begin with",
                    strategy.min_workers, workers),
        "raise --workers, or lower strategy.min_workers");
}

// Before processes are started only to be refused.
void check_workers(const Job& job) {
  check_strategy(job.strategy, job.workers);
  if (job.workers > 1 && !trains_apart(strategy_options(job.strategy)))
    require_shards(static_cast<int>(job.workers),
                   shard_count(job, build_model(job, input_shape(job))));
}

// The network that the workers are to see.
LinkOptions link_options(const StrategyJob& strategy) {
  const LinkOptions link = parse_link(strategy.link_rate, strategy.link_delay);
  if (link.paces() && strategy.fabric != "tcp")
    throw input_error(
        fmt::format("strategy.fabric = \"{}\": workers that share memory have no link of a rate "
                    "or delay",
                    strategy.fabric),
        "use --set strategy.fabric=tcp, or leave strategy.link_rate and link_delay away");
  return link;
}

void check_record(const StrategyJob& strategy) {
  if (makes_local_steps(strategy_options(strategy)))
    throw input_error(
        fmt::format("--record with strategy \"{}\": what its workers do is not recorded yet",
                    strategy.name),
        "leave it away");
  if (strategy.name == "parameter_server" && strategy.consistency != "sync") return;
  throw input_error(
      "--record is for workers that train apart: this strategy gives the same bits anyway",
      "leave it away, or use --strategy parameter_server --set strategy.consistency=async, ssp or "
      "backup");
}

FaultSubject subject_of_faults(const Job& job) {
  return {.workers = processes(job),
          .apart = trains_apart(strategy_options(job.strategy)),
          .has_links = job.strategy.fabric == "tcp"};
}

void check_faults(const std::vector<Fault>& faults, const Job& job) {
  for (const Fault& fault : faults) {
    if (fault.action == Fault::Action::kLink && job.strategy.fabric != "tcp")
      throw input_error("a link can't break: the workers share memory",
                        "use --set strategy.fabric=tcp for the fault \"link\"");
  }
}

// Workers read the job themselves: one that joins must find what the others have.
void check_unchanged(const Job& job, const Arguments& arguments) {
  if (job_to_toml(load_job(arguments.target, arguments.settings)) == job_to_toml(job)) return;
  throw input_error(fmt::format("{} has changed since the run began", arguments.target),
                    "put the job back as it was, or start another run with the new one");
}

void print_summary(const RunResult& result) {
  const Report& report = result.report;
  if (report.test_accuracy) {
    say(stdout, "test accuracy  {:.2f}%\n", 100 * *report.test_accuracy);
  }
  if (report.test_loss) say(stdout, "test loss      {:.4f}\n", *report.test_loss);
  if (report.stopped_by) say(stdout, "ended by       {}\n", *report.stopped_by);
  say(stdout, "trained        {} samples, {:.1f} s {}, {} samples/s\n",
      grouped(static_cast<double>(report.samples)), report.wall_s,
      report.resumed_from ? "since it was resumed" : "in all", grouped(report.samples_per_s));
  for (const Report::Times& slow : stragglers(report.times)) {
    say(stdout,
        "slow           worker {} took {:.3g} ms for a shard, over a quarter longer than most{}\n",
        slow.worker, 1e3 * slow.shard,
        report.apart ? ""
                     : fmt::format("; it had {} of {} at the end", slow.shards, report.shards));
  }
  for (const Report::Recovery& recovery : report.recoveries) {
    if (recovery.lost.empty()) continue;
    say(stdout,
        "lost           worker {}: the others went on after {:.1f} ms, {:.1f} ms of work {}\n",
        fmt::join(recovery.lost, ", "), recovery.resumption * 1e3, recovery.work_lost * 1e3,
        recovery.redone ? "redone" : "lost");
  }
  say(stdout, "results        {}: report.json, history.csv, curves.svg, model.safetensors\n",
      result.folder.string());
}

}  // namespace

int train_command(const Arguments& arguments, const Environment& environment) {
  const StopSignalsWait until_handled;
  outlive_listeners();
  const Job job = load_job(arguments.target, arguments.settings);
  const std::vector<Fault> faults = arguments.faults.empty()
                                        ? std::vector<Fault>()
                                        : load_faults(arguments.faults, subject_of_faults(job));
  check_faults(faults, job);
  if (arguments.record) check_record(job.strategy);
  const LinkOptions link = link_options(job.strategy);
  const bool is_worker = environment.is_worker;
  // One worker that others may join has a launcher too.
  const bool is_elastic = job.workers > 1 || job.strategy.name == "all_reduce" ||
                          job.strategy.name == "parameter_server" ||
                          trains_apart(strategy_options(job.strategy));
  if (!is_worker) check_workers(job);
  if (is_elastic && !is_worker) {
    return launch({.command = arguments.command_line,
                   .workers = processes(job),
                   .servers = static_cast<int>(job.strategy.servers),
                   .lanes = static_cast<int>(job.lanes),
                   .fabric = job.strategy.fabric == "tcp" ? FabricKind::kTcp : FabricKind::kShm,
                   .link = link,
                   .apart = trains_apart(strategy_options(job.strategy)),
                   .survive = job.strategy.survive,
                   .respawn = job.strategy.respawn,
                   .min_workers = static_cast<int>(job.strategy.min_workers),
                   .wait_for_workers = milliseconds(job.strategy.wait_for_workers),
                   .heartbeat_limit = milliseconds(job.strategy.heartbeat_limit),
                   .progress_limit = milliseconds(job.strategy.progress_limit),
                   .farewell = kFarewell,
                   .resumes = true,
                   .faults = faults,
                   .check_newcomer = [&] { check_unchanged(job, arguments); }});
  }
  handle_stop_signals(!environment.is_follower);
  RunOptions options;
  options.folder = arguments.run_dir;
  options.resume = arguments.resume;
  options.overwrite = arguments.overwrite;
  options.record = arguments.record;
  options.out = stderr;
  options.progress = progress_on_stderr(environment, !arguments.no_progress);
  options.should_stop = stop_requested;
  options.faults = faults;
  if (is_worker) {
    options.cluster = Cluster::from_environment();
    // In `ps`, and in what the kernel says of one that it has ended.
    prctl(PR_SET_NAME, fmt::format("starling-w{}", options.cluster.rank()).c_str());
  }
  RunResult result;
  try {
    result = run_job(job, options);
  } catch (const RetiredWorker&) {
    return kExitDone;
  }
  if (!options.cluster.is_chief()) return result.stopped ? kExitResumeMe : kExitDone;
  const World::Waiting waiting(options.cluster.world());  // for a terminal that may be paused
  if (result.stopped) {
    say(stderr, "stopped after step {}; a checkpoint is saved. Go on with:\n  {}\n",
        result.report.steps, resume_line(arguments, result));
    return kExitResumeMe;
  }
  print_summary(result);
  return kExitDone;
}

}  // namespace starling
