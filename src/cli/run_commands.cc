// For a run that is under way: what people ask of its launcher (cluster/request_socket.h).
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "base/read_file.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cluster/request_socket.h"
#include "cluster/run_status.h"
#include "job/run_folder.h"
#include "starling/error.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// A worker begins when the others have ended their step, which may be a long one.
constexpr std::chrono::minutes kChangeWait{10};
constexpr std::chrono::milliseconds kLookEvery{50};
constexpr size_t kReportBytesMost = size_t{64} << 20;

// Nothing: the run has ended.
std::optional<RunStatus> look(const std::string& folder) {
  const std::optional<std::string> answer = ask_run(folder, "status");
  if (!answer) return std::nullopt;
  return RunStatus::from_json(parse_json(*answer));
}

// Looks until the worker is in one of those states, or the run has ended.
std::string await_state(const std::string& folder, int worker,
                        std::initializer_list<const char*> states) {
  const Clock::time_point deadline = Clock::now() + kChangeWait;
  while (Clock::now() < deadline) {
    const std::optional<RunStatus> status = look(folder);
    if (!status) return "ended";
    const WorkerStatus* const found = status->find(worker);
    for (const char* state : states) {
      if (found != nullptr && found->state == state) return state;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  throw run_error(
      fmt::format("worker {} has not got there within {} minutes", worker, kChangeWait.count()),
      "`starling status` shows what the run does");
}

std::string workers_now(const std::string& folder) {
  const std::optional<RunStatus> status = look(folder);
  if (!status) return "the run has ended";
  const int count = status->working();
  return fmt::format("the run has {} worker{} now", count, count == 1 ? "" : "s");
}

// Of a run that has ended: what its report says.
bool show_ended(const std::filesystem::path& folder) {
  std::error_code none;
  const std::filesystem::path path = RunFolder(folder).report();
  if (!std::filesystem::exists(path, none)) return false;
  const Json report = parse_json(read_text(path, kReportBytesMost));
  if (!report.is_object()) return false;
  const std::string by = report.contains("stopped_by") && report["stopped_by"].is_string()
                             ? ", by " + report["stopped_by"].get<std::string>()
                             : "";
  fmt::print("state     ended{}\nstep      {}\nreport    {}\n", by,
             report.value("steps", uint64_t{0}), path.string());
  return true;
}

}  // namespace

int status_command(const Arguments& arguments) {
  if (!arguments.as_json && !look(arguments.target) && show_ended(arguments.target))
    return kExitDone;
  const RunStatus status = RunStatus::from_json(request(arguments.target, "status"));
  if (arguments.as_json) {
    fmt::print("{}\n", to_text(status.to_json(), 2));
    return kExitDone;
  }
  fmt::print("state     {}, for {:.0f} s\n",
             status.state == "waiting"
                 ? fmt::format("waiting for workers, of at least {}", status.min_workers)
                 : status.state,
             status.seconds);
  if (status.steps > 0)
    fmt::print("step      {} of {} ({:.0f}%)\n", status.step, status.steps,
               100.0 * static_cast<double>(status.step) / static_cast<double>(status.steps));
  fmt::print("workers   {} (view {})\n", status.working(), status.view);
  for (const WorkerStatus& worker : status.workers) {
    fmt::print("  {:<4}    {:<8}", worker.worker, worker.state);
    const bool lives = worker.state != "lost" && worker.state != "left" && worker.state != "ended";
    if (lives) {
      fmt::print("  process {:<7}  step {:<7}  heard {:.0f} ms ago{}", worker.process, worker.step,
                 worker.silent * 1e3, worker.serves ? "  server" : "");
    }
    fmt::print("\n");
  }
  return kExitDone;
}

int join_command(const Arguments& arguments) {
  const int worker = request(arguments.target, "join").value("worker", -1);
  const std::string state =
      await_state(arguments.target, worker, {"working", "lost", "left", "ended"});
  if (state != "working") {
    throw run_error(
        state == "ended"
            ? fmt::format("the run ended before worker {} was seen to take part", worker)
            : fmt::format("worker {} does not take part: it was {}", worker, state),
        "see what the run printed");
  }
  fmt::print("worker {} takes part: {}\n", worker, workers_now(arguments.target));
  return kExitDone;
}

int leave_command(const Arguments& arguments) {
  static_cast<void>(request(arguments.target, fmt::format("leave {}", arguments.worker)));
  const std::string state =
      await_state(arguments.target, arguments.worker, {"left", "lost", "ended"});
  fmt::print("worker {} {}: {}\n", arguments.worker, state == "lost" ? "was lost" : "has left",
             workers_now(arguments.target));
  return kExitDone;
}

int stop_command(const Arguments& arguments) {
  static_cast<void>(request(arguments.target, "stop"));
  fmt::print("the run saves and ends\n");
  std::fflush(stdout);
  const Clock::time_point deadline = Clock::now() + kChangeWait;
  while (look(arguments.target)) {
    if (Clock::now() > deadline)
      throw run_error("the run has not ended yet", "`starling status` shows what it does");
    std::this_thread::sleep_for(kLookEvery);
  }
  fmt::print("it has ended; --resume goes on with it\n");
  return kExitDone;
}

}  // namespace starling
