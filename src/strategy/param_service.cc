#include "strategy/param_service.h"

#include <algorithm>
#include <utility>

namespace starling {
namespace {

constexpr uint64_t kHave = 1;
constexpr Tag kGradientTag = Tag{10} << 56, kWeightsTag = Tag{11} << 56, kHaveTag = Tag{12} << 56;
// How long nothing may happen before it is looked whether all is well.
constexpr std::chrono::milliseconds kLookEvery{100};

}  // namespace

ParamService::ParamService(World& world, const ParamServiceOptions& options,
                           std::span<float> weights)
    : world_(world),
      fabric_(*world.fabric()),
      options_(options),
      weights_(weights),
      version_(options.version),
      samples_(options.samples) {
  const Ownership& owners = *options_.owners;
  const auto keep = [&](size_t slice, bool owns) {
    const BlockRange blocks = owners.blocks(slice);
    kept_.push_back(
        {slice, owns,
         KeptSlice(*options_.space, blocks.first, blocks.last, weights_, options_.state)});
  };
  if (const std::optional<size_t> own = owners.slice_of(world.name())) {
    keep(*own, true);
    if (owners.has_copies()) keep(owners.copied_by(*own), false);
  }
  for (int rank = 0; rank < world.workers(); ++rank) {
    if (rank == world.rank()) continue;
    if (world.computes(rank) && !kept_.empty()) {
      Client& client = clients_[rank];
      client.gradients.resize(kept_.size());
      client.weights.resize(kept_.size());
      client.sent.resize(kept_.size());
      await_gradient(rank);
    }
    if (const std::optional<size_t> slice = owners.slice_of(world.name_of(rank))) {
      Server server{.rank = rank, .owned = *slice, .kept = {*slice}};
      if (owners.has_copies()) server.kept.push_back(owners.copied_by(*slice));
      server.gradients.resize(server.kept.size());
      servers_.push_back(std::move(server));
    }
  }
  thread_.start([this] { serve(); });
}

ParamService::~ParamService() {
  abandoned_ = true;
  fabric_.wake();
}

std::optional<ParamService::Lease> ParamService::next() {
  const World::Waiting waiting(world_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_ || ended_; });
  if (ended_) return std::nullopt;
  return std::exchange(ready_, std::nullopt);
}

void ParamService::push(std::span<const float> gradient, const Push& push) {
  {
    const std::lock_guard lock(mutex_);
    gradient_ = gradient;
    wanted_ = push;
  }
  fabric_.wake();
}

Status ParamService::finish() {
  const World::Waiting waiting(world_);
  thread_.wait();
  return failure_;
}

void ParamService::settle() {
  thread_.start([this] {
    for (const Order& order : world_.take_orders()) obey(order);
    for (const Kept& kept : kept_) take_over(kept);
  });
  thread_.wait();
}

void ParamService::take_over(const Kept& kept) {
  const std::span<const float> slice = kept.slice.weights();
  std::copy(slice.begin(), slice.end(), weights_.data() + kept.slice.offset());
}

void ParamService::serve() {
  const std::atomic<bool>* const interrupted = world_.interrupt();
  while (!over_ && failure_ && !abandoned_) {
    const bool stops = *interrupted;  // before the orders are taken: there are none after that
    for (const Order& order : world_.take_orders()) obey(order);
    if (over_) break;
    if (stops) {
      failure_ = Failure{FailureKind::kStaleView, -1, "a new view began"};
      break;
    }
    bool moved = look_at_clients();
    moved = look_at_servers() || moved;
    if (!moved && failure_) fabric_.progress(fabric_.now() + kLookEvery);
  }
  cancel_all();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

void ParamService::obey(const Order& order) {
  log_.push_back(order);
  switch (order.kind) {
    case Order::Kind::kLend:
      return lend(order.worker, order.samples);
    case Order::Kind::kApply:
      return apply(order.pushes);
    case Order::Kind::kDrop:
      return await_gradient(world_.rank_of(order.worker));
    case Order::Kind::kOver:
      over_ = true;
  }
}

void ParamService::lend(int worker, SampleRange samples) {
  if (!failure_) return;  // cut off: nobody computes it
  const int rank = world_.rank_of(worker);
  if (rank == world_.rank()) {
    step_ = Step::kFetching;
    fetched_.samples = samples;
    fetched_.version = version_;
    fetched_.lent = std::chrono::steady_clock::now();
    for (const Kept& kept : kept_) {
      if (kept.owns) take_over(kept);
    }
    for (Server& server : servers_) {
      const Span floats = options_.owners->floats(server.owned);
      if (floats.size() == 0) continue;
      server.weights = fabric_.start_receive(
          server.rank, kWeightsTag,
          std::as_writable_bytes(weights_.subspan(floats.begin, floats.size())));
    }
    return;
  }
  const auto client = clients_.find(rank);
  if (client == clients_.end()) return;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const std::span<const float> slice = kept_[i].slice.weights();
    if (!kept_[i].owns || slice.empty()) continue;
    // What it was sent before has come: it has computed with it.
    fabric_.cancel(std::exchange(client->second.weights[i], Ticket()));
    Buffer<float>& sent = client->second.sent[i];
    if (sent.empty()) sent = Buffer<float>(slice.size());
    std::copy(slice.begin(), slice.end(), sent.data());
    client->second.weights[i] =
        fabric_.start_send(rank, kWeightsTag, std::as_bytes(std::span<const float>(sent.span())));
  }
}

