#include "param/orders_words.h"

#include <bit>
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
  visitor.visit_list(push.sums, kPlain);
};
const auto kOrder = [](auto& visitor, auto& order) {
  visitor.visit(order.kind);
  visitor.visit(order.worker);
  kRange(visitor, order.samples);
  visitor.visit_list(order.pushes, kPush);
};

}  // namespace

std::vector<uint64_t> to_words(const Stretch& stretch) {
  Writer writer;
  writer.visit_list(stretch.workers, kPlain);
  writer.visit_list(stretch.free.ranges(), kRange);
  writer.visit(stretch.lease);
  writer.visit(stretch.version);
  writer.visit_list(stretch.consistency.name, kPlain);
  writer.visit(stretch.consistency.staleness);
  writer.visit(stretch.consistency.backup);
  return std::move(writer).words();
}

std::vector<uint64_t> to_words(const Push& push) {
  Writer writer;
  kPush(writer, push);
  return std::move(writer).words();
}

std::vector<uint64_t> to_words(const std::vector<Order>& orders) {
  Writer writer;
  writer.visit_list(orders, kOrder);
  return std::move(writer).words();
}

std::optional<Stretch> stretch_of(std::span<const uint64_t> words) {
  Reader reader(words);
  Stretch stretch;
  std::vector<SampleRange> free;
  reader.visit_list(stretch.workers, kPlain);
  reader.visit_list(free, kRange);
  reader.visit(stretch.lease);
  reader.visit(stretch.version);
  reader.visit_list(stretch.consistency.name, kPlain);
  reader.visit(stretch.consistency.staleness);
  reader.visit(stretch.consistency.backup);
  for (const SampleRange& range : free) {
    if (range.end <= range.begin) return std::nullopt;
    stretch.free.add(range);
  }
  if (!reader.is_done() || stretch.workers.empty() || stretch.lease == 0) return std::nullopt;
  return stretch;
}

std::optional<Push> push_of(std::span<const uint64_t> words) {
  Reader reader(words);
  Push push;
  kPush(reader, push);
  return reader.is_done() ? std::optional(push) : std::nullopt;
}

std::optional<std::vector<Order>> orders_of(std::span<const uint64_t> words) {
  Reader reader(words);
  std::vector<Order> orders;
  reader.visit_list(orders, kOrder);
  return reader.is_done() ? std::optional(orders) : std::nullopt;
}

}  // namespace starling
