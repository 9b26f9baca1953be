// Kernels that share out large work, or take it by vectors: histograms, rows, scans, transposes, short rows, selection,
// Fourier transforms. Bits depend neither on threads nor on modes.
#include <gtest/gtest.h>

#include <fermata/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/allocator.h"
#include "runtime/memory_accounts.h"
#include "runtime/streaming.h"
#include "runtime/thread_pool.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;

class LargeMoves : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, LargeMoves, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

struct Threads {
  explicit Threads(int count) : before(thread_count()) { set_thread_count(count); }
  ~Threads() { set_thread_count(before); }
  const int before;
};

Tensor numbers(const Shape& sizes, DType dtype = DType::f32, std::uint64_t seed = 1) {
  Generator generator(seed);
  return normal(sizes, 0, 3, DType::f32, generator).astype(dtype).sync();
}
Tensor positions(std::int64_t end, const Shape& sizes, DType dtype = DType::i64) {
  Generator generator(7);
  return randint(-end, end, sizes, DType::i64, generator).astype(dtype).sync();
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  const Tensor dense = copy(x).sync();
  const Elements elements(dense);
  const auto* const from = elements.data<std::byte>();
  return {from, from + static_cast<std::size_t>(element_count(x.shape())) * byte_size(x.dtype())};
}

/// Runs a program on one thread and on three, twice each (compiled code may come second), and in eager mode.
template <class Program> Tensor same_everywhere(Program program) {
  const Threads one(1);
  const Tensor result = program().sync();
  const auto wanted = bytes_of(result);
  const auto check = [&](const char* what) { EXPECT_EQ(bytes_of(program().sync()), wanted) << what; };
  check("again");
  {
    const Threads three(3);
    check("three threads"), check("three threads again");
  }
  const ModeGuard eager(Mode::eager);
  check("eager");
  return result;
}

TEST_P(LargeMoves, HistogramsAreSumsInAnyDType) {
  constexpr std::int64_t kCount = 150'000, kBins = 37;
  for (const DType t : {DType::u8, DType::i16, DType::i64, DType::bf16, DType::f32, DType::f64, DType::c64}) {
    const Tensor index = positions(kBins, {kCount}, t == DType::f64 ? DType::i32 : DType::i64);
    const Tensor ones = full({kCount}, 1, is_complex(t) || byte_size(t) > 2 ? t : DType::f32).astype(t);
    const Tensor counts = same_everywhere([&] { return scatter_add(zeros({kBins}, t), index, ones); });
    if (byte_size(t) < 4) continue;  // they wrap, or are rounded
    const auto at = index.astype(DType::i64).to_vector<std::int64_t>();
    std::vector<double> wanted(kBins);
    for (const std::int64_t i : at) ++wanted[static_cast<std::size_t>(i < 0 ? i + kBins : i)];
    EXPECT_EQ((is_complex(t) ? real(counts) : counts).astype(DType::f64).to_vector<double>(), wanted) << name(t);
  }
}

