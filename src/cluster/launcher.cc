#include "cluster/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <utility>

#include "base/say.h"
#include "cluster/coordination.h"
#include "cluster/request_socket.h"
#include "cluster/run_status.h"
#include "cluster/worker_error.h"
#include "cluster/worker_output.h"
#include "cluster/worker_starter.h"
#include "starling/error.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// How long workers have to end by themselves after one has failed, or after a second signal.
constexpr std::chrono::seconds kGrace{1};
// For workers that are not heard of any more.
constexpr std::chrono::milliseconds kLookEvery{50};

bool is_stopped(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // "id (name) state …"
  return name_end != std::string::npos && text.compare(name_end, 3, ") T") == 0;
}

class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(options), starter_(options, errors_pipe_.write_end.fd()) {
    for (const Fault& fault : options.faults) {
      if (fault.at && fault.is_signal()) faults_.push_back(fault);
    }
    if (!options.survive) return;
    coordination_.emplace(CoordinationOptions{.workers = options.workers,
                                              .servers = options.servers,
                                              .min_workers = options.min_workers,
                                              .heartbeat_limit = options.heartbeat_limit,
                                              .progress_limit = options.progress_limit,
                                              .segment = starter_.segment()});
  }

  ~Launch() {
    signal_all(SIGKILL);
    for (const Worker& worker : workers_) {
      if (worker.running) waitpid(worker.process, nullptr, 0);
    }
  }

  int run() {
    for (int rank = 0; rank < options_.workers; ++rank)
      start(rank, rank >= options_.workers - options_.servers);
    while (running() > 0) turn();
    for (Worker& worker : workers_) {
      worker.output.finish([&](std::string_view line) { print(worker, line); });
    }
    return conclude();
  }

 private:
  struct Worker {
    pid_t process = -1;
    Socket pidfd;
    WorkerOutput output;
    bool running = false;
    bool serves = false;    // and computes nothing
    bool given_up = false;  // killed here
    int code = 0;
    int slot = 0;                              // whose cores it has
    std::string why;                           // it was killed here for that
    std::optional<Clock::time_point> stopped;  // since then, before it has said anything
    enum class Outcome : uint8_t { kOpen, kDone, kLost, kLeft } outcome = Outcome::kOpen;
  };
  using Outcome = Worker::Outcome;

  bool any(Outcome outcome) const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [&](const Worker& worker) { return worker.outcome == outcome; });
  }

  int running() const {
    int count = 0;
    for (const Worker& worker : workers_) count += worker.running;
    return count;
  }

  // The cores of the fewest workers that run.
  int find_slot() const {
    std::vector<int> users(static_cast<size_t>(options_.workers), 0);
    for (const Worker& worker : workers_) users[static_cast<size_t>(worker.slot)] += worker.running;
    return static_cast<int>(std::min_element(users.begin(), users.end()) - users.begin());
  }

  void start(int rank, bool serves) {
    Worker worker;
    worker.serves = serves;
    worker.slot = find_slot();
    WorkerStarter::Started started = starter_.start(rank, worker.slot);
    worker.process = started.process;
    worker.pidfd = std::move(started.pidfd);
    worker.output = WorkerOutput(std::move(started.output));
    worker.running = true;
    if (coordination_) coordination_->add(rank, std::move(started.control), started.port, serves);
    workers_.push_back(std::move(worker));
  }

  // Waits for something to happen, and does what it asks for.
  void turn() {
    for (const Event& event : events()) {
      const auto rank = static_cast<int>(event.worker);
      switch (event.kind) {
        case Event::Kind::kSignal:
          pass_signals_on();
          break;
        case Event::Kind::kOutput:
          pass_on(workers_[event.worker]);
          break;
        case Event::Kind::kWord:
          coordination_->hear(rank);
          break;
        case Event::Kind::kEnd:
          reap(rank);
          break;
        case Event::Kind::kRequest:
          requests_->serve([&](const std::string& words) { return answer(words); });
          break;
      }
    }
    if (coordination_) {
      kill_the_frozen();
      open_to_requests();
      end_if_too_few();
      end_if_state_is_lost();
    }
    std::erase_if(faults_, [&](const Fault& fault) { return happens(fault); });
    if (kill_at_ && Clock::now() >= *kill_at_) give_up();
  }

  // In the order in which they are to be dealt with: of a worker its last words before its end.
  struct Event {
    enum class Kind : uint8_t { kSignal, kOutput, kWord, kEnd, kRequest } kind;
    size_t worker = 0;
  };
  std::vector<Event> events() {
    std::vector<pollfd> polled;
    std::vector<Event> sources;
    // Only what is open: poll refuses more entries than a process may have files.
    const auto add = [&](int fd, Event event) {
      if (fd < 0) return;
      polled.push_back({fd, POLLIN, 0});
      sources.push_back(event);
    };
    using Kind = Event::Kind;
    add(starter_.signals().fd(), {Kind::kSignal});
    for (size_t i = 0; i < workers_.size(); ++i) {
      add(workers_[i].output.fd(), {Kind::kOutput, i});
      if (coordination_) add(coordination_->fd(static_cast<int>(i)), {Kind::kWord, i});
      add(workers_[i].pidfd.fd(), {Kind::kEnd, i});
    }
    if (requests_) add(requests_->fd(), {Kind::kRequest});
    std::vector<Event> found;
    if (poll(polled.data(), polled.size(), patience_ms()) <= 0) return found;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) found.push_back(sources[i]);
    }
    return found;
  }

  // Until something is due that nobody tells of; −1: nothing is.
  int patience_ms() const {
    std::vector<Clock::time_point> due;
    if (coordination_) due.push_back(Clock::now() + kLookEvery);
    if (kill_at_) due.push_back(*kill_at_);
    for (const Fault& fault : faults_) due.push_back(time_of(fault));
    if (due.empty()) return -1;
    const auto left = *std::min_element(due.begin(), due.end()) - Clock::now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
  }

  Clock::time_point time_of(const Fault& fault) const {
    return began_ +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*fault.at));
  }

  // True if it has, or never will.
  bool happens(const Fault& fault) {
    if (Clock::now() < time_of(fault)) return false;
    const auto index = static_cast<size_t>(fault.worker);
    if (index >= workers_.size() || !workers_[index].running) return true;
    if (coordination_) coordination_->note_fault(fault.worker);
    kill(workers_[index].process, fault.action == Fault::Action::kKill ? SIGKILL : SIGSTOP);
    return true;
  }

  // To all that run, and what they have started themselves, once to each.
  void signal_all(int signal) const {
    starter_.guardian().signal_group(signal);
    for (const Worker& worker : workers_) {  // one may have left for a group of its own
      if (worker.running && getpgid(worker.process) != starter_.guardian().group())
        kill(worker.process, signal);
    }
  }

  // The workers that have not ended by themselves.
  void give_up() {
    kill_at_.reset();
    take_errors();
    // With a known cause, this worker had perhaps not come to see it yet: it is not at fault.
    const bool has_cause = std::any_of(errors_.begin(), errors_.end(),
                                       [](const WorkerError& error) { return !error.of_another; });
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (!workers_[rank].running) continue;
      workers_[rank].given_up = true;
      if (!has_cause)
        say(fmt::format("error: worker {} has not ended {} s after {}: it is killed", rank,
                        kGrace.count(), failed_ ? "another failed" : "a second signal"));
    }
    signal_all(SIGKILL);
  }

  void pass_signals_on() {
    for (int left = starter_.signals().take(); left > 0; --left) {
      if (stopping_) kill_soon();
      stop();
    }
  }

  void stop() {
    signal_all(SIGTERM);
    stopping_ = true;
    if (coordination_) coordination_->release();
  }

  void kill_soon() {
    if (!kill_at_) kill_at_ = Clock::now() + kGrace;
  }

  void take_errors() {
    for (WorkerError& error : receive_worker_errors(errors_pipe_.read_end.fd()))
      errors_.push_back(std::move(error));
  }

  void reap(int rank) {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    int status = 0;
    const pid_t ended = waitpid(worker.process, &status, WNOHANG);
    if (ended == 0) return;
    if (ended < 0) status = W_EXITCODE(1, 0);  // nobody knows how: not as a success
    worker.running = false;
    worker.pidfd = Socket();
    pass_on(worker);
    take_errors();
    if (coordination_) {
      coordination_->mark_gone(rank);
    } else if (starter_.segment() != nullptr) {
      ShmFabric::mark_gone_in(*starter_.segment(), rank);
    } else if (!std::exchange(first_end_is_told_, true)) {
      starter_.tell_of_end(rank);  // who hears it ends, too: the others know by their connections
    }
    if (is_guest(rank)) return turn_away(rank, status);
    if (WIFSIGNALED(status) && can_survive(worker, WTERMSIG(status)))
      return lose(rank, WTERMSIG(status));
    // When the first ends, all is written.
    if (WIFSIGNALED(status) && coordination_ && any(Outcome::kDone)) return;
    worker.code =
        WIFSIGNALED(status) ? code_of_signal(rank, WTERMSIG(status)) : WEXITSTATUS(status);
    if (worker.code == 0 && coordination_ && coordination_->has_left(rank)) {
      worker.outcome = Outcome::kLeft;
      return;
    }
    // With a coordination all end together, also when they were asked to stop: "resume me".
    if (worker.code == 0 || (coordination_ && worker.code == EX_TEMPFAIL)) {
      worker.outcome = Outcome::kDone;
      if (!coordination_) return;
      coordination_->end(rank);
      return dismiss_guests();
    }
    if (!failed_ && !stopping_ && WIFEXITED(status)) failed_first_ = rank;
    if (!failed_) failed_ = worker.code;
    // A worker that was asked to stop ends with "resume me", or of the signal: the others may be
    // saving still.
    if (worker.code != EX_TEMPFAIL && !(stopping_ && worker.code == 128 + SIGTERM)) kill_soon();
    if (coordination_ && members_running() == 0) dismiss_guests();
  }

  // Whether it came when the others were under way, and does not take part yet.
  bool is_guest(int rank) const {
    return coordination_ && rank >= options_.workers && !coordination_->is_member(rank) &&
           !coordination_->has_left(rank);
  }

  // It can't join, because of something that the others have nothing to do with.
  void turn_away(int rank, int status) {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    worker.outcome = Outcome::kLost;
    const auto own = std::partition(errors_.begin(), errors_.end(),
                                    [&](const WorkerError& error) { return error.rank != rank; });
    const bool killed = WIFSIGNALED(status);
    std::string why = killed ? how_it_ended(worker, WTERMSIG(status)) : "it failed";
    coordination_->lose(rank, killed ? why : "it did not join");
    for (auto error = own; error != errors_.end(); ++error)
      why = fmt::format("{}\nhint: {}", error->message, error->hint);
    errors_.erase(own, errors_.end());
    const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    const bool was_asked = worker.given_up || (stopping_ && code == 128 + SIGTERM);
    if (was_asked || failed_) return;
    say(fmt::format("note: worker {} did not join, the others go on: {}", rank, why));
  }

  // Who wait to take part wait for members: when these have ended there is nothing to wait for.
  void dismiss_guests() {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (!worker.running || !is_guest(static_cast<int>(rank))) continue;
      worker.given_up = true;
      kill(worker.process, SIGKILL);
    }
  }

  int members_running() const {
    int count = 0;
    for (size_t rank = 0; rank < workers_.size(); ++rank)
      count += workers_[rank].running && coordination_->is_member(static_cast<int>(rank));
    return count;
  }

  // Whether the others go on without one that was killed, also to save and end if they were asked
  // to: unless it ended because it was asked, too.
  bool can_survive(const Worker& worker, int signal) const {
    if (!coordination_ || failed_ || kill_at_ || worker.given_up) return false;
    return !(stopping_ && signal == SIGTERM) && members_running() >= 1;
  }

  static std::string how_it_ended(const Worker& worker, int signal) {
    if (!worker.why.empty()) return worker.why;
    return fmt::format("it was ended by signal {} ({})", signal, strsignal(signal));
  }

  void lose(int rank, int signal) {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    worker.outcome = Outcome::kLost;
    const bool was_member = coordination_->is_member(rank);  // it may have left
    coordination_->lose(rank, how_it_ended(worker, signal));
    if (!options_.respawn || !was_member || stopping_) return;
    try {
      if (options_.check_newcomer) options_.check_newcomer();
      start(static_cast<int>(workers_.size()), worker.serves);
    } catch (const Error& error) {
      say(fmt::format("note: worker {} is not replaced: {}", rank, error.what()));
    }
  }

  // A worker that may come back to life must not: it is killed before the others go on.
  void kill_the_frozen() {
    for (const auto& [rank, why] : coordination_->find_frozen()) {
      Worker& worker = workers_[static_cast<size_t>(rank)];
      if (!worker.running) continue;
      worker.why = why;
      kill(worker.process, SIGKILL);
    }
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (!workers_[rank].running || coordination_->sign_of(static_cast<int>(rank))) continue;
      kill_if_stopped(workers_[rank]);
    }
  }

  // Who has not said anything yet has no beats to miss, and may take its time; but the kernel knows
  // whether it does nothing at all.
  void kill_if_stopped(Worker& worker) const {
    const Clock::time_point now = Clock::now();
    if (!worker.why.empty()) return;
    if (!is_stopped(worker.process)) {
      worker.stopped.reset();
    } else if (!worker.stopped) {
      worker.stopped = now;
    } else if (now - *worker.stopped > options_.heartbeat_limit) {
      worker.why = fmt::format("it was frozen before it took part ({:.3g} s), and killed",
                               std::chrono::duration<double>(now - *worker.stopped).count());
      kill(worker.process, SIGKILL);
    }
  }

  void open_to_requests() {
    if (is_open_ || !coordination_->folder()) return;
    is_open_ = true;
    try {
      requests_.emplace(coordination_->folder()->path);
    } catch (const Error& error) {
      say(fmt::format("note: nobody can ask for this run: {}", error.what()));
    }
  }

  // All are saved, and have waited for others to join.
  void end_if_too_few() {
    const auto since = coordination_->short_since();
    if (!since || failed_ || Clock::now() - *since < options_.wait_for_workers) return;
    end_all(
        fmt::format("error: {} of at least {} workers are left, and no others have joined for "
                    "{:.3g} s\nhint: a run with checkpoints goes on with --resume, with any number "
                    "of workers; strategy.min_workers says how few may go on by themselves",
                    coordination_->computing(), options_.min_workers,
                    std::chrono::duration<double>(options_.wait_for_workers).count()));
  }

  // Those who are left came last, and were given nothing yet.
  void end_if_state_is_lost() {
    if (!coordination_->lost_state() || failed_ || any(Outcome::kDone)) return;
    for (const std::string& news : coordination_->unsettled()) say("error: " + news);
    end_all(
        "error: no worker that is left has the state of the run\nhint: a run with checkpoints goes "
        "on with --resume");
  }

  void end_all(const std::string& cause) {
    say(cause);
    failed_ = 1;
    for (Worker& worker : workers_) worker.given_up = worker.running;
    signal_all(SIGKILL);
  }

  // What people ask for: "status", "join", "leave 2", "stop".
  std::string answer(const std::string& words) {
    if (words == "status") return to_text(status().to_json());
    if (words == "stop") {
      // A worker that is told twice ends at once, and saves nothing.
      if (!stopping_) stop();
      return to_text(OrderedJson{{"process", getpid()}});
    }
    if (stopping_ || failed_ || any(Outcome::kDone))
      return refusal("the run is ending", "a stopped run goes on with --resume");
    if (words == "join") return add_worker();
    int worker = -1;
    const bool leaves = std::sscanf(words.c_str(), "leave %d", &worker) == 1;
    return leaves ? retire(worker)
                  : refusal(fmt::format("\"{}\" is nothing that a run can do", words),
                            "ask with the version of starling that runs it");
  }

  // Who compute, or are about to.
  int expected() const {
    int count = 0;
    for (size_t rank = 0; rank < workers_.size(); ++rank)
      count += workers_[rank].running && !workers_[rank].serves &&
               !coordination_->is_leaving(static_cast<int>(rank)) &&
               !coordination_->has_left(static_cast<int>(rank));
    return count;
  }

  std::string add_worker() {
    const auto most = static_cast<int>(coordination_->folder()->workers_most);
    if (expected() >= most)
      return refusal(fmt::format("the run has {} workers, and can't have more", expected()),
                     "a batch has as many shards as `shards` says: each worker needs one");
    const auto worker = static_cast<int>(workers_.size());
    try {
      if (options_.check_newcomer) options_.check_newcomer();
      start(worker, false);
    } catch (const Error& error) {
      return refusal(error.what(), error.hint());
    }
    return to_text(OrderedJson{{"worker", worker}});
  }

  std::string retire(int worker) {
    if (!coordination_->is_member(worker) || coordination_->is_leaving(worker))
      return refusal(fmt::format("worker {} does not take part in the run", worker),
                     fmt::format("those that do: {}", fmt::join(coordination_->members(), ", ")));
    if (!coordination_->serves(worker) && expected() - 1 < std::max(1, options_.min_workers))
      return refusal(fmt::format("worker {} is needed: {} would be left, of at least {}", worker,
                                 expected() - 1, std::max(1, options_.min_workers)),
                     "let another join first; `starling stop` ends the run");
    coordination_->retire(worker);
    return to_text(OrderedJson{{"worker", worker}});
  }

  RunStatus status() const {
    RunStatus status{.state = stopping_                      ? "stopping"
                              : coordination_->short_since() ? "waiting"
                                                             : "running",
                     .view = coordination_->view(),
                     .min_workers = options_.min_workers,
                     .seconds = std::chrono::duration<double>(Clock::now() - began_).count()};
    for (size_t i = 0; i < workers_.size(); ++i) {
      const Worker& worker = workers_[i];
      const auto rank = static_cast<int>(i);
      WorkerStatus entry{
          .worker = rank,
          .process = worker.process,
          .serves = worker.serves,
          .state = worker.outcome == Outcome::kLost                                    ? "lost"
                   : worker.outcome == Outcome::kLeft                                  ? "left"
                   : !worker.running                                                   ? "ended"
                   : !coordination_->is_member(rank) && !coordination_->has_left(rank) ? "joining"
                   : coordination_->is_leaving(rank) || coordination_->has_left(rank)  ? "leaving"
                                                                                       : "working"};
      if (const auto sign = coordination_->sign_of(rank)) {
        entry.step = sign->step;
        entry.silent = std::chrono::duration<double>(Clock::now() - sign->heard).count();
        status.step = std::max(status.step, sign->step);
        status.steps = std::max(status.steps, sign->steps);
      }
      status.workers.push_back(std::move(entry));
    }
    return status;
  }

  int code_of_signal(int rank, int signal) const {
    if (workers_[static_cast<size_t>(rank)].given_up) return 1;
    if (stopping_ && signal == SIGTERM) return 128 + signal;  // as was asked for
    if (coordination_) {
      for (const std::string& news : coordination_->unsettled()) say("error: " + news);
    }
    say(fmt::format(
        "error: worker {} was ended by signal {} ({})\nhint: {}{}", rank, signal, strsignal(signal),
        signal == SIGKILL ? "if nobody killed it, memory has run out (see dmesg); " : "",
        options_.resumes ? "a run with checkpoints goes on with --resume"
                         : "start it again, from what it has saved"));
    return 1;
  }

  // Says what went wrong; the exit code.
  int conclude() {
    take_errors();
    const std::vector<WorkerError> errors = errors_to_tell(std::move(errors_));
    for (const WorkerError& error : errors)
      say(fmt::format("error: {}\nhint: {}", error.message, error.hint));
    if (!errors.empty() && !errors[0].of_another) return errors[0].exit_code;
    if (errors.empty() && failed_first_)  // a program that tells only its user
      say(fmt::format("error: worker {} ended with exit code {}", *failed_first_, *failed_));
    if (failed_) return *failed_;
    const auto done = std::find_if(workers_.begin(), workers_.end(), [](const Worker& worker) {
      return worker.outcome == Outcome::kDone;
    });
    return done != workers_.end() ? done->code : workers_[0].code;
  }

  void pass_on(Worker& worker) const {
    worker.output.pass_on([&](std::string_view line) { print(worker, line); });
  }

  void print(const Worker& worker, std::string_view line) const {
    say(fmt::format("[worker {}] {}", &worker - workers_.data(), line));
  }

  // On a terminal the chief's progress bar may stand in the line: it is drawn anew after this one.
  void say(const std::string& line) const {
    starling::say(stderr, "{}{}\n", terminal_ ? "\r\x1b[K" : "", line);
  }

  const LaunchOptions& options_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  const Clock::time_point began_ = Clock::now();
  const Pipe errors_pipe_{"the errors of workers"};
  WorkerStarter starter_;
  std::vector<Worker> workers_;
  std::vector<WorkerError> errors_;
  std::optional<int> failed_;        // the code of the first that did
  std::optional<int> failed_first_;  // which it was, if it ended by itself
  bool stopping_ = false;            // all were asked to
  bool first_end_is_told_ = false;
  std::optional<Coordination> coordination_;  // if workers are to survive the loss of others
  std::vector<Fault> faults_;                 // that have not happened
  std::optional<RequestSocket> requests_;
  bool is_open_ = false;  // to requests, or can't be
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace

int launch(const LaunchOptions& options) {
  if (options.workers < 1 || options.workers > 1024) {
    throw input_error(fmt::format("workers = {} is out of range", options.workers), "use 1 … 1024");
  }
  return Launch(options).run();
}

}  // namespace starling
