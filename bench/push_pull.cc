// Our side of the rows of push and pull: rank 0 is a worker, the others are servers. A round is
// what a worker that trains apart does between two gradients: its gradient goes to the servers,
// which update their slices with it (SGD), and the new weights come back. Told as in
// all_reduce_server.h: "run FLOATS N", "check FLOATS".
//   push_pull --servers 2
#include "all_reduce_server.h"
#include "fabric/shm/shm_fabric.h"
#include "param/orders_words.h"
#include "starling/optimizer.h"
#include "strategy/param_peer.h"

namespace {

using namespace starling;

constexpr size_t kFloats = size_t{32} << 20;  // 128 MiB
constexpr Tag kOrdersTag = 1;
constexpr int kWorker = 0;

class PushPull {
 public:
  PushPull(Fabric& fabric, const SharedSegment& memory)
      : fabric_(fabric),
        array_(reinterpret_cast<float*>(memory.bytes().data())),
        state_(fabric.rank() == kWorker ? 0 : kFloats) {
    space_.add("weight", {static_cast<int64_t>(kFloats)}, {.weight_decay = 0});
    std::vector<int> servers;
    std::vector<std::vector<Seat>> seats(static_cast<size_t>(fabric.world()));
    seats[kWorker] = {{weights(), gradient()}};
    desks_ = Desks(seats);
    ParamPeerOptions options{.rules = {.optimizer = sgd(1.0), .batch = 1, .usual = 1},
                             .desks = &desks_};
    for (int rank = 0; rank < fabric.world(); ++rank) {
      options.names.push_back(rank);
      options.computes.push_back(rank == kWorker);
      if (rank != kWorker) servers.push_back(rank);
    }
    owners_ = Ownership(space_, servers, 0);
    options.space = &space_;
    options.owners = &owners_;
    options.state = [](size_t, size_t) { return static_cast<float*>(nullptr); };
    options.seats = {fabric.rank() == kWorker ? weights() : state_.span()};
    peer_.emplace(fabric, std::move(options));
    if (fabric.rank() == kWorker) give({lend(0)});
    if (fabric.rank() == kWorker) await_lease();
  }

  static size_t bytes() { return 2 * kFloats * sizeof(float); }
  std::span<float> weights() const { return {array_, kFloats}; }
  std::span<float> gradient() const { return {array_ + kFloats, kFloats}; }

  // Of the worker.
  void round() {
    const SampleRange samples{round_, round_ + 1};
    const Push push{.worker = kWorker, .samples = samples, .version = round_, .sums = {}};
    peer_->push(gradient(), push);
    while (!peer_->take_pushed()) wait_a_little();
    ++round_;
    give({{.kind = starling::Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = {push}},
          lend(round_)});
    await_lease();
  }

  // Of a server: so many rounds.
  void serve(uint64_t rounds) {
    for (const uint64_t end = peer_->version() + rounds; peer_->version() < end;) hear();
  }
  // The first lease.
  void begin() { hear(); }

 private:
  static starling::Order lend(uint64_t sample) {
    return {.kind = starling::Order::Kind::kLend,
            .worker = kWorker,
            .samples = {sample, sample + 1},
            .pushes = {}};
  }

  void give(const std::vector<starling::Order>& orders) {
    words_ = to_words(orders);
    for (int rank = 1; rank < fabric_.world(); ++rank)
      require(send(fabric_, rank, kOrdersTag, std::as_bytes(std::span(words_)), Instant::max()));
    for (const starling::Order& order : orders) peer_->obey(order);
  }
  void hear() {
    std::vector<uint64_t> words(256);
    const auto bytes = receive_up_to(fabric_, kWorker, kOrdersTag,
                                     std::as_writable_bytes(std::span(words)), Instant::max());
    if (!bytes) throw std::runtime_error(bytes.failure().message);
    words.resize(bytes.value() / sizeof(uint64_t));
    const auto orders = orders_of(words);
    if (!orders) throw std::runtime_error("these are no orders");
    for (const starling::Order& order : *orders) peer_->obey(order);
    while (peer_->advance()) {
    }
  }
  void await_lease() {
    while (!peer_->take_lease()) wait_a_little();
  }
  void wait_a_little() {
    if (!peer_->advance()) fabric_.progress(fabric_.now() + std::chrono::seconds(1));
    require(peer_->status());
  }
  static void require(const Status& status) {
    if (!status) throw std::runtime_error(status.failure().message);
  }

  Fabric& fabric_;
  float* const array_;
  Buffer<float> state_;
  ParameterSpace space_;
  Desks desks_;
  Ownership owners_;
  std::optional<ParamPeer> peer_;
  std::vector<uint64_t> words_;
  uint64_t round_ = 0;
};

double timed_rounds(PushPull& worker, uint64_t count) {
  std::fill(worker.gradient().begin(), worker.gradient().end(), 0.0f);
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count; ++i) worker.round();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// How many weights are not what they were, less the gradient.
double wrong_weights(PushPull& worker) {
  const auto value = [](size_t i) { return static_cast<float>(i % 1009); };
  const std::vector<float> before(worker.weights().begin(), worker.weights().end());
  for (size_t i = 0; i < kFloats; ++i) worker.gradient()[i] = value(i);
  worker.round();
  double wrong = 0;
  for (size_t i = 0; i < kFloats; ++i) wrong += worker.weights()[i] != before[i] - value(i);
  return wrong;
}

void run(const bench::Options& options) {
  const int world = 1 + static_cast<int>(options.number("servers", 1));
  const SharedSegment segment = ShmFabric::make_segment({.world = world});
  const SharedSegment memory = SharedSegment::create("bench", PushPull::bytes());
  const bench::Control control = bench::fork_ranks(world);
  ShmFabric fabric(segment, control.rank);
  PushPull rank(fabric, memory);
  if (control.rank != kWorker) rank.begin();
  for (bench::Order order; bench::next_order(control, order);) {
    if (order.floats != kFloats) throw std::runtime_error("not 128 MiB");
    if (control.rank != kWorker) {
      rank.serve(order.count);
      continue;
    }
    std::printf("%.9g\n", order.check ? wrong_weights(rank) : timed_rounds(rank, order.count));
    std::fflush(stdout);
  }
  for (const int out : control.out) close(out);  // which ends the others
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program(argc, argv, run); }
