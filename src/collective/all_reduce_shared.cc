#include "collective/all_reduce_shared.h"

#include <fmt/format.h>

namespace starling {
namespace {

constexpr size_t kLineFloats = 64 / sizeof(float);
constexpr size_t kPageFloats = 4096 / sizeof(float);
// Shares of at least this many pages begin on one: then the rounding is below a percent or so.
constexpr size_t kPagesLeast = 64;

}  // namespace

Span AllReduceShared::share_of(size_t length, int world, int rank) {
  const size_t ranks = static_cast<size_t>(world);
  const bool long_enough = length / ranks >= kPagesLeast * kPageFloats;
  return slice_at(length, ranks, long_enough ? kPageFloats : kLineFloats,
                  static_cast<size_t>(rank));
}

AllReduceShared::AllReduceShared(Roster& roster, std::span<std::byte> memory,
                                 std::chrono::nanoseconds spin)
    : roster_(roster), barrier_(roster, memory, spin) {}

void AllReduceShared::start(const Arguments& arguments) {
  arguments_ = arguments;
  count_ = barrier_.arrive();
  stage_ = Stage::kStarted;
}

void AllReduceShared::sum_share() {
  const Span share = share_of(arguments_.length, roster_.world(), roster_.rank());
  if (share.size() > 0) {
    parts_.clear();
    for (const float* part : arguments_.partials) parts_.push_back(part + share.begin);
    outs_.clear();
    for (float* out : arguments_.outs) outs_.push_back(out + share.begin);
    arguments_.placement->merge().sum(parts_, share.size(), outs_);
  }
  count_ = barrier_.arrive();
  stage_ = Stage::kSummed;
}

bool AllReduceShared::advance() {
  if (stage_ == Stage::kStarted && barrier_.all_arrived(count_)) sum_share();
  if (stage_ == Stage::kSummed && barrier_.all_arrived(count_)) stage_ = Stage::kIdle;
  return stage_ == Stage::kIdle;
}

Failure AllReduceShared::describe(const Failure& cause) const {
  // "barrier rank=0 count=3: peer 1 is gone after 12 ms": what follows the colon is of use.
  const size_t colon = cause.message.find(": ");
  const std::string reason =
      colon == std::string::npos ? cause.message : cause.message.substr(colon + 2);
  return {cause.kind, cause.peer,
          fmt::format("all_reduce_shared step={} rank={}: {}, {} bytes",
                      stage_ == Stage::kStarted ? 1 : 2, roster_.rank(), reason,
                      arguments_.length * sizeof(float))};
}

Status AllReduceShared::wait(Instant deadline) {
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
