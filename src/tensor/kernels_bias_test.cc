#include "tensor/kernels.h"
#include "tensor/kernels_testing.h"

namespace starling {
namespace {

using namespace testing_kernels;

constexpr int64_t kRows[] = {0, 1, 2, 3, 7, 64, 255, 256, 257, 1030};
constexpr int64_t kColumns[] = {1, 3, 8, 10, 16, 31, 32, 33, 64, 67, 131};

TEST(KernelsBias, ColumnSumsMatchDouble) {
  for_each_target([] {
    for (const int64_t rows : kRows) {
      for (const int64_t columns : kColumns) {
        const std::vector<float> dy = random_floats(rows * columns, 1);
        const std::vector<float> before = random_floats(columns, 2);
        std::vector<float> fresh = before, added = before;
        column_sums(rows, columns, dy.data(), false, fresh.data());
        column_sums(rows, columns, dy.data(), true, added.data());
        for (int64_t c = 0; c < columns; ++c) {
          double sum = 0;
          for (int64_t r = 0; r < rows; ++r) sum += dy[r * columns + c];
          ASSERT_TRUE(near(fresh[c], sum, 1e-7 * (1.0 + rows))) << rows << " × " << columns;
          ASSERT_TRUE(near(added[c], before[c] + sum, 1e-7 * (2.0 + rows)));
        }
      }
    }
  });
}

TEST(KernelsBias, ColumnSumsOfManyRowsStayAccurate) {
  const int64_t rows = 50176;
  const std::vector<float> dy = random_floats(rows * 32, 3, 0, 1);
  std::vector<float> db(32);
  column_sums(rows, 32, dy.data(), false, db.data());
  for (int64_t c = 0; c < 32; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += dy[r * 32 + c];
    EXPECT_TRUE(near(db[c], sum, 0, 2e-6));
  }
}

TEST(KernelsBias, BackwardAndSumsEqualTheTwoKernels) {
  for_each_target([] {
    for (const Elementwise kind : {Elementwise::kRelu, Elementwise::kLeakyRelu, Elementwise::kGelu,
                                   Elementwise::kSigmoid, Elementwise::kTanh}) {
      for (const int64_t rows : {0, 1, 7, 257}) {
        for (const int64_t columns : kColumns) {
          const int64_t n = rows * columns;
          const std::vector<float> known = random_floats(n, 4), dy = random_floats(n, 5);
          std::vector<float> dx(dy.size()), expected_dx(dy.size()), in_place = dy;
          std::vector<float> db = random_floats(columns, 6);
          std::vector<float> expected_db = db, db_in_place = db;
          elementwise_backward(kind, 0.2f, n, known.data(), dy.data(), expected_dx.data());
          column_sums(rows, columns, expected_dx.data(), true, expected_db.data());
          elementwise_backward_column_sums(kind, 0.2f, rows, columns, known.data(), dy.data(),
                                           dx.data(), true, db.data());
          elementwise_backward_column_sums(kind, 0.2f, rows, columns, known.data(), in_place.data(),
                                           in_place.data(), true, db_in_place.data());
          ASSERT_EQ(dx, expected_dx);
          ASSERT_EQ(db, expected_db);
          ASSERT_EQ(in_place, dx);
          ASSERT_EQ(db_in_place, db);
        }
      }
    }
  });
}

TEST(KernelsBias, SumsOverwriteUnlessToldToAdd) {
  const std::vector<float> ones(6, 1.0f);
  std::vector<float> dx(6), db = {7, 7, 7};
  elementwise_backward_column_sums(Elementwise::kRelu, 0, 2, 3, ones.data(), ones.data(), dx.data(),
                                   false, db.data());
  EXPECT_EQ(db, (std::vector<float>{2, 2, 2}));
  column_sums(0, 3, nullptr, false, db.data());
  EXPECT_EQ(db, (std::vector<float>{0, 0, 0}));
}

TEST(KernelsBias, EveryTargetGivesTheSameSums) {
  for (const int64_t columns : kColumns) {
    const std::vector<float> known = random_floats(1030 * columns, 7);
    const std::vector<float> dy = random_floats(1030 * columns, 8);
    expect_same_bits([&] {
      std::vector<float> db(static_cast<size_t>(columns));
      column_sums(1030, columns, dy.data(), false, db.data());
      return db;
    });
    expect_same_bits([&] {
      std::vector<float> dx(dy.size()), db(static_cast<size_t>(columns));
      elementwise_backward_column_sums(Elementwise::kGelu, 0, 1030, columns, known.data(),
                                       dy.data(), dx.data(), false, db.data());
      return db;
    });
  }
}

TEST(KernelsBias, BiasActivateEqualsItsParts) {
  for_each_target([] {
    for (const Elementwise kind : {Elementwise::kRelu, Elementwise::kLeakyRelu, Elementwise::kGelu,
                                   Elementwise::kSigmoid, Elementwise::kTanh}) {
      for (const int64_t columns : kColumns) {
        const int64_t rows = 5, n = rows * columns;
        const std::vector<float> x = random_floats(n, 9), residual = random_floats(n, 10);
        const std::vector<float> bias = random_floats(columns, 11);
        for (int choice = 0; choice < 8; ++choice) {
          const bool has_bias = choice & 1, has_residual = choice & 2, activate = choice & 4;
          std::vector<float> y = x, expected = x;
          for (int64_t i = 0; i < n; ++i) {
            if (has_bias) expected[i] += bias[i % columns];
            if (has_residual) expected[i] += residual[i];
          }
          if (activate) elementwise_forward(kind, 0.3f, n, expected.data(), expected.data());
          bias_activate(rows, columns, has_bias ? bias.data() : nullptr,
                        has_residual ? residual.data() : nullptr, activate, kind, 0.3f, y.data());
          ASSERT_EQ(y, expected) << "columns " << columns << ", choice " << choice;
        }
      }
    }
  });
}

}  // namespace
}  // namespace starling
