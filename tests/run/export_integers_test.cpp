// Exported programs of integers: every width, and narrow types where they hold what is computed.
#include <fermata/program.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "fermata/export.h"
#include "fermata/fermata.h"
#include "tests/run/program_folder.h"
#include "tests/run/program_results.h"

namespace fermata {
namespace {

class ExportIntegers : public ProgramFolder {};

TEST_F(ExportIntegers, OfEveryWidthAreAddedUpAndMultiplied) {
  const auto model = [](const Tensor& x, const Tensor& index) {
    std::vector<Tensor> all;
    for (const DType t :
         {DType::u8, DType::i8, DType::u16, DType::i16, DType::u32, DType::i32, DType::u64, DType::i64}) {
      const Tensor y = astype(x, t);
      for (const Tensor& z : {cumsum(y, 1), cumprod(y, 1), cumulative_max(y, 1), cumulative_min(y, 0),
                              scatter_add(y, index, y, 1), scatter_reduce(y, index, y, 1, ScatterReduction::amin),
                              scatter_reduce(y, index, y, 1, ScatterReduction::amax), sort(y, 1)})
        all.push_back(astype(z, DType::f64));
      if (byte_size(t) == 4) all.push_back(astype(matmul(y, y), DType::f64));  // others: tests/run_math
    }
    return all;
  };
  const Tensor x = reshape(arange(36, DType::i64), {6, 6}) - 9, index = reshape(arange(36, DType::i64), {6, 6}) % 4;
  export_program(path(), model, x, index);
  const run::Results results = run::Program(path()).run(views({x.sync(), index.sync()}));
  const std::vector<Tensor> wanted = model(x, index);
  for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i], 0);
}

/// Integers of a program are computed in 16 bits where they fit, whether its sizes are among them or not.
TEST_F(ExportIntegers, OfBytesAreComputedInNarrowTypes) {
  const auto model = [](const Tensor& x, const Tensor& y) {
    const Tensor a = astype(x, DType::i32), b = astype(y, DType::i64);
    return std::array{astype(floor_divide(a * 77 + a * 178, 255), DType::f64), astype((b * 3 - 100) >> 2, DType::f64),
                      astype(remainder(a * 300 - 7000, 23) * x.shape()[0], DType::f64)};
  };
  const auto arguments = [](std::int64_t rows) {
    const Tensor x = randint(0, 256, {rows, 100}, DType::u8), y = randint(0, 256, {rows, 100}, DType::u8);
    sync({x, y});
    return std::array{x, y};
  };
  const auto [x, y] = arguments(5);
  export_program(path(), {.dynamic = {{0, 0, "rows"}, {1, 0, "rows"}}}, model, x, y);
  const run::Program program(path());
  for (const std::int64_t rows : {5, 1, 3000}) {
    const auto [a, b] = arguments(rows);
    const auto results = program.run(views({a, b}));
    const auto wanted = model(a, b);
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i], 0);
  }
}

}  // namespace
}  // namespace fermata
