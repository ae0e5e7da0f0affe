#include "cli/cli.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "base/isa.h"
#include "base/lost_worker.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cluster/worker_error.h"
#include "cluster/worker_place.h"
#include "starling/data.h"
#include "starling/error.h"

namespace starling {
namespace {

int run_command(const Arguments& arguments, const Environment& environment) {
  switch (arguments.command) {
    case Command::kTrain:
      return train_command(arguments, environment);
    case Command::kLaunch:
      return launch_command(arguments);
    case Command::kStatus:
      return status_command(arguments);
    case Command::kJoin:
      return join_command(arguments);
    case Command::kLeave:
      return leave_command(arguments);
    case Command::kStop:
      return stop_command(arguments);
    case Command::kReplay:
      return replay_command(arguments, environment);
    case Command::kEval:
      return eval_command(arguments);
    case Command::kPredict:
      return predict_command(arguments);
    case Command::kDescribe:
      return describe_command(arguments);
    case Command::kTune:
      return tune_command(arguments);
    case Command::kCompare:
      return compare_command(arguments);
    case Command::kBenchAllReduce:
      return bench_all_reduce_command(arguments, environment);
    case Command::kDataGet:
      return data_get_command(arguments);
    case Command::kDataInfo:
      return data_info_command(arguments);
    case Command::kShowText:
      break;
  }
  std::fputs(arguments.text.c_str(), stdout);
  return kExitDone;
}

// Whether there was a launcher that now has it.
bool tell_launcher(const ErrorText& failure) {
  try {
    signal(SIGPIPE, SIG_IGN);  // it may be gone
    const auto place =
        WorkerPlace::find([](const char* name) -> const char* { return std::getenv(name); });
    return place && place->errors >= 0 &&
           send_worker_error(place->errors, {place->rank, failure.exit_code, failure.of_another,
                                             failure.message, failure.hint});
  } catch (const Error&) {
    return false;  // the environment is what is wrong
  }
}

ErrorText internal(const std::string& what) {
  return {"internal: " + what, "this is a fault of Starling: please report it with the job file",
          1};
}

}  // namespace

ErrorText error_text(std::exception_ptr exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const LostWorker& error) {
    return {error.what(), error.hint(), error.exit_code(), true};
  } catch (const Error& error) {
    return {error.what(), error.hint(), error.exit_code()};
  } catch (const std::bad_alloc&) {
    return {"there is not enough memory",
            "use a smaller batch, micro_batch or model, or a machine with more memory", 1};
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return internal(error.what());
    return {"the system gives no more threads",
            "use fewer lanes or workers, or lift the limits: `ulimit -u`, `ulimit -v`", 1};
  } catch (const std::exception& error) {
    return internal(error.what());
  } catch (...) {
    return internal("an unknown exception");
  }
}

int starling_main(int argc, char** argv) {
  // Who starts this may ignore the ends of its own children, and a program inherits that: then
  // nobody could learn how one of ours has ended.
  signal(SIGCHLD, SIG_DFL);
  try {
    const Environment environment = read_environment();
    if (!environment.cache.empty()) data::set_cache_dir(environment.cache);
    cap_isa(environment.isa);
    return run_command(parse_arguments(argc, argv), environment);
  } catch (...) {
    const ErrorText failure = error_text(std::current_exception());
    std::fflush(stdout);
    if (tell_launcher(failure)) return failure.exit_code;
    std::fprintf(stderr, "error: %s\nhint: %s\n", failure.message.c_str(), failure.hint.c_str());
    return failure.exit_code;
  }
}

}  // namespace starling
