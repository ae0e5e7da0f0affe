// How it goes, with a · b cut into blocks along k as in gemm.cc, and those into stretches:
//   of each row of a the elements of a stretch that are not zero become a list: their values, and
//   where the rows of b that they are multiplied with lie in a panel;
//   the right operand is packed into panels, a stretch × kPanelWidth columns, each just before its
//   use: small enough to stay in the first cache while all rows of a are multiplied with it;
//   a row's list is multiplied with a panel into kPanelVectors sums in registers, one vector of the
//   panel from the first cache for each multiplication: a core can load as many as it multiplies.
//   Between stretches sums wait in the second cache.
// Meanwhile memory is asked for what the next panel is packed from, a few lines for each row.
#include "tensor/gemm_sparse.h"

#include <algorithm>
#include <bit>

#include "tensor/gemm_cut.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/gemm_sparse.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/gemm_pack-inl.h"

#ifndef STARLING_GEMM_SPARSE_CONSTANTS
#define STARLING_GEMM_SPARSE_CONSTANTS
namespace starling {
namespace {

constexpr int64_t kLeastRows = 32;          // of a: they share the packing of a panel
constexpr int64_t kLeastColumns = 96;       // of b: they share the making of lists
constexpr int64_t kBandRows = 256;          // of a, multiplied with a panel at a time
constexpr int64_t kBandFloats = 1 << 17;    // of a in those: its lists stay in the second cache
constexpr int64_t kPanelFloats = 6 * 1024;  // 24 of the 32 KiB that the smallest first caches have
constexpr int kPanelVectors = 12;           // as many sums as there are registers for
constexpr int64_t kMostLanes = 16;
constexpr int64_t kMostDepth = kPanelVectors * kMostLanes;  // of a panel: its rows of a fit a tile
constexpr int64_t kLeastDepth = 16;                         // of one that is not a whole shard

// Rows that a band has at most.
constexpr int64_t most_band_rows(const GemmShape& s) {
  const int64_t depth = std::max<int64_t>(block_depth(s).total(), 1);
  return std::max<int64_t>(1, std::min(kBandRows, kBandFloats / depth));
}

// Rows of a band, of equal size.
constexpr int64_t band_rows(const GemmShape& s) { return equal_part(s.m, most_band_rows(s)); }

constexpr bool might_pay(const GemmShape& s, int64_t rows) {
  return s.n >= kLeastColumns && rows >= kLeastRows &&
         (s.depth_shards == 1 || block_depth(s).depth >= kLeastDepth);
}

// The parts of scratch, in floats. A product with fewer rows may have bands of more: the parts are
// for all that have as many rows or fewer.
struct Parts {
  explicit Parts(const GemmShape& s)
      : rows(std::min(s.m, most_band_rows(s))),
        tile(rows * kPanelVectors * kMostLanes),
        tiles(std::bit_width(static_cast<uint64_t>(s.depth_shards))),
        list(rows * block_depth(s).total() + kMostLanes),
        counts(rows * (s.depth_shards + block_depth(s).total() / kLeastDepth)) {}

  int64_t rows;

  int64_t tile;    // the sums of all rows of a band with a panel
  int64_t tiles;   // those under way, and of shards that wait to be joined
  int64_t list;    // values, or places
  int64_t counts;  // of values, for every row and stretch
};

}  // namespace
}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kPanelWidth = kPanelVectors * kLanes;
constexpr int64_t kPanelDepth = std::min(kPanelFloats / kPanelWidth, kMostDepth);
static_assert(kPanelDepth >= 2 * kLeastDepth);

size_t count_zeros(const float* p, int64_t count) {
  const D d;
  const V zero = hn::Zero(d);
  size_t zeros = 0;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    zeros += hn::CountTrue(d, hn::Eq(hn::LoadU(d, p + i), zero));
  for (; i < count; ++i) zeros += p[i] == 0;
  return zeros;
}

