// The JIT compiler piece by piece: every primitive, every formula of the op table, the shapes of reduction that matter,
// what it refuses, and its behavior with several threads. jit_fuzz_test.cpp has the random kernels.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "codegen_cpu/jit_compiler.h"
#include "codegen_cpu/loader.h"
#include "ir/error.h"
#include "ir/kernel_lines.h"
#include "ir/op.h"
#include "ir/short_form.h"
#include "tests/codegen_cpu/jit_target.h"
#include "tests/codegen_cpu/kernel_generator.h"

namespace fermata {
namespace {

using test::KernelCase;
using test::Random;

class Jit : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = test::why_not_for(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  std::shared_ptr<const Executable> compile(const Kernel& kernel) {
    verify(kernel);
    return JitCompiler::instance().compile(kernel, nullptr, GetParam());
  }
  /// Compiles, and compares with the interpreter for each of these sizes.
  void expect_exact(const Kernel& kernel, const std::vector<std::vector<std::int64_t>>& all_sizes) {
    SCOPED_TRACE(to_string(kernel));
    const auto executable = compile(kernel);
    for (const auto& sizes : all_sizes) {
      KernelCase expected(kernel, sizes, random_), actual = expected;
      interpret(kernel, expected.launch());
      executable->launch(actual.launch());
      EXPECT_EQ(expected.difference(actual), "") << "sizes " << to_string(std::span(sizes));
    }
  }
  Random random_{test::seed_or(7)};
};
INSTANTIATE_TEST_SUITE_P(Targets, Jit, testing::Values("avx512", "avx2"), [](const auto& info) { return info.param; });

ValueId add_input(Kernel& kernel, DType dtype, unsigned axes, bool unit_stride) {
  kernel.accesses.push_back({.dtype = dtype, .axes = static_cast<std::uint16_t>(axes), .unit_stride = unit_stride});
  return kernel.program.add(
      {.prim = Prim::input, .type = dtype, .index = static_cast<std::uint16_t>(kernel.accesses.size() - 1)});
}
void add_store(Kernel& kernel, ValueId value, unsigned axes, bool unit_stride) {
  kernel.accesses.push_back(
      {.dtype = kernel.program[value].type, .axes = static_cast<std::uint16_t>(axes), .unit_stride = unit_stride});
  kernel.stores.push_back({static_cast<std::uint16_t>(kernel.accesses.size() - 1), value});
}
ValueId add_reduction(Kernel& kernel, Op op, ValueId value, ValueId index) {
  const ReduceFormula& formula = reduce_formula(op, kernel.program[value].type);
  kernel.reductions.push_back(
      {kernel.program.inline_program(formula.lift.program, {value, index}, formula.lift.results), formula.types,
       formula.identity, formula.combine});
  std::vector<ValueId> state;
  for (std::size_t c = 0; c < formula.types.size(); ++c)
    state.push_back(kernel.program.add({.prim = Prim::reduced,
                                        .type = formula.types[c],
                                        .index = static_cast<std::uint16_t>(kernel.reductions.size() - 1),
                                        .bits = c}));
  return kernel.program.inline_program(formula.finish.program, state, formula.finish.results)[0];
}

/// One kernel per primitive and operand dtype, with a store for every result dtype that is defined.
TEST_P(Jit, ComputesEveryPrimitive) {
  unsigned tested = 0;
  for (unsigned p = 0; p <= static_cast<unsigned>(Prim::bitcast); ++p) {
    const auto prim = static_cast<Prim>(p);
    if (operand_count(prim) == 0) continue;
    for (const DType operand : test::all_dtypes()) {
      Kernel kernel;
      const ValueId condition = add_input(kernel, DType::boolean, 1, true);
      const ValueId x = add_input(kernel, operand, 1, true), y = add_input(kernel, operand, 1, true),
                    z = add_input(kernel, operand, 1, true);
      for (const DType type : test::all_dtypes()) {
        if (prim_function(prim, type, operand) == nullptr || (prim == Prim::bitcast && type == DType::boolean))
          continue;
        Instr instr{.prim = prim, .type = type, .a = x};
        if (operand_count(prim) > 1) instr.b = y;
        if (operand_count(prim) > 2) instr.c = z;
        if (prim == Prim::select) instr.a = condition, instr.b = x, instr.c = y;
        add_store(kernel, kernel.program.add(instr), 1, true);
        ++tested;
      }
      if (!kernel.stores.empty()) expect_exact(kernel, {{1003}});
    }
  }
  EXPECT_GT(tested, 400u);
}

TEST_P(Jit, ShiftsEachElementByACountOfItsOwn) {
  for (const DType type :
       {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64, DType::u64}) {
    Kernel kernel;
    const ValueId x = add_input(kernel, type, 1, true), y = add_input(kernel, type, 1, true);
    // Few random numbers are counts that leave anything.
    const ValueId few = kernel.program.add(
        {.prim = Prim::bit_and, .type = type, .a = y, .b = kernel.program.constant(type, 16 * byte_size(type) - 1)});
    for (const Prim prim : {Prim::shl, Prim::shr})
      for (const ValueId count : {y, few})
        add_store(kernel, kernel.program.add({.prim = prim, .type = type, .a = x, .b = count}), 1, true);
    expect_exact(kernel, {{5}, {777}, {4096}});
  }
}

/// Each pair of the values at which integer division, shifts and products are delicate.
TEST_P(Jit, ComputesIntegerCornersOfConstants) {
  for (const DType type : {DType::i8, DType::u8, DType::i32, DType::u32, DType::i64, DType::u64}) {
    const unsigned width = static_cast<unsigned>(8 * byte_size(type));
    const std::uint64_t top = std::uint64_t{1} << (width - 1), all = (top - 1) * 2 + 1;
    Kernel kernel;
    const ValueId x = add_input(kernel, type, 1, true);
    for (const std::uint64_t bits :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{width}, top, top / 2, all})
      for (const Prim prim : {Prim::div, Prim::rem, Prim::shl, Prim::shr}) {
        const ValueId constant = kernel.program.constant(type, bits);
        add_store(kernel, kernel.program.add({.prim = prim, .type = type, .a = x, .b = constant}), 1, true);
        add_store(kernel, kernel.program.add({.prim = prim, .type = type, .a = constant, .b = x}), 1, true);
      }
    expect_exact(kernel, {{777}});
  }
}

TEST_P(Jit, ComputesEveryPointwiseFormula) {
  for (std::size_t op = 0; op < kOpCount; ++op)
    for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::boolean}) {
      if (!is_pointwise(static_cast<Op>(op))) continue;
      const auto rule = apply_rule(info(static_cast<Op>(op)).rule, dtype);
      if (!rule || rule->operand != dtype) continue;
      const Formula& formula = pointwise_formula(static_cast<Op>(op), dtype);
      Kernel kernel;
      std::vector<ValueId> operands;
      for (const DType parameter : formula.parameters) operands.push_back(add_input(kernel, parameter, 1, true));
      for (const ValueId result : kernel.program.inline_program(formula.program, operands, formula.results))
        add_store(kernel, result, 1, true);
      SCOPED_TRACE(name(static_cast<Op>(op)));
      expect_exact(kernel, {{531}});
    }
}

