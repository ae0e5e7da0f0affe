#include "strategy/param_peer.h"

#include <algorithm>
#include <utility>

namespace starling {
namespace {

constexpr uint64_t kWord = 1;
constexpr Tag kGradientTag = Tag{10} << 56, kWeightsTag = Tag{11} << 56, kHaveTag = Tag{12} << 56;

std::span<const std::byte> word_bytes() { return std::as_bytes(std::span(&kWord, 1)); }

}  // namespace

ParamPeer::ParamPeer(Fabric& fabric, ParamPeerOptions options)
    : fabric_(fabric),
      options_(std::move(options)),
      buckets_(has_desks() ? std::vector<Bucket>()
                           : options_.space->buckets(options_.bucket_bytes)),
      version_(options_.version),
      samples_(options_.samples),
      sent_(buckets_.size()) {
  for (const std::span<float> weights : options_.seats) seats_.push_back({.weights = weights});
  if (options_.meets) meetings_.emplace(fabric_, seats_[0].weights);
  keep_slices();
  meet_members();
}

ParamPeer::~ParamPeer() { cancel_all(); }

Tag ParamPeer::Piece::tag(size_t seat) const {
  return kGradientTag + (Tag{seat} << 48) + (Tag{slice} << 32) + bucket;
}

std::vector<ParamPeer::Piece> ParamPeer::pieces_of(size_t slice) const {
  const Span floats = options_.owners->floats(slice);
  std::vector<Piece> pieces;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const size_t begin = std::max(floats.begin, buckets_[bucket].offset);
    const size_t end = std::min(floats.end, buckets_[bucket].offset + buckets_[bucket].size);
    if (begin < end) pieces.push_back({slice, bucket, {begin, end}});
  }
  return pieces;
}

void ParamPeer::keep_slices() {
  const Ownership& owners = *options_.owners;
  const auto keep = [&](size_t slice, bool owns) {
    const BlockRange blocks = owners.blocks(slice);
    kept_.push_back(
        {owns, pieces_of(slice),
         KeptSlice(*options_.space, blocks.first, blocks.last, seats_[0].weights, options_.state)});
  };
  const std::optional<size_t> own = owners.slice_of(name_of(fabric_.rank()));
  if (!own) return;
  keep(*own, true);
  if (owners.has_copies()) keep(owners.copied_by(*own), false);
}

void ParamPeer::meet_members() {
  const Ownership& owners = *options_.owners;
  for (int rank = 0; rank < static_cast<int>(options_.names.size()); ++rank) {
    if (rank == fabric_.rank()) continue;
    if (options_.computes[static_cast<size_t>(rank)] && !kept_.empty()) {
      std::vector<Client>& seats = clients_[rank];
      seats.resize(seats_.size());
      for (size_t seat = 0; seat < seats.size(); ++seat) {
        seats[seat].weights.resize(kept_.size());
        seats[seat].sent.resize(kept_.size());
        await_gradient(rank, seat);
      }
    }
    if (const std::optional<size_t> slice = owners.slice_of(name_of(rank))) {
      Server server{.rank = rank,
                    .owned = *slice,
                    .pieces = pieces_of(*slice),
                    .seats = std::vector<Server::UnderWay>(seats_.size())};
      if (owners.has_copies()) {
        const std::vector<Piece> copied = pieces_of(owners.copied_by(*slice));
        server.pieces.insert(server.pieces.end(), copied.begin(), copied.end());
      }
      for (Server::UnderWay& seat : server.seats) seat.gradients.resize(server.pieces.size());
      servers_.push_back(std::move(server));
    }
  }
}

int ParamPeer::rank_of(int name) const {
  const std::vector<int>& names = options_.names;
  return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
}

void ParamPeer::take_over() {
  for (const Kept& kept : kept_) {
    const std::span<const float> slice = kept.slice.weights();
    std::copy(slice.begin(), slice.end(), seats_[0].weights.data() + kept.slice.offset());
  }
}

