// Gloo's side of the rows of all-reduce (see all_reduce_server.h): sockets on loopback, in place.
//   gloo_peer --world 2 --store FOLDER --algorithm ring
// Algorithms: ring and bcube are those of gloo::allreduce, which PyTorch uses; halving_doubling and
// ring_chunked are Gloo's older ones, here also with sockets that are polled without sleep
// (halving_doubling_polled), which PyTorch does not offer.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "all_reduce_server.h"

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

Context connect(const bench::Control& control, const std::string& folder, bool polled) {
  gloo::transport::tcp::attr where;
  where.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(where);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(control.rank, control.world);
  context->connectFullMesh(store, device);
  for (int peer = 0; polled && peer < control.world; ++peer) {
    if (peer != control.rank) context->getPair(peer)->setSync(true, true);
  }
  return context;
}

class GlooReducer final : public bench::AllReducer {
 public:
  GlooReducer(Context context, std::string algorithm)
      : context_(std::move(context)), algorithm_(std::move(algorithm)) {}

  void prepare(size_t floats) override {
    older_.reset();
    array_.assign(floats, 0.0f);
    const int count = static_cast<int>(floats);
    const std::vector<float*> arrays = {array_.data()};
    if (algorithm_ == "halving_doubling" || algorithm_ == "halving_doubling_polled") {
      older_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, arrays, count);
    } else if (algorithm_ == "ring_chunked") {
      older_ = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, arrays, count);
    } else if (algorithm_ != "ring" && algorithm_ != "bcube") {
      throw std::runtime_error("unknown algorithm: " + algorithm_);
    }
  }
  float* array() override { return array_.data(); }

  void all_reduce() override {
    if (older_) return older_->run();
    using Options = gloo::AllreduceOptions;
    Options options(context_);
    options.setAlgorithm(algorithm_ == "ring" ? Options::Algorithm::RING
                                              : Options::Algorithm::BCUBE);
    options.setOutput(array_.data(), array_.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

 private:
  const Context context_;
  const std::string algorithm_;
  std::vector<float> array_;
  std::unique_ptr<gloo::Algorithm> older_;
};

void run(const bench::Options& options) {
  const std::string algorithm = options.text("algorithm", "ring");
  const bench::Control control = bench::fork_ranks(static_cast<int>(options.number("world", 2)));
  GlooReducer reducer(
      connect(control, options.text("store", "."), algorithm == "halving_doubling_polled"),
      algorithm);
  bench::serve(reducer, control);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program(argc, argv, run); }
