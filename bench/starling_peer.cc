// Our side of the benchmark: a server of bare training steps (see server.h), or a profile of one.
//   starling_peer --model cnn --batch 64 --lanes 1 --shards 2 --precision f32
//   starling_peer --model cnn --profile 200
//   starling launch -n 2 -- starling_peer --model cnn      workers: the chief serves for all
//   starling launch -n 2 -- starling_peer --own 1          workers that have nothing in common but
//                                                          that they meet after every step
#include <fmt/format.h>

#include <array>
#include <iostream>
#include <span>
#include <stdexcept>

#include "base/isa.h"
#include "cluster/world.h"
#include "fabric/shm/shm_fabric.h"
#include "job.h"
#include "profile.h"
#include "starling/cluster.h"
#include "starling/error.h"
#include "starling/trainer.h"

namespace {

constexpr size_t kLineBytes = 64;

// A model of this worker's own, whose steps end when those of all others do.
class InStep final : public bench::Subject {
 public:
  InStep(bench::Job& job, starling::World& world) : job_(job), world_(world) {}

  void step() override {
    job_.step();
    if (world_.workers() == 1) return;
    const auto met = world_.shm()->barrier().pass(starling::Instant::max());
    if (!met) throw std::runtime_error(met.failure().message);
  }
  double loss() override { return job_.loss(); }
  size_t activation_bytes() override { return job_.activation_bytes(); }

 private:
  bench::Job& job_;
  starling::World& world_;
};

// Each line that the chief reads is done by all workers; they sleep while there is none.
void serve_with_workers(bench::Subject& subject, size_t base_bytes, starling::World& world) {
  while (true) {
    std::string line;
    std::array<char, kLineBytes> words{};
    if (world.is_chief() && std::getline(std::cin, line)) line.copy(words.data(), words.size() - 1);
    world.broadcast("order", std::as_writable_bytes(std::span(words)));
    if (words[0] == 0) return;
    const std::string answer = bench::answer_to(words.data(), subject, base_bytes);
    if (!world.is_chief()) continue;
    fmt::print("{}\n", answer);
    std::fflush(stdout);
  }
}

void run(const bench::Options& options) {
  const size_t base_bytes = bench::process_bytes("VmRSS");
  const starling::Cluster cluster = starling::Cluster::from_environment(), alone;
  const bool own = options.number("own", 0) != 0;
  const long profiled = options.number("profile", 0);
  if (profiled > 0 && cluster.workers() > 1)
    throw std::runtime_error("--profile is of one process: start it without the launcher");
  bench::Job job({.model = options.text("model", "cnn"),
                  .batch = static_cast<uint64_t>(options.number("batch", 64)),
                  .lanes = static_cast<int>(options.number("lanes", 1)),
                  .shards = static_cast<int>(options.number("shards", 2)),
                  .micro_batch = options.number("micro-batch", 0),
                  .precision = starling::precision_from_name(options.text("precision", "f32")),
                  .rate = options.real("rate", 1e-6)},
                 own ? alone.world() : cluster.world());
  const std::string about =
      fmt::format(R"({{"program": "starling", "version": "{}", "isa": "{}", "flops_per_step": {}, )"
                  R"("micro_batch": {}, "state_bytes": {}}})",
                  starling::version(), starling::isa_name(), job.flops_per_step(),
                  job.executor().options().micro_batch, job.state_bytes());
  if (profiled > 0) {
    fmt::print("{}\n{}", about, bench::profile(job, static_cast<int>(profiled)));
    return;
  }
  if (cluster.is_chief()) fmt::print("{}\n", about);
  std::fflush(stdout);
  InStep in_step(job, cluster.world());
  bench::Subject& subject = own ? static_cast<bench::Subject&>(in_step) : job;
  serve_with_workers(subject, base_bytes, cluster.world());
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program(argc, argv, run); }