TEST_P(Jit, ReducesWithEveryMonoid) {
  for (const Op op : {Op::sum, Op::prod, Op::max, Op::min, Op::all, Op::any, Op::argmax, Op::argmin})
    for (const DType dtype : test::all_dtypes()) {
      const auto rule = apply_rule(info(op).rule, dtype);
      if (!rule || rule->operand != dtype || compute_dtype(dtype) != dtype) continue;
      for (const bool over_rows : {true, false}) {
        Kernel kernel;
        kernel.rank = 2, kernel.reduced = over_rows ? 2 : 1;
        const ValueId x = add_input(kernel, dtype, 3, true);
        kernel.accesses.push_back({.dtype = DType::i64, .axes = kernel.reduced, .address_only = true});
        const ValueId index = kernel.program.add({.prim = Prim::offset, .type = DType::i64, .index = 1});
        add_store(kernel, add_reduction(kernel, op, x, index), over_rows ? 1 : 2, false);
        SCOPED_TRACE(name(op));
        std::vector<std::vector<std::int64_t>> sizes;
        for (const std::int64_t length : {0, 1, 63, 64, 65, 1000})
          sizes.push_back(over_rows ? std::vector<std::int64_t>{3, length} : std::vector<std::int64_t>{length, 70});
        expect_exact(kernel, sizes);
      }
    }
}