// The stretches of a block, one after another, none of them of two shards.
class Stretches {
 public:
  explicit Stretches(const Depth& depth)
      : depth_(depth), most_(equal_part(depth.depth, kPanelDepth)) {}

  bool done() const { return shard_ == depth_.shards; }
  int64_t from() const { return shard_ * depth_.depth + inside_; }
  int64_t size() const { return std::min(most_, depth_.depth - inside_); }
  int64_t shard() const { return shard_; }
  bool begins_shard() const { return inside_ == 0; }
  bool ends_shard() const { return inside_ + size() == depth_.depth; }
  bool last() const { return ends_shard() && shard_ + 1 == depth_.shards; }
  void next() {
    inside_ += size();
    if (inside_ < depth_.depth) return;
    inside_ = 0;
    ++shard_;
  }

 private:
  const Depth depth_;
  const int64_t most_;
  int64_t shard_ = 0, inside_ = 0;
};

// What is not zero: stretch by stretch, in each row by row.
struct Lists {
  float* values;
  uint32_t* places;  // in a panel, in floats
  uint32_t* counts;
};

// Appends what is not zero among elements of a row, which are multiplied with the first rows of a
// panel; how many there are.
size_t append(const float* row, int64_t count, float* values, uint32_t* places) {
  size_t found = 0;
  int64_t k = 0;
#if HWY_TARGET == HWY_AVX3  // GCC has Highway's tables for others copied at every call
  const D d;
  const hn::RebindToUnsigned<D> u;
  const auto steps = hn::Mul(hn::Iota(u, 0), hn::Set(u, static_cast<uint32_t>(kPanelWidth)));
  for (; k + kLanes <= count; k += kLanes) {
    const V value = hn::LoadU(d, row + k);
    const auto wanted = hn::Not(hn::Eq(value, hn::Zero(d)));  // Ne forgets what is no number
    const auto place = hn::Add(steps, hn::Set(u, static_cast<uint32_t>(k * kPanelWidth)));
    hn::StoreU(hn::Compress(value, wanted), d, values + found);
    hn::StoreU(hn::Compress(place, hn::RebindMask(u, wanted)), u, places + found);
    found += hn::CountTrue(d, wanted);
  }
#endif
  for (; k < count; ++k) {
    values[found] = row[k];
    places[found] = static_cast<uint32_t>(k * kPanelWidth);
    found += row[k] != 0;
  }
  return found;
}

void make_lists(const MatrixView& a, int64_t m, const Depth& depth, Lists to, float* turned) {
  for (Stretches stretch(depth); !stretch.done(); stretch.next()) {
    const float* row = a.data + stretch.from() * a.column_stride;
    int64_t stride = a.row_stride;
    if (a.column_stride != 1) {
      pack_strip_transposed({row, 1, a.column_stride}, m, stretch.size(), kPanelDepth, turned);
      row = turned;
      stride = kPanelDepth;
    }
    for (int64_t i = 0; i < m; ++i, row += stride) {
      const size_t count = append(row, stretch.size(), to.values, to.places);
      to.values += count;
      to.places += count;
      *to.counts++ = static_cast<uint32_t>(count);
    }
  }
}

// Packs `depth` rows of b, `columns` ≤ kPanelWidth of each; zeros up to a whole vector.
void pack_panel(const MatrixView& b, int64_t depth, int64_t columns, float* to) {
  if (b.column_stride != 1) {
    pack_strip_transposed(b, depth, columns, kPanelWidth, to);
    return;
  }
  const D d;
  const int64_t whole = columns / kLanes * kLanes;
  for (int64_t k = 0; k < depth; ++k, to += kPanelWidth) {
    const float* from = b.data + k * b.row_stride;
    for (int64_t j = 0; j < whole; j += kLanes) hn::Store(hn::LoadU(d, from + j), d, to + j);
    for (int64_t j = whole; j < round_up_to(columns, kLanes); ++j)
      to[j] = j < columns ? from[j] : 0.0f;
  }
}

