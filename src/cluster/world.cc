#include "cluster/world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "base/lost_worker.h"
#include "base/retired_worker.h"
#include "base/sha256.h"
#include "cluster/enough_shards.h"
#include "fabric/tcp/tcp_fabric.h"
#include "param/orders_words.h"
#include "starling/error.h"

namespace starling {
namespace {

// Texts that are compared, of every worker, with the zero at their end.
constexpr size_t kSharedTextBytes = 4096;
// For what the launcher decides on: a longer wait is a fault of its own. It may let workers wait
// for others to join.
constexpr std::chrono::hours kLongestJoin{24 * 7};
// Of the state for newcomers; the collectives of the world have channel 1.
constexpr Tag kStateTag = Tag{9} << 56;

// Of `before`, those that are not among `now`: where they stood.
std::vector<int> missing_ranks(const std::vector<int>& before, const std::vector<int>& now) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < before.size(); ++rank) {
    if (std::find(now.begin(), now.end(), before[rank]) == now.end())
      ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

// The text, or of one that is too long as much as there is room for, and what tells it from others
// that begin so.
std::string to_compare(const std::string& text) {
  if (text.size() < kSharedTextBytes) return text;
  const std::string rest =
      fmt::format("\n{} bytes in all, SHA-256 {}", text.size(), sha256_hex(text));
  return text.substr(0, kSharedTextBytes - 1 - rest.size()) + rest;
}

std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string x, y;
  while (true) {
    const bool more_left = static_cast<bool>(std::getline(left, x)),
               more_right = static_cast<bool>(std::getline(right, y));
    if (!more_left && !more_right) return "their lengths";
    if (!more_left) x.clear();
    if (!more_right) y.clear();
    if (x != y) return fmt::format("\"{}\" against \"{}\"", x, y);
  }
}

}  // namespace

World::World() = default;

World::World(const WorkerPlace& place) : place_(place), rank_(place.rank) {
  members_.clear();
  for (int worker = 0; worker < place.workers; ++worker) {
    members_.push_back(worker);
    if (worker >= place.workers - place.servers) servers_.push_back(worker);
  }
  if (place.control < 0) {
    enter(place);
    return;
  }
  membership_ = std::make_unique<Membership>(Socket(place.control));
  member_ = std::make_unique<commit::Member>(commit::MemberOptions{
      .id = place.rank, .shared_state = shares_memory(), .has_state = !place.joins});
  if (place.joins) {
    has_state_ = false;
    members_.clear();
    servers_.clear();
    view_ = 0;
    rank_ = -1;
    return;
  }
  membership_->enter(view_);
  // All know of the first view without a word.
  static_cast<void>(member_->receive({.kind = commit::Message::Kind::kPrepare, .view = view_}));
  static_cast<void>(member_->receive(
      {.kind = commit::Message::Kind::kResume, .view = view_, .redo = true, .members = members_}));
  try {
    enter(place);
  } catch (const LostWorker& lost) {
    reform(lost, [](std::span<const int>) { return false; });
  }
}

World::~World() {
  if (membership_) membership_->wake_by(nullptr);
}

// Makes the fabric of the view, from what the launcher gave.
void World::enter(const WorkerPlace& means) {
  if (membership_) membership_->wake_by(nullptr);
  collectives_.reset();
  shm_ = nullptr;
  if (fabric_) former_.push_back(std::move(fabric_));
  if (means.fabric == FabricKind::kShm) {
    ShmOptions options;
    // Who serves while the worker computes must not spin on its core, nor who waits for one that
    // has the same core: of that the launcher alone knows, which tells all of them the same.
    if (place_.apart || place_.crowded) options.spin = std::chrono::nanoseconds(0);
    auto shm = std::make_unique<ShmFabric>(means.descriptor, rank_, options);
    shm_ = shm.get();
    shm_->roster().interrupt_by(interrupt());
    fabric_ = std::move(shm);
  } else {
    TcpOptions options{.rank = rank_,
                       .token = means.token,
                       .view = static_cast<uint64_t>(view_),
                       .connect_deadline = place_.patience,
                       .interrupt = interrupt(),
                       .link = means.link};
    for (const uint16_t port : means.ports) options.addresses.push_back({"127.0.0.1", port});
    fabric_ = std::make_unique<TcpFabric>(TcpListener::adopt(dup(means.descriptor)), options);
  }
  if (fabric_->world() != workers()) {
    throw input_error(fmt::format("worker {} was told of {} workers, but its world has {}", name(),
                                  workers(), fabric_->world()),
                      "start workers with `starling launch` or `starling train --workers`");
  }
  const auto count = static_cast<size_t>(workers());
  collectives_ = std::make_unique<Collectives>(
      *fabric_, std::make_shared<Placement>(Placement::even(count, count)),
      CollectiveOptions{.timeout = timeout(), .interrupt = interrupt()});
  if (membership_) membership_->wake_by([fabric = fabric_.get()] { fabric->wake(); });
}

