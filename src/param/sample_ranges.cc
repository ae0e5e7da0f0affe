#include "param/sample_ranges.h"

#include <algorithm>
#include <stdexcept>

namespace starling {
namespace {

bool ends_before(const SampleRange& range, uint64_t place) { return range.end <= place; }

}  // namespace

void SampleRanges::add(SampleRange range) {
  if (range.size() == 0) return;
  const auto after = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin, ends_before);
  if (after != ranges_.end() && after->begin < range.end)
    throw std::logic_error("samples that are there already");
  const bool joins_before = after != ranges_.begin() && (after - 1)->end == range.begin;
  const bool joins_after = after != ranges_.end() && after->begin == range.end;
  if (joins_before && joins_after) {
    (after - 1)->end = after->end;
    ranges_.erase(after);
  } else if (joins_before) {
    (after - 1)->end = range.end;
  } else if (joins_after) {
    after->begin = range.begin;
  } else {
    ranges_.insert(after, range);
  }
}

void SampleRanges::remove(SampleRange range) {
  if (range.size() == 0) return;
  const auto holder = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin, ends_before);
  if (holder == ranges_.end() || holder->begin > range.begin || holder->end < range.end)
    throw std::logic_error("samples that are not there");
  const SampleRange rest{range.end, holder->end};
  holder->end = range.begin;
  const auto next = holder->size() == 0 ? ranges_.erase(holder) : holder + 1;
  if (rest.size() > 0) ranges_.insert(next, rest);
}

bool SampleRanges::has(SampleRange range) const {
  const auto holder = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin, ends_before);
  return holder != ranges_.end() && holder->begin <= range.begin && range.end <= holder->end;
}

std::optional<SampleRange> SampleRanges::take(uint64_t most) {
  if (ranges_.empty() || most == 0) return std::nullopt;
  const SampleRange first = ranges_.front();
  const SampleRange taken{first.begin, first.begin + std::min(most, first.size())};
  remove(taken);
  return taken;
}

std::optional<SampleRange> SampleRanges::take_about(uint64_t wanted, uint64_t most) {
  if (ranges_.empty() || wanted == 0) return std::nullopt;
  const uint64_t half = wanted / 2;
  const auto large = std::find_if(ranges_.begin(), ranges_.end(), [&](const SampleRange& range) {
    return range.size() >= std::min(wanted - half, most);
  });
  const SampleRange from = large == ranges_.end() ? ranges_.front() : *large;
  const uint64_t whole = from.size() <= wanted + half ? from.size() : wanted;
  const SampleRange taken{from.begin, from.begin + std::min(whole, most)};
  remove(taken);
  return taken;
}

uint64_t SampleRanges::size() const {
  uint64_t sum = 0;
  for (const SampleRange& range : ranges_) sum += range.size();
  return sum;
}

}  // namespace starling
