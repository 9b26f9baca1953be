// Random kernels, compiled for every instruction set that this machine runs, against the interpreter, bit for bit.
// FERMATA_SEED and FERMATA_FUZZ_COUNT choose other ones.
#include <gtest/gtest.h>

#include <bit>

#include "codegen_cpu/arranged_operands.h"
#include "codegen_cpu/jit_compiler.h"
#include "codegen_cpu/kernel_parts.h"
#include "codegen_cpu/object_compiler.h"
#include "codegen_cpu/staged_columns.h"
#include "codegen_cpu/turned_rows.h"
#include "runtime/streaming.h"
#include "tests/codegen_cpu/jit_target.h"
#include "tests/codegen_cpu/kernel_generator.h"

namespace fermata {
namespace {

using test::KernelCase;
using test::KernelShape;
using test::Random;

struct alignas(64) Line {
  std::byte bytes[64];
};

/// Runs rows and columns in random pieces, as threads would.
void run_in_pieces(const Executable& executable, const KernelCase& described, KernelLaunch launch, Random& random) {
  const std::int64_t row_end = launch.row_end, column_end = launch.column_end;
  for (launch.row_begin = 0; launch.row_begin < row_end; launch.row_begin = launch.row_end) {
    launch.row_end = launch.row_begin + 1 + random.below(row_end - launch.row_begin);
    if (described.kernel().is_row_kernel()) {
      executable.launch(launch);
      continue;
    }
    for (launch.column_begin = 0; launch.column_begin < column_end; launch.column_begin = launch.column_end) {
      launch.column_end = std::min(column_end, launch.column_begin + 64 * (1 + random.below(4)));
      executable.launch(launch);
    }
  }
}

/// Code for a kernel of short rows whose lanes are rows; null where it cannot be turned.
std::shared_ptr<const Executable> turned_code(const Kernel& kernel, const std::string& target) {
  const std::optional<Kernel> turned = turned_kernel(kernel);
  if (!turned) return nullptr;
  verify(*turned);
  const JitVariant variant{.streamed = 0, .wide = true, .turned = true};
  return turned_executable(
      kernel, executable_from_object(JitCompiler::instance().object_for(*turned, nullptr, target, variant)));
}

/// Code for copies in order of all operands that may lie in another one; null where there are none.
class ArrangedCode final : public Executable {
 public:
  ArrangedCode(const Kernel& kernel, std::shared_ptr<const Executable> code)
      : kernel_(kernel), code_(std::move(code)) {}
  void launch(const KernelLaunch& launch) const override {
    run_arranged(kernel_, accesses_to_arrange(kernel_), launch,
                 [this](const KernelLaunch& arranged) { code_->launch(arranged); });
  }
  std::size_t code_bytes() const override { return code_->code_bytes(); }

 private:
  const Kernel kernel_;
  const std::shared_ptr<const Executable> code_;
};
std::shared_ptr<const Executable> arranged_code(const Kernel& kernel, const std::string& target) {
  const AccessSet accesses = accesses_to_arrange(kernel);
  if (accesses == 0) return nullptr;
  const Kernel arranged = arranged_kernel(kernel, accesses, 0);
  verify(arranged);
  return std::make_shared<ArrangedCode>(
      kernel, executable_from_object(JitCompiler::instance().object_for(arranged, nullptr, target, {.wide = true})));
}

/// Code for the reductions of a kernel, and for its results; null where it is one.
std::shared_ptr<const Executable> staged_code(const Kernel& kernel, const std::string& target) {
  const std::optional<StagedKernels> staged = staged_kernels(kernel);
  if (!staged) return nullptr;
  verify(staged->reductions), verify(staged->results);
  const auto code = [&](const Kernel& part) {
    return executable_from_object(JitCompiler::instance().object_for(part, nullptr, target, {.wide = true}));
  };
  return staged_executable(kernel, *staged, code(staged->reductions), code(staged->results));
}

/// Code for the stages of a kernel one by one, shared by blocks, in launches of one row; null where there is one stage.
class PartedCode final : public Executable {
 public:
  PartedCode(const Kernel& kernel, std::shared_ptr<const Executable> whole, std::shared_ptr<const Executable> parts)
      : kernel_(kernel), whole_(std::move(whole)), parts_(std::move(parts)) {}
  void launch(const KernelLaunch& launch) const override {
    const bool is_whole =
        launch.row_begin == 0 && launch.row_end == 1 &&
        (kernel_.is_row_kernel() || (launch.column_begin == 0 && launch.column_end == launch.sizes[kernel_.rank - 1u]));
    const auto run = [this](const Executable& part, const KernelLaunch& of_part) { run_part(part, of_part); };
    if (!is_whole || !parts_->in_parts(launch, run)) whole_->launch(launch);
  }
  std::size_t code_bytes() const override { return parts_->code_bytes(); }