World::Computing::Computing(const World& world, int lanes)
    : world_(world), alone_(lanes == 1), begin_(world.faults_.empty() ? 0 : seconds()) {}

World::Computing::~Computing() {
  if (!world_.faults_.empty()) world_.slow_down(seconds() - begin_);
}

double World::Computing::seconds() const {
  timespec now{};
  clock_gettime(alone_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double World::slow_down(double computed_s) const {
  if (faults_.empty()) return 0;
  const double longer_s = (faults_.slowness(name(), step_) - 1) * computed_s;
  if (longer_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(longer_s));
  return longer_s;
}

int World::rank_of(int name) const {
  return static_cast<int>(std::find(members_.begin(), members_.end(), name) - members_.begin());
}

bool World::is_server(int rank) const {
  return std::find(servers_.begin(), servers_.end(), name_of(rank)) != servers_.end();
}

int World::computing() const {
  return workers() - (has_roles() ? static_cast<int>(servers_.size()) : 0);
}

std::vector<int> World::computing_names() const {
  std::vector<int> names;
  for (int rank = 0; rank < workers(); ++rank) {
    if (computes(rank)) names.push_back(name_of(rank));
  }
  return names;
}

void World::require_shards(int shards) const { starling::require_shards(computing(), shards); }

void World::wait(const char* what, Collectives::Handle handle) {
  const Waiting waiting(*this);
  require(what, collectives_->wait(handle));
}

bool World::can_talk(const char* what) const {
  if (!fabric_ && workers() > 1)
    require(what, Failure{FailureKind::kStaleView, -1, "the workers of a new view have not met"});
  return fabric_ != nullptr;
}

void World::barrier(const char* what) {
  if (can_talk(what)) wait(what, collectives_->barrier());
}

void World::broadcast(const char* what, std::span<std::byte> bytes) {
  if (can_talk(what)) wait(what, collectives_->broadcast(0, bytes));
}

void World::all_gather(const char* what, std::span<std::byte> all, std::vector<size_t> cuts) {
  if (can_talk(what)) wait(what, collectives_->all_gather(all, std::move(cuts)));
}

LinkCosts World::link_costs() {
  constexpr const char* kWhat = "measuring the links";
  struct Known {
    bool is = false;
    LinkCosts costs;
  };
  // Newcomers have none.
  const Known own{costs_.has_value(), costs_.value_or(LinkCosts{})};
  for (const Known& known : gather(kWhat, std::span(&own, 1))) {
    if (!known.is) continue;
    costs_ = known.costs;
    return *costs_;
  }
  if (!can_talk(kWhat)) return {};
  const Waiting waiting(*this);
  const Result<LinkCosts> measured = collectives_->measure_costs();
  if (!measured) require(kWhat, measured.failure());
  costs_ = measured.value();
  return *costs_;
}

void World::hand_over(const char* what, const Handover& given) {
  std::vector<size_t> cuts(static_cast<size_t>(workers()) + 1, given.bytes);
  std::fill_n(cuts.begin(), given.from + 1, size_t{0});
  if (can_talk(what))
    wait(what, collectives_->gather(given.to, given.out, given.in, std::move(cuts)));
}

SharedSegment World::open_shared(int rank, int64_t process, int64_t descriptor) const {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, descriptor);
  const Socket file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file) return SharedSegment::map(file.fd());
  const std::string what = fmt::format("{} can't be opened: {}", path, std::strerror(errno));
  const char* const hint =
      "workers of one host must run as the same user; fabric = \"tcp\" shares nothing";
  // Other reasons are this worker's own. Of a process that is dying the kernel shows it to root
  // alone: to others it is an error to look.
  std::error_code unseen;
  const bool is_there = std::filesystem::exists(path, unseen);
  if (!survives() || is_there) throw run_error(what, hint);
  throw LostWorker(fmt::format("sharing memory, worker {}: {}", name(), what), hint, rank);
}