Kernel softmax(unsigned reduced_axis) {
  Kernel kernel;
  kernel.rank = 2, kernel.reduced = static_cast<std::uint16_t>(1u << reduced_axis);
  const ValueId x = add_input(kernel, DType::f32, 3, true);
  const ValueId zero = kernel.program.constant(DType::i64, 0);
  const ValueId largest = add_reduction(kernel, Op::max, x, zero);
  const ValueId shifted = kernel.program.add({.prim = Prim::sub, .type = DType::f32, .a = x, .b = largest});
  const Formula& exponential = pointwise_formula(Op::exp, DType::f32);
  const ValueId e = kernel.program.inline_program(exponential.program, {shifted}, exponential.results)[0];
  const ValueId total = add_reduction(kernel, Op::sum, e, zero);
  add_store(kernel, kernel.program.add({.prim = Prim::div, .type = DType::f32, .a = e, .b = total}), 3, true);
  return kernel;
}

TEST_P(Jit, RunsThreeStages) {
  expect_exact(softmax(1), {{2, 1}, {2, 10}, {2, 64}, {2, 1000}, {2, 8192}, {2, 8193}, {2, 30000}});
  expect_exact(softmax(0), {{1, 2}, {10, 2}, {128, 2}, {129, 100}, {1000, 2}});
}

TEST_P(Jit, RunsManyBlocksOverSeveralReducedAxes) {
  Kernel kernel;
  kernel.rank = 3, kernel.reduced = 5;
  add_store(
      kernel,
      add_reduction(kernel, Op::sum, add_input(kernel, DType::f32, 7, true), kernel.program.constant(DType::i64, 0)), 2,
      false);
  expect_exact(kernel, {{5, 2, 1}, {5, 2, 100}, {5, 2, 8192}, {5, 2, 20000}});
  expect_exact(kernel, {{300, 2, 3}});  // more blocks than lanes
}

/// Operands that lie in order along the steps of a column, not along the columns, are read by tiles.
TEST_P(Jit, ReducesColumnsOfTransposedOperands) {
  for (const DType dtype : {DType::f32, DType::i32, DType::f64})
    for (const unsigned rank : {2u, 3u}) {
      const unsigned all = (1u << rank) - 1u, columns = 1u << (rank - 1);
      Kernel kernel;
      kernel.rank = static_cast<std::uint8_t>(rank), kernel.reduced = static_cast<std::uint16_t>(all & ~columns);
      const ValueId x = add_input(kernel, dtype, all, false), y = add_input(kernel, dtype, all, false),
                    z = add_input(kernel, dtype, all, true), w = add_input(kernel, dtype, columns, true);
      const ValueId product = kernel.program.add({.prim = Prim::mul, .type = dtype, .a = x, .b = y}),
                    sum = kernel.program.add({.prim = Prim::add, .type = dtype, .a = product, .b = z}),
                    scaled = kernel.program.add({.prim = Prim::mul, .type = dtype, .a = sum, .b = w});
      add_store(kernel, add_reduction(kernel, Op::max, scaled, kernel.program.constant(DType::i64, 0)), columns, true);
      add_store(kernel, scaled, all, false);
      std::vector<std::vector<std::int64_t>> all_sizes;
      for (int layout = 0; layout < 4; ++layout)
        for (const std::int64_t steps : {15, 16, 17, 130})
          for (const std::int64_t width : {1, 16, 63, 64, 65, 150}) {
            all_sizes.emplace_back(rank, 2);
            all_sizes.back()[rank - 2] = steps, all_sizes.back()[rank - 1] = width;
          }
      expect_exact(kernel, all_sizes);
    }
}

