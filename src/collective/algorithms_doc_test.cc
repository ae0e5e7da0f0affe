// docs/algorithms.md must not drift: its table of partials is what placement.cc places, and its
// formulas are the bytes that fabrics count.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <sstream>

#include "collective/broadcast.h"
#include "collective/collective_testing.h"
#include "fabric/fabric_testing.h"

namespace starling {
namespace {

std::string read_document() {
  std::ifstream stream(STARLING_SOURCE_DIR "/docs/algorithms.md");
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string row_of(size_t workers) {
  const Placement placement = Placement::even(16, workers);
  std::string counts, parts;
  for (size_t rank = 0; rank < workers; ++rank) {
    counts += fmt::format("{}{}", rank > 0 ? " " : "", placement.range(rank).size());
    if (rank > 0) parts += " · ";
    for (size_t k = 0; k < placement.partials(rank).size(); ++k) {
      const LeafRange part = placement.partials(rank)[k];
      if (k > 0) parts += ", ";
      parts += part.size() == 1 ? fmt::format("{}", part.begin)
                                : fmt::format("{}–{}", part.begin, part.end - 1);
    }
  }
  return fmt::format("| {} | {} | {} | {} | {} |\n", workers, counts, parts,
                     placement.partials().size(), placement.is_aligned() ? "yes" : "no");
}

TEST(AlgorithmsDocument, TheTableOfPartialsIsWhatIsPlaced) {
  const std::string text = read_document();
  for (size_t workers = 1; workers <= 8; ++workers) {
    EXPECT_NE(text.find(row_of(workers)), std::string::npos) << "docs/algorithms.md should have\n"
                                                             << row_of(workers);
  }
}

TEST(AlgorithmsDocument, EveryAlgorithmHasItsSection) {
  const std::string text = read_document();
  for (const char* name :
       {"all_reduce_direct", "all_reduce_halving_doubling", "all_reduce_ring", "all_reduce_shared",
        "reduce_scatter", "all_gather", "broadcast", "gather", "shift", "barrier"}) {
    EXPECT_NE(text.find(fmt::format("\n## {}\n", name)), std::string::npos) << name;
  }
}

struct Moved {
  uint64_t sent = 0, received = 0;
};

class BytesOnTheWire : public testing::TestWithParam<std::tuple<TestedFabric, int>> {
 protected:
  size_t world() const { return static_cast<size_t>(std::get<1>(GetParam())); }
  // Divides evenly, so that the formulas hold to the byte.
  size_t length() const { return 16 * world() * 11; }
  uint64_t bytes() const { return length() * sizeof(float); }

  // Does one operation on every rank, and returns what each moved.
  std::vector<Moved> moved(
      const SharedSum& sum, bool exact,
      const std::function<Collectives::Handle(Collectives&, std::vector<float>&)>& start) {
    std::vector<Moved> result(world());
    run_ranks(std::get<0>(GetParam()), std::get<1>(GetParam()), [&](Fabric& fabric) {
      Collectives all(fabric, sum.placement, {.exact = exact, .chunk_bytes = 128});
      std::vector<float> out(sum.length());
      const Status status = all.wait(start(all, out));
      ASSERT_TRUE(status) << status.failure().message;
      const Counters counters = fabric.counters();
      result[static_cast<size_t>(fabric.rank())] = {counters.bytes_sent, counters.bytes_received};
    });
    return result;
  }
  std::vector<Moved> moved_by_all_reduce(const SharedSum& sum, AllReduceAlgorithm algorithm) {
    std::vector<std::vector<std::vector<float>>> own(world());
    for (size_t r = 0; r < world(); ++r) own[r] = sum.of(static_cast<int>(r));
    return moved(sum, algorithm != AllReduceAlgorithm::kRing,
                 [&](Collectives& all, std::vector<float>& out) {
                   return all.all_reduce(pointers(own[static_cast<size_t>(all.rank())]), out,
                                         algorithm);
                 });
  }
};

INSTANTIATE_TEST_SUITE_P(All, BytesOnTheWire,
                         testing::Combine(testing::Values(TestedFabric::kSim, TestedFabric::kShm,
                                                          TestedFabric::kTcp),
                                          testing::Values(1, 2, 3, 4, 7, 8)),
                         [](const auto& test) {
                           return name_of(std::get<0>(test.param)) + "World" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(BytesOnTheWire, DirectAllReduceMovesWhatItsFormulaSays) {
  const SharedSum sum(Placement::even(16, world()), length(), 1);
  const auto moves = moved_by_all_reduce(sum, AllReduceAlgorithm::kDirect);
  const uint64_t n = world(), partials = sum.parts.size();
  for (size_t r = 0; r < world(); ++r) {
    const uint64_t own = sum.count(static_cast<int>(r));
    EXPECT_EQ(moves[r].sent, (own + 1) * bytes() * (n - 1) / n);
    EXPECT_EQ(moves[r].received, (partials - own) * bytes() / n + bytes() * (n - 1) / n);
  }
}

TEST_P(BytesOnTheWire, SteppedAllReducesMoveWhatTheirFormulaSays) {
  const SharedSum sum(Placement::even(16, world()), length(), 1);
  const uint64_t n = world();
  for (const auto algorithm : {AllReduceAlgorithm::kHalvingDoubling, AllReduceAlgorithm::kRing}) {
    if (!can_use(algorithm, *sum.placement, false)) continue;
    const auto moves = moved_by_all_reduce(sum, algorithm);
    uint64_t total = 0;
    for (const Moved& move : moves) {
      // Halves of slices that don't divide differ by a unit of 16 floats per step.
      const double unit = 16 * sizeof(float) * std::bit_width(n);
      EXPECT_NEAR(static_cast<double>(move.sent), 2.0 * bytes() * (n - 1) / n, unit);
      total += move.sent;
    }
    EXPECT_EQ(total, 2 * bytes() * (n - 1)) << name_of(algorithm);
  }
}

TEST_P(BytesOnTheWire, TheOthersMoveWhatTheirFormulasSay) {
  const SharedSum sum(Placement::even(16, world()), length(), 1);
  const uint64_t n = world(), partials = sum.parts.size(), slice = bytes() / n;
  std::vector<std::vector<std::vector<float>>> own(world());
  for (size_t r = 0; r < world(); ++r) own[r] = sum.of(static_cast<int>(r));
  const auto scatter = moved(sum, true, [&](Collectives& all, std::vector<float>& out) {
    return all.reduce_scatter(pointers(own[static_cast<size_t>(all.rank())]), length(),
                              std::span(out).first(length() / world()));
  });
  const auto all_gather = moved(
      sum, true, [&](Collectives& all, std::vector<float>& out) { return all.all_gather(out); });
  const auto broadcast = moved(sum, true, [&](Collectives& all, std::vector<float>& out) {
    return all.broadcast(0, std::as_writable_bytes(std::span(out)));
  });
  std::vector<size_t> cuts;
  for (size_t r = 0; r <= world(); ++r) cuts.push_back(r * slice);
  const auto gather = moved(sum, true, [&](Collectives& all, std::vector<float>& out) {
    return all.gather(0, std::as_bytes(std::span(out)).first(slice),
                      std::as_writable_bytes(std::span(out)), cuts);
  });
  const auto shift = moved(sum, true, [&](Collectives& all, std::vector<float>& out) {
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(out));
    return all.shift(bytes.first(slice), world() == 1 ? bytes.first(0) : bytes.last(slice));
  });
  const auto barrier =
      moved(sum, true, [&](Collectives& all, std::vector<float>&) { return all.barrier(); });
  for (size_t r = 0; r < world(); ++r) {
    const uint64_t mine = sum.count(static_cast<int>(r));
    EXPECT_EQ(scatter[r].sent, mine * bytes() * (n - 1) / n);
    EXPECT_EQ(scatter[r].received, (partials - mine) * bytes() / n);
    EXPECT_EQ(all_gather[r].sent, (n - 1) * slice);
    EXPECT_EQ(all_gather[r].received, bytes() - slice);
    const uint64_t children =
        broadcast_children(static_cast<int>(r), static_cast<int>(world()), 0).size();
    EXPECT_EQ(broadcast[r].sent, children * bytes());
    EXPECT_EQ(broadcast[r].received, r == 0 ? 0 : bytes());
    EXPECT_EQ(gather[r].sent, r == 0 ? 0 : slice);
    EXPECT_EQ(gather[r].received, r == 0 ? bytes() - slice : 0);
    EXPECT_EQ(shift[r].sent, n == 1 ? 0 : slice);
    EXPECT_EQ(shift[r].received, n == 1 ? 0 : slice);
    EXPECT_EQ(barrier[r].sent, 0u);
  }
  EXPECT_EQ(broadcast[0].sent, static_cast<uint64_t>(std::bit_width(n - 1)) * bytes());
}

}  // namespace
}  // namespace starling