 private:
  void run_part(const Executable& part, const KernelLaunch& launch) const {
    if (!part.can_split()) return part.launch(launch);
    const std::int64_t blocks = reduction_blocks(kernel_, launch.sizes);
    std::vector<Line> partials(static_cast<std::size_t>(blocks) * part.block_bytes(launch) / sizeof(Line) + 1);
    KernelLaunch piece = launch;
    piece.partials = partials.data();
    for (piece.column_begin = blocks; piece.column_begin-- > 0;)
      piece.column_end = piece.column_begin + 1, part.partial(piece);
    piece.column_begin = launch.column_begin, piece.column_end = launch.column_end;
    part.finish(piece);
  }
  const Kernel kernel_;
  const std::shared_ptr<const Executable> whole_, parts_;
};
std::shared_ptr<const Executable> parted_code(const Kernel& kernel, const std::string& target) {
  const std::vector<Kernel> parts = kernel_parts(kernel);
  if (parts.empty()) return nullptr;
  const auto compiled = [&](const Kernel& part) {
    verify(part);
    return executable_from_object(JitCompiler::instance().object_for(part, nullptr, target, {.wide = true}));
  };
  std::vector<std::shared_ptr<const Executable>> code;
  for (const Kernel& part : parts) code.push_back(compiled(part));
  return std::make_shared<PartedCode>(kernel, compiled(kernel), parted_executable(kernel, parts, std::move(code)));
}

/// Runs every row as blocks and a merge.
void run_split(const Executable& executable, const KernelCase& described, const KernelLaunch& whole, Random& random) {
  KernelLaunch launch = whole;
  const std::int64_t rows = launch.row_end, blocks = reduction_blocks(described.kernel(), launch.sizes);
  std::vector<Line> partials(static_cast<std::size_t>(blocks) * executable.block_bytes(launch) / sizeof(Line) + 1);
  launch.partials = partials.data();
  for (launch.row_begin = 0; launch.row_begin < rows; ++launch.row_begin) {
    launch.row_end = launch.row_begin + 1;
    for (launch.column_begin = 0; launch.column_begin < blocks; launch.column_begin = launch.column_end) {
      launch.column_end = launch.column_begin + 1 + random.below(blocks - launch.column_begin);
      executable.partial(launch);
    }
    if (!described.kernel().is_row_kernel())
      launch.column_begin = whole.column_begin, launch.column_end = whole.column_end;
    executable.finish(launch);
  }
}

class JitFuzz : public testing::TestWithParam<std::tuple<std::string, KernelShape>> {};

TEST_P(JitFuzz, AgreesWithTheInterpreter) {
  const auto& [target, shape] = GetParam();
  if (const std::string why = test::why_not_for(target); !why.empty()) GTEST_SKIP() << why;
  const std::int64_t threshold = set_stream_threshold(1);
  unsigned streamed = 0;
  unsigned idle = 0, busy = 0;  // runs that change nothing, as with empty axes, prove little
  const std::uint64_t first = test::seed_or(1);
  std::vector<std::uint64_t> seeds;
  for (int i = 0; i < test::fuzz_count_or(60); ++i) seeds.push_back(first + static_cast<std::uint64_t>(i));
  // A column kernel that found spilled masks to be wrong, and maps whose truth values LLVM 19 compiled for ever.
  if (first == 1) seeds.insert(seeds.end(), {50525, 100164, 100456});
  for (const std::uint64_t seed : seeds) {
    Random random(seed * 3 + static_cast<std::uint64_t>(shape));
    const bool is_costly = shape != KernelShape::map && seed % 3 == 0;
    const bool gathers = seed % 3 == 1;
    test::KernelGenerator generator(random, shape, is_costly, gathers);
    const Kernel kernel = generator.kernel();
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed) + " FERMATA_FUZZ_COUNT=1\n" + to_string(kernel));
    verify(kernel);
    const auto executable = JitCompiler::instance().compile(kernel, nullptr, target);
    const KernelSchedule stages = schedule(kernel);
    EXPECT_EQ(executable->can_split(), can_split(kernel, stages));
    const auto wide = executable_from_object(JitCompiler::instance().object_for(kernel, nullptr, target, {0, true}));
    EXPECT_EQ(wide->can_split(), can_split(kernel, stages) || can_split_columns(kernel, stages));
    for (int repetition = 0; repetition < 3; ++repetition) {
      const KernelCase original(kernel, generator.sizes(), random);
      SCOPED_TRACE("sizes " + to_string(std::span(original.sizes())));
      KernelCase expected = original, whole = original, pieces = original, split = original;
      interpret(kernel, expected.launch());
      ++(original.difference(expected).empty() ? idle : busy);
      executable->launch(whole.launch());
      ASSERT_EQ(expected.difference(whole), "");
      run_in_pieces(*executable, pieces, pieces.launch(), random);
      ASSERT_EQ(expected.difference(pieces), "");
      KernelCase past_caches = original;  // a variant is for these addresses
      const Executable& streaming = executable->variant_for(past_caches.launch());
      if (&streaming != executable.get()) {
        ++streamed;
        run_in_pieces(streaming, past_caches, past_caches.launch(), random);
        ASSERT_EQ(expected.difference(past_caches), "");
      }
      KernelCase much_used = original, much_split = original;
      run_in_pieces(*wide, much_used, much_used.launch(), random);
      ASSERT_EQ(expected.difference(much_used), "");
      if (!wide->can_split()) continue;
      run_split(*wide, much_split, much_split.launch(), random);
      ASSERT_EQ(expected.difference(much_split), "");
      if (!executable->can_split()) continue;
      run_split(*executable, split, split.launch(), random);
      ASSERT_EQ(expected.difference(split), "");
    }
  }
  set_stream_threshold(threshold);
  EXPECT_TRUE(shape != KernelShape::map || seeds.size() < 60 || streamed > seeds.size() / 10) << streamed;
  EXPECT_TRUE(busy > 2 * idle || busy + idle < 30) << busy << " busy runs, " << idle << " idle ones";
}

