// Coordination: the launcher's part in surviving the loss of workers. It listens to the workers'
// beats, runs the protocol that makes a new view of those that are left (commit.h), and gives them
// the means to talk in it: a segment of shared memory, or one another's ports.
//
// Nothing here blocks or ends a process. When no view can be made, for want of memory or of
// descriptors, an Error says why, and who was lost. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/commit.h"
#include "cluster/control.h"
#include "fabric/shm/shm_fabric.h"
#include "param/conductor.h"

namespace starling {

struct CoordinationOptions {
  int workers = 1;
  int servers = 0;      // so many of them, the last, only serve
  int min_workers = 1;  // with fewer that compute, the others wait
  std::chrono::milliseconds heartbeat_limit{2000};
  std::chrono::milliseconds progress_limit{60'000};
  // Of the first view, which all know without a word.
  const SharedSegment* segment = nullptr;  // shm; outlives this
};

class Coordination {
 public:
  explicit Coordination(const CoordinationOptions& options);

  // The worker's line to here; `port` is where it listens, over tcp. One that serves computes
  // nothing.
  void add(int worker, Socket control, uint16_t port, bool serves);
  // To be polled for input, and then heard. −1: none.
  int fd(int worker) const { return lines_[static_cast<size_t>(worker)].socket.fd(); }
  void hear(int worker);

  // Workers that have not been heard of, or have not got on, for too long, or can't be reached by
  // others though they live, and why that is bad.
  // Each is named once.
  std::vector<std::pair<int, std::string>> find_frozen();

  // The worker is to leave after a step: the others go on without it, and it ends by itself.
  void retire(int worker);
  bool is_leaving(int worker) const { return leavers_.contains(worker); }
  bool has_left(int worker) const { return left_.contains(worker); }
  // Since when all wait, because there are too few of them. They are saved by then.
  std::optional<std::chrono::steady_clock::time_point> short_since() const;
  // Nobody is to wait for more workers from now on.
  void release();

  // A planned fault happens to it now.
  void note_fault(int worker);
  // Its process is gone: who waits for it is to see it at once.
  void mark_gone(int worker);
  // Its process is gone before its time: the others go on without it.
  void lose(int worker, const std::string& how);
  // It has ended, and answers no more.
  void end(int worker);

  bool is_member(int worker) const {
    return std::find(members_.begin(), members_.end(), worker) != members_.end();
  }

  const std::vector<int>& members() const { return members_; }
  size_t computing() const { return count_computing(members_); }  // of them
  bool serves(int worker) const { return lines_[static_cast<size_t>(worker)].serves; }
  int64_t view() const { return settled_; }
  // What the worker said of itself last.
  struct Sign {
    uint64_t step = 0, steps = 0;
    std::chrono::steady_clock::time_point heard;
  };
  std::optional<Sign> sign_of(int worker) const;
  // Where people look for the run, and how many workers it can have: once known.
  struct Folder {
    std::string path;
    uint64_t workers_most = 0;
  };
  const std::optional<Folder>& folder() const { return folder_; }

  // Nobody who had the state of the run is left, and who is to join can't be given it.
  bool lost_state() const { return coordinator_.lost_state(); }

  // Of workers that were lost since the others last went on: what happened.
  const std::vector<std::string>& unsettled() const { return unsettled_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Line {
    Socket socket;
    std::optional<Clock::time_point> heard;  // when it last beat
    Clock::time_point moved{};               // when it last got on
    uint64_t progress = 0, step = 0, steps = 0;
    int64_t fault = 0;  // when it said that one would happen to it now
    bool ended = false, frozen = false, serves = false;
    std::deque<ControlMessage> unsent;  // while it does not listen
    uint16_t port = 0;
  };
  using Kind = ControlMessage::Kind;

  // In order, and none is lost, however slowly the worker listens.
  void tell(int worker, ControlMessage message);
  static void send_unsent(Line& line);
  // Of workers that train apart; give() is for all members.
  void conduct(const ControlMessage& message);
  void give(const std::vector<Order>& orders);

  // Workers join and leave between two steps: all are asked to pause there.
  void want_change();
  void ask_for_pause();
  void change_if_enough();
  bool is_enough() const;
  size_t count_computing(const auto& workers) const {
    return static_cast<size_t>(
        std::count_if(workers.begin(), workers.end(), [&](int w) { return !serves(w); }));
  }
  std::optional<std::pair<int, std::string>> find_unreachable(Clock::time_point now);
  void obey(const std::vector<commit::Action>& actions, const std::string& news);
  void carry_out(const std::vector<commit::Action>& actions, const std::string& news);
  const SharedSegment* segment() const { return segment_ ? &*segment_ : options_.segment; }

  const CoordinationOptions options_;
  commit::Coordinator coordinator_;
  std::vector<Line> lines_;
  std::vector<int> members_;                 // of the view, by rank in it
  std::optional<SharedSegment> segment_;     // of the view, but the first
  int64_t settled_ = 1;                      // the last view that was entered
  Clock::time_point looked_ = Clock::now();  // for frozen workers
  std::vector<std::string> unsettled_;
  std::vector<ControlMessage::Loss> losses_;  // likewise
  std::set<int> guests_, leavers_;            // who are to come in, and to go, at the next pause
  std::set<int> left_;
  std::optional<Clock::time_point> paused_;  // in the view that is settled
  bool holds_ = true;                        // while there are too few
  std::optional<Folder> folder_;
  std::optional<Conductor> conductor_;  // of a stretch in the view that is settled
  // Whom others can't reach, and how many say so, since the first did in the view that is settled.
  std::map<int, int> suspects_;
  std::optional<Clock::time_point> suspected_;
};

}  // namespace starling
