// SampleRanges: a set of samples of an epoch, by their places in its order, as ranges: the samples
// that nobody has trained on yet. A plain object.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace starling {

// Places begin … end − 1.
struct SampleRange {
  uint64_t begin = 0, end = 0;

  uint64_t size() const { return end - begin; }
  bool operator==(const SampleRange&) const = default;
};

class SampleRanges {
 public:
  SampleRanges() = default;
  explicit SampleRanges(SampleRange all) { add(all); }

  // Requires that none of them is there.
  void add(SampleRange range);
  // Requires that all of them are there.
  void remove(SampleRange range);
  // Removes the first, so many of them at most, as far as they follow one another.
  std::optional<SampleRange> take(uint64_t most);
  // The same for about so many: small rests of what was given back are left for last, and none are
  // made, if `most` permits.
  std::optional<SampleRange> take_about(uint64_t wanted, uint64_t most);

  bool has(SampleRange range) const;  // all of them
  bool empty() const { return ranges_.empty(); }
  uint64_t size() const;
  const std::vector<SampleRange>& ranges() const {
    return ranges_;
  }  // ascending, with gaps between
  bool operator==(const SampleRanges&) const = default;

 private:
  std::vector<SampleRange> ranges_;
};

}  // namespace starling