/// Sizes of many short rows.
std::vector<std::int64_t> short_row_sizes(const Kernel& kernel, Random& random) {
  static const std::vector<std::int64_t> lengths = {2,  3,  4,  5,  7,  8,  9,  12, 15, 16,
                                                    17, 20, 24, 31, 32, 33, 40, 63, 64};
  static const std::vector<std::int64_t> rows = {1, 2, 3, 16, 17, 40, 70, 200, 600};
  static const std::vector<std::int64_t> blocks = {1, 2, 3, 5, 8, 11};
  std::vector<std::int64_t> sizes(kernel.rank);
  std::int64_t of_row = 1;  // blocks: such code has room for no more
  do {
    of_row = 1;
    for (unsigned axis = 0; axis < kernel.rank; ++axis) {
      sizes[axis] = random.pick(kernel.is_reduced(axis) ? blocks : rows);
      if (kernel.is_reduced(axis) && axis + 1u != kernel.rank) of_row *= sizes[axis];
    }
    sizes.back() = random.pick(lengths);
  } while (element_count(sizes) > 40000 || of_row > static_cast<std::int64_t>(kReductionLanes));
  return sizes;
}

using MakeCode = std::shared_ptr<const Executable> (*)(const Kernel& kernel, const std::string& target);
using ChooseSizes = std::vector<std::int64_t> (*)(const Kernel& kernel, test::KernelGenerator& generator,
                                                  Random& random);

