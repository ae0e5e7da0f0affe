// The commands: each does what its arguments ask for, writes results to standard output, and
// returns the exit code. All throw Error.
#pragma once

#include "cli/arguments.h"
#include "cli/environment.h"

namespace starling {

int train_command(const Arguments& arguments, const Environment& environment);
int launch_command(const Arguments& arguments);
int status_command(const Arguments& arguments);
int join_command(const Arguments& arguments);
int leave_command(const Arguments& arguments);
int stop_command(const Arguments& arguments);
int replay_command(const Arguments& arguments, const Environment& environment);
int eval_command(const Arguments& arguments);
int predict_command(const Arguments& arguments);
int describe_command(const Arguments& arguments);
int tune_command(const Arguments& arguments);
int compare_command(const Arguments& arguments);
int bench_all_reduce_command(const Arguments& arguments, const Environment& environment);
int data_get_command(const Arguments& arguments);
int data_info_command(const Arguments& arguments);

}  // namespace starling
