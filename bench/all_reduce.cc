// Our side of the rows of all-reduce (see all_reduce_server.h).
//   all_reduce --world 2 --result own       every rank ends with the sum in its own array
//   all_reduce --world 2 --result shared    one result for all, in the array of rank 0, as in
//   training
#include <optional>

#include "all_reduce_server.h"
#include "collective/all_reduce_shared.h"
#include "fabric/shm/shm_fabric.h"
#include "starling/error.h"

namespace {

using namespace starling;

constexpr size_t kFloatsMost = size_t{32} << 20;  // 128 MiB

class SharedReducer final : public bench::AllReducer {
 public:
  SharedReducer(ShmFabric& fabric, const SharedSegment& memory, bool shared_result)
      : fabric_(fabric),
        placement_(Placement::even(static_cast<size_t>(fabric.world()),
                                   static_cast<size_t>(fabric.world()))),
        arrays_(reinterpret_cast<float*>(memory.bytes().data())),
        reduce_(fabric.roster(), memory.bytes().subspan(array_bytes(fabric.world())),
                fabric.spin()) {
    for (int rank = 0; rank < fabric.world(); ++rank) {
      partials_.push_back(at(rank));
      outs_.push_back(at(rank));
    }
    if (shared_result) outs_.resize(1);
  }

  static size_t array_bytes(int world) {
    return static_cast<size_t>(world) * kFloatsMost * sizeof(float);
  }
  static size_t bytes(int world) { return array_bytes(world) + SharedAllReduce::bytes(world); }

  void prepare(size_t floats) override {
    if (floats > kFloatsMost) throw std::runtime_error("more than 128 MiB");
    floats_ = floats;
  }
  float* array() override { return at(fabric_.rank()); }
  float* sum() override { return outs_.size() == 1 ? outs_[0] : array(); }
  void all_reduce() override {
    reduce_.start({&placement_, floats_, partials_, outs_});
    require(reduce_.wait(Instant::max()));
  }
  void meet() override { require(fabric_.barrier().pass(Instant::max())); }

 private:
  static void require(const Status& status) {
    if (!status) throw std::runtime_error(status.failure().message);
  }
  float* at(int index) const { return arrays_ + static_cast<size_t>(index) * kFloatsMost; }

  ShmFabric& fabric_;
  const Placement placement_;
  float* const arrays_;
  SharedAllReduce reduce_;
  std::vector<const float*> partials_;
  std::vector<float*> outs_;
  size_t floats_ = 0;
};

void run(const bench::Options& options) {
  const int world = static_cast<int>(options.number("world", 2));
  const SharedSegment segment = ShmFabric::make_segment({.world = world});
  const SharedSegment memory = SharedSegment::create("bench", SharedReducer::bytes(world));
  const bench::Control control = bench::fork_ranks(world);
  ShmFabric fabric(segment, control.rank);
  SharedReducer reducer(fabric, memory, options.text("result", "own") == "shared");
  bench::serve(reducer, control);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program(argc, argv, run); }