/// Compares code that random kernels have only if they fit, whole and in pieces, with the interpreter.
void compare_code(KernelShape shape, bool may_gather, const std::string& target, MakeCode code, ChooseSizes sizes) {
  unsigned made = 0, busy = 0;
  const std::uint64_t first = test::seed_or(1);
  const int count = test::fuzz_count_or(100);
  std::vector<std::uint64_t> seeds;
  for (int i = 0; i < count; ++i) seeds.push_back(first + static_cast<std::uint64_t>(i));
  // A column kernel that asks where an operand's elements lie, which must not be copied, and one whose results are a
  // map of an operand that steps by one element along both axes.
  if (first == 1) seeds.insert(seeds.end(), {5135, 383});
  for (const std::uint64_t seed : seeds) {
    Random random(seed);
    test::KernelGenerator generator(random, shape, seed % 3 == 0, may_gather && seed % 3 == 1);
    const Kernel kernel = generator.kernel();
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed) + " FERMATA_FUZZ_COUNT=1\n" + to_string(kernel));
    const auto executable = code(kernel, target);
    if (executable == nullptr) continue;
    ++made;
    for (int repetition = 0; repetition < 3; ++repetition) {
      const KernelCase original(kernel, sizes(kernel, generator, random), random);
      SCOPED_TRACE("sizes " + to_string(std::span(original.sizes())));
      KernelCase expected = original, whole = original, pieces = original;
      interpret(kernel, expected.launch());
      busy += original.difference(expected).empty() ? 0 : 1;
      executable->launch(whole.launch());
      ASSERT_EQ(expected.difference(whole), "");
      run_in_pieces(*executable, pieces, pieces.launch(), random);
      ASSERT_EQ(expected.difference(pieces), "");
    }
  }
  EXPECT_TRUE(count < 100 || made > 10) << made;
  EXPECT_TRUE(count < 100 || busy > made) << busy;
}

/// Kernels that reduce rows, and maps.
class TurnedRowsFuzz : public testing::TestWithParam<std::tuple<std::string, KernelShape>> {};

TEST_P(TurnedRowsFuzz, AgreesWithTheInterpreter) {
  const auto& [target, shape] = GetParam();
  if (const std::string why = test::why_not_for(target); !why.empty()) GTEST_SKIP() << why;
  compare_code(shape, false, target, &turned_code, [](const Kernel& kernel, test::KernelGenerator&, Random& random) {
    return short_row_sizes(kernel, random);
  });
}

class StagedColumnsFuzz : public testing::TestWithParam<std::string> {};

TEST_P(StagedColumnsFuzz, AgreesWithTheInterpreter) {
  if (const std::string why = test::why_not_for(GetParam()); !why.empty()) GTEST_SKIP() << why;
  compare_code(KernelShape::column, true, GetParam(), &staged_code,
               [](const Kernel&, test::KernelGenerator& generator, Random&) { return generator.sizes(); });
}
INSTANTIATE_TEST_SUITE_P(Targets, StagedColumnsFuzz, testing::Values("avx512", "avx2"),
                         [](const auto& info) { return info.param; });

class KernelPartsFuzz : public testing::TestWithParam<std::tuple<std::string, KernelShape>> {};

