#include "data/ledger.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/random.h"
#include "starling/error.h"

namespace starling::data {
namespace {

static_assert(std::endian::native == std::endian::little, "saved ledgers are little-endian");

// What precedes the bitmap in a saved ledger.
struct SavedHeader {
  char magic[8];
  uint64_t epoch, size, samples, duplicated, sum, exclusive_or;
};
constexpr char kLedgerMagic[8] = {'S', 'T', 'L', 'E', 'D', 'G', '0', '1'};

Error bad_state(const char* what) {
  return input_error(fmt::format("the saved sample ledger is damaged: {}", what),
                     "resume from an earlier checkpoint");
}

}  // namespace

std::string LedgerEntry::to_json() const {
  return fmt::format(
      R"({{"epoch": {}, "samples": {}, "unique": {}, "duplicated": {}, "missing": {}, )"
      R"("sum": "{:016x}", "xor": "{:016x}"}})",
      epoch, samples, unique, duplicated, missing, sum, exclusive_or);
}

void Ledger::begin(uint32_t epoch, uint64_t dataset_size) {
  epoch_ = epoch;
  size_ = dataset_size;
  if (words() > capacity_) {
    seen_ = std::make_unique<std::atomic<uint64_t>[]>(words());
    capacity_ = words();
  }
  for (uint64_t i = 0; i < words(); ++i) seen_[i].store(0, std::memory_order_relaxed);
  samples_ = duplicated_ = sum_ = exclusive_or_ = 0;
}

void Ledger::mark(std::span<const uint64_t> ids) {
  // Relaxed order is enough: counts commute, and whoever calls finish() has waited for the lanes.
  uint64_t duplicated = 0, sum = 0, exclusive_or = 0;
  for (const uint64_t id : ids) {
    if (id >= size_) {
      throw run_error(
          fmt::format("sample {} was used in epoch {} of a data set of {}", id, epoch_, size_),
          "this is a fault in the program: please report it");
    }
    const uint64_t bit = uint64_t{1} << (id % 64);
    if ((seen_[id / 64].fetch_or(bit, std::memory_order_relaxed) & bit) != 0) ++duplicated;
    const uint64_t hash = mix64(id);
    sum += hash;
    exclusive_or ^= hash;
  }
  samples_.fetch_add(ids.size(), std::memory_order_relaxed);
  if (duplicated != 0) duplicated_.fetch_add(duplicated, std::memory_order_relaxed);
  sum_.fetch_add(sum, std::memory_order_relaxed);
  exclusive_or_.fetch_xor(exclusive_or, std::memory_order_relaxed);
}

LedgerEntry Ledger::finish() const {
  // Counted from the bitmap, not derived from the counters: the two must agree.
  uint64_t unique = 0;
  for (uint64_t i = 0; i < words(); ++i) {
    unique += static_cast<uint64_t>(std::popcount(seen_[i].load(std::memory_order_relaxed)));
  }
  return {.epoch = epoch_,
          .samples = samples_,
          .unique = unique,
          .duplicated = duplicated_,
          .missing = size_ - unique,
          .sum = sum_,
          .exclusive_or = exclusive_or_};
}

std::vector<std::byte> Ledger::save() const {
  SavedHeader header{{}, epoch_, size_, samples_, duplicated_, sum_, exclusive_or_};
  std::memcpy(header.magic, kLedgerMagic, sizeof(kLedgerMagic));
  std::vector<std::byte> bytes(sizeof(header) + words() * sizeof(uint64_t));
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (uint64_t i = 0; i < words(); ++i) {
    const uint64_t word = seen_[i].load(std::memory_order_relaxed);
    std::memcpy(bytes.data() + sizeof(header) + i * sizeof(word), &word, sizeof(word));
  }
  return bytes;
}

void Ledger::restore(std::span<const std::byte> bytes) {
  SavedHeader header;
  if (bytes.size() < sizeof(header)) throw bad_state("it is too short");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kLedgerMagic, sizeof(kLedgerMagic)) != 0) {
    throw bad_state("it does not begin as one");
  }
  const std::span<const std::byte> bitmap = bytes.subspan(sizeof(header));
  const uint64_t bits = bitmap.size() * 8;
  if (header.epoch > UINT32_MAX || bitmap.size() % 8 != 0 || header.size > bits ||
      bits - header.size >= 64) {
    throw bad_state("its size does not fit its bitmap");
  }
  Ledger fresh;
  fresh.begin(static_cast<uint32_t>(header.epoch), header.size);
  uint64_t unique = 0;
  for (uint64_t i = 0; i < fresh.words(); ++i) {
    uint64_t word;
    std::memcpy(&word, bitmap.data() + i * sizeof(word), sizeof(word));
    fresh.seen_[i].store(word, std::memory_order_relaxed);
    unique += static_cast<uint64_t>(std::popcount(word));
  }
  const uint64_t tail = header.size % 64;
  if (tail != 0 && fresh.seen_[header.size / 64].load() >> tail != 0) {
    throw bad_state("samples beyond the data set are marked");
  }
  if (unique > header.samples || header.samples - unique != header.duplicated) {
    throw bad_state("its counts do not fit its bitmap");
  }
  epoch_ = fresh.epoch_;
  size_ = fresh.size_;
  capacity_ = fresh.capacity_;
  seen_ = std::move(fresh.seen_);
  samples_ = header.samples;
  duplicated_ = header.duplicated;
  sum_ = header.sum;
  exclusive_or_ = header.exclusive_or;
}

}  // namespace starling::data
