#include "cluster/coordination.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <tuple>

#include "param/orders_words.h"
#include "starling/error.h"

namespace starling {
namespace {

// The kernel tells of a process that has ended long before that.
constexpr std::chrono::milliseconds kSuspectFor{500};
// In one message. Of many workers that may be lent much at once, all would not fit; these do, also
// with a gradient of each worker among them.
constexpr size_t kOrdersAtOnce = 64;

// With little memory rings are short: those that are left are to go on, if more slowly.
SharedSegment make_segment_of(int world) {
  try {
    return ShmFabric::make_segment({.world = world});
  } catch (const Error&) {
    return ShmFabric::make_segment({.world = world, .ring_bytes = ShmFabric::kRingBytesLeast});
  }
}

Socket copy_of(const SharedSegment& segment) {
  Socket copy(fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0));
  if (!copy)
    throw run_error(fmt::format("no descriptor for a shared segment: {}", std::strerror(errno)),
                    "raise the limit of open files (ulimit -n), or use fewer workers");
  return copy;
}

}  // namespace

Coordination::Coordination(const CoordinationOptions& options)
    : options_(options), lines_(static_cast<size_t>(options.workers)) {
  for (int worker = 0; worker < options.workers; ++worker) {
    members_.push_back(worker);
    lines_[static_cast<size_t>(worker)].serves = worker >= options.workers - options.servers;
  }
  static_cast<void>(coordinator_.joined(members_));
  for (const int worker : members_) {
    static_cast<void>(coordinator_.receive({.kind = commit::Message::Kind::kReady,
                                            .view = coordinator_.view(),
                                            .from = worker,
                                            .has_state = true}));
  }
}

void Coordination::add(int worker, Socket control, uint16_t port, bool serves) {
  const auto index = static_cast<size_t>(worker);
  if (index >= lines_.size()) lines_.resize(index + 1);
  lines_[index].socket = std::move(control);
  lines_[index].port = port;
  lines_[index].serves = serves;
}

bool Coordination::is_enough() const {
  const size_t computing = count_computing(members_);
  const size_t members = computing > 0 ? computing : members_.size();  // servers alone do it all
  const size_t count = members + count_computing(guests_) - count_computing(leavers_);
  return !holds_ || count >= static_cast<size_t>(options_.min_workers);
}

std::optional<std::chrono::steady_clock::time_point> Coordination::short_since() const {
  return is_enough() ? std::nullopt : paused_;
}

void Coordination::release() {
  holds_ = false;
  if (paused_) change_if_enough();
}

void Coordination::retire(int worker) {
  leavers_.insert(worker);
  want_change();
}

void Coordination::want_change() {
  if (paused_) {
    change_if_enough();
  } else {
    ask_for_pause();
  }
}

void Coordination::conduct(const ControlMessage& message) {
  if (message.commit.view != settled_ || coordinator_.view() != settled_) return;
  if (message.kind == Kind::kStretch) {
    const std::optional<Stretch> stretch = stretch_of(message.words);
    if (!stretch) return;
    conductor_.emplace(*stretch);
    give(conductor_->begin());
    const bool wants = !guests_.empty() || !leavers_.empty() || !is_enough();
    if (wants && conductor_) give(conductor_->drain());
  } else if (conductor_ && message.kind == Kind::kPushed) {
    if (const std::optional<Push> push = push_of(message.words)) give(conductor_->pushed(*push));
  } else if (conductor_ && message.kind == Kind::kDrain) {
    give(conductor_->drain());
  }
}

void Coordination::give(const std::vector<Order>& orders) {
  if (conductor_->is_over()) conductor_.reset();
  for (size_t begin = 0; begin < orders.size(); begin += kOrdersAtOnce) {
    const size_t count = std::min(kOrdersAtOnce, orders.size() - begin);
    const std::vector<uint64_t> words = to_words(std::span(orders).subspan(begin, count));
    for (const int member : members_) {
      ControlMessage message;
      message.kind = Kind::kOrders;
      message.commit.view = settled_;
      message.words = words;
      tell(member, std::move(message));
    }
  }
}

void Coordination::tell(int worker, ControlMessage message) {
  Line& line = lines_[static_cast<size_t>(worker)];
  if (!line.socket) return;
  line.unsent.push_back(std::move(message));
  send_unsent(line);
}