void ParamService::apply(const std::vector<Push>& pushes) {
  const UpdatePlan plan = plan_update(options_.rules, pushes, version_, samples_);
  const auto states = static_cast<size_t>(state_count(plan.settings.kind));
  for (Kept& kept : kept_) {
    if (!plan.parts.empty() && !kept.slice.weights().empty())
      kept.slice.apply(plan.parts, plan.settings, states);
  }
  ++version_;
  for (const Push& push : pushes) {
    samples_ += push.samples.size();
    await_gradient(world_.rank_of(push.worker));
  }
}

// The next one of that worker.
void ParamService::await_gradient(int rank) {
  const auto client = clients_.find(rank);
  if (client == clients_.end() || !failure_) return;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const std::span<float> room = kept_[i].slice.room_for(world_.name_of(rank));
    if (room.empty()) continue;
    client->second.gradients[i] =
        fabric_.start_receive(rank, kGradientTag + kept_[i].number, std::as_writable_bytes(room));
  }
  client->second.awaited = true;
}

bool ParamService::is_over(Ticket& ticket) {
  if (!ticket) return true;
  const Transfer transfer = fabric_.poll(ticket);
  if (transfer.pending()) return false;
  ticket = Ticket();
  if (transfer.failed() && failure_) failure_ = describe_failure(fabric_, transfer);
  return true;
}

bool ParamService::are_over(std::vector<Ticket>& tickets) {
  bool all = true;
  for (Ticket& ticket : tickets) all = is_over(ticket) && all;
  return all;
}

bool ParamService::look_at_clients() {
  bool moved = false;
  for (auto& [rank, client] : clients_) {
    static_cast<void>(are_over(client.weights));
    static_cast<void>(is_over(client.acknowledgement));
    if (!client.awaited || !are_over(client.gradients) || !failure_) continue;
    client.awaited = false;
    client.acknowledgement =
        fabric_.start_send(rank, kHaveTag, std::as_bytes(std::span(&kHave, 1)));
    moved = true;
  }
  return moved;
}

void ParamService::start_push() {
  for (Kept& kept : kept_) {
    const std::span<float> room = kept.slice.room_for(world_.name());
    std::copy_n(gradient_.begin() + static_cast<std::ptrdiff_t>(kept.slice.offset()), room.size(),
                room.begin());
  }
  for (Server& server : servers_) {
    for (size_t k = 0; k < server.kept.size(); ++k) {
      const Span floats = options_.owners->floats(server.kept[k]);
      if (floats.size() == 0) continue;
      server.gradients[k] =
          fabric_.start_send(server.rank, kGradientTag + server.kept[k],
                             std::as_bytes(gradient_.subspan(floats.begin, floats.size())));
    }
    server.acknowledgement = fabric_.start_receive(
        server.rank, kHaveTag, std::as_writable_bytes(std::span(&server.word, 1)));
  }
}

bool ParamService::look_at_servers() {
  bool all = true;
  for (Server& server : servers_) {
    all = is_over(server.weights) && all;
    all = are_over(server.gradients) && all;
    all = is_over(server.acknowledgement) && all;
  }
  if (!failure_ || !all) return false;
  const std::lock_guard lock(mutex_);
  switch (step_) {
    case Step::kIdle:
      return false;
    case Step::kFetching:
      step_ = Step::kComputing;
      ready_ = fetched_;
      changed_.notify_all();
      return true;
    case Step::kComputing:
      if (!wanted_) return false;
      step_ = Step::kPushing;
      start_push();
      return true;
    case Step::kPushing:
      step_ = Step::kIdle;
      fetched_.pushed = std::chrono::steady_clock::now();
      world_.tell_pushed(*std::exchange(wanted_, std::nullopt));
      return true;
  }
  return false;
}

void ParamService::cancel_all() {
  const auto cancel = [&](Ticket& ticket) { fabric_.cancel(std::exchange(ticket, Ticket())); };
  for (auto& [rank, client] : clients_) {
    for (Ticket& ticket : client.gradients) cancel(ticket);
    for (Ticket& ticket : client.weights) cancel(ticket);
    cancel(client.acknowledgement);
  }
  for (Server& server : servers_) {
    cancel(server.weights);
    for (Ticket& ticket : server.gradients) cancel(ticket);
    cancel(server.acknowledgement);
  }
}

}  // namespace starling