ValueId apply(Kernel& kernel, Op op, ValueId x) {
  const Formula& formula = pointwise_formula(op, kernel.program[x].type);
  return kernel.program.inline_program(formula.program, {x}, formula.results)[0];
}
/// softmax of gelu(x) and of another costly value that waits for it, and where both are positive: what is kept has
/// several dtypes, is read in several stages, and takes the place of what is read for the last time.
Kernel chain_of_softmaxes(DType dtype, unsigned rank, std::uint16_t reduced, bool unit_stride) {
  Kernel kernel;
  kernel.rank = static_cast<std::uint8_t>(rank), kernel.reduced = reduced;
  const unsigned all = (1u << rank) - 1u;
  const ValueId zero = kernel.program.constant(dtype, 0), nowhere = kernel.program.constant(DType::i64, 0);
  const auto binary = [&](Prim prim, ValueId a, ValueId b) {
    return kernel.program.add({.prim = prim, .type = prim == Prim::lt ? DType::boolean : dtype, .a = a, .b = b});
  };
  const auto reduce = [&](Op op, ValueId x) { return add_reduction(kernel, op, x, nowhere); };
  const ValueId g = apply(kernel, Op::gelu, add_input(kernel, dtype, all, unit_stride));
  const ValueId e = apply(kernel, Op::exp, binary(Prim::sub, g, reduce(Op::max, g)));
  const ValueId p = binary(Prim::div, e, reduce(Op::sum, e));
  const ValueId t = apply(kernel, Op::tanh, binary(Prim::mul, apply(kernel, Op::sin, p), g));
  const ValueId positive = binary(Prim::lt, zero, apply(kernel, Op::sin, apply(kernel, Op::sin, t)));
  const ValueId masked = kernel.program.add({.prim = Prim::select, .type = dtype, .a = positive, .b = t, .c = p});
  const ValueId centered = binary(Prim::sub, masked, reduce(Op::sum, masked));
  const ValueId squares = reduce(Op::sum, binary(Prim::mul, centered, centered));
  add_store(
      kernel,
      kernel.program.add(
          {.prim = Prim::select, .type = dtype, .a = positive, .b = binary(Prim::div, centered, squares), .c = g}),
      all, true);
  add_store(kernel, squares, all & ~unsigned{reduced}, false);
  return kernel;
}

TEST_P(Jit, KeepsWhatLaterStagesNeed) {
  const auto expect = [&](const Kernel& kernel, const std::vector<std::vector<std::int64_t>>& all_sizes) {
    const auto wide =
        executable_from_object(JitCompiler::instance().object_for(kernel, nullptr, GetParam(), {0, true}));
    const auto quick = compile(kernel);
    for (const auto& sizes : all_sizes) {
      KernelCase expected(kernel, sizes, random_), actual = expected, fast = expected;
      interpret(kernel, expected.launch());
      quick->launch(actual.launch());
      wide->launch(fast.launch());
      EXPECT_EQ(expected.difference(actual), "") << "sizes " << to_string(std::span(sizes)) << to_string(kernel);
      EXPECT_EQ(expected.difference(fast), "") << "wide, sizes " << to_string(std::span(sizes)) << to_string(kernel);
    }
  };
  for (const bool unit_stride : {true, false}) {
    expect(chain_of_softmaxes(DType::f32, 2, 2, unit_stride),
           {{3, 0}, {3, 1}, {3, 63}, {2, 64}, {2, 65}, {2, 1000}, {1, 8192}, {1, 8200}});
    expect(chain_of_softmaxes(DType::f32, 2, 1, unit_stride), {{0, 3}, {1, 3}, {7, 31}, {128, 5}, {130, 33}});
    expect(chain_of_softmaxes(DType::f64, 3, 5, unit_stride), {{3, 2, 70}});
    expect(chain_of_softmaxes(DType::f64, 3, 3, unit_stride), {{3, 50, 35}});
  }
  expect(chain_of_softmaxes(DType::f32, 3, 5, true), {{2, 1, 8201}});
}

