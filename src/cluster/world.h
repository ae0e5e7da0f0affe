// World: this process's place among the workers of a job, and its means to talk to them. Every
// worker makes the same calls in the same order; each waits for the others at most `timeout`. A
// lost worker is an Error here: for what a run survives, use the fabric. One thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cluster/worker_place.h"
#include "collective/collectives.h"
#include "fabric/shm/shm_fabric.h"

namespace starling {

class World {
 public:
  // One worker, which talks to nobody.
  World() = default;
  // Meets the others. Throws Error when they can't be reached.
  explicit World(const WorkerPlace& place);

  int rank() const { return place_.rank; }
  int workers() const { return place_.workers; }
  bool is_chief() const { return rank() == 0; }
  // Whether all workers share memory.
  bool shares_memory() const { return shm_ != nullptr; }
  std::chrono::nanoseconds timeout() const { return std::chrono::seconds(60); }

  // Throws Error when there are fewer shards in a batch than workers.
  void require_shards(int shards) const;

  // Null in a world of one.
  Fabric* fabric() { return fabric_.get(); }
  ShmFabric* shm() { return shm_; }

  // Memory of all workers, zeroed; all ask for the same. Requires shares_memory().
  SharedSegment share(const std::string& name, size_t bytes);

  void barrier(const char* what);
  // The chief's bytes, everywhere.
  void broadcast(const char* what, std::span<std::byte> bytes);
  // Rank r's part of `all` is bytes cuts[r] … cuts[r + 1]; each has filled in its own.
  void all_gather(const char* what, std::span<std::byte> all, std::vector<size_t> cuts);

  // The first worker whose text is not the chief's, and the first line that differs; the same
  // answer on every worker, and nothing when all are alike.
  struct Difference {
    int rank;
    std::string lines;  // "this" against "that"
  };
  std::optional<Difference> compare(const char* what, const std::string& text);
  // Throws Error, on every worker, when they differ: for what must be equal before training begins.
  void require_same(const char* what, const std::string& text);

 private:
  void wait(const char* what, Collectives::Handle handle);

  WorkerPlace place_;
  std::unique_ptr<Fabric> fabric_;
  ShmFabric* shm_ = nullptr;
  std::unique_ptr<Collectives> collectives_;
};

}  // namespace starling