void Coordination::send_unsent(Line& line) {
  while (!line.unsent.empty() && send_control(line.socket.fd(), line.unsent.front()))
    line.unsent.pop_front();
}

void Coordination::ask_for_pause() {
  for (const int member : members_) {
    ControlMessage message;
    message.kind = Kind::kChange;
    message.commit.view = settled_;
    tell(member, std::move(message));
  }
  if (conductor_) give(conductor_->drain());
}

// Somebody has paused, and waits for a new view.
void Coordination::change_if_enough() {
  if (!is_enough()) return;
  paused_.reset();
  for (const int worker : std::exchange(leavers_, {})) {
    left_.insert(worker);
    obey(coordinator_.left(worker), "");
  }
  const std::set<int> guests = std::exchange(guests_, {});
  obey(coordinator_.joined({guests.begin(), guests.end()}), "");
}

std::optional<Coordination::Sign> Coordination::sign_of(int worker) const {
  const Line& line = lines_[static_cast<size_t>(worker)];
  if (!line.heard) return std::nullopt;
  return Sign{line.step, line.steps, *line.heard};
}

void Coordination::hear(int worker) {
  Line& line = lines_[static_cast<size_t>(worker)];
  if (!line.socket) return;
  bool ended = false;
  while (auto message = receive_control(line.socket.fd(), ended)) {
    if (message->steps > 0) {
      line.step = message->step;
      line.steps = message->steps;
    }
    switch (message->kind) {
      case Kind::kCommit:
        obey(coordinator_.receive(message->commit), "");
        continue;
      case Kind::kHere:
        guests_.insert(worker);
        want_change();
        continue;
      case Kind::kPaused:
        // Another may have paused before it, or the view has changed since.
        if (message->commit.view == settled_ && coordinator_.view() == settled_ && !paused_) {
          paused_ = Clock::now();
          change_if_enough();
        }
        continue;
      case Kind::kFolder:
        folder_ = {message->news, message->progress};
        continue;
      case Kind::kSuspect:
        if (message->commit.view == settled_ && coordinator_.view() == settled_) {
          ++suspects_[static_cast<int>(message->progress)];
          if (!suspected_) suspected_ = Clock::now();
        }
        continue;
      case Kind::kFault:
        line.fault = message->time;
        continue;
      case Kind::kStretch:
      case Kind::kPushed:
      case Kind::kDrain:
        conduct(*message);
        continue;
      case Kind::kBeat:
      case Kind::kChange:
      case Kind::kOrders:
        break;
    }
    const Clock::time_point now = Clock::now();
    // A fault that it has got on after, for that long, was not its end.
    const auto since_fault = now.time_since_epoch() - Clock::duration(line.fault);
    if (message->progress != line.progress && since_fault > options_.heartbeat_limit)
      line.fault = 0;
    // Until it has got on for the first time it reads its data.
    if (message->progress == 0 || message->progress != line.progress) line.moved = now;
    line.progress = message->progress;
    line.heard = now;
  }
  if (ended) line.socket = Socket();
  if (line.socket) send_unsent(line);
}

std::vector<std::pair<int, std::string>> Coordination::find_frozen() {
  std::vector<std::pair<int, std::string>> found;
  const Clock::time_point now = Clock::now();
  // If nobody has looked for long, this process was frozen, perhaps with all others: what they have
  // said since then is still to be heard.
  const bool was_away = now - std::exchange(looked_, now) > options_.heartbeat_limit / 2;
  for (Line& line : lines_) {
    if (was_away && line.heard) line.heard = line.moved = now;
  }
  for (size_t worker = 0; worker < lines_.size(); ++worker) {
    Line& line = lines_[worker];
    if (!line.socket || !line.heard || line.frozen) continue;
    const auto seconds = [](auto duration) {
      return std::chrono::duration<double>(duration).count();
    };
    if (now - *line.heard > options_.heartbeat_limit) {
      found.emplace_back(worker, fmt::format("it was frozen ({:.3g} s without a sign of life), and "
                                             "killed",
                                             seconds(now - *line.heard)));
    } else if (now - line.moved > options_.progress_limit) {
      found.emplace_back(worker, fmt::format("it did not get on for {:.3g} s, and was killed",
                                             seconds(now - line.moved)));
    } else {
      continue;
    }
    line.frozen = true;
  }
  if (auto unreachable = find_unreachable(now)) found.push_back(std::move(*unreachable));
  return found;
}