/// However many stages need it, the square root is computed in the first one only.
TEST_P(Jit, ComputesCostlyValuesInOneStage) {
  const auto square_roots = [&](int stages) {
    Kernel kernel;
    kernel.rank = 2, kernel.reduced = 2;
    const ValueId nowhere = kernel.program.constant(DType::i64, 0);
    ValueId x = add_input(kernel, DType::f32, 3, true);
    for (int i = 0; i < 6; ++i) x = kernel.program.add({.prim = Prim::sqrt, .type = DType::f32, .a = x});
    ValueId centered = x;
    for (int i = 1; i < stages; ++i)
      centered = kernel.program.add(
          {.prim = Prim::sub, .type = DType::f32, .a = x, .b = add_reduction(kernel, Op::sum, centered, nowhere)});
    add_store(kernel, add_reduction(kernel, Op::sum, centered, nowhere), 1, false);
    JitDump dump;
    JitCompiler::instance().object_for(kernel, &dump, GetParam());
    std::size_t count = 0;
    for (std::size_t at = 0; (at = dump.ir.find("= call", at)) != std::string::npos; ++at)
      count += dump.ir.substr(at, dump.ir.find('\n', at) - at).find("llvm.sqrt") != std::string::npos;
    return count;
  };
  EXPECT_GT(square_roots(1), 0u);
  EXPECT_EQ(square_roots(4), square_roots(1));
}

/// A kernel may overwrite what it reads, element by element.
TEST_P(Jit, WorksInPlace) {
  Kernel kernel;
  kernel.rank = 2;
  const ValueId x = add_input(kernel, DType::f32, 3, true), y = add_input(kernel, DType::f32, 2, true);
  kernel.stores.push_back({0, kernel.program.add({.prim = Prim::mul, .type = DType::f32, .a = x, .b = y})});
  expect_exact(kernel, {{7, 1}, {7, 50}, {7, 1000}});
}

/// Elements that lie apart, up to the last bytes of a page that nothing may be read behind (or, stepping back, before).
TEST_P(Jit, ReadsStridedElementsAndNothingElse) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 4;
  void* const mapped = mmap(nullptr, (kPages + 2) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const memory = static_cast<std::byte*>(mapped);
  std::byte *const begin = memory + page, *const end = begin + kPages * page;
  ASSERT_EQ(mprotect(memory, page, PROT_NONE), 0);
  ASSERT_EQ(mprotect(end, page, PROT_NONE), 0);
  for (std::byte* at = begin; at != end; at += 4)
    *reinterpret_cast<std::int32_t*>(at) = static_cast<std::int32_t>(at - begin);
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    Kernel kernel;
    const ValueId x = add_input(kernel, dtype, 1, false);
    add_store(kernel, kernel.program.add({.prim = Prim::add, .type = dtype, .a = x, .b = x}), 1, true);
    const auto executable = compile(kernel);
    const auto bytes = static_cast<std::int64_t>(byte_size(dtype));
    for (const std::int64_t stride : {2, 1, 3, -2, -1})
      for (std::int64_t n = 1; n < 150; ++n) {
        std::byte* const first = stride > 0 ? end - ((n - 1) * stride + 1) * bytes : begin - (n - 1) * stride * bytes;
        std::vector<std::byte> got(static_cast<std::size_t>(n * bytes)), wanted(got.size());
        const std::int64_t strides[] = {stride, 1}, offsets[] = {0, 0};
        void* pointers[] = {first, got.data()};
        KernelLaunch launch{pointers, &n, strides, offsets, nullptr, 0, 1, 0, n};
        executable->launch(launch);
        pointers[1] = wanted.data();
        interpret(kernel, launch);
        ASSERT_EQ(got, wanted) << n << " elements of " << name(dtype) << ", " << stride << " apart";
      }
  }
  munmap(memory, (kPages + 2) * page);
}

