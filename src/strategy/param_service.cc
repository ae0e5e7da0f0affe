#include "strategy/param_service.h"

#include <ctime>
#include <utility>

#include "strategy/make_strategy.h"

namespace starling {
namespace {

// How long nothing may happen before it is looked whether all is well.
constexpr std::chrono::milliseconds kLookEvery{100};

// For which this thread has had a core.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

ParamPeerOptions for_world(ParamPeerOptions options, const World& world) {
  options.names.assign(world.members().begin(), world.members().end());
  options.computes = computing(world);
  options.pass = [&world](FaultPoint point) { world.pass(point); };
  if (!world.computes(world.rank()))
    options.slow_down = [&world](double seconds) { return world.slow_down(seconds); };
  options.clock = [] { return thread_seconds(); };
  return options;
}

}  // namespace

ParamService::ParamService(World& world, ParamPeerOptions options, IsEnough is_enough)
    : world_(world),
      fabric_(*world.fabric()),
      peer_(fabric_, for_world(std::move(options), world)),
      first_version_(peer_.version()),
      is_enough_(std::move(is_enough)) {
  thread_.start([this] {
    try {
      serve();
    } catch (...) {
      end();  // the worker comes to finish(), and is told why
      throw;
    }
    end();
  });
}

ParamService::~ParamService() {
  abandoned_ = true;
  fabric_.wake();
}

void ParamService::wait(bool waits) {
  waits_ = waits;
  if (peer_.meetings() == nullptr) return;
  peer_.meetings()->rest(waits);
  if (waits) fabric_.wake();
}

void ParamService::meet() {
  if (peer_.meetings() != nullptr) peer_.meetings()->look();
}

std::optional<ParamPeer::Lease> ParamService::next() {
  const Waits waits(*this);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || ended_; });
  if (ended_) return std::nullopt;
  const ParamPeer::Lease lease = ready_.front();
  ready_.pop_front();
  return lease;
}

void ParamService::push_bucket(std::span<const float> gradient, size_t bucket) {
  give(gradient, bucket);
}

void ParamService::push(std::span<const float> gradient, const Push& push) {
  if (peer_.has_desks()) {  // all see it where it is
    world_.pass(FaultPoint::kPushed);
    told_.fetch_add(1, std::memory_order_release);
    return world_.tell_pushed(push);
  }
  give(gradient, push);
}

void ParamService::give(std::span<const float> gradient, std::variant<size_t, Push> what) {
  {
    const std::lock_guard lock(mutex_);
    const Instant now = std::chrono::steady_clock::now();
    if (std::holds_alternative<size_t>(what)) {
      if (!early_since_) early_since_ = now;
    } else if (early_since_) {
      hidden_ += std::chrono::duration<double>(now - *early_since_).count();
      early_since_.reset();
    }
    given_.push_back({gradient, std::move(what)});
  }
  fabric_.wake();
}

Status ParamService::finish() {
  const Waits waits(*this);
  thread_.wait();
  return peer_.status();
}

void ParamService::settle() {
  thread_.start([this] {
    for (const Order& order : world_.take_orders()) peer_.obey(order);
    peer_.take_over();
  });
  thread_.wait();
}

bool ParamService::pass_on() {
  bool moved = false;
  {
    const std::lock_guard lock(mutex_);
    for (const Given& given : std::exchange(given_, {})) {
      if (const auto* bucket = std::get_if<size_t>(&given.what))
        peer_.push_bucket(given.gradient, *bucket);
      else
        peer_.push(given.gradient, std::get<Push>(given.what));
      moved = true;
    }
    while (const std::optional<ParamPeer::Lease> lease = peer_.take_lease()) {
      ready_.push_back(*lease);
      changed_.notify_all();
      moved = true;
    }
  }
  while (const std::optional<Push> pushed = peer_.take_pushed()) {
    world_.tell_pushed(*pushed);
    moved = true;
  }
  return moved;
}

void ParamService::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

// Before the first update there is nothing new to end for, and perhaps nobody to hear of it.
void ParamService::drain_if_enough() {
  const uint64_t updates = peer_.version() - first_version_;
  if (drains_ || updates == 0 || !is_enough_(updates)) return;
  world_.drain();
  drains_ = true;
}

void ParamService::serve() {
  const std::atomic<bool>* const interrupted = world_.interrupt();
  while (peer_.status() && !abandoned_) {
    const bool stops = *interrupted;  // before the orders are taken: there are none after that
    for (const Order& order : world_.take_orders()) {
      static_cast<void>(told_.load(std::memory_order_acquire));
      peer_.obey(order);
      outdone_ = peer_.is_outdone();
      if (!world_.computes(world_.rank())) world_.set_step_served(peer_.version());
    }
    if (peer_.is_over()) break;
    if (stops) {
      peer_.cut_off(Failure{FailureKind::kStaleView, -1, "a new view began"});
      break;
    }
    if (world_.launcher_is_gone()) {
      peer_.cut_off(Failure{FailureKind::kPeerGone, -1, "the launcher is gone"});
      break;
    }
    drain_if_enough();
    bool moved = peer_.advance();
    moved = pass_on() || moved;
    if (waits_) world_.note_progress();  // this thread is not stuck, at least
    if (!moved && peer_.status()) fabric_.progress(fabric_.now() + kLookEvery);
  }
}

}  // namespace starling