TEST_P(LargeMoves, HistogramsOfExtremesAndProducts) {
  constexpr std::int64_t kCount = 120'000, kBins = 20;
  const Tensor index = positions(kBins, {kCount}), x = numbers({kCount});
  const auto at = index.to_vector<std::int64_t>();
  const auto values = x.to_vector<float>();
  std::vector<float> most(kBins, -1), least(kBins, -1);
  for (std::size_t i = 0; i < at.size(); ++i) {
    const auto bin = static_cast<std::size_t>(at[i] < 0 ? at[i] + kBins : at[i]);
    most[bin] = std::max(most[bin], values[i]), least[bin] = std::min(least[bin], values[i]);
  }
  const Tensor start = full({kBins}, -1, DType::f32);
  EXPECT_EQ(
      same_everywhere([&] { return scatter_reduce(start, index, x, 0, ScatterReduction::amax); }).to_vector<float>(),
      most);
  EXPECT_EQ(
      same_everywhere([&] { return scatter_reduce(start, index, x, 0, ScatterReduction::amin); }).to_vector<float>(),
      least);
  const Tensor signs = where(x > 0, 1.0, -1.0).astype(DType::f32);
  for (const float p : same_everywhere([&] {
                         return scatter_reduce(start, index, signs, 0, ScatterReduction::prod);
                       }).to_vector<float>())
    EXPECT_EQ(std::abs(p), 1);
  // What no position names keeps its bits; NaN wins.
  const Tensor odd = tensor({-0.0f, -std::numeric_limits<float>::infinity(), 5.0f});
  const Tensor last = full({kCount}, 2, DType::i64);
  EXPECT_TRUE(std::signbit(same_everywhere([&] { return scatter_add(odd, last, x); }).to_vector<float>()[0]));
  const Tensor nan = where(equal(iota(kCount, 0), 70'000), std::nan(""), x);
  EXPECT_TRUE(std::isnan(same_everywhere([&] {
                           return scatter_reduce(odd, last, nan, 0, ScatterReduction::amax);
                         }).to_vector<float>()[2]));
}

TEST_P(LargeMoves, HistogramsCheckEveryPosition) {
  const Tensor index = where(equal(iota(100'000, 0), 99'999), 12, 3).astype(DType::i64).sync();
  const std::string text = message<IndexError>([&] { scatter_add(zeros({12}), index, ones({100'000})).sync(); });
  EXPECT_NE(text.find("FM1204"), std::string::npos) << text;
  EXPECT_NE(text.find("position 12 leaves axis 0 of size 12"), std::string::npos) << text;
}

TEST_P(LargeMoves, RowsAreAddedInOrder) {
  for (const std::int64_t width : {1, 3, 16, 200}) {
    const std::int64_t rows = 600'000 / (width + 60), targets = 400;
    const Tensor index = positions(targets, {rows, 1}), x = numbers({rows, width}), start = numbers({targets, width});
    const auto at = index.to_vector<std::int64_t>();
    const auto values = x.to_vector<float>();
    auto wanted = start.to_vector<float>();
    for (std::size_t i = 0; i < at.size(); ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t row = at[i] < 0 ? at[i] + targets : at[i];
        float& sum = wanted[static_cast<std::size_t>(row * width + j)];
        sum = sum + values[i * static_cast<std::size_t>(width) + static_cast<std::size_t>(j)];
      }
    const Tensor sums = same_everywhere([&] { return index_add(start, reshape(index, {rows}), x); });
    EXPECT_EQ(sums.to_vector<float>(), wanted) << width;
    if (width == 1) continue;  // that is a histogram
    const Tensor scattered = same_everywhere([&] { return scatter_add(start, broadcast_to(index, {rows, width}), x); });
    EXPECT_EQ(scattered.to_vector<float>(), wanted) << width;
    const Tensor taken = same_everywhere([&] { return gather(start, broadcast_to(index, {rows, width})); });
    EXPECT_EQ(bytes_of(taken), bytes_of(take(start, reshape(index, {rows})))) << width;
  }
}

/// Rows near each other and far, of every width that has a loop of its own; sums of integers are exact in any dtype.
TEST_P(LargeMoves, RowsOfAnyWidthAreAdded) {
  for (const std::int64_t width : {2, 4, 7, 8, 16, 45, 130})
    for (const std::int64_t targets : {40, 9000}) {
      const std::int64_t rows = 200'000 / (width + 10);
      const Tensor index = positions(targets, {rows});
      const Tensor x = round(numbers({rows, width})), start = round(numbers({targets, width}));
      sync({x, start});
      const Tensor wanted = scatter_add(start.astype(DType::f64),
                                        broadcast_to(reshape(index, {rows, 1}), {rows, width}), x.astype(DType::f64));
      for (const DType t : {DType::i8, DType::i16, DType::i32, DType::i64, DType::f32, DType::f64, DType::c64}) {
        const Tensor from = x.astype(t), to = start.astype(t);
        sync({from, to});
        const Tensor sums = same_everywhere([&] { return index_add(to, index, from); });
        const Tensor expected = byte_size(t) == 1 ? wanted.astype(DType::i64).astype(t) : wanted.astype(t);
        EXPECT_EQ(bytes_of(sums), bytes_of(expected)) << name(t) << " " << width << " " << targets;
      }
    }
}

TEST_P(LargeMoves, LongLinesAreScannedByBlocks) {
  for (const DType t : {DType::f32, DType::bf16, DType::i32, DType::c64})
    for (const Shape& sizes : {Shape{70'001}, Shape{3, 9000}, Shape{2, 1300, 70}, Shape{1030, 3}})
      for (unsigned axis = 0; axis < sizes.rank(); ++axis) {
        const Tensor x = numbers(sizes, is_complex(t) ? DType::f32 : t).astype(t);
        const Tensor sums = same_everywhere([&] { return cumulative_sum(x, axis); });
        // The same bits from lines in other strides.
        const Tensor turned = transpose(copy(transpose(expand_dims(x, 0), 0, -1)), 0, -1);
        EXPECT_EQ(bytes_of(sums), bytes_of(squeeze(cumulative_sum(turned, axis + 1), 0)))
            << to_string(t, sizes) << axis;
        if (t == DType::i32) {
          const Tensor last = sum(x, {axis}).astype(sums.dtype());
          EXPECT_EQ(bytes_of(select(sums, axis, -1)), bytes_of(last));
        }
        if (t == DType::f32) {
          const Tensor wide = cumulative_sum(x.astype(DType::f64), axis);
          EXPECT_LT(max(abs(sums - wide)).item<double>(), 1e-3) << to_string(t, sizes);
        }
      }
}

TEST_P(LargeMoves, TransposesOfEverySizeOfElement) {
  const std::int64_t before = set_stream_threshold(1);
  // Lines of 1024 elements are any power of two of bytes apart.
  for (const DType t : {DType::i8, DType::bf16, DType::f32, DType::f64, DType::c128})
    for (const Shape& sizes : {Shape{64, 128}, Shape{130, 67}, Shape{3, 1000}, Shape{5, 33, 48}, Shape{140, 1024},
                               Shape{1024, 140}, Shape{140, 1027}})
      for (const std::int64_t skip : {0, 1}) {  // results that begin anywhere
        const auto last = static_cast<std::int64_t>(sizes.rank()) - 1;
        const Tensor real_x = numbers(sizes, is_complex(t) ? DType::f64 : t), x = real_x.astype(t).sync();
        const Tensor turned = same_everywhere([&] {
          return concat({zeros({skip}, t), reshape(transpose(x), {-1})}, 0);
        });
        const Tensor narrow = slice(turned, 0, skip);
        const Tensor back = transpose(reshape(narrow, transpose(x).shape()));
        EXPECT_EQ(bytes_of(back), bytes_of(x)) << to_string(t, sizes) << skip << last;
        set_stream_threshold(skip == 0 ? before : 1);
      }
  set_stream_threshold(before);
}

TEST_P(LargeMoves, TransposesOfReversedAxes) {
  for (const DType t : {DType::i8, DType::bf16, DType::f32, DType::f64, DType::c128})
    for (const Shape& sizes : {Shape{70, 131}, Shape{256, 1024}, Shape{5, 33, 48}}) {
      const Tensor real_x = numbers(sizes, is_complex(t) ? DType::f64 : t);
      const Tensor turned = copy(transpose(real_x.astype(t))).sync();
      const auto rank = static_cast<std::int64_t>(sizes.rank());
      for (std::int64_t axis = 0; axis <= rank; ++axis) {  // the last one: all of them
        Tensor wanted = turned;
        std::vector<std::int64_t> axes;
        for (std::int64_t i = 0; i < rank; ++i)
          if (axis == i || axis == rank)
            wanted = take(wanted, arange(wanted.size(i) - 1, -1, -1), i), axes.push_back(i);
        const Tensor x = copy(transpose(turned)).sync();
        EXPECT_EQ(bytes_of(same_everywhere([&] { return copy(flip(transpose(x), axes)); })), bytes_of(wanted))
            << to_string(t, sizes) << axis;
      }
    }
}

/// Operands that lie across memory are copied where they are read along rows: with numbers whose sums are exact, the
/// results are those of copies in order, whatever is copied.
TEST_P(LargeMoves, OperandsThatLieAcrossMemory) {
  struct Layout {
    Shape sizes;
    std::vector<std::int64_t> axes;
    bool reverses;
  };
  const Layout layouts[] = {{Shape{530, 512}, {1, 0}, false},      {Shape{501, 550}, {1, 0}, true},
                            {Shape{8, 65, 550}, {1, 2, 0}, false}, {Shape{9, 64, 512}, {2, 1, 0}, false},
                            {Shape{30, 20, 500}, {0, 2, 1}, true}, {Shape{550, 500}, {}, false}};  // stretched
  for (const DType t : {DType::boolean, DType::u8, DType::i16, DType::bf16, DType::f32, DType::f64, DType::c64})
    for (const Layout& layout : layouts) {
      Generator generator(3);
      const Tensor whole = randint(0, 3, layout.sizes, DType::i64, generator).astype(DType::f32);
      const Tensor x = (is_complex(t) ? complex(whole, 2 - whole) : whole.astype(t)).sync();
      const auto across = [&] {
        if (layout.axes.empty()) return broadcast_to(slice(x, -1, 0, 1), layout.sizes);
        const Tensor permuted = permute_dims(x, layout.axes);
        return layout.reverses ? flip(permuted, {0}) : permuted;
      };
      const Tensor dense = copy(across()).sync();
      const auto row = [](const Tensor& y) { return select(reshape(y, {-1, y.size(-1)}), 0, 3); };
      const auto check = [&](const char* what, auto&& program) {
        const auto wanted = bytes_of(program(dense, row(copy(dense))).sync());
        const auto got = bytes_of(same_everywhere([&] {
          const Tensor y = across();
          return program(y, select(y.rank() == 2 ? y : select(y, 0, 0), 0, 3));
        }));
        EXPECT_EQ(got, wanted) << what << " of " << name(t) << " " << to_string(t, layout.sizes);
      };
      const auto number = [&](const Tensor& y) { return t == DType::boolean ? y.astype(DType::i32) : y; };
      check("sum", [&](const Tensor& y, const Tensor&) { return sum(number(y)); });
      for (const std::int64_t axis : {0, -1}) {
        check("sum along an axis", [&](const Tensor& y, const Tensor&) { return sum(number(y), axis); });
        if (is_complex(t)) continue;
        check("max along an axis", [&](const Tensor& y, const Tensor&) { return max(number(y), axis); });
        check("argmax along an axis", [&](const Tensor& y, const Tensor&) { return argmax(number(y), axis); });
      }
      check("kernel", [&](const Tensor& y, const Tensor& r) { return where(y == r, number(y) + 1, number(r) * 2); });
      if (!is_complex(t)) check("cast", [&](const Tensor& y, const Tensor&) { return y.astype(DType::i32) * 3; });
    }
}

/// Without room for copies, operands are read where they are.
TEST_P(LargeMoves, OperandsAcrossMemoryNeedNoRoom) {
  const Tensor x = round(numbers({1200, 1024})).sync();
  const double wanted = sum(x).item<double>();
  const auto total = [&] { return sum(transpose(x)).item<double>(); };
  EXPECT_EQ(total(), wanted);
  trim_cache();
  const std::size_t before = set_memory_limit(memory_accounts().reserved.load() + (std::size_t{1} << 20));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(total(), wanted);
  set_memory_limit(before);
}

TEST_P(LargeMoves, RowsAtPositionsThatAreBytes) {
  for (const DType t : {DType::u8, DType::f16, DType::f32, DType::f64, DType::c128})
    for (const std::int64_t size : {100, 256, 300})
      for (const std::int64_t row : {1, 2, 3, 4, 5}) {
        const Tensor real = numbers({size, row + 1}, is_complex(t) ? DType::f64 : t);
        const Tensor x = slice(real.astype(t).sync(), 1, 0, row);  // rows with gaps between them
        for (const DType bytes : {DType::u8, DType::i8}) {
          const std::int64_t end = std::min<std::int64_t>(size, bytes == DType::u8 ? 256 : 128);
          const Tensor wide = positions(end, {3, 1700}), at = bytes == DType::u8 ? abs(wide) % end : wide;
          const Tensor taken = same_everywhere([&] { return take(x, at.astype(bytes), 0); });
          EXPECT_EQ(bytes_of(taken), bytes_of(take(x, at, 0))) << to_string(t, Shape{size, row}) << name(bytes);
        }
      }
  const Tensor x = numbers({100}), at = concat({zeros({5000}, DType::u8), full({1}, 100, DType::u8)}, 0).sync();
  const std::string text = message<IndexError>([&] { take(x, at).sync(); });
  EXPECT_NE(text.find("position 100 leaves axis 0 of size 100"), std::string::npos) << text;
}

TEST_P(LargeMoves, BytesAtPositionsThatAreBytes) {
  for (const std::int64_t size : {1, 2, 64, 100, 127, 128, 200, 256, 300}) {
    const Tensor x = numbers({size}, DType::i8);
    for (const DType bytes : {DType::u8, DType::i8})
      for (const std::int64_t count : {2048, 2049, 2111, 5000}) {
        const std::int64_t end = std::min<std::int64_t>(size, bytes == DType::u8 ? 256 : 128);
        const Tensor wide = positions(end, {count}), at = bytes == DType::u8 ? abs(wide) % end : wide;
        const Tensor taken = same_everywhere([&] { return take(x, at.astype(bytes)) + 1; });
        EXPECT_EQ(bytes_of(taken), bytes_of(take(x, at) + 1)) << size << name(bytes) << count;
      }
    if (size >= 127) continue;
    for (const auto& [bytes, wrong] : {std::pair(DType::u8, size), {DType::i8, size}, {DType::i8, -size - 1}}) {
      const Tensor at = concat({zeros({3000}, bytes), full({1}, wrong, bytes), zeros({70}, bytes)}).sync();
      EXPECT_THROW(take(x, at).sync(), IndexError) << size << name(bytes) << wrong;
    }
  }
}

TEST_P(LargeMoves, StacksOfSingleElements) {
  for (const DType t : {DType::boolean, DType::i8, DType::f16, DType::f32, DType::i64, DType::c128})
    for (const std::int64_t parts : {2, 3, 5, 11, 64, 65})
      for (const Shape& sizes : {Shape{63}, Shape{64}, Shape{1000}, Shape{30, 7}}) {
        std::vector<Tensor> all;
        for (std::int64_t part = 0; part < parts; ++part)
          all.push_back(numbers(sizes, DType::f32, static_cast<std::uint64_t>(part + 1)).astype(t).sync());
        const Tensor stacked = same_everywhere([&] { return stack(all, -1); });
        const Tensor in_front = stack(all, 0).sync();
        for (std::int64_t part = 0; part < parts; ++part)
          ASSERT_EQ(bytes_of(select(stacked, -1, part)), bytes_of(in_front[part])) << name(t) << parts << part;
        EXPECT_EQ(bytes_of(same_everywhere([&] { return stack(all, -1) == stack(all, -1); })),
                  bytes_of(ones(stacked.shape(), DType::boolean)));
      }
}

/// Every order of axes, with short ones innermost whose elements lie apart in the source.
TEST_P(LargeMoves, PermutationsOfShortAxes) {
  for (const DType t : {DType::i8, DType::bf16, DType::f32, DType::f64, DType::c128})
    for (const Shape& sizes : {Shape{8, 16, 64}, Shape{3, 40, 70}, Shape{2, 5, 9, 33}, Shape{4, 3, 16, 128}}) {
      const Tensor x = numbers(sizes, is_complex(t) ? DType::f64 : t).astype(t).sync();
      std::vector<std::int64_t> order(sizes.rank());
      std::iota(order.begin(), order.end(), 0);
      do {
        std::vector<std::int64_t> inverse(order.size());
        for (std::size_t i = 0; i < order.size(); ++i)
          inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
        const Tensor moved = same_everywhere([&] { return copy(permute(x, IntegerList(order))); });
        const auto bytes = bytes_of(moved);
        // Elements one by one, and back as a whole.
        const Tensor positions = permute(reshape(arange(x.numel()), sizes), IntegerList(order)).reshape({-1});
        EXPECT_EQ(bytes, bytes_of(take(reshape(x, {-1}), positions))) << to_string(t, sizes);
        EXPECT_EQ(bytes_of(copy(permute(moved, IntegerList(inverse)))), bytes_of(x)) << to_string(t, sizes);
      } while (std::ranges::next_permutation(order).found);
    }
}

TEST_P(LargeMoves, KernelsReadTransposedOperandsByTiles) {
  for (const DType t : {DType::f32, DType::i32, DType::f64, DType::f16})
    for (const Shape& sizes :
         {Shape{5, 70, 150}, Shape{3, 64, 16}, Shape{2, 64, 130}, Shape{1, 33, 200}, Shape{4, 129, 17}}) {
      const Tensor x = numbers(sizes, t), z = numbers(sizes, t, 5), y = numbers({sizes[0], sizes[2], sizes[1]}, t, 3);
      const Tensor turned = copy(transpose(x)).sync(), other = copy(transpose(z)).sync();
      const auto agrees = [&](auto program) {
        const Tensor result = same_everywhere([&] { return program(transpose(x), transpose(z)); });
        EXPECT_EQ(bytes_of(result), bytes_of(program(turned, other))) << to_string(t, sizes);
      };
      agrees([&](const Tensor& a, const Tensor&) { return a + y; });
      agrees([&](const Tensor& a, const Tensor& b) { return a * b - y; });
      agrees([&](const Tensor& a, const Tensor& b) { return maximum(a, y) * select(b, 0, 0); });
      agrees([&](const Tensor& a, const Tensor&) { return slice(a, 2, 1) * slice(y, 2, 0, -1); });
      agrees([&](const Tensor& a, const Tensor&) { return flip(a, {1}) + y; });
    }
}

TEST_P(LargeMoves, ShortRowsHaveTheTreeOfRows) {
  for (const DType t : {DType::f32, DType::f16, DType::f64, DType::i8})
    for (const std::int64_t size : {1, 2, 3, 5, 6, 8, 13, 16, 24, 25, 40, 64, 100}) {
      const Tensor x = numbers({1100, size}, t);
      for (const Tensor& rows :
           {x, transpose(copy(transpose(x))).sync(), slice(numbers({1100, size + 3}, t), 1, 2, 2 + size)}) {
        const Tensor sums = same_everywhere([&] { return sum(rows, {1}); });
        same_everywhere([&] { return max(rows, {1}); });
        same_everywhere([&] { return prod(rows, {1}); });
        // The position is that of the extreme.
        const Tensor at = same_everywhere([&] { return argmin(rows, 1); });
        EXPECT_EQ(bytes_of(squeeze(gather(rows, expand_dims(at, 1), 1), 1)), bytes_of(min(rows, {1})))
            << name(t) << size;
        if (t == DType::f64 || t == DType::i8) continue;
        // A row by itself is reduced along its lanes.
        for (const std::int64_t row : {0, 531, 1099})
          EXPECT_EQ(bytes_of(select(sums, 0, row)), bytes_of(sum(select(rows, 0, row)))) << name(t) << size;
      }
    }
}

TEST_P(LargeMoves, ShortRowsOfOperandsThatAreRepeated) {
  for (const DType t : {DType::f32, DType::f64, DType::i32, DType::f16})
    for (const std::int64_t centers : {16, 23, 48, 300})
      for (const std::int64_t size : {2, 3, 7, 14}) {
        const Tensor x = numbers({37, 1, 90, size}, t), c = numbers({centers, 1, size}, t, 2);
        const Tensor w = numbers({90, size}, t, 3);
        const auto agrees = [&](auto program) {
          const ModeGuard eager(Mode::eager);
          const Tensor dense = program(copy(broadcast_to(x, {37, centers, 90, size})));
          const ModeGuard tested(GetParam());
          for (int i = 0; i < 3; ++i)
            EXPECT_EQ(bytes_of(program(x)), bytes_of(dense)) << name(t) << centers << ' ' << size;
        };
        agrees([&](const Tensor& a) { return sum(square(a - c), {-1}); });
        agrees([&](const Tensor& a) { return max(a * c - w, {-1}) * 2; });
        const Tensor y = reshape(slice(x, 2, 0, 1), {37, 1, size}), d = reshape(c, {centers, size});
        const Tensor far = same_everywhere([&] { return sum(square(y - d), {-1}); });
        EXPECT_EQ(bytes_of(far), bytes_of(sum(square(copy(broadcast_to(y, {37, centers, size})) - d), {-1})));
      }
}

TEST_P(LargeMoves, ThreadsShareColumnsThatAreReduced) {
  const Tensor x = numbers({700, 1000});
  same_everywhere([&] { return softmax(x, 0); });
  same_everywhere([&] { return sum(exp(x), {0}); });
  const Tensor wide = softmax(x.astype(DType::f64), 0);
  EXPECT_LT(max(abs(softmax(x, 0) - wide)).item<double>(), 1e-6);
}

TEST_P(LargeMoves, TheFirstOfMany) {
  for (const DType t : {DType::f32, DType::f16, DType::i8, DType::u32})
    for (const std::int64_t k : {1, 7, 70, 999, 1000})
      for (const bool largest : {true, false}) {
        const Tensor x = (t == DType::u32 ? abs(numbers({5, 1000})) * 1000 : numbers({5, 1000})).astype(t).sync();
        const Tensor all = argsort(x, 1, largest);
        const TopK top = topk(x, k, 1, largest);
        EXPECT_EQ(bytes_of(top.indices), bytes_of(slice(all, 1, 0, k))) << name(t) << k << largest;
      }
}

TEST_P(LargeMoves, FourierTransformsOfPowersOfTwo) {
  for (const std::int64_t n : {64, 128, 256, 512, 2048, 16384}) {
    const Tensor x = numbers({3, n}), y = numbers({3, n}, DType::f32, 2);
    const Tensor z = complex(x, y), wide = complex(x.astype(DType::f64), y.astype(DType::f64));
    const double bound = 1e-6 * std::sqrt(static_cast<double>(n)) * 30;
    const auto error = [](const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<double>(); };
    const Tensor spectrum = same_everywhere([&] { return fft::fft(z); });
    EXPECT_LT(error(spectrum.astype(DType::c128), fft::fft(wide)), bound) << n;
    EXPECT_LT(error(fft::ifft(z).astype(DType::c128), fft::ifft(wide)), bound / static_cast<double>(n)) << n;
    const Tensor half = same_everywhere([&] { return fft::rfft(x); });
    EXPECT_LT(error(half.astype(DType::c128), fft::rfft(x.astype(DType::f64))), bound) << n;
    const Tensor back = same_everywhere([&] { return fft::irfft(half, n); });
    EXPECT_LT(error(back, x), 1e-5) << n;
    // Along another axis lines have strides; their bits are the same.
    const Tensor columns = transpose(copy(transpose(z)));
    EXPECT_EQ(bytes_of(fft::fft(columns)), bytes_of(spectrum)) << n;
    EXPECT_EQ(bytes_of(transpose(fft::rfft(copy(transpose(x)), {}, 0))), bytes_of(half)) << n;
    EXPECT_EQ(bytes_of(transpose(fft::irfft(copy(transpose(half)), n, 0))), bytes_of(back)) << n;
  }
}

}  // namespace
}  // namespace fermata