SharedSegment World::share(const std::string& name, size_t bytes) {
  // A worker that expects more than there is would die of it before it can say why.
  require_same("job", fmt::format("{} of {} bytes", name, bytes));
  // The chief makes it; the others open it through the chief's table of descriptors.
  std::array<int64_t, 2> where{};
  std::optional<SharedSegment> segment;
  if (is_chief()) {
    segment = SharedSegment::create(name, bytes);
    where = {getpid(), segment->fd()};
  }
  broadcast("sharing memory", std::as_writable_bytes(std::span(where)));
  if (!is_chief()) {
    segment = open_shared(0, where[0], where[1]);
  }
  barrier("sharing memory");
  return std::move(*segment);
}

std::optional<World::Difference> World::compare(const char* what, const std::string& text) {
  if (workers() == 1) return std::nullopt;
  const auto count = static_cast<size_t>(workers());
  std::vector<char> texts(count * kSharedTextBytes, 0);
  const auto of = [&](size_t rank) { return texts.data() + rank * kSharedTextBytes; };
  const std::string own = to_compare(text);
  std::memcpy(of(static_cast<size_t>(rank())), own.data(), own.size());
  std::vector<size_t> cuts;
  for (size_t r = 0; r <= count; ++r) cuts.push_back(r * kSharedTextBytes);
  all_gather(what, std::as_writable_bytes(std::span(texts)), cuts);
  for (size_t r = 1; r < count; ++r) {
    if (std::strcmp(of(0), of(r)) != 0)
      return Difference{name_of(static_cast<int>(r)), first_difference(of(0), of(r))};
  }
  return std::nullopt;
}

void World::require_same(const char* what, const std::string& text) {
  const std::optional<Difference> found = compare(what, text);
  if (!found) return;
  throw input_error(
      fmt::format("workers {} and {} have not the same {}: {}", name_of(0), found->worker, what,
                  found->lines),
      "start all workers with one program, one job, the same data and one kind of CPU; isa = "
      "\"avx2\" makes unlike CPUs alike");
}

Status World::meet() {
  if (!can_talk("meeting")) return {};
  const Waiting waiting(*this);
  if (shm_ == nullptr) return collectives_->wait(collectives_->barrier());
  return shm_->barrier().pass(shm_->now() + timeout());
}

void World::require(const char* what, const Status& status) const {
  if (status) return;
  throw LostWorker(fmt::format("{}, worker {}: {}", what, name(), status.failure().message),
                   "see what the lost worker said; --resume goes on from the last checkpoint",
                   status.failure().peer);
}

void World::plan_faults(std::vector<Fault> plan) {
  if (place_.launched) {  // then these are the launcher's
    std::erase_if(plan, [](const Fault& fault) { return fault.at && fault.is_signal(); });
  }
  faults_ = Faults(plan, place_.launched.value_or(std::chrono::steady_clock::now()));
  faults_.handle(Fault::Action::kLink, [this](const Fault& fault) {
    const auto peer = std::find(members_.begin(), members_.end(), fault.peer);
    const auto* const tcp = dynamic_cast<const TcpFabric*>(fabric_.get());
    if (tcp != nullptr && peer != members_.end() && fault.peer != name())
      tcp->sever(static_cast<int>(peer - members_.begin()));
    return true;
  });
  if (!membership_) return;
  faults_.tell_by([this] {
    membership_->send({.kind = ControlMessage::Kind::kFault,
                       .time = std::chrono::steady_clock::now().time_since_epoch().count()});
  });
}

void World::announce() {
  if (member_) send(member_->reduced(member_->progress().step, true));
}

void World::retract() {
  if (member_) member_->withdraw(member_->progress().step);
}

void World::begin_completion() {
  if (member_) send(member_->heard_all(commit::Message::Kind::kReduced, member_->progress().step));
}

Status World::complete() {
  if (!member_) return shares_memory() ? meet() : Status();
  const int64_t unit = member_->progress().step;
  send(member_->applied(unit));
  if (shares_memory()) {
    if (Status met = meet(); !met) return met;
    send(member_->heard_all(commit::Message::Kind::kApplied, unit));
  }
  membership_->note_progress();
  unit_began_ = std::chrono::steady_clock::now();
  return {};
}