// If who can't be reached had died, there would be a new view by now: a connection has broken, and
// one of its ends has to go. It is the one that most complain of, or the later one.
std::optional<std::pair<int, std::string>> Coordination::find_unreachable(Clock::time_point now) {
  if (!suspected_ || now - *suspected_ < kSuspectFor) return std::nullopt;
  suspected_.reset();
  const std::map<int, int> suspects = std::exchange(suspects_, {});
  if (coordinator_.view() != settled_) return std::nullopt;
  int worst = -1, most = 0;
  for (const auto& [worker, count] : suspects) {
    if (count >= most && is_member(worker)) std::tie(worst, most) = std::pair(worker, count);
  }
  if (worst < 0) return std::nullopt;
  return std::pair(worst,
                   fmt::format("{} could not reach it though it lived, and it was killed",
                               most == 1 ? "another worker" : fmt::format("{} workers", most)));
}

void Coordination::note_fault(int worker) {
  lines_[static_cast<size_t>(worker)].fault = Clock::now().time_since_epoch().count();
}

void Coordination::mark_gone(int worker) {
  const auto place = std::find(members_.begin(), members_.end(), worker);
  if (segment() != nullptr && place != members_.end())
    ShmFabric::mark_gone_in(*segment(), static_cast<int>(place - members_.begin()));
}

void Coordination::lose(int worker, const std::string& how) {
  hear(worker);  // its last words
  Line& line = lines_[static_cast<size_t>(worker)];
  line.socket = Socket();
  guests_.erase(worker);
  leavers_.erase(worker);
  for (size_t other = 0; other < lines_.size(); ++other) {
    if (lines_[other].ended) static_cast<void>(coordinator_.died(static_cast<int>(other)));
  }
  const std::vector<commit::Action> actions = coordinator_.died(worker);
  if (actions.empty()) return;  // it had not come in, and nobody expects it
  unsettled_.push_back(fmt::format("worker {} was lost: {}", worker, how));
  losses_.push_back({worker, line.fault, Clock::now().time_since_epoch().count()});
  obey(actions, unsettled_.back());
}

void Coordination::end(int worker) {
  Line& line = lines_[static_cast<size_t>(worker)];
  line.socket = Socket();
  line.ended = true;
  const bool awaited = coordinator_.view() != settled_;
  if (awaited) obey(coordinator_.died(worker), "");
}

void Coordination::obey(const std::vector<commit::Action>& actions, const std::string& news) {
  try {
    carry_out(actions, news);
  } catch (const Error& error) {
    throw run_error(fmt::format("{}{}no new view can be made: {}", fmt::join(unsettled_, "; "),
                                unsettled_.empty() ? "" : "; ", error.what()),
                    error.hint() + "; a run with checkpoints goes on with --resume");
  }
}

void Coordination::carry_out(const std::vector<commit::Action>& actions, const std::string& news) {
  std::optional<SharedSegment> made;
  for (const commit::Action& action : actions) {
    if (action.kind != commit::Action::Kind::kSend) continue;
    ControlMessage message;
    message.kind = ControlMessage::Kind::kCommit;
    message.commit = action.message;
    message.news = news;
    message.losses = losses_;
    // What was ordered counts; the rest of the stretch is for the next view.
    if (action.message.kind == commit::Message::Kind::kPrepare && conductor_)
      give(conductor_->cut_off());
    if (action.message.kind == commit::Message::Kind::kResume) {
      members_ = action.message.members;
      settled_ = action.message.view;
      paused_.reset();
      suspected_.reset();
      suspects_.clear();
      for (const int member : members_) {
        if (serves(member)) message.servers.push_back(member);
      }
      if (segment() == nullptr) {
        for (const int member : members_)
          message.ports.push_back(lines_[static_cast<size_t>(member)].port);
      } else {
        if (!made) made.emplace(make_segment_of(static_cast<int>(members_.size())));
        message.segment = copy_of(*made);
      }
    }
    tell(action.to, std::move(message));
  }
  if (made) segment_ = std::move(made);
  const bool resumed = !actions.empty() && settled_ == coordinator_.view();
  if (resumed) {
    unsettled_.clear();
    losses_.clear();
  }
  const bool wants = !guests_.empty() || !leavers_.empty() || !is_enough();
  if (resumed && wants) ask_for_pause();  // they have forgotten
}

}  // namespace starling
