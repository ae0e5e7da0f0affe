#include "cluster/bench_all_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "collective/all_reduce_shared.h"
#include "collective/bare_sum.h"
#include "starling/error.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint8_t kChannel = 3;           // the world's own is 1, that of training 2
constexpr double kSampleSeconds = 0.002;  // as many all-reduces in a sample as take about this long
constexpr uint64_t kPerSampleMost = 4096;
constexpr size_t kPageBytes = 4096;
constexpr size_t kPageFloats = kPageBytes / sizeof(float);

void require(const Status& status, int rank) {
  if (status) return;
  throw run_error(fmt::format("worker {}: {}", rank, status.failure().message),
                  "see what the lost worker said, and run it again");
}

using Work = std::function<void()>;

// The times of operations that all workers do together.
class Stopwatch {
 public:
  Stopwatch(World& world, int repeats) : world_(world), repeats_(repeats) {}

  // The median of each. They take turns, so that what disturbs one disturbs the other.
  std::vector<double> median_seconds(const std::vector<Work>& operations) {
    std::vector<uint64_t> counts;
    for (const Work& operation : operations) {
      operation();  // touches all memory
      counts.push_back(agree_on_count(seconds_of(operation, 1)));
    }
    std::vector<std::vector<double>> samples(operations.size());
    for (int i = 0; i < repeats_; ++i) {
      for (size_t k = 0; k < operations.size(); ++k) {
        samples[k].push_back(seconds_of(operations[k], counts[k]) / static_cast<double>(counts[k]));
      }
    }
    std::vector<double> medians;
    for (std::vector<double>& values : samples) {
      const auto middle = values.begin() + repeats_ / 2;
      std::nth_element(values.begin(), middle, values.end());
      medians.push_back(*middle);
    }
    return medians;
  }

 private:
  double seconds_of(const Work& operation, uint64_t count) {
    world_.barrier("bench");
    operation();  // all have left the barrier, and are awake
    const Clock::time_point begin = Clock::now();
    for (uint64_t i = 0; i < count; ++i) operation();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Times differ between workers, so the chief's counts.
  uint64_t agree_on_count(double seconds) {
    uint64_t count = static_cast<uint64_t>(std::clamp(kSampleSeconds / std::max(seconds, 1e-9), 1.0,
                                                      static_cast<double>(kPerSampleMost)));
    world_.broadcast("bench", std::as_writable_bytes(std::span(&count, 1)));
    return count;
  }

  World& world_;
  const int repeats_;
};

// Rank r's numbers are all r + 1.
void fill(std::span<float> own, int rank) {
  std::fill(own.begin(), own.end(), static_cast<float>(rank + 1));
}

void check(std::span<const float> sum, int workers) {
  const float expected = static_cast<float>(workers * (workers + 1) / 2);
  const auto wrong =
      std::find_if(sum.begin(), sum.end(), [&](float value) { return value != expected; });
  if (wrong == sum.end()) return;
  throw run_error(fmt::format("the sum of {} workers is {} at {}, not {}", workers, *wrong,
                              wrong - sum.begin(), expected),
                  "this is a fault of Starling: please report it");
}

// Where all workers reach all arrays: an array of each, then what they meet at. The first is also
// the result of all, as in training.
class SharedArrays {
 public:
  SharedArrays(World& world, size_t bytes_most)
      : stride_((bytes_most + kPageBytes - 1) / kPageBytes * kPageFloats),
        workers_(world.workers()),
        segment_(
            world.share("bench", (static_cast<size_t>(workers_) + 1) * stride_ * sizeof(float) +
                                     SharedAllReduce::bytes(workers_) + BareSum::bytes(workers_))) {
    for (int rank = 0; rank < workers_; ++rank) arrays_.push_back(array(rank));
    partials_.assign(arrays_.begin(), arrays_.end());
  }

  float* array(int index) const {
    return reinterpret_cast<float*>(segment_.bytes().data()) + static_cast<size_t>(index) * stride_;
  }
  std::span<float* const> arrays() const { return arrays_; }
  std::span<const float* const> partials() const { return partials_; }
  std::span<std::byte> meeting() const {
    return segment_.bytes().subspan(static_cast<size_t>(workers_) * stride_ * sizeof(float));
  }