void World::agree(const char* what, FunctionRef<void()> work) {
  if (!survives()) return work();
  for (auto next = Next::kRedo;;) {
    try {
      if (next == Next::kRedo) {
        work();
        require(what, meet());  // so that nobody needs another's work any more
        announce();
        require(what, meet());
        begin_completion();
      }
      return require(what, complete());
    } catch (const LostWorker& lost) {
      next = reform(lost, [](std::span<const int>) { return true; });
    }
  }
}

// Only what is for the coordinator: members hear of one another where they meet.
void World::send(const std::vector<commit::Action>& actions) {
  for (const commit::Action& action : actions) {
    if (action.kind == commit::Action::Kind::kSend && action.to < 0)
      membership_->send(action.message);
  }
}

void World::change() {
  membership_->send({.kind = ControlMessage::Kind::kPaused});
  reform_by(std::chrono::steady_clock::now() + kLongestJoin,
            LostWorker("workers were to join or leave, and nobody said how", "start the run again"),
            [](std::span<const int>) { return true; });
}

// What the conductor must hear of: without it all would wait for ever.
void World::send_surely(const ControlMessage::Kind kind, std::vector<uint64_t> words) {
  ControlMessage message;
  message.kind = kind;
  message.words = std::move(words);
  if (!membership_->send(std::move(message)))
    throw run_error("the launcher does not listen any more",
                    "--resume goes on from the last checkpoint");
}

void World::begin_stretch(const Stretch& stretch) {
  send_surely(ControlMessage::Kind::kStretch, to_words(stretch));
}

void World::tell_pushed(const Push& push) {
  send_surely(ControlMessage::Kind::kPushed, to_words(push));
}

void World::drain() { send_surely(ControlMessage::Kind::kDrain, {}); }

void World::join() {
  membership_->send({.kind = ControlMessage::Kind::kHere});
  reform_by(std::chrono::steady_clock::now() + kLongestJoin,
            LostWorker("the others have not let this worker in", "start it again"),
            [](std::span<const int>) { return false; });
}

void World::open_to_requests(const std::string& folder, uint64_t workers_most) {
  if (membership_) {
    membership_->send(
        {.kind = ControlMessage::Kind::kFolder, .progress = workers_most, .news = folder});
  }
}

void World::wait_for(const char* what, Ticket ticket) {
  const Waiting waiting(*this);
  const Instant deadline = fabric_->now() + timeout();
  while (true) {
    const Transfer transfer = fabric_->poll(ticket);
    if (transfer.done()) return;
    const bool over = fabric_->now() >= deadline || membership_->interrupted();
    if (transfer.failed() || over) {
      if (!transfer.failed()) fabric_->cancel(ticket);
      require(what, describe_failure(*fabric_, transfer));
    }
    fabric_->progress(deadline);
  }
}

void World::give_state(std::span<const std::byte> state) {
  const uint64_t length = state.size();
  for (const int newcomer : newcomers_) {
    const int peer = rank_of(newcomer);
    wait_for("giving the state",
             fabric_->start_send(peer, kStateTag, std::as_bytes(std::span(&length, 1))));
    wait_for("giving the state", fabric_->start_send(peer, kStateTag, state));
  }
  newcomers_.clear();
  pass(FaultPoint::kGiven);
}

void World::take_state(FunctionRef<void(int donor, std::vector<std::byte> state)> use) {
  while (!has_state_) {
    try {
      const int donor = rank_of(donor_);
      uint64_t length = 0;
      wait_for(
          "taking the state",
          fabric_->start_receive(donor, kStateTag, std::as_writable_bytes(std::span(&length, 1))));
      std::vector<std::byte> state(length);
      wait_for("taking the state", fabric_->start_receive(donor, kStateTag, state));
      pass(FaultPoint::kTaken);
      use(donor, std::move(state));
      static_cast<void>(member_->received_state(view_, first_unit_));
      has_state_ = true;
    } catch (const LostWorker& lost) {
      reform(lost, [](std::span<const int>) { return false; });
    }
  }
}

World::Next World::reform(const LostWorker& lost,
                          FunctionRef<bool(std::span<const int> ranks)> can_complete) {
  return reform_by(std::chrono::steady_clock::now() + timeout(), lost, can_complete);
}

