// A program for tests: a worker that takes part in one collective operation, in the middle of which
// worker 1 kills itself. The others say how the operation ended for them.
//
//   starling launch -n 4 -- dying_worker OPERATION CALL
//
// Worker 1 dies at its CALL-th call of the fabric since the operation began. Each operation gives
// it a part that no other worker can do without. The exit code is 1 for a failure, which is told as
// `error: …`, and 7 for an operation that was done.
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>

#include "cluster/world.h"
#include "collective/all_reduce_shared.h"
#include "collective/collectives.h"
#include "starling/error.h"

namespace starling {
namespace {

constexpr int kVictim = 1;
constexpr size_t kLength = 3 << 20;  // floats: more than the buffers between two processes hold

// Another fabric, up to a number of calls.
class DyingFabric final : public Fabric {
 public:
  DyingFabric(Fabric& fabric, int calls) : fabric_(fabric), calls_left_(calls) {}

  int rank() const override { return fabric_.rank(); }
  int world() const override { return fabric_.world(); }
  Instant now() const override { return fabric_.now(); }
  Ticket start_send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    count();
    return fabric_.start_send(peer, tag, bytes);
  }
  Ticket start_receive(int peer, Tag tag, std::span<std::byte> bytes) override {
    count();
    return fabric_.start_receive(peer, tag, bytes);
  }
  Ticket start_receive_up_to(int peer, Tag tag, std::span<std::byte> bytes) override {
    return fabric_.start_receive_up_to(peer, tag, bytes);
  }
  Transfer poll(Ticket ticket) override { return fabric_.poll(ticket); }
  void cancel(Ticket ticket) override { fabric_.cancel(ticket); }
  bool progress(Instant deadline) override {
    count();
    return fabric_.progress(deadline);
  }
  void wake() override { fabric_.wake(); }
  bool gone(int peer) const override { return fabric_.gone(peer); }
  std::string why_gone(int peer) const override { return fabric_.why_gone(peer); }
  void mark_gone(int peer) override { fabric_.mark_gone(peer); }
  uint64_t view() const override { return fabric_.view(); }
  void enter_view(uint64_t view) override { fabric_.enter_view(view); }
  void close() override { fabric_.close(); }
  Counters counters(int peer) const override { return fabric_.counters(peer); }

 private:
  void count() {
    if (--calls_left_ == 0) raise(SIGKILL);
  }

  Fabric& fabric_;
  int calls_left_;
};

std::shared_ptr<const Placement> one_shard_each(int workers) {
  const auto count = static_cast<size_t>(workers);
  return std::make_shared<Placement>(Placement::even(count, count));
}

Status by_messages(Fabric& fabric, const std::string& name) {
  Collectives all(fabric, one_shard_each(fabric.world()), {.exact = false, .channel = 3});
  std::vector<float> own(kLength, 1.0f), out(kLength);
  const std::vector<const float*> partials = {own.data()};
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(out));
  const auto algorithm = [&](AllReduceAlgorithm chosen) {
    return all.wait(all.all_reduce(partials, out, chosen));
  };
  if (name == "all_reduce_direct") return algorithm(AllReduceAlgorithm::kDirect);
  if (name == "all_reduce_halving_doubling") return algorithm(AllReduceAlgorithm::kHalvingDoubling);
  if (name == "all_reduce_ring") return algorithm(AllReduceAlgorithm::kRing);
  if (name == "reduce_scatter") {
    const std::span<float> slice = std::span(out).first(all.slice_of(kLength, all.rank()).size());
    return all.wait(all.reduce_scatter(partials, kLength, slice));
  }
  if (name == "barrier") return all.wait(all.barrier());
  if (name == "broadcast") return all.wait(all.broadcast(kVictim, bytes));
  if (name == "all_gather") {  // all of it is the victim's
    std::vector<size_t> cuts(static_cast<size_t>(all.world()) + 1, bytes.size());
    cuts[0] = cuts[1] = 0;
    return all.wait(all.all_gather(bytes, std::move(cuts)));
  }
  if (name == "gather") {  // to the victim, which sends nothing
    std::vector<size_t> cuts = {0};
    for (int rank = 0; rank < all.world(); ++rank)
      cuts.push_back(cuts.back() + (rank == kVictim ? 0 : bytes.size()));
    std::vector<std::byte> gathered(all.rank() == kVictim ? cuts.back() : 0);
    return all.wait(
        all.gather(kVictim, bytes.first(all.rank() == kVictim ? 0 : bytes.size()), gathered, cuts));
  }
  throw input_error(fmt::format("there is no operation {}", name), "see the program");
}

// Call 1: before it takes part; later: when it has begun.
Status in_shared_memory(World& world, int call) {
  const auto workers = static_cast<size_t>(world.workers());
  const size_t state = SharedAllReduce::bytes(world.workers());
  const SharedSegment segment =
      world.share("test", state + (workers + 1) * kLength * sizeof(float));
  float* const floats = reinterpret_cast<float*>(segment.bytes().data() + state);
  std::vector<const float*> partials;
  for (size_t rank = 0; rank < workers; ++rank) partials.push_back(floats + rank * kLength);
  float* const out = floats + workers * kLength;
  const auto placement = one_shard_each(world.workers());
  SharedAllReduce sum(world.shm()->roster(), segment.bytes().first(state), world.shm()->spin());
  const bool dies = world.rank() == kVictim && call > 0;
  if (dies && call == 1) raise(SIGKILL);
  sum.start({placement.get(), kLength, partials, {&out, 1}});
  if (dies) raise(SIGKILL);
  return sum.wait(world.shm()->now() + world.timeout());
}

int run(const std::string& name, int call) {
  const auto place =
      WorkerPlace::find([](const char* variable) -> const char* { return std::getenv(variable); });
  if (!place) throw input_error("this is not a worker", "start it with starling launch");
  World world(*place);
  world.barrier("the beginning");
  DyingFabric dying(*world.fabric(), place->rank == kVictim ? call : 0);
  const Status status =
      name == "all_reduce_shared" ? in_shared_memory(world, call) : by_messages(dying, name);
  if (status) return 7;
  fmt::print(stderr, "error: {}\n", status.failure().message);
  return 1;
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  try {
    if (argc == 3) return starling::run(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
  }
  return 2;
}