void ParamPeer::obey(const Order& order) {
  log_.push_back(order);
  switch (order.kind) {
    case Order::Kind::kLend:
      return lend(order.worker, order.samples);
    case Order::Kind::kApply:
      return serve([&] { apply(order.pushes); });
    case Order::Kind::kAdd:
      return serve([&] { add(order.pushes); });
    case Order::Kind::kDrop:
      if (order.worker == name_of(fabric_.rank())) seats_[settling(order.worker)].dropped = true;
      return settle(order.worker);
    case Order::Kind::kMeet:
      return meet(order);
    case Order::Kind::kOver:
      over_ = true;
  }
}

void ParamPeer::meet(const Order& order) {
  const int self = name_of(fabric_.rank());
  if (!status_ || (order.worker != self && order.partner != self)) return;
  options_.pass(FaultPoint::kMeet);
  // Each comes after an update, so there is one for each version.
  meetings_->order(rank_of(order.worker == self ? order.partner : order.worker), version_);
}

void ParamPeer::serve(FunctionRef<void()> work) {
  const double begin = options_.clock();
  work();
  const double seconds = options_.clock() - begin;
  load_.seconds += seconds + options_.slow_down(seconds);
}

void ParamPeer::lend(int worker, SampleRange samples) {
  const size_t seat = counts_[worker].lent++ % seats_.size();
  if (!status_) return;  // cut off: nobody computes it
  const int rank = rank_of(worker);
  if (rank == fabric_.rank()) return fetch(seat, samples);
  if (clients_.contains(rank)) serve([&] { hand_weights(rank, seat); });
}

void ParamPeer::fetch(size_t seat, SampleRange samples) {
  OwnSeat& own = seats_[seat];
  outdone_ = false;
  own.step = OwnSeat::Step::kFetching;
  own.lease = {.samples = samples,
               .version = version_,
               .trained = samples_,
               .seat = seat,
               .dropped = std::exchange(own.dropped, false),
               .pushed = pushed_at_,
               .lent = fabric_.now()};
  for (const Kept& kept : kept_) {
    const std::span<const float> slice = kept.slice.weights();
    if (kept.owns) std::copy(slice.begin(), slice.end(), own.weights.data() + kept.slice.offset());
  }
  for (Server& server : servers_) {
    const Span floats = options_.owners->floats(server.owned);
    Server::UnderWay& way = server.seats[seat];
    std::span<std::byte> into =
        std::as_writable_bytes(own.weights.subspan(floats.begin, floats.size()));
    if (has_desks()) into = std::as_writable_bytes(std::span(&way.word, 1));
    if (!into.empty()) way.weights = fabric_.start_receive(server.rank, kWeightsTag + seat, into);
  }
}

void ParamPeer::hand_weights(int rank, size_t seat) {
  options_.pass(FaultPoint::kLend);
  Client& client = clients_.at(rank)[seat];
  for (size_t i = 0; i < kept_.size(); ++i) {
    const std::span<const float> slice = kept_[i].slice.weights();
    if (!kept_[i].owns || slice.empty()) continue;
    if (has_desks()) {
      std::copy(slice.begin(), slice.end(),
                options_.desks->at(rank, seat).weights.data() + kept_[i].slice.offset());
      bytes_moved_ += slice.size_bytes();
      continue;
    }
    // What it was sent before has come: it has computed with it.
    fabric_.cancel(std::exchange(client.weights[i], Ticket()));
    Buffer<float>& sent = client.sent[i];
    if (sent.empty()) sent = Buffer<float>(slice.size());
    std::copy(slice.begin(), slice.end(), sent.data());
    client.weights[i] = fabric_.start_send(rank, kWeightsTag + seat,
                                           std::as_bytes(std::span<const float>(sent.span())));
  }
  if (!has_desks()) return;
  fabric_.cancel(std::exchange(client.word, Ticket()));
  client.word = fabric_.start_send(rank, kWeightsTag + seat, word_bytes());
}