World::Next World::reform_by(Instant deadline, const LostWorker& lost,
                             FunctionRef<bool(std::span<const int> ranks)> can_complete) {
  using Kind = commit::Message::Kind;
  if (!survives()) throw lost;
  const Instant began = std::chrono::steady_clock::now();
  const std::vector<int> before = members_;
  Recovery recovery{.operation = lost.what()};
  member_->suspend();
  if (lost.peer() >= 0 && lost.peer() < workers() && !membership_->interrupted()) {
    membership_->send({.kind = ControlMessage::Kind::kSuspect,
                       .progress = static_cast<uint64_t>(name_of(lost.peer()))});
  }
  std::map<int, ControlMessage::Loss> losses;
  const Waiting waiting(*this);
  while (true) {
    std::optional<ControlMessage> message = membership_->next(deadline);
    if (!message) throw lost;  // nobody is known to be lost: the failure stands
    if (message->commit.kind == Kind::kPrepare) {
      for (const auto& loss : message->losses) losses[static_cast<int>(loss.worker)] = loss;
      recovery.news += (recovery.news.empty() ? "" : "; ") + message->news;
      if (std::vector<int> ranks = missing_ranks(before, message->commit.members);
          !ranks.empty() && !can_complete(ranks)) {
        retract();
      }
      send(member_->receive(message->commit));
    } else if (message->commit.kind == Kind::kResume && message->commit.view > view_) {
      const std::vector<commit::Action> actions = member_->receive(message->commit);
      if (member_->view() != message->commit.view) continue;  // of a view that is over already
      const auto told_to = [&](commit::Action::Kind kind) {
        return std::any_of(actions.begin(), actions.end(),
                           [&](const auto& action) { return action.kind == kind; });
      };
      if (told_to(commit::Action::Kind::kRetire)) throw RetiredWorker{};
      // If not to apply: it works on a unit again, or on the next one.
      recovery.redone = !told_to(commit::Action::Kind::kApply);
      try {
        resume(std::move(*message));
        break;
      } catch (const LostWorker&) {
        member_->suspend();  // another was lost meanwhile: the next view will come
      }
    }
  }
  const Instant now = std::chrono::steady_clock::now();
  const auto seconds = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; };
  for (const int rank : missing_ranks(before, members_)) {
    const int worker = before[static_cast<size_t>(rank)];
    const auto loss = losses.find(worker);
    if (loss == losses.end()) {
      recovery.retired.push_back(worker);
      continue;
    }
    const auto [_, happened, noticed] = loss->second;
    recovery.lost.push_back(
        {worker, std::nullopt, seconds(now.time_since_epoch().count() - noticed)});
    if (happened != 0) recovery.lost.back().detection = seconds(noticed - happened);
  }
  for (const int rank : missing_ranks(members_, before))
    recovery.joined.push_back(members_[static_cast<size_t>(rank)]);
  if (recovery.lost.empty()) recovery.operation.clear();  // nothing went wrong in it
  recovery.left = members_;
  recovery.seconds = std::chrono::duration<double>(now - began).count();
  if (recovery.redone && !recovery.lost.empty())
    recovery.work_lost = std::chrono::duration<double>(began - unit_began_).count();
  unit_began_ = now;
  recoveries_.push_back(std::move(recovery));
  if (told_) told_(recoveries_.back());
  return recoveries_.back().redone ? Next::kRedo : Next::kComplete;
}

// What the chief writes is the job's: it goes where the launcher writes.
void World::take_over_output() {
  for (const auto& [own, launchers] :
       {std::pair{STDOUT_FILENO, &place_.out}, {STDERR_FILENO, &place_.err}}) {
    if (*launchers < 0) continue;
    std::fflush(own == STDOUT_FILENO ? stdout : stderr);
    dup2(*launchers, own);
    close(std::exchange(*launchers, -1));
  }
}

// Enters the new view.
void World::resume(ControlMessage message) {
  view_ = message.commit.view;
  members_ = message.commit.members;
  servers_ = message.servers;
  newcomers_ = message.commit.newcomers;
  donor_ = message.commit.donor;
  first_unit_ = message.commit.step + (message.commit.redo ? 0 : 1);
  rank_ = rank_of(name());
  membership_->enter(view_);
  if (is_chief()) take_over_output();
  WorkerPlace means = place_;
  if (message.segment) means.descriptor = message.segment.fd();
  means.ports = message.ports;
  enter(means);
  // Who is at the next unit already, or has no part in this one, still owes the others this
  // meeting: they wait for it in complete().
  const bool is_ahead = !has_state_ || member_->progress().step > message.commit.step;
  if (!message.commit.redo && is_ahead && shares_memory()) require("a new view", meet());
}

}  // namespace starling
