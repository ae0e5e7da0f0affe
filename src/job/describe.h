// describe_job: what a job would train, without training: layers, shapes, parameters, memory, cost.
#pragma once

#include <string>

#include "job/job.h"

namespace starling {

struct DescribeOptions {
  bool kernels = false;  // also the kernels of a step, in the order in which they run
};

// Compiles the job's plans, so that memory is what training will really take. Throws Error.
std::string describe_job(const Job& job, const DescribeOptions& options = {});

// 1536 as "1.5 KiB".
std::string bytes_text(double bytes);

}  // namespace starling
