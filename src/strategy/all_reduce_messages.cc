#include "strategy/all_reduce_messages.h"

#include <algorithm>
#include <array>
#include <deque>

namespace starling {
namespace {

constexpr uint8_t kChannel = 2;       // the world's own is 1
constexpr size_t kUnderWay = 4;       // buckets
constexpr size_t kBucketsWanted = 8;  // so that some are on their way before the last is computed
constexpr size_t kBucketBytesLeast = size_t{256} << 10;  // one message

// A pure function of the model: all workers have the same.
std::vector<Bucket> cut(const ParameterSpace& space) {
  const size_t bytes = space.total_floats() * sizeof(float);
  return space.buckets(std::clamp(bytes / kBucketsWanted, kBucketBytesLeast, kBucketBytes));
}

double seconds_between(Instant begin, Instant end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

AllReduceMessages::AllReduceMessages(World& world, Executor& executor, const ParameterSpace& space,
                                     std::vector<ShardRange> placement,
                                     const AllReduceMessagesOptions& options)
    : world_(world),
      rank_(world.rank()),
      workers_(world.workers()),
      fabric_(*world.fabric()),
      sent_before_(fabric_.counters().bytes_sent),
      executor_(executor),
      space_(space),
      merges_(executor, std::move(placement)),
      collectives_(fabric_,
                   std::make_shared<Placement>(Placement::even(
                       static_cast<size_t>(world.workers()), static_cast<size_t>(world.workers()))),
                   {.exact = options.exact,
                    .timeout = world.timeout(),
                    .channel = kChannel,
                    .costs = options.costs,
                    .interrupt = world.interrupt()}),
      buckets_(cut(space)),
      wishes_(static_cast<size_t>(world.workers())),
      ready_(buckets_.size()) {
  // One bucket is complete only when all is.
  if (options.overlap && buckets_.size() > 1) background_.emplace();
}

AllReduceMessages::~AllReduceMessages() { abandon(); }

void AllReduceMessages::abandon() {
  if (!background_) return;
  abandoned_ = true;
  fabric_.wake();
  background_.reset();
}

uint64_t AllReduceMessages::bytes_moved() const {
  return fabric_.counters().bytes_sent - sent_before_;
}

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

void AllReduceMessages::begin(const StepSize& step) {
  layout_ = &layout_of(step);
  executor_.prepare(step, shards());
  partials_.clear();
  for (size_t i = 0; i < layout_->plans.size(); ++i)
    partials_.push_back(executor_.gradients()[layout_->first_stack[i]]);
  if (partials_.empty() && nothing_.empty()) nothing_ = Buffer<float>(space_.total_floats());
  sum_ = partials_.empty() ? nothing_.data() : const_cast<float*>(partials_[0]);
  for (std::atomic<bool>& ready : ready_) ready.store(false, std::memory_order_relaxed);
  collectives_.set_placement(layout_->placement);
}

GradientWatch* AllReduceMessages::watch(const StepSize& step) {
  if (!background_) return nullptr;
  begin(step);
  in_background_ = true;
  background_->start([this] { reduced_ = reduce(); });
  return this;
}

void AllReduceMessages::complete(size_t bucket) {
  sum_stacks(buckets_[bucket].offset, buckets_[bucket].size);
  ready_[bucket].store(true, std::memory_order_release);
  fabric_.wake();
}

void AllReduceMessages::sum_stacks(size_t offset, size_t size) {
  const std::span<float* const> gradients = executor_.gradients();
  std::array<const float*, kMaxShards> at;
  for (size_t i = 0; i < layout_->plans.size(); ++i) {
    const size_t first = layout_->first_stack[i], count = layout_->first_stack[i + 1] - first;
    if (count == 1) continue;
    for (size_t g = 0; g < count; ++g) at[g] = gradients[first + g] + offset;
    layout_->plans[i].sum({at.data(), count}, size, gradients[first] + offset);
  }
}

void AllReduceMessages::sum_what_is_left() {
  const auto is_ready = [](const std::atomic<bool>& ready) {
    return ready.load(std::memory_order_relaxed);
  };
  if (std::all_of(ready_.begin(), ready_.end(), is_ready)) return;
  const auto lanes = static_cast<size_t>(executor_.lanes().count());
  executor_.lanes().run([&](int lane) {
    const auto l = static_cast<size_t>(lane);
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (is_ready(ready_[b])) continue;
      const size_t from = l * buckets_[b].size / lanes, to = (l + 1) * buckets_[b].size / lanes;
      sum_stacks(buckets_[b].offset + from, to - from);
    }
  });
  for (std::atomic<bool>& ready : ready_) ready.store(true, std::memory_order_release);
  if (background_) fabric_.wake();
}

Collectives::Handle AllReduceMessages::start(const Bucket& bucket,
                                             std::span<const float* const> partials) {
  return collectives_.all_reduce(partials, {sum_ + bucket.offset, bucket.size});
}

Status AllReduceMessages::reduce() {
  flights_.clear();
  std::deque<Collectives::Handle> under_way;
  std::vector<const float*> at(partials_.size());
  size_t next = 0;
  while (!abandoned_) {
    for (; next < buckets_.size() && under_way.size() < kUnderWay &&
           ready_[next].load(std::memory_order_acquire);
         ++next) {
      const Bucket& bucket = buckets_[next];
      for (size_t i = 0; i < at.size(); ++i) at[i] = partials_[i] + bucket.offset;
      if (under_way.empty()) flights_.push_back({fabric_.now(), Instant::max()});
      under_way.push_back(start(bucket, at));
      begun_.fetch_add(1, std::memory_order_release);
    }
    collectives_.advance();
    bool ended = false;
    for (; !under_way.empty() && collectives_.is_over(under_way.front()); ended = true) {
      if (Status done = collectives_.wait(under_way.front()); !done) return done;
      under_way.pop_front();
      if (under_way.empty()) flights_.back().end = fabric_.now();
    }
    if (next == buckets_.size() && under_way.empty()) break;
    if (!ended) fabric_.progress(collectives_.next_deadline());
  }
  return {};
}

Status AllReduceMessages::gather_board(Wishes& wishes) {
  ShardBoard& board = executor_.board();
  const std::span<double> rows = board.rows({0, executor_.options().shards});
  std::vector<size_t> cuts{0}, flags{0};
  for (const ShardRange& range : merges_.placement()) {
    cuts.push_back(static_cast<size_t>(range.end) * board.layout().row_doubles() * sizeof(double));
    flags.push_back(flags.back() + sizeof(Wishes));
  }
  wishes_[static_cast<size_t>(rank())] = wishes;
  const auto handles = {
      collectives_.all_gather(std::as_writable_bytes(rows), std::move(cuts)),
      collectives_.all_gather(std::as_writable_bytes(std::span(wishes_)), std::move(flags))};
  for (const Collectives::Handle& handle : handles) {
    if (Status done = collectives_.wait(handle); !done) return done;
  }
  for (const Wishes& others : wishes_) wishes.add(others);
  return {};
}

Status AllReduceMessages::reduce_and_gather(const StepSize& step, Wishes& wishes) {
  const bool in_background = std::exchange(in_background_, false);
  if (!in_background) begin(step);
  sum_what_is_left();
  const World::Waiting waiting(world_);
  const Instant computed = fabric_.now();
  if (in_background) {
    background_->wait();
  } else {
    executor_.run_alone([&] { reduced_ = reduce(); });  // with the lanes' arithmetic
  }
  Status done = reduced_;
  if (done) done = gather_board(wishes);
  seconds_.communication += seconds_between(computed, fabric_.now());
  for (const Flight& flight : flights_)
    seconds_.hidden +=
        seconds_between(std::min(flight.begin, computed), std::min(flight.end, computed));
  return done;
}

bool AllReduceMessages::was_announced(Wishes& wishes) {
  if (!announced_) return false;
  wishes = *announced_;
  announced_.reset();
  return true;
}

Status AllReduceMessages::wait_for(std::initializer_list<Collectives::Handle> handles) {
  const World::Waiting waiting(world_);
  const Instant begin = fabric_.now();
  Status all;
  for (const Collectives::Handle& handle : handles) {
    if (Status done = collectives_.wait(handle); all && !done) all = done;
  }
  seconds_.communication += seconds_between(begin, fabric_.now());
  return all;
}

Status AllReduceMessages::announce(const Wishes& wishes) {
  if (!world_.survives()) return {};
  announced_ = wishes;
  world_.announce();
  pass(FaultPoint::kAnnounced);
  Status done = wait_for({collectives_.barrier()});
  if (done) announced_.reset();
  return done;
}

Status AllReduceMessages::exchange(const StepSize& step, Wishes& wishes) {
  if (was_announced(wishes)) return {};
  if (Status done = reduce_and_gather(step, wishes); !done) return done;
  return announce(wishes);
}

}  // namespace starling
