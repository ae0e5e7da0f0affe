#include "param/orders_words.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <type_traits>

namespace starling {
namespace {

// One walk over the fields serves both directions.
class Writer {
 public:
  template <typename T>
  void visit(const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      words_.push_back(std::bit_cast<uint64_t>(value));
    } else {
      words_.push_back(static_cast<uint64_t>(value));
    }
  }
  template <typename List, typename Each>
  void visit_list(const List& list, Each each) {
    visit(list.size());
    for (const auto& value : list) each(*this, value);
  }
  std::vector<uint64_t> words() && { return std::move(words_); }

 private:
  std::vector<uint64_t> words_;
};

class Reader {
 public:
  explicit Reader(std::span<const uint64_t> words) : words_(words) {}

  template <typename T>
  void visit(T& value) {
    good_ = good_ && !words_.empty();
    if (!good_) return;
    if constexpr (std::is_same_v<T, double>) {
      value = std::bit_cast<double>(words_.front());
    } else {
      value = static_cast<T>(words_.front());
      good_ = static_cast<uint64_t>(value) == words_.front();
    }
    words_ = words_.subspan(1);
  }
  template <typename List, typename Each>
  void visit_list(List& list, Each each) {
    uint64_t count = 0;
    visit(count);
    good_ = good_ && count <= words_.size();
    if (!good_) return;
    list.resize(count);
    for (auto& value : list) each(*this, value);
  }
  bool is_done() const { return good_ && words_.empty(); }

 private:
  std::span<const uint64_t> words_;
  bool good_ = true;
};

const auto kPlain = [](auto& visitor, auto& value) { visitor.visit(value); };
const auto kRange = [](auto& visitor, auto& range) {
  visitor.visit(range.begin);
  visitor.visit(range.end);
};
const auto kPush = [](auto& visitor, auto& push) {
  visitor.visit(push.worker);
  kRange(visitor, push.samples);
  visitor.visit(push.version);
  visitor.visit(push.finite);
  visitor.visit(push.seconds);
  visitor.visit_list(push.sums, kPlain);
  visitor.visit(push.met);
  visitor.visit(push.computed);
};
const auto kOrder = [](auto& visitor, auto& order) {
  visitor.visit(order.kind);
  visitor.visit(order.worker);
  visitor.visit(order.partner);
  kRange(visitor, order.samples);
  visitor.visit_list(order.pushes, kPush);
};
// But for the free samples.
const auto kStretch = [](auto& visitor, auto& stretch) {
  visitor.visit_list(stretch.workers, kPlain);
  visitor.visit(stretch.batch);
  visitor.visit(stretch.version);
  visitor.visit_list(stretch.consistency.name, kPlain);
  visitor.visit(stretch.consistency.staleness);
  visitor.visit(stretch.consistency.backup);
  visitor.visit(stretch.consistency.tasks);
  visitor.visit(stretch.consistency.ring);
  visitor.visit(stretch.consistency.seed);
  visitor.visit(stretch.partition);
  visitor.visit(stretch.ahead);
  visitor.visit_list(stretch.speeds, kPlain);
};

// What a clock or a quotient of such can say.
bool is_measure(double value) { return std::isfinite(value) && value >= 0; }
bool makes_sense(const Push& push) { return is_measure(push.seconds); }
bool makes_sense(const Order& order) {
  return order.kind <= Order::Kind::kOver &&
         std::all_of(order.pushes.begin(), order.pushes.end(),
                     [](const Push& push) { return makes_sense(push); });
}
bool makes_sense(const Stretch& stretch) {
  const std::set<int> names(stretch.workers.begin(), stretch.workers.end());
  return !names.empty() && names.size() == stretch.workers.size() && stretch.batch > 0 &&
         stretch.partition <= PartitionKind::kWeighted && stretch.ahead <= kAheadMost &&
         stretch.speeds.size() == stretch.workers.size() &&
         std::all_of(stretch.speeds.begin(), stretch.speeds.end(), is_measure);
}

}  // namespace

std::vector<uint64_t> to_words(const Stretch& stretch) {
  Writer writer;
  kStretch(writer, stretch);
  writer.visit_list(stretch.free.ranges(), kRange);
  return std::move(writer).words();
}

std::vector<uint64_t> to_words(const Push& push) {
  Writer writer;
  kPush(writer, push);
  return std::move(writer).words();
}

std::vector<uint64_t> to_words(std::span<const Order> orders) {
  Writer writer;
  writer.visit_list(orders, kOrder);
  return std::move(writer).words();
}

std::optional<Stretch> stretch_of(std::span<const uint64_t> words) {
  Reader reader(words);
  Stretch stretch;
  std::vector<SampleRange> free;
  kStretch(reader, stretch);
  reader.visit_list(free, kRange);
  if (!reader.is_done() || !makes_sense(stretch)) return std::nullopt;
  uint64_t end = 0;
  for (const SampleRange& range : free) {
    if (range.begin < end || range.end <= range.begin) return std::nullopt;
    stretch.free.add(range);
    end = range.end;
  }
  return stretch;
}

std::optional<Push> push_of(std::span<const uint64_t> words) {
  Reader reader(words);
  Push push;
  kPush(reader, push);
  return reader.is_done() && makes_sense(push) ? std::optional(push) : std::nullopt;
}

std::optional<std::vector<Order>> orders_of(std::span<const uint64_t> words) {
  Reader reader(words);
  std::vector<Order> orders;
  reader.visit_list(orders, kOrder);
  const bool good =
      reader.is_done() &&
      std::all_of(orders.begin(), orders.end(), [](const auto& one) { return makes_sense(one); });
  return good ? std::optional(orders) : std::nullopt;
}

}  // namespace starling