TEST_P(KernelPartsFuzz, AgreeWithTheInterpreter) {
  const auto& [target, shape] = GetParam();
  if (const std::string why = test::why_not_for(target); !why.empty()) GTEST_SKIP() << why;
  compare_code(shape, true, target, &parted_code,
               [](const Kernel& kernel, test::KernelGenerator& generator, Random& random) {
                 static const std::vector<std::int64_t> heights = {1, 3, 64, 128, 129, 300, 700};
                 std::vector<std::int64_t> sizes = generator.sizes();
                 for (unsigned axis = 0; axis + 1 < kernel.rank; ++axis)
                   sizes[axis] = !kernel.is_reduced(axis) ? 1
                                 : kernel.is_row_kernel() || std::popcount(kernel.reduced) > 1
                                     ? std::min<std::int64_t>(sizes[axis], 3)
                                     : random.pick(heights);
                 return sizes;
               });
}

class ArrangedFuzz : public testing::TestWithParam<std::tuple<std::string, KernelShape>> {};

TEST_P(ArrangedFuzz, AgreesWithTheInterpreter) {
  const auto& [target, shape] = GetParam();
  if (const std::string why = test::why_not_for(target); !why.empty()) GTEST_SKIP() << why;
  compare_code(shape, true, target, &arranged_code,
               [](const Kernel&, test::KernelGenerator& generator, Random&) { return generator.sizes(); });
}

/// Files of exported programs hold both stages of a kernel, where it has them.
TEST_P(StagedColumnsFuzz, AreCompiledForExportedPrograms) {
  if (const std::string why = test::why_not_for(GetParam()); !why.empty()) GTEST_SKIP() << why;
  int staged = 0, whole = 0;
  for (std::uint64_t seed = 1; seed < 200 && (staged < 4 || whole < 4); ++seed) {
    Random random(seed);
    test::KernelGenerator generator(random, KernelShape::column, false, false);
    const Kernel kernel = generator.kernel();
    int& seen = staged_kernels(kernel) ? staged : whole;
    if (seen == 4) continue;
    ++seen;
    int reductions = 0, results = 0;
    for (const ObjectCode& object : cpu_object_compiler().compile(kernel, 1000, GetParam())) {
      reductions += object.form == ObjectForm::reductions ? 1 : 0;
      results += object.form == ObjectForm::results && object.streamed == 0 ? 1 : 0;
    }
    const int wanted = staged_kernels(kernel) ? 1 : 0;
    EXPECT_EQ(reductions, wanted) << "seed " << seed << "\n" << to_string(kernel);
    EXPECT_EQ(results, wanted) << "seed " << seed << "\n" << to_string(kernel);
  }
  EXPECT_EQ(staged, 4);
  EXPECT_EQ(whole, 4);
}

std::string case_name(const testing::TestParamInfo<JitFuzz::ParamType>& info) {
  const KernelShape shape = std::get<1>(info.param);
  const std::string suffix = shape == KernelShape::map ? "map" : shape == KernelShape::row ? "row" : "column";
  return std::get<0>(info.param) + "_" + suffix;
}
INSTANTIATE_TEST_SUITE_P(Shapes, JitFuzz,
                         testing::Combine(testing::Values("avx512", "avx2"),
                                          testing::Values(KernelShape::map, KernelShape::row, KernelShape::column)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Shapes, KernelPartsFuzz,
                         testing::Combine(testing::Values("avx512", "avx2"),
                                          testing::Values(KernelShape::row, KernelShape::column)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Shapes, ArrangedFuzz,
                         testing::Combine(testing::Values("avx512", "avx2"),
                                          testing::Values(KernelShape::map, KernelShape::row, KernelShape::column)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Targets, TurnedRowsFuzz,
                         testing::Combine(testing::Values("avx512", "avx2"),
                                          testing::Values(KernelShape::row, KernelShape::map)),
                         case_name);

}  // namespace
}  // namespace fermata
