// Ledger: the proof that an epoch used every sample exactly once. Lanes mark the samples that they
// compute; a bitmap tells which were seen, and the sum and the exclusive-or of hashed sample
// numbers can be checked by a program that knows nothing of this one (tools/check_ledger.py).
//
// mark() is thread-safe and lock-free; all else is for one thread while nobody marks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

// What an epoch used. It is right when samples = unique = the data set's size.
struct LedgerEntry {
  uint32_t epoch = 0;
  uint64_t samples = 0;     // marks
  uint64_t unique = 0;      // samples seen at least once
  uint64_t duplicated = 0;  // marks of samples that had been seen
  uint64_t missing = 0;     // samples never seen
  uint64_t sum = 0;         // of mix64(id) over all marks, modulo 2^64
  uint64_t exclusive_or = 0;

  // One line of ledger.jsonl, without its end. Hashes are hexadecimal strings, because JSON's
  // numbers hold only 53 bits everywhere.
  std::string to_json() const;

  friend bool operator==(const LedgerEntry&, const LedgerEntry&) = default;
};

class Ledger {
 public:
  // Starts an epoch over samples 0 … dataset_size−1, forgetting what was marked before.
  void begin(uint32_t epoch, uint64_t dataset_size);

  // Notes that these samples were used. Throws Error for a sample beyond the data set.
  void mark(std::span<const uint64_t> ids);

  // What has been marked since begin(). The epoch may go on.
  LedgerEntry finish() const;

  // The state of a half-done epoch, for checkpoints; restore() throws Error (input_error) when the
  // bytes are not such a state.
  std::vector<std::byte> save() const;
  void restore(std::span<const std::byte> bytes);

 private:
  uint64_t words() const { return size_ / 64 + (size_ % 64 != 0 ? 1 : 0); }  // of the bitmap

  uint32_t epoch_ = 0;
  uint64_t size_ = 0;
  uint64_t capacity_ = 0;                          // words allocated
  std::unique_ptr<std::atomic<uint64_t>[]> seen_;  // a bit per sample
  std::atomic<uint64_t> samples_ = 0;
  std::atomic<uint64_t> duplicated_ = 0;
  std::atomic<uint64_t> sum_ = 0;
  std::atomic<uint64_t> exclusive_or_ = 0;
};

}  // namespace starling::data
