#include "collective/all_reduce_shared.h"

#include <fmt/format.h>

#include <cstring>

#include "base/cache_line.h"

namespace starling {
namespace {

constexpr size_t kPageFloats = 4096 / sizeof(float);
// Shares of at least this many pages begin on one: then the rounding is below a percent or so.
constexpr size_t kPagesLeast = 64;
// Looks at what is waited for before a wait in earnest: most waits are over by then.
constexpr int kLooks = 64;

}  // namespace

// The number says how often the rank has posted.
struct SharedAllReduce::Slot {
  alignas(64) std::atomic<uint64_t> number;
  float floats[kPostedBytes / sizeof(float)];
};

size_t SharedAllReduce::bytes(int world) {
  return ShmBarrier::bytes(world) + 2 * static_cast<size_t>(world) * sizeof(Slot);
}

Span SharedAllReduce::share_of(size_t length, int world, int rank) {
  const size_t ranks = static_cast<size_t>(world);
  const bool long_enough = length / ranks >= kPagesLeast * kPageFloats;
  return slice_at(length, ranks, long_enough ? kPageFloats : kLineFloats,
                  static_cast<size_t>(rank));
}

SharedAllReduce::SharedAllReduce(Roster& roster, std::span<std::byte> memory,
                                 std::chrono::nanoseconds spin)
    : roster_(roster),
      barrier_(roster, memory, spin),
      slots_(memory.data() + ShmBarrier::bytes(roster.world())),
      spin_(spin) {}

bool SharedAllReduce::can_post(const Arguments& arguments) const {
  return arguments.outs.size() == static_cast<size_t>(roster_.world()) &&
         arguments.outs.size() > 1 && arguments.length <= kPostedBytes / sizeof(float) &&
         arguments.length * arguments.placement->partials_max() <= kPostedBytes / sizeof(float);
}

SharedAllReduce::Slot& SharedAllReduce::slot(int rank) const {
  return reinterpret_cast<Slot*>(slots_)[2 * static_cast<size_t>(rank) + posted_ % 2];
}

void SharedAllReduce::start(const Arguments& arguments) {
  arguments_ = arguments;
  if (can_post(arguments)) {
    post();
    stage_ = Stage::kPosted;
    return;
  }
  count_ = barrier_.arrive();
  stage_ = Stage::kStarted;
  prepare_share();  // while the others learn of it
}

void SharedAllReduce::post() {
  ++posted_;
  const auto rank = static_cast<size_t>(roster_.rank());
  const size_t first = arguments_.placement->first_partial(rank);
  const size_t count = arguments_.placement->partials(rank).size();
  Slot& own = slot(roster_.rank());
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(own.floats + i * arguments_.length, arguments_.partials[first + i],
                arguments_.length * sizeof(float));
  }
  own.number.store(posted_, std::memory_order_release);
  roster_.fence();
  roster_.ring_all();
}

int SharedAllReduce::not_posted() const {
  for (int rank = 0; rank < roster_.world(); ++rank) {
    if (slot(rank).number.load() < posted_) return rank;
  }
  return -1;
}

void SharedAllReduce::sum_slots() {
  parts_.clear();
  for (int rank = 0; rank < roster_.world(); ++rank) {
    const size_t count = arguments_.placement->partials(static_cast<size_t>(rank)).size();
    for (size_t i = 0; i < count; ++i) parts_.push_back(slot(rank).floats + i * arguments_.length);
  }
  arguments_.placement->merge().sum(parts_, arguments_.length,
                                    arguments_.outs[static_cast<size_t>(roster_.rank())]);
  stage_ = Stage::kIdle;
}

void SharedAllReduce::prepare_share() {
  if (arguments_.length != share_length_) {
    share_length_ = arguments_.length;
    share_ = share_of(arguments_.length, roster_.world(), roster_.rank());
  }
  parts_.clear();
  for (const float* part : arguments_.partials) parts_.push_back(part + share_.begin);
  outs_.clear();
  for (float* out : arguments_.outs) outs_.push_back(out + share_.begin);
}

void SharedAllReduce::sum_share() {
  if (share_.size() > 0) arguments_.placement->merge().sum(parts_, share_.size(), outs_);
  count_ = barrier_.arrive();
  stage_ = Stage::kSummed;
}

bool SharedAllReduce::advance() {
  if (stage_ == Stage::kPosted && not_posted() < 0) sum_slots();
  if (stage_ == Stage::kStarted && barrier_.all_arrived(count_)) sum_share();
  if (stage_ == Stage::kSummed && barrier_.all_arrived(count_)) stage_ = Stage::kIdle;
  return stage_ == Stage::kIdle;
}

Failure SharedAllReduce::describe(const Failure& cause) const {
  // "barrier rank=0 count=3: peer 1 is gone after 12 ms": what follows the colon is of use.
  const size_t colon = cause.message.find(": ");
  const std::string reason =
      colon == std::string::npos ? cause.message : cause.message.substr(colon + 2);
  return {cause.kind, cause.peer,
          fmt::format("all_reduce_shared step={} rank={}: {}, {} bytes",
                      stage_ == Stage::kSummed ? 2 : 1, roster_.rank(), reason,
                      arguments_.length * sizeof(float))};
}

Status SharedAllReduce::wait(Instant deadline) {
  for (int look = 0; look < kLooks; ++look) {
    if (advance()) return {};
  }
  if (stage_ == Stage::kPosted) {
    const Status here = wait_for_ranks(
        roster_, [&] { return not_posted(); }, spin_, posted_, deadline);
    if (!here) return describe(here.failure());
    sum_slots();
  }
  if (stage_ == Stage::kStarted) {
    const Status here = barrier_.wait_for_all(count_, deadline);
    if (!here) return describe(here.failure());
    sum_share();
  }
  if (stage_ == Stage::kSummed) {
    const Status done = barrier_.wait_for_all(count_, deadline);
    if (!done) return describe(done.failure());
    stage_ = Stage::kIdle;
  }
  return {};
}

}  // namespace starling
