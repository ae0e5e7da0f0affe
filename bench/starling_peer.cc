// Our side of the benchmark: a server of bare training steps (see server.h), or a profile of one.
//   starling_peer --model cnn --batch 64 --lanes 1 --shards 2 --precision f32
//   starling_peer --model cnn --profile 200
#include <fmt/format.h>

#include "base/isa.h"
#include "job.h"
#include "profile.h"
#include "starling/error.h"
#include "starling/trainer.h"

namespace {

void run(const bench::Options& options) {
  const size_t base_bytes = bench::process_bytes("VmRSS");
  bench::Job job({.model = options.text("model", "cnn"),
                  .batch = static_cast<uint64_t>(options.number("batch", 64)),
                  .lanes = static_cast<int>(options.number("lanes", 1)),
                  .shards = static_cast<int>(options.number("shards", 2)),
                  .micro_batch = options.number("micro-batch", 0),
                  .precision = starling::precision_from_name(options.text("precision", "f32")),
                  .rate = options.real("rate", 1e-6)});
  const std::string about = fmt::format(
      R"({{"program": "starling", "version": "{}", "isa": "{}", "flops_per_step": {}, "micro_batch": {}}})",
      starling::version(), starling::isa_name(), job.flops_per_step(),
      job.executor().options().micro_batch);
  if (const long steps = options.number("profile", 0); steps > 0) {
    fmt::print("{}\n{}", about, bench::profile(job, static_cast<int>(steps)));
    return;
  }
  fmt::print("{}\n", about);
  std::fflush(stdout);
  bench::serve(job, base_bytes);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program(argc, argv, run); }