TEST_P(Jit, RunsEmptyLaunches) {
  Kernel kernel;
  kernel.rank = 3;
  add_store(kernel, add_input(kernel, DType::i16, 7, false), 7, true);
  expect_exact(kernel, {{0, 3, 5}, {2, 0, 5}, {2, 3, 0}});
}

TEST_P(Jit, GivesTheSameObjectEachTime) {
  const std::string first = JitCompiler::instance().object_for(softmax(1), nullptr, GetParam());
  std::vector<std::string> objects(8);
  std::vector<std::thread> threads;
  for (std::string& object : objects)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        object = JitCompiler::instance().object_for(softmax(0), nullptr, GetParam());
        object = JitCompiler::instance().object_for(softmax(1), nullptr, GetParam());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& object : objects) EXPECT_TRUE(object == first);
}

TEST_P(Jit, ShowsItsCode) {
  JitDump dump;
  JitCompiler::instance().compile(softmax(1), &dump, GetParam());
  EXPECT_NE(dump.ir.find("define void @fermata_kernel"), std::string::npos);
  EXPECT_NE(dump.ir.find(GetParam() == "avx512" ? "<16 x float>" : "<8 x float>"), std::string::npos);
  EXPECT_NE(dump.assembly.find(GetParam() == "avx512" ? "%zmm" : "%ymm"), std::string::npos);
  EXPECT_EQ(dump.ir.find(" fast "), std::string::npos);
  EXPECT_EQ(dump.ir.find("contract"), std::string::npos);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
/// The numbers behind a mark at the ends of lines.
std::set<unsigned> marks_of(const std::string& text, const std::string& mark) {
  std::set<unsigned> marks;
  for (const std::string& line : lines_of(text))
    if (const std::size_t at = line.rfind(mark); at != line.npos)
      marks.insert(static_cast<unsigned>(std::stoul(line.substr(at + mark.size()))));
  return marks;
}

std::set<ValueId> computed_values(const Kernel& kernel) {
  std::set<ValueId> values;
  const KernelSchedule plan = schedule(kernel);
  values.insert(plan.row_prologue.begin(), plan.row_prologue.end());
  for (const KernelSchedule::Stage& stage : plan.stages) {
    values.insert(stage.element_values.begin(), stage.element_values.end());
    values.insert(stage.row_values.begin(), stage.row_values.end());
  }
  return values;
}

TEST_P(Jit, ListingsKnowTheLinesOfTheDescription) {
  for (const Kernel& kernel : {softmax(1), softmax(0)}) {
    const std::vector<std::string> description = lines_of(to_string(kernel));
    const KernelLines lines(kernel);
    for (ValueId id = 0; id < kernel.program.size(); ++id)
      EXPECT_EQ(description.at(lines.value(id) - 1).find("  %" + std::to_string(id) + " = "), 0u);
    for (std::size_t i = 0; i < kernel.reductions.size(); ++i)
      EXPECT_EQ(description.at(lines.reduction(i) - 1).find("  reduction " + std::to_string(i) + " of"), 0u);
    for (std::size_t i = 0; i < kernel.stores.size(); ++i)
      EXPECT_EQ(description.at(lines.store(i) - 1).find("  store " + std::to_string(i) + " :"), 0u);
    JitDump dump;
    const std::string listed = JitCompiler::instance().object_for(kernel, &dump, GetParam());
    const std::set<unsigned> ir = marks_of(dump.ir, "  ; @"), assembly = marks_of(dump.assembly, "\t# @");
    const std::set<ValueId> computed = computed_values(short_form(kernel));
    for (ValueId id = 0; id < kernel.program.size(); ++id) {
      const Prim prim = kernel.program[id].prim;
      if (prim == Prim::constant || prim == Prim::reduced || !computed.contains(id)) continue;
      EXPECT_TRUE(ir.contains(lines.value(id))) << description[lines.value(id) - 1];
    }
    // Of some primitives nothing is left: instructions are merged, and bits need not move to be read as another type.
    EXPECT_TRUE(std::ranges::includes(ir, assembly));
    EXPECT_GT(3 * assembly.size(), 2 * ir.size());
    EXPECT_TRUE(ir.contains(lines.store(0)) && assembly.contains(lines.store(0)));
    EXPECT_TRUE(ir.contains(lines.reduction(0)) && assembly.contains(lines.reduction(0)));
    for (const std::set<unsigned>& marks : {ir, assembly}) EXPECT_LE(*marks.rbegin(), description.size());
    EXPECT_EQ(dump.ir.find("!dbg"), std::string::npos);
    EXPECT_EQ(dump.assembly.find(".loc"), std::string::npos);
  }
}

TEST_P(Jit, ListingsDoNotChangeTheCode) {
  for (const bool wide : {false, true})
    for (const Kernel& kernel : {softmax(1), softmax(0)}) {
      JitDump dump;
      const JitVariant variant{.wide = wide};
      const std::string listed = JitCompiler::instance().object_for(kernel, &dump, GetParam(), variant);
      EXPECT_TRUE(JitCompiler::instance().object_for(kernel, nullptr, GetParam(), variant) == listed);
    }
}

std::string refusal(const Kernel& kernel, const std::string& target) {
  try {
    JitCompiler::instance().object_for(kernel, nullptr, target);
  } catch (const UnsupportedError& error) { return error.what(); }
  return "compiled";
}

TEST_P(Jit, RefusesWhatHasNoMachineCode) {
  Kernel complex;
  add_store(complex, add_input(complex, DType::c64, 1, true), 1, true);
  EXPECT_EQ(refusal(complex, GetParam()),
            "FM2101 UnsupportedError: cannot compile a kernel: kernels of dtype c64 are not supported");

  Kernel undefined;
  const ValueId x = add_input(undefined, DType::f16, 1, true);
  add_store(undefined, undefined.program.add({.prim = Prim::add, .type = DType::f16, .a = x, .b = x}), 1, true);
  EXPECT_EQ(refusal(undefined, GetParam()),
            "FM2101 UnsupportedError: cannot compile a kernel: primitive add is not defined for f16 giving f16");
  EXPECT_EQ(refusal(softmax(1), "pdp11"),
            "FM2101 UnsupportedError: cannot compile a kernel: no instruction set is called pdp11");
  EXPECT_EQ(refusal(softmax(1), GetParam()), "compiled");  // still works after errors
}

/// What a new process with this variable set says about the compiler.
void say_with(const char* variable, const char* value) {
  setenv(variable, value, 1);
  std::string failure_reason;
  const bool available = JitCompiler::instance().available(&failure_reason);
  std::fputs(failure_reason.c_str(), stderr);
  std::exit(available ? 1 : 0);
}

TEST(JitDeathTest, SaysWhyItIsNotAvailable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(say_with("FERMATA_CPU", "baseline"), testing::ExitedWithCode(0),
              "^FERMATA_CPU=baseline: kernels are compiled for avx2 and avx512$");
  if (JitCompiler::target().empty()) GTEST_SKIP() << "this machine runs no instruction set of the JIT";
  EXPECT_EXIT(say_with("FERMATA_LLVM_PLUGIN", "/gone/plugin.so"), testing::ExitedWithCode(0),
              "^the LLVM plugin cannot be loaded: /gone/plugin.so: ");
}

}  // namespace
}  // namespace fermata