const float* ParamPeer::gradient_of(int worker, Kept& kept) {
  const int rank = rank_of(worker);
  const size_t seat = settling(worker);
  const bool is_own = rank == fabric_.rank();
  if (has_desks()) {
    if (!is_own) bytes_moved_ += kept.slice.weights().size_bytes();
    return options_.desks->at(rank, seat).gradient.data() + kept.slice.offset();
  }
  if (is_own) return seats_[seat].gradient.data() + kept.slice.offset();
  return kept.slice.room_for(worker, seat).data();
}

void ParamPeer::apply(const std::vector<Push>& pushes) {
  const UpdatePlan plan = plan_update(options_.rules, pushes, version_, samples_);
  const auto states = static_cast<size_t>(state_count(plan.settings.kind));
  for (Kept& kept : kept_) {
    std::vector<KeptSlice::Part> parts;
    for (const UpdatePlan::Part& part : plan.parts)
      parts.push_back({gradient_of(part.worker, kept), part.weight});
    if (!parts.empty() && !kept.slice.weights().empty())
      kept.slice.apply(parts, plan.settings, states);
    if (pushes.empty()) kept.slice.apply_added(plan.settings, states);
    load_.floats += static_cast<double>(kept.slice.weights().size());
    if (&kept == &kept_.front()) options_.pass(FaultPoint::kApplied);
  }
  ++version_;
  samples_ += std::exchange(samples_added_, 0);
  for (const Push& push : pushes) {
    samples_ += push.samples.size();
    settle(push.worker);
  }
}

void ParamPeer::add(const std::vector<Push>& pushes) {
  for (const Push& push : pushes) {
    const auto weight = static_cast<double>(push.samples.size());
    for (Kept& kept : kept_) {
      if (push.finite && !kept.slice.weights().empty())
        kept.slice.add({gradient_of(push.worker, kept), weight});
      if (&kept == &kept_.front()) options_.pass(FaultPoint::kAdded);
    }
    samples_added_ += push.samples.size();
    if (push.worker != name_of(fabric_.rank()) && push.samples == seats_[0].lease.samples)
      outdone_ = true;
    settle(push.worker);
  }
}

void ParamPeer::settle(int worker) {
  const size_t seat = settling(worker);
  ++counts_[worker].settled;
  await_gradient(rank_of(worker), seat);
}

// The next one at that seat.
void ParamPeer::await_gradient(int rank, size_t seat) {
  const auto found = clients_.find(rank);
  if (found == clients_.end() || !status_ || has_desks()) return;
  Client& client = found->second[seat];
  client.gradients.clear();
  for (Kept& kept : kept_) {
    const std::span<float> room = kept.slice.room_for(name_of(rank), seat);
    for (const Piece& piece : kept.pieces) {
      const std::span<float> part =
          room.subspan(piece.floats.begin - kept.slice.offset(), piece.floats.size());
      client.gradients.push_back(
          fabric_.start_receive(rank, piece.tag(seat), std::as_writable_bytes(part)));
    }
  }
  client.awaited = true;
}

std::optional<ParamPeer::Lease> ParamPeer::take_lease() {
  OwnSeat& own = seats_[taken_ % seats_.size()];
  if (own.step != OwnSeat::Step::kFetched) return std::nullopt;
  own.step = OwnSeat::Step::kIdle;
  ++taken_;
  return own.lease;
}

void ParamPeer::push_bucket(std::span<const float> gradient, size_t bucket) {
  if (!status_) return;
  const size_t seat = pushed_ % seats_.size();
  for (Server& server : servers_) {
    for (size_t i = 0; i < server.pieces.size(); ++i) {
      const Piece& piece = server.pieces[i];
      if (piece.bucket != bucket) continue;
      server.seats[seat].gradients[i] = fabric_.start_send(
          server.rank, piece.tag(seat),
          std::as_bytes(gradient.subspan(piece.floats.begin, piece.floats.size())));
    }
  }
  sent_[bucket] = true;
}