// A panel, and what becomes of a row's sums with it.
struct Panel {
  const float* data;
  bool begins, ends, last;  // a shard; the last of all
  int64_t shard;
  float* under_way;  // sums of this shard, row by row
  float* waiting;    // those of shards before it, to be joined with them: level by level
  int64_t level_floats;
  float* c;
  int64_t c_stride;
  int64_t columns;
  bool add;
};

// The sums of a row that are not whole vectors go where they belong.
HWY_NOINLINE void place_row(const float* sums, int64_t columns, bool add, float* c) {
  for (int64_t j = 0; j < columns; ++j) c[j] = (add ? c[j] : 0.0f) + sums[j];
}

// All rows times a panel. Two shards' sums of one size make one of the next, and none that is
// complete is −0, as in gemm.cc. All in one function, so that the sums stay in registers.
template <int vectors>
HWY_NOINLINE void multiply_rows(int64_t m, Lists& list, const Panel& panel, Fetch& next) {
  const D d;
  float* HWY_RESTRICT value = list.values;
  uint32_t* HWY_RESTRICT place = list.places;
  const float* const data = panel.data;
  const bool whole = panel.columns == vectors * kLanes;
  float* c = panel.c;
  for (int64_t i = 0; i < m; ++i, c += panel.c_stride) {
    V sums[vectors];
    float* const under_way = panel.under_way + i * kPanelWidth;
    for (int v = 0; v < vectors; ++v)
      sums[v] = panel.begins ? hn::Zero(d) : hn::Load(d, under_way + v * kLanes);
    next.part();
    if (panel.last) {
      const float* const place_of_next = c + panel.c_stride;
      for (int64_t j = 0; j < vectors * kLanes; j += kLine)
        __builtin_prefetch(place_of_next + j, 1);
    }
    for (const float* const end = value + list.counts[i]; value != end; ++value, ++place) {
      const V left = hn::Set(d, *value);
      const float* right = data + *place;
      asm("" : "+r"(right));  // an address that is a sum splits every instruction below in two
      for (int v = 0; v < vectors; ++v)
        sums[v] = hn::MulAdd(left, hn::Load(d, right + v * kLanes), sums[v]);
    }
    float* to = under_way;
    if (panel.ends) {
      float* waiting = panel.waiting + i * kPanelWidth;
      for (int64_t bits = panel.shard; bits & 1; bits >>= 1, waiting += panel.level_floats) {
        for (int v = 0; v < vectors; ++v)
          sums[v] = hn::Add(hn::Load(d, waiting + v * kLanes), sums[v]);
      }
      if (!panel.last) to = waiting;
    }
    if (panel.last && whole) {
      for (int v = 0; v < vectors; ++v) {
        const V before = panel.add ? hn::LoadU(d, c + v * kLanes) : hn::Zero(d);
        hn::StoreU(hn::Add(before, sums[v]), d, c + v * kLanes);
      }
      continue;
    }
    for (int v = 0; v < vectors; ++v) hn::Store(sums[v], d, to + v * kLanes);
    if (panel.last) place_row(to, panel.columns, panel.add, c);
  }
  list = {value, place, list.counts + m};
}

template <int most = kPanelVectors>
void multiply_panel(int64_t vectors, int64_t m, Lists& list, const Panel& panel, Fetch& next) {
  if constexpr (most > 1) {
    if (vectors < most) return multiply_panel<most - 1>(vectors, m, list, panel, next);
  }
  multiply_rows<most>(m, list, panel, next);
}

