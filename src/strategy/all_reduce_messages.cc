#include "strategy/all_reduce_messages.h"

#include <algorithm>
#include <array>
#include <deque>

namespace starling {
namespace {

constexpr uint8_t kChannel = 2;                    // the world's own is 1
constexpr size_t kBucketFloats = size_t{1} << 20;  // 4 MiB
constexpr size_t kUnderWay = 4;                    // buckets

}  // namespace

AllReduceMessages::AllReduceMessages(World& world, Executor& executor, const ParameterSpace& space,
                                     bool exact)
    : world_(world),
      executor_(executor),
      space_(space),
      merges_(executor, place_workers(executor.options().shards, world.workers())),
      collectives_(*world.fabric(),
                   std::make_shared<Placement>(Placement::even(
                       static_cast<size_t>(world.workers()), static_cast<size_t>(world.workers()))),
                   {.exact = exact, .timeout = world.timeout(), .channel = kChannel}),
      stops_(static_cast<size_t>(world.workers())) {}

uint64_t AllReduceMessages::bytes_moved() const { return world_.fabric()->counters().bytes_sent; }

const AllReduceMessages::Layout& AllReduceMessages::layout_of(const StepSize& step) {
  for (const Layout& layout : layouts_) {
    if (layout.step == step) return layout;
  }
  const MergeCache::Merge& merge = merges_.of(step);
  std::vector<LeafRange> ranges;
  size_t leaf = 0;
  for (const std::vector<LeafRange>& stacks : merge.stacks) {
    const size_t end = stacks.empty() ? leaf : stacks.back().end;
    ranges.push_back({leaf, end});
    leaf = end;
  }
  Layout layout{step, std::make_shared<Placement>(ranges), {}, {0}};
  const auto own = static_cast<size_t>(rank());
  size_t stack = 0;
  for (const LeafRange& partial : layout.placement->partials(own)) {
    std::vector<LeafRange> parts;  // a subtree is the tree over its own leaves
    for (; stack < merge.stacks[own].size() && merge.stacks[own][stack].end <= partial.end; ++stack)
      parts.push_back({merge.stacks[own][stack].begin - partial.begin,
                       merge.stacks[own][stack].end - partial.begin});
    layout.plans.emplace_back(std::move(parts));
    layout.first_stack.push_back(stack);
  }
  layouts_.push_back(std::move(layout));
  return layouts_.back();
}

void AllReduceMessages::sum_stacks(const Layout& layout) {
  const std::span<float* const> gradients = executor_.gradients();
  partials_.clear();
  for (size_t i = 0; i < layout.plans.size(); ++i) {
    const size_t first = layout.first_stack[i], count = layout.first_stack[i + 1] - first;
    partials_.push_back(gradients[first]);
    if (count == 1) continue;
    const size_t blocks = space_.blocks().size();
    executor_.lanes().run([&](int lane) {
      const auto l = static_cast<size_t>(lane),
                 lanes = static_cast<size_t>(executor_.lanes().count());
      std::array<const float*, kMaxShards> at;
      for (size_t b = l * blocks / lanes; b < (l + 1) * blocks / lanes; ++b) {
        const Block& block = space_.blocks()[b];
        for (size_t g = 0; g < count; ++g) at[g] = gradients[first + g] + block.offset;
        layout.plans[i].sum({at.data(), count}, block.size, gradients[first] + block.offset);
      }
    });
  }
  if (partials_.empty() && nothing_.empty()) nothing_ = Buffer<float>(space_.total_floats());
  sum_ = partials_.empty() ? nothing_.data() : const_cast<float*>(partials_[0]);
}

Status AllReduceMessages::reduce(const Layout& layout) {
  collectives_.set_placement(layout.placement);
  const size_t floats = space_.total_floats();
  std::deque<Collectives::Handle> under_way;
  std::vector<const float*> at(partials_.size());
  const auto finish = [&]() -> Status {
    const Collectives::Handle first = under_way.front();
    under_way.pop_front();
    return collectives_.wait(first);
  };
  for (size_t begin = 0; begin < floats; begin += kBucketFloats) {
    if (under_way.size() == kUnderWay) {
      if (Status done = finish(); !done) return done;
    }
    for (size_t i = 0; i < at.size(); ++i) at[i] = partials_[i] + begin;
    under_way.push_back(
        collectives_.all_reduce(at, {sum_ + begin, std::min(kBucketFloats, floats - begin)}));
  }
  while (!under_way.empty()) {
    if (Status done = finish(); !done) return done;
  }
  return {};
}

Status AllReduceMessages::gather_board(bool& stop) {
  ShardBoard& board = executor_.board();
  const std::span<double> rows = board.rows({0, executor_.options().shards});
  std::vector<size_t> cuts{0}, flags{0};
  for (const ShardRange& range : merges_.placement()) {
    cuts.push_back(static_cast<size_t>(range.end) * board.layout().row_doubles() * sizeof(double));
    flags.push_back(flags.back() + 1);
  }
  stops_[static_cast<size_t>(rank())] = static_cast<std::byte>(stop);
  const auto handles = {collectives_.all_gather(std::as_writable_bytes(rows), std::move(cuts)),
                        collectives_.all_gather(std::span(stops_), std::move(flags))};
  for (const Collectives::Handle& handle : handles) {
    if (Status done = collectives_.wait(handle); !done) return done;
  }
  stop = std::any_of(stops_.begin(), stops_.end(), [](std::byte b) { return b != std::byte{0}; });
  return {};
}

Status AllReduceMessages::exchange(const StepSize& step, bool& stop) {
  const Layout& layout = layout_of(step);
  sum_stacks(layout);
  const Instant begin = world_.fabric()->now();
  Status done = reduce(layout);
  if (done) done = gather_board(stop);
  communication_ += std::chrono::duration<double>(world_.fabric()->now() - begin).count();
  return done;
}

}  // namespace starling