 private:
  size_t stride_;  // floats
  int workers_;
  SharedSegment segment_;
  std::vector<float*> arrays_;
  std::vector<const float*> partials_;
};

std::vector<BenchAllReduceRow> bench_shared(World& world, const BenchAllReduceOptions& options) {
  const int workers = world.workers(), rank = world.rank();
  const size_t bytes_most = *std::max_element(options.sizes.begin(), options.sizes.end());
  const SharedArrays memory(world, bytes_most);
  const Placement placement =
      Placement::even(static_cast<size_t>(workers), static_cast<size_t>(workers));
  SharedAllReduce reduce(world.shm()->roster(), memory.meeting(), world.shm()->spin());
  BareSum bare(world.shm()->roster(), memory.meeting().subspan(SharedAllReduce::bytes(workers)),
               placement);
  float* const result = memory.array(0);
  Stopwatch stopwatch(world, options.repeats);
  std::vector<BenchAllReduceRow> rows;
  for (const size_t bytes : options.sizes) {
    const size_t length = bytes / sizeof(float);
    const auto all_reduce = [&] {
      reduce.start({&placement, length, memory.partials(), {&result, 1}});
      require(reduce.wait(Clock::now() + world.timeout()), rank);
    };
    const std::span<float> own(memory.array(rank), length);
    fill(own, rank);
    all_reduce();
    check({result, length}, workers);
    world.barrier("bench");
    // Zeros: the sum of a sum stays what it is, however often it is made.
    std::fill(own.begin(), own.end(), 0.0f);
    const auto bare_sum = [&] {
      require(bare.run(memory.arrays(), length, Clock::now() + world.timeout()), rank);
    };
    const std::vector<double> seconds = stopwatch.median_seconds({all_reduce, bare_sum});
    rows.push_back({.bytes = bytes,
                    .algorithm = "all_reduce_shared",
                    .seconds = seconds[0],
                    .bare_seconds = seconds[1]});
  }
  return rows;
}

std::vector<BenchAllReduceRow> bench_messages(World& world, const BenchAllReduceOptions& options) {
  const int workers = world.workers(), rank = world.rank();
  const auto placement = std::make_shared<Placement>(
      Placement::even(static_cast<size_t>(workers), static_cast<size_t>(workers)));
  Collectives collectives(*world.fabric(), placement,
                          {.timeout = world.timeout(), .channel = kChannel});
  const Result<LinkCosts> costs = collectives.measure_costs();
  if (!costs) require(costs.failure(), rank);
  const size_t bytes_most = *std::max_element(options.sizes.begin(), options.sizes.end());
  std::vector<float> own(bytes_most / sizeof(float)), sum(own.size());
  fill(own, rank);
  const float* const partial = own.data();
  Stopwatch stopwatch(world, options.repeats);
  std::vector<BenchAllReduceRow> rows;
  for (const size_t bytes : options.sizes) {
    const std::span<float> out(sum.data(), bytes / sizeof(float));
    const AllReduceAlgorithm algorithm =
        choose_all_reduce(bytes, *placement, collectives.options().costs, true);
    BenchAllReduceRow row{.bytes = bytes, .algorithm = name_of(algorithm)};
    const auto all_reduce = [&] {
      require(collectives.wait(collectives.all_reduce({&partial, 1}, out)), rank);
    };
    row.seconds = stopwatch.median_seconds({all_reduce})[0];
    check(out, workers);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<BenchAllReduceRow> bench_all_reduce(World& world,
                                                const BenchAllReduceOptions& options) {
  if (world.workers() < 2 || options.sizes.empty() || options.repeats < 1) {
    throw input_error("a benchmark of all-reduce needs two workers, a size and a repeat",
                      "start it with `starling bench all-reduce --workers 2`");
  }
  return world.shares_memory() ? bench_shared(world, options) : bench_messages(world, options);
}

}  // namespace starling