// One block along k of one band of rows.
void multiply_band(const GemmShape& s, int64_t m, const Parts& parts, const Depth& depth,
                   const MatrixView& a, const MatrixView& b, bool add, float* c, float* scratch) {
  float* const packed = scratch;
  float* const under_way = packed + kPanelFloats;
  float* const values = under_way + parts.tiles * parts.tile;
  auto* const places = reinterpret_cast<uint32_t*>(values + parts.list);
  const Lists lists{values, places, places + parts.list};
  make_lists(a, m, depth, lists, under_way);

  const EqualParts strips((s.n + kLanes - 1) / kLanes, kPanelVectors);
  int64_t j = 0;
  for (int64_t strip = 0; strip < strips.count; ++strip) {
    const int64_t vectors = strips.size(strip);
    const int64_t columns = std::min(vectors * kLanes, s.n - j);
    Lists list = lists;
    for (Stretches stretch(depth); !stretch.done();) {
      const Panel panel{.data = packed,
                        .begins = stretch.begins_shard(),
                        .ends = stretch.ends_shard(),
                        .last = stretch.last(),
                        .shard = stretch.shard(),
                        .under_way = under_way,
                        .waiting = under_way + parts.tile,
                        .level_floats = parts.tile,
                        .c = c + j,
                        .c_stride = s.n,
                        .columns = columns,
                        .add = add};
      const MatrixView strip_of_b = columns_of(b, j);
      pack_panel({strip_of_b.data + stretch.from() * b.row_stride, b.row_stride, b.column_stride},
                 stretch.size(), columns, packed);
      stretch.next();
      const bool same = !stretch.done();
      const MatrixView from = columns_of(b, same ? j : j + columns);
      const int64_t k = same ? stretch.from() : 0;
      Fetch next({from.data + k * b.row_stride, b.row_stride, b.column_stride}, kPanelDepth,
                 same ? columns : std::min(kPanelWidth, s.n - j - columns), kPanelWidth, m);
      multiply_panel(vectors, m, list, panel, next);
    }
    j += columns;
  }
}

void gemm_sparse_target(const GemmShape& s, const MatrixView& a, const MatrixView& b,
                        bool accumulate, float* c, float* scratch) {
  const int64_t most = band_rows(s);
  const Parts parts(s);
  for_blocks(
      s, a, b, accumulate,
      [&](const Depth& depth, const MatrixView& a_block, const MatrixView& b_block, bool add) {
        for (int64_t i = 0; i < s.m; i += most) {
          multiply_band(s, std::min(most, s.m - i), parts, depth,
                        {a_block.data + i * a.row_stride, a.row_stride, a.column_stride}, b_block,
                        add, c + i * s.n, scratch);
        }
      });
}

size_t count_zeros_target(const GemmShape& s, const MatrixView& a) {
  const bool by_rows = a.column_stride == 1;
  size_t zeros = 0;
  for (int64_t line = 0; line < (by_rows ? s.m : s.k); ++line)
    zeros += count_zeros(a.data + line * (by_rows ? a.row_stride : a.column_stride),
                         by_rows ? s.k : s.m);
  return zeros;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(gemm_sparse_target);
HWY_EXPORT(count_zeros_target);

bool gemm_sparse_pays(const GemmShape& shape, const MatrixView& a) {
  if (!might_pay(shape, band_rows(shape))) return false;
  const size_t zeros = HWY_DYNAMIC_DISPATCH(count_zeros_target)(shape, a);
  return 5 * zeros >= static_cast<size_t>(2 * shape.m * shape.k);
}

size_t gemm_sparse_scratch_floats(const GemmShape& shape) {
  const Parts parts(shape);
  if (!might_pay(shape, parts.rows)) return 0;
  return static_cast<size_t>(kPanelFloats + parts.tiles * parts.tile + 2 * parts.list +
                             parts.counts);
}

void gemm_sparse(const GemmShape& shape, const MatrixView& a, const MatrixView& b, bool accumulate,
                 float* c, float* scratch) {
  HWY_DYNAMIC_DISPATCH(gemm_sparse_target)(shape, a, b, accumulate, c, scratch);
}

}  // namespace starling
#endif