void ParamPeer::push(std::span<const float> gradient, const Push& push) {
  const size_t seat = pushed_ % seats_.size();
  OwnSeat& own = seats_[seat];
  own.gradient = gradient;
  own.push = push;
  if (status_) own.step = OwnSeat::Step::kPushing;
  if (!status_ || has_desks()) {
    ++pushed_;
    return;
  }
  for (size_t bucket = 0; bucket < sent_.size(); ++bucket) {
    if (!sent_[bucket]) push_bucket(gradient, bucket);
    sent_[bucket] = false;
  }
  ++pushed_;
  for (Server& server : servers_) {
    Server::UnderWay& way = server.seats[seat];
    way.acknowledgement = fabric_.start_receive(server.rank, kHaveTag + seat,
                                                std::as_writable_bytes(std::span(&way.word, 1)));
  }
}

std::optional<Push> ParamPeer::take_pushed() {
  OwnSeat& own = seats_[told_ % seats_.size()];
  if (own.step != OwnSeat::Step::kPushed) return std::nullopt;
  own.step = OwnSeat::Step::kIdle;
  ++told_;
  options_.pass(FaultPoint::kPushed);
  return own.push;
}

bool ParamPeer::advance() {
  bool moved = look_at_clients();
  moved = look_at_servers() || moved;
  if (!meetings_) return moved;
  moved = meetings_->advance() || moved;
  if (!meetings_->status() && status_) status_ = meetings_->status();
  return moved;
}

bool ParamPeer::is_over(Ticket& ticket) { return starling::is_over(fabric_, ticket, status_); }

bool ParamPeer::are_over(std::vector<Ticket>& tickets) {
  bool all = true;
  for (Ticket& ticket : tickets) all = is_over(ticket) && all;
  return all;
}

bool ParamPeer::look_at_clients() {
  bool moved = false;
  for (auto& [rank, seats] : clients_) {
    for (size_t seat = 0; seat < seats.size(); ++seat) {
      Client& client = seats[seat];
      static_cast<void>(are_over(client.weights));
      static_cast<void>(is_over(client.word));
      if (!client.awaited || !are_over(client.gradients) || !status_) continue;
      client.awaited = false;
      client.word = fabric_.start_send(rank, kHaveTag + seat, word_bytes());
      moved = true;
    }
  }
  return moved;
}

bool ParamPeer::look_at_servers() {
  bool moved = false;
  for (size_t seat = 0; seat < seats_.size(); ++seat) moved = look_at_servers(seat) || moved;
  return moved;
}

bool ParamPeer::look_at_servers(size_t seat) {
  using Step = OwnSeat::Step;
  bool all = true;
  for (Server& server : servers_) {
    Server::UnderWay& way = server.seats[seat];
    all = is_over(way.weights) && all;
    all = are_over(way.gradients) && all;
    all = is_over(way.acknowledgement) && all;
  }
  if (!status_ || !all) return false;
  Step& step = seats_[seat].step;
  if (step == Step::kPushing) pushed_at_ = fabric_.now();
  if (step != Step::kFetching && step != Step::kPushing) return false;
  step = step == Step::kFetching ? Step::kFetched : Step::kPushed;
  return true;
}

void ParamPeer::cut_off(const Failure& why) {
  if (status_) status_ = why;
  cancel_all();
}

void ParamPeer::cancel_all() {
  const auto cancel = [&](Ticket& ticket) { fabric_.cancel(std::exchange(ticket, Ticket())); };
  for (auto& [rank, seats] : clients_) {
    for (Client& client : seats) {
      for (Ticket& ticket : client.gradients) cancel(ticket);
      for (Ticket& ticket : client.weights) cancel(ticket);
      cancel(client.word);
    }
  }
  for (Server& server : servers_) {
    for (Server::UnderWay& way : server.seats) {
      cancel(way.weights);
      for (Ticket& ticket : way.gradients) cancel(ticket);
      cancel(way.acknowledgement);
    }
  }
  if (meetings_) meetings_->cancel();
}

}  // namespace starling
