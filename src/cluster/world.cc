#include "cluster/world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <sstream>

#include "base/lost_worker.h"
#include "fabric/tcp/tcp_fabric.h"
#include "starling/error.h"

namespace starling {
namespace {

// Texts that are compared, of every worker.
constexpr size_t kTextBytes = 4096;

std::unique_ptr<Fabric> tcp_fabric(const WorkerPlace& place) {
  TcpOptions options{.rank = place.rank, .token = place.token};
  for (const uint16_t port : place.ports) options.addresses.push_back({"127.0.0.1", port});
  return std::make_unique<TcpFabric>(TcpListener::adopt(place.descriptor), options);
}

std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string x, y;
  while (true) {
    const bool more_left = static_cast<bool>(std::getline(left, x)),
               more_right = static_cast<bool>(std::getline(right, y));
    if (!more_left && !more_right) return "their lengths";
    if (!more_left) x.clear();
    if (!more_right) y.clear();
    if (x != y) return fmt::format("\"{}\" against \"{}\"", x, y);
  }
}

}  // namespace

World::World(const WorkerPlace& place) : place_(place) {
  if (place.fabric == FabricKind::kShm) {
    auto shm = std::make_unique<ShmFabric>(place.descriptor, place.rank);
    shm_ = shm.get();
    fabric_ = std::move(shm);
  } else {
    fabric_ = tcp_fabric(place);
  }
  if (fabric_->world() != place.workers) {
    throw input_error(fmt::format("worker {} was told of {} workers, but its world has {}",
                                  place.rank, place.workers, fabric_->world()),
                      "start workers with `starling launch` or `starling train --workers`");
  }
  const auto workers = static_cast<size_t>(place.workers);
  collectives_ = std::make_unique<Collectives>(
      *fabric_, std::make_shared<Placement>(Placement::even(workers, workers)),
      CollectiveOptions{.timeout = timeout()});
}

void World::require_shards(int shards) const {
  if (workers() <= shards) return;
  throw input_error(
      fmt::format("{} workers for {} shards: some would have none", workers(), shards),
      fmt::format("use --workers {} or less, or set shards to {} or more (which changes the "
                  "numbers)",
                  shards, workers()));
}

void World::wait(const char* what, Collectives::Handle handle) {
  const Status status = collectives_->wait(handle);
  if (status) return;
  throw LostWorker(fmt::format("{}, worker {}: {}", what, rank(), status.failure().message),
                   "see what the lost worker said; --resume goes on from the last checkpoint");
}

void World::barrier(const char* what) {
  if (fabric_) wait(what, collectives_->barrier());
}

void World::broadcast(const char* what, std::span<std::byte> bytes) {
  if (fabric_) wait(what, collectives_->broadcast(0, bytes));
}

void World::all_gather(const char* what, std::span<std::byte> all, std::vector<size_t> cuts) {
  if (fabric_) wait(what, collectives_->all_gather(all, std::move(cuts)));
}

SharedSegment World::share(const std::string& name, size_t bytes) {
  // A worker that expects more than there is would die of it before it can say why.
  require_same("job", fmt::format("{} of {} bytes", name, bytes));
  // The chief makes it; the others open it through the chief's table of descriptors.
  std::array<int64_t, 2> where{};
  std::optional<SharedSegment> segment;
  if (is_chief()) {
    segment = SharedSegment::create(name, bytes);
    where = {getpid(), segment->fd()};
  }
  broadcast("sharing memory", std::as_writable_bytes(std::span(where)));
  if (!is_chief()) {
    const std::string path = fmt::format("/proc/{}/fd/{}", where[0], where[1]);
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      throw run_error(fmt::format("{} can't be opened: {}", path, std::strerror(errno)),
                      "workers of one host must run as the same user; fabric = \"tcp\" shares "
                      "nothing");
    }
    segment = SharedSegment::map(fd);
    close(fd);
  }
  barrier("sharing memory");
  return std::move(*segment);
}

std::optional<World::Difference> World::compare(const char* what, const std::string& text) {
  if (workers() == 1) return std::nullopt;
  const auto count = static_cast<size_t>(workers());
  std::vector<char> texts(count * kTextBytes, 0);
  const auto of = [&](size_t rank) { return texts.data() + rank * kTextBytes; };
  std::memcpy(of(static_cast<size_t>(rank())), text.data(), std::min(text.size(), kTextBytes - 1));
  std::vector<size_t> cuts;
  for (size_t r = 0; r <= count; ++r) cuts.push_back(r * kTextBytes);
  all_gather(what, std::as_writable_bytes(std::span(texts)), cuts);
  for (size_t r = 1; r < count; ++r) {
    if (std::strcmp(of(0), of(r)) != 0)
      return Difference{static_cast<int>(r), first_difference(of(0), of(r))};
  }
  return std::nullopt;
}

void World::require_same(const char* what, const std::string& text) {
  const std::optional<Difference> found = compare(what, text);
  if (!found) return;
  throw input_error(
      fmt::format("workers 0 and {} have not the same {}: {}", found->rank, what, found->lines),
      "start all workers with one program, one job and one kind of CPU; isa = \"avx2\" makes "
      "unlike CPUs alike");
}

}  // namespace starling
