// The eager kernels against the interpreter of scalar programs and kernel descriptions: every op, dtype and layout, and
// the loops of every instruction set that this processor has. Bits must be equal; NaNs only in being NaN.
#include "codegen_cpu/eager/eager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "codegen_cpu/eager/loop_nest.h"
#include "codegen_cpu/eager/loop_tables.h"
#include "ir/kernel.h"
#include "ir/scalar_interpreter.h"
#include "runtime/reduced_axes.h"
#include "runtime/thread_pool.h"
#include "tests/codegen_cpu/eager_data.h"

namespace fermata::eager {
namespace {

std::vector<Op> ops_of(bool (*wanted)(Op)) {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (wanted(static_cast<Op>(i))) ops.push_back(static_cast<Op>(i));
  return ops;
}
std::string label(Op op, DType t) { return std::string(name(op)) + " " + std::string(name(t)); }

/// What an op gives for operands already in the rule's dtype.
class Expected {
 public:
  Expected(Op op, DType operand, DType result)
      : formula_(pointwise_formula(op, compute_dtype(operand))),
        compute_(compute_dtype(operand)),
        result_(result),
        ternary_(family(op) == Family::ternary) {}
  std::uint64_t operator()(std::span<const DType> types, std::vector<std::uint64_t> slots) {
    for (std::size_t k = 0; k < slots.size(); ++k)
      slots[k] = convert_slot(types[k], ternary_ && k == 0 ? DType::boolean : compute_, slots[k]);
    const std::uint64_t wide = formula_(slots)[0];
    return result_ == DType::boolean ? wide : convert_slot(compute_, result_, wide);
  }

 private:
  FormulaInterpreter formula_;
  DType compute_, result_;
  bool ternary_;
};

// ---- The loops of every instruction set
// --------------------------------------------------------------------------------

class EagerLoops : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    const InstructionSet& set = instruction_sets()[GetParam()];
    if (!set.supported()) GTEST_SKIP() << "this processor does not have " << set.name;
    set.fill(tables_);
  }
  LoopTables tables_;
};
INSTANTIATE_TEST_SUITE_P(InstructionSets, EagerLoops, testing::Range<std::size_t>(0, instruction_sets().size()),
                         [](const auto& i) { return std::string(instruction_sets()[i.param].name); });

TEST_P(EagerLoops, pointwise) {
  constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 63, 64, 65, 130, 333};
  std::size_t loops = 0;
  for (const Op op : ops_of(is_pointwise))
    for (std::size_t t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      const InnerLoop loop = tables_.pointwise[static_cast<std::size_t>(op)][t];
      const auto rule = apply_rule(info(op).rule, type);
      const bool wanted = rule && !is_complex(type) && rule->operand == type && compute_dtype(type) == type;
      ASSERT_EQ(loop != nullptr, wanted) << label(op, type);
      if (loop == nullptr) continue;
      ++loops;
      Expected expected(op, type, rule->result);
      Generator random(loops);
      const auto operands = static_cast<std::size_t>(info(op).operands);
      std::vector<DType> types(operands, type);
      if (family(op) == Family::ternary) types[0] = DType::boolean;
      for (const std::int64_t n : kSizes)
        for (unsigned splats = 0; splats < 1u << operands; ++splats) {
          if (splats != 0 && n != 17 && n != 5 && n != 130) continue;
          std::vector<Data> in;
          const void* pointers[3];
          bool splat[3];
          for (std::size_t k = 0; k < operands; ++k) in.push_back(make_data(types[k], {n}, Layout::dense, random));
          for (std::size_t k = 0; k < operands; ++k) pointers[k] = in[k].at(0), splat[k] = (splats >> k & 1) != 0;
          Data out = make_output(rule->result, {n + 1});
          const std::uint64_t guard = out.get(n);
          loop(out.at(0), pointers, splat, n);
          EXPECT_EQ(out.get(n), guard) << "wrote past the end: " << label(op, type) << " n " << n;
          for (std::int64_t i = 0; i < n; ++i) {
            std::vector<std::uint64_t> slots;
            for (std::size_t k = 0; k < operands; ++k) slots.push_back(in[k].get(splat[k] ? 0 : i));
            const std::uint64_t want = expected(types, slots);
            ASSERT_TRUE(same(rule->result, out.get(i), want))
                << label(op, type) << " n " << n << " splats " << splats << " element " << i << " of " << std::hex
                << slots[0] << ", " << slots.back() << ": " << out.get(i) << " not " << want << std::dec << ", seed "
                << seed();
          }
          if (splats == 0 && rule->result == type && family(op) == Family::binary) {  // in place
            loop(in[0].at(0), pointers, splat, n);
            for (std::int64_t i = 0; i < n; ++i) ASSERT_TRUE(same(type, in[0].get(i), out.get(i))) << label(op, type);
          }
        }
    }
  EXPECT_GT(loops, 250u);
}

TEST_P(EagerLoops, casts) {
  for (std::size_t f = 0; f < kDTypeCount; ++f)
    for (std::size_t t = 0; t < kDTypeCount; ++t) {
      const auto from = static_cast<DType>(f), to = static_cast<DType>(t);
      const CastLoop cast = tables_.cast[f][t];
      ASSERT_EQ(cast != nullptr, f != t && kStoredReal.has(from) && kStoredReal.has(to))
          << name(from) << " " << name(to);
      if (cast == nullptr) continue;
      Generator random(f * 100 + t);
      const std::int64_t n = byte_size(from) == 2 ? 65536 : byte_size(from) == 1 ? 256 : 5003;
      Data in = make_data(from, {n}, Layout::dense, random), out = make_output(to, {n});
      if (byte_size(from) <= 2 && from != DType::boolean)
        for (std::int64_t i = 0; i < n; ++i) store_slot(from, in.at(i), static_cast<std::uint64_t>(i));
      else if (from != DType::boolean)  // near the limits and near the ties of narrower types
        for (std::int64_t i = 0; i < n / 2; ++i) {
          const double value =
              std::ldexp(1 + static_cast<double>(random.below(64)) / 1024, static_cast<int>(random.below(80)) - 40) *
              (random.below(2) == 0 ? 1 : -1);
          std::uint64_t bits;
          std::memcpy(&bits, &value, 8);
          store_slot(from, in.at(i), convert_slot(DType::f64, from, bits) + random.below(3) - 1);
        }
      cast(out.at(0), in.at(0), n);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint64_t want = convert_slot(from, to, in.get(i));
        ASSERT_TRUE(same(to, out.get(i), want))
            << name(from) << " to " << name(to) << ": " << std::hex << in.get(i) << " gives " << out.get(i) << " not "
            << want << std::dec << ", seed " << seed();
      }
    }
}

TEST_P(EagerLoops, random) {
  for (const Op op : ops_of([](Op o) { return family(o) == Family::random; }))
    for (const DType t : {DType::f32, DType::f64}) {
      FormulaInterpreter formula(random_formula(op, t));
      const RandomLoop loop = tables_.random[static_cast<std::size_t>(op)][static_cast<std::size_t>(t)];
      ASSERT_NE(loop, nullptr);
      const std::uint64_t key = 0x0123456789abcdefull, offset = 0xfedcba9876543210ull;
      for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, (std::int64_t{1} << 32) - 3}) {
        Data out = make_output(t, {203});
        loop(out.at(0), first, key, offset, 203);
        for (std::int64_t i = 0; i < 203; ++i) {
          const std::uint64_t slots[] = {static_cast<std::uint64_t>(first + i), key, offset};
          ASSERT_EQ(out.get(i), formula(slots)[0]) << label(op, t) << " at " << first + i;
        }
      }
    }
}

// ---- Calls over any layout
// ------------------------------------------------------------------------------------------------

void check_pointwise(Op op, DType type, const std::vector<std::int64_t>& sizes, const std::vector<Layout>& layouts,
                     std::uint64_t stream) {
  const auto rule = apply_rule(info(op).rule, type);
  const DType operand = rule->operand;
  Generator random(stream);
  const auto operands = static_cast<std::size_t>(info(op).operands);
  std::vector<Data> in;
  std::vector<DType> types;
  std::vector<TensorView> views;
  for (std::size_t k = 0; k < operands; ++k) {
    // A host scalar of a half op arrives in f32.
    DType t = layouts[k] == Layout::scalar ? compute_dtype(operand) : operand;
    if (family(op) == Family::ternary && k == 0) t = DType::boolean;
    if (k + 1 == operands) t = operand;
    types.push_back(t);
    in.push_back(make_data(t, sizes, layouts[k], random));
  }
  for (Data& d : in) views.push_back(d.view());
  Data out = make_output(rule->result, sizes);
  const TensorView result = out.view();
  eager_kernel(op)({.op = op, .inputs = views, .outputs = {&result, 1}, .attributes = {}, .scalars = {}});
  Expected expected(op, operand, rule->result);
  for (std::int64_t i = 0; i < out.count(); ++i) {
    std::vector<std::uint64_t> slots;
    for (Data& d : in) slots.push_back(d.get(i));
    const std::uint64_t want = expected(types, slots);
    ASSERT_TRUE(same(rule->result, out.get(i), want))
        << label(op, type) << to_string(std::span<const std::int64_t>(sizes)) << " layout "
        << static_cast<int>(layouts[0]) << " element " << i << ": " << std::hex << out.get(i) << " not " << want
        << std::dec << ", seed " << seed();
  }
}

TEST(EagerPointwise, every_op_dtype_and_layout) {
  std::uint64_t stream = 0;
  for (const Op op : ops_of(is_pointwise))
    for (std::size_t t = 0; t < kDTypeCount; ++t) {
      if (is_complex(static_cast<DType>(t)) || !apply_rule(info(op).rule, static_cast<DType>(t))) continue;
      for (const Layout layout : kLayouts) {
        ++stream;
        const Layout second = kLayouts[stream % std::size(kLayouts)],
                     third = kLayouts[stream / 2 % std::size(kLayouts)];
        check_pointwise(op, static_cast<DType>(t), {3, 5, 7}, {layout, second, third}, stream);
      }
    }
}

TEST(EagerPointwise, shapes) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {}, {0}, {1}, {4, 0, 3}, {1, 1}, {2, 1500}, {70, 130}, {1, 9, 1, 11}, {5, 2, 3, 2, 7}, {3000}, {64, 1, 64}};
  std::uint64_t stream = 1000;
  for (const Op op : {Op::add, Op::where, Op::less, Op::negative})
    for (const DType t : {DType::f32, DType::f16, DType::i64})
      for (const auto& shape : shapes)
        for (const Layout a : kLayouts)
          for (const Layout b : {Layout::dense, Layout::permuted, Layout::scalar, Layout::broadcast_first})
            check_pointwise(op, t, shape, {a, b, a}, ++stream);
}

TEST(EagerPointwise, one_element_for_each_short_row) {
  std::uint64_t stream = 5000;
  for (const DType t : {DType::u8, DType::f16, DType::f32, DType::i64})
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{2, 171, 3}, {800, 2}, {60, 21}, {30, 63}})
      for (const Layout a : kLayouts) check_pointwise(Op::add, t, shape, {a, Layout::broadcast_last}, ++stream);
}

TEST(EagerPointwise, large_calls_on_several_threads) {
  set_thread_count(3);
  check_pointwise(Op::exp, DType::f32, {300'007}, {Layout::dense}, 1);
  check_pointwise(Op::add, DType::f32, {301, 1003}, {Layout::permuted, Layout::broadcast_first}, 2);
  check_pointwise(Op::multiply, DType::bf16, {200'003}, {Layout::dense, Layout::scalar}, 3);
  check_pointwise(Op::add, DType::i8, {50'021, 5}, {Layout::padded, Layout::permuted}, 4);
}

TEST(EagerCalls, casts_of_any_layout) {
  std::uint64_t stream = 0;
  for (const DType from : {DType::boolean, DType::u8, DType::i32, DType::f16, DType::f32, DType::f64})
    for (const DType to : {DType::boolean, DType::i8, DType::i64, DType::bf16, DType::f32})
      for (const Layout layout : kLayouts)
        for (const auto& shape : {std::vector<std::int64_t>{}, {0}, {3, 5, 7}, {3, 2050}}) {
          Generator random(++stream);
          Data in = make_data(from, shape, layout, random), out = make_output(to, shape);
          const TensorView x = in.view(), y = out.view();
          eager_kernel(Op::cast)(
              {.op = Op::cast, .inputs = {&x, 1}, .outputs = {&y, 1}, .attributes = {}, .scalars = {}});
          for (std::int64_t i = 0; i < out.count(); ++i)
            ASSERT_TRUE(same(to, out.get(i), convert_slot(from, to, in.get(i)))) << name(from) << " to " << name(to);
        }
}

TEST(EagerCalls, copy) {
  for (const DType t : {DType::u8, DType::f16, DType::f32, DType::i64})
    for (const Layout layout : kLayouts) {
      Generator random(static_cast<std::uint64_t>(layout));
      Data in = make_data(t, {9, 33, 5}, layout, random), out = make_output(t, {9, 33, 5});
      const TensorView x = in.view(), y = out.view();
      eager_kernel(Op::copy)({.op = Op::copy, .inputs = {&x, 1}, .outputs = {&y, 1}, .attributes = {}, .scalars = {}});
      for (std::int64_t i = 0; i < out.count(); ++i) ASSERT_EQ(out.get(i), in.get(i));
    }
}

TEST(EagerCalls, full) {
  for (const DType t : {DType::boolean, DType::i16, DType::f16, DType::bf16, DType::f32, DType::f64}) {
    Generator random(3);
    const DType compute = compute_dtype(t);
    const std::uint64_t value = random.slot(compute);
    Data out = make_output(t, {40'001});
    const TensorView y = out.view();
    eager_kernel(Op::full)(
        {.op = Op::full, .inputs = {}, .outputs = {&y, 1}, .attributes = {}, .scalars = {&value, 1}});
    for (const std::int64_t i : {0, 1, 39'999, 40'000})
      ASSERT_EQ(out.get(i), convert_slot(compute, t, value)) << name(t);
  }
}

TEST(EagerCalls, iota) {
  for (std::int64_t axis = 0; axis < 3; ++axis) {
    Data out = make_output(DType::i64, {3, 4, 5});
    const TensorView y = out.view();
    eager_kernel(Op::iota)({.op = Op::iota, .inputs = {}, .outputs = {&y, 1}, .attributes = {&axis, 1}, .scalars = {}});
    const std::int64_t inner[] = {20, 5, 1}, size[] = {3, 4, 5};
    for (std::int64_t i = 0; i < 60; ++i)
      ASSERT_EQ(static_cast<std::int64_t>(out.get(i)), i / inner[axis] % size[axis]);
  }
}

TEST(EagerCalls, random_numbers_do_not_depend_on_threads) {
  const std::uint64_t scalars[] = {42, 7};
  for (const Op op : {Op::random_uniform, Op::random_normal})
    for (const DType t : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      FormulaInterpreter formula(random_formula(op, compute_dtype(t)));
      Data out = make_output(t, {7, 11'003});
      const TensorView y = out.view();
      set_thread_count(3);
      eager_kernel(op)({.op = op, .inputs = {}, .outputs = {&y, 1}, .attributes = {}, .scalars = scalars});
      for (std::int64_t i = 0; i < out.count(); i += 97) {
        const std::uint64_t slots[] = {static_cast<std::uint64_t>(i), 42, 7};
        ASSERT_EQ(out.get(i), convert_slot(compute_dtype(t), t, formula(slots)[0])) << label(op, t) << " at " << i;
      }
    }
}

// ---- Reductions against the interpreter of kernel descriptions
// -------------------------------------------------------------

/// The kernel that the compiled path would build for one reduction: axes merged by hand in `groups` (sizes, strides in
/// elements, reduced), row-major output over the kept ones.
struct ReducedAxis {
  std::int64_t size, stride;
  bool reduced;
};
Kernel reduction_kernel(Op op, DType type, const std::vector<ReducedAxis>& axes) {
  const DType lifted = compute_dtype(apply_rule(info(op).rule, type)->operand),
              result = apply_rule(info(op).rule, type)->result;
  Kernel k;
  k.rank = static_cast<std::uint8_t>(axes.size());
  std::uint16_t all = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    all = static_cast<std::uint16_t>(all | 1u << i);
    if (axes[i].reduced) k.reduced = static_cast<std::uint16_t>(k.reduced | 1u << i);
  }
  const auto kept = static_cast<std::uint16_t>(all & ~k.reduced);
  k.accesses.push_back({.dtype = type, .axes = all, .unit_stride = false, .address_only = false});
  k.accesses.push_back({.dtype = DType::i64, .axes = k.reduced, .unit_stride = false, .address_only = true});
  k.accesses.push_back({.dtype = result, .axes = kept, .unit_stride = false, .address_only = false});
  const auto converted = [&](ValueId v, DType to) {
    return k.program[v].type == to ? v : k.program.add({.prim = Prim::convert, .type = to, .a = v});
  };
  const ReduceFormula& f = reduce_formula(op, lifted);
  ValueId x = k.program.add({.prim = Prim::input, .type = type, .index = 0});
  const ValueId position = k.program.add({.prim = Prim::offset, .type = DType::i64, .index = 1});
  x = converted(converted(x, compute_dtype(type)), lifted);
  k.reductions.push_back(
      {k.program.inline_program(f.lift.program, {x, position}, f.lift.results), f.types, f.identity, f.combine});
  std::vector<ValueId> state;
  for (std::size_t c = 0; c < f.types.size(); ++c)
    state.push_back(k.program.add({.prim = Prim::reduced, .type = f.types[c], .index = 0, .bits = c}));
  const ValueId finished = k.program.inline_program(f.finish.program, state, f.finish.results)[0];
  k.stores.push_back({2, converted(finished, result)});
  return k;
}

/// Reduced axes in the order of memory, where no positions are counted along them, and merged again.
std::vector<ReducedAxis> in_order_of_memory(Op op, DType type, const std::vector<ReducedAxis>& axes) {
  if (reduce_formula(op, compute_dtype(apply_rule(info(op).rule, type)->operand)).types.size() > 1) return axes;
  std::vector<std::int64_t> sizes, strides;
  std::uint64_t reduced = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    sizes.push_back(axes[i].size), strides.push_back(axes[i].stride);
    if (axes[i].reduced) reduced |= 1u << i;
  }
  order_reduced_axes(sizes, reduced, strides);
  std::vector<ReducedAxis> merged;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const ReducedAxis next{sizes[i], strides[i], axes[i].reduced};
    if (!merged.empty() && merged.back().reduced && next.reduced && merged.back().stride == next.stride * next.size)
      merged.back() = {merged.back().size * next.size, next.stride, true};
    else
      merged.push_back(next);
  }
  return merged;
}

/// Runs both and compares. `sizes` and `layout` describe the operand; `axes` is how the axes of its view are merged.
void check_reduction(Op op, DType type, const std::vector<std::int64_t>& sizes, std::int64_t mask, Layout layout,
                     const std::vector<ReducedAxis>& axes) {
  const std::vector<ReducedAxis> merged = in_order_of_memory(op, type, axes);
  Generator random(static_cast<std::uint64_t>(mask) + sizes.size());
  Data in = make_data(type, sizes, layout, random);
  const auto result = apply_rule(info(op).rule, type)->result;
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if ((mask >> i & 1) == 0) kept.push_back(sizes[i]);
  Data out = make_output(result, kept), want = make_output(result, kept);
  const TensorView x = in.view(), y = out.view();
  const std::int64_t attributes[] = {mask, 0};
  eager_kernel(op)({.op = op, .inputs = {&x, 1}, .outputs = {&y, 1}, .attributes = attributes, .scalars = {}});

  const Kernel kernel = reduction_kernel(op, type, merged);
  std::vector<std::int64_t> kernel_sizes, strides(3 * merged.size(), 0);
  std::int64_t position = 1, out_stride = 1, rows = 1;
  for (std::size_t i = merged.size(); i-- > 0;) {
    strides[i] = merged[i].stride;
    if (merged[i].reduced)
      strides[merged.size() + i] = position, position *= merged[i].size;
    else
      strides[2 * merged.size() + i] = out_stride, out_stride *= merged[i].size;
  }
  for (std::size_t i = 0; i < merged.size(); ++i) {
    kernel_sizes.push_back(merged[i].size);
    if (!merged[i].reduced && (kernel.is_row_kernel() || i + 1 < merged.size())) rows *= merged[i].size;
  }
  void* pointers[] = {in.at(0), nullptr, want.at(0)};
  const std::int64_t offsets[] = {0, 0, 0};
  const KernelLaunch launch{.pointers = pointers,
                            .sizes = kernel_sizes.data(),
                            .strides = strides.data(),
                            .offsets = offsets,
                            .scalars = nullptr,
                            .row_begin = 0,
                            .row_end = rows,
                            .column_begin = 0,
                            .column_end = kernel.is_row_kernel() ? 0 : kernel_sizes.back()};
  interpret(kernel, launch);
  for (std::int64_t i = 0; i < out.count(); ++i)
    ASSERT_TRUE(same(result, out.get(i), want.get(i)))
        << label(op, type) << to_string(std::span<const std::int64_t>(sizes)) << " mask " << mask << " layout "
        << static_cast<int>(layout) << " element " << i << ": " << std::hex << out.get(i) << " not " << want.get(i)
        << std::dec << ", seed " << seed();
}

std::vector<ReducedAxis> merged_dense(const std::vector<std::int64_t>& sizes, std::int64_t mask) {
  std::vector<ReducedAxis> axes;
  const Shape strides = dense_strides(sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool reduced = (mask >> i & 1) != 0;
    if (!axes.empty() && axes.back().reduced == reduced)
      axes.back() = {axes.back().size * sizes[i], strides[i], reduced};
    else
      axes.push_back({sizes[i], strides[i], reduced});
  }
  return axes;
}

bool is_reduction(Op op) { return family(op) == Family::reduce; }

TEST(EagerReductions, every_op_and_dtype) {
  for (const Op op : ops_of(is_reduction))
    for (std::size_t t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      if (is_complex(type) || !apply_rule(info(op).rule, type)) continue;
      check_reduction(op, type, {5, 203}, 2, Layout::dense, merged_dense({5, 203}, 2));
      check_reduction(op, type, {131, 77}, 1, Layout::dense, merged_dense({131, 77}, 1));
      check_reduction(op, type, {3, 70, 5}, 2, Layout::dense, merged_dense({3, 70, 5}, 2));
    }
}

TEST(EagerReductions, shapes) {
  const std::vector<std::vector<std::int64_t>> shapes = {{1},         {63},       {64},         {65},
                                                         {20'000},    {3, 8193},  {300, 3},     {2, 3, 4, 5},
                                                         {1, 200, 1}, {17, 1, 9}, {3, 300, 70}, {2, 1000, 1}};
  for (const Op op : {Op::sum, Op::max, Op::argmax})
    for (const DType t : {DType::f32, DType::f16, DType::f64, DType::i32})
      for (const auto& shape : shapes)
        for (std::int64_t mask = 1; mask < 1 << shape.size(); ++mask)
          check_reduction(op, t, shape, mask, Layout::dense, merged_dense(shape, mask));
}

TEST(EagerReductions, empty_axes) {
  for (const Op op : {Op::sum, Op::prod, Op::all, Op::any}) {
    check_reduction(op, DType::f32, {3, 0}, 2, Layout::dense, merged_dense({3, 0}, 2));
    check_reduction(op, DType::f32, {0, 3}, 1, Layout::dense, merged_dense({0, 3}, 1));
  }
}

TEST(EagerReductions, layouts_that_do_not_merge) {
  for (const Op op : {Op::sum, Op::argmin})
    for (const DType t : {DType::f32, DType::bf16, DType::u8}) {
      // Permuted: strides 1, 5, 65.
      const std::vector<std::int64_t> sizes = {5, 13, 29};
      for (std::int64_t mask = 1; mask < 8; ++mask)
        check_reduction(op, t, sizes, mask, Layout::permuted,
                        {{5, 1, (mask & 1) != 0}, {13, 5, (mask & 2) != 0}, {29, 65, (mask & 4) != 0}});
      // Padded rows keep their order, so they merge as dense ones do.
      std::vector<ReducedAxis> padded = merged_dense(sizes, 6);
      for (ReducedAxis& a : padded) a.stride *= 3;
      check_reduction(op, t, sizes, 6, Layout::padded, padded);
      for (std::int64_t mask = 1; mask < 8; ++mask) {
        const bool first = (mask & 1) != 0, second = (mask & 2) != 0, third = (mask & 4) != 0;
        check_reduction(op, t, sizes, mask, Layout::windows, {{5, 3, first}, {13, 2, second}, {29, 1, third}});
        check_reduction(op, t, sizes, mask, Layout::turned_windows, {{5, 1, first}, {13, 2, second}, {29, 3, third}});
      }
    }
}

TEST(EagerReductions, short_axes_that_do_not_merge) {
  const auto check = [](Layout layout, const std::vector<std::int64_t>& sizes, std::int64_t mask) {
    Generator random(1);
    const std::vector<std::int64_t> strides = make_data(DType::f32, sizes, layout, random).strides;
    std::vector<ReducedAxis> axes;
    for (std::size_t i = 0; i < sizes.size(); ++i) axes.push_back({sizes[i], strides[i], (mask >> i & 1) != 0});
    for (const Op op : {Op::sum, Op::argmin})
      for (const DType t : {DType::i16, DType::bf16, DType::f32}) check_reduction(op, t, sizes, mask, layout, axes);
  };
  for (const std::int64_t mask : {4, 12}) check(Layout::images, {5, 70, 3, 2}, mask);  // beside each other in memory
  check(Layout::images, {70, 5, 3, 16}, 12);                                           // vectors along a row
  check(Layout::permuted, {2, 70, 3, 2, 5}, 20);                                       // turned, and results apart
  check(Layout::permuted, {300, 9, 8, 2}, 14);                                         // more blocks than lanes
}

TEST(EagerReductions, large_calls_on_several_threads) {
  set_thread_count(3);
  for (const DType t : {DType::f32, DType::i16}) {
    check_reduction(Op::sum, t, {1'000'003}, 1, Layout::dense, merged_dense({1'000'003}, 1));
    check_reduction(Op::sum, t, {40'003, 3}, 1, Layout::dense, merged_dense({40'003, 3}, 1));
    check_reduction(Op::sum, t, {7, 500, 70}, 2, Layout::dense, merged_dense({7, 500, 70}, 2));
    check_reduction(Op::max, t, {700, 300}, 2, Layout::dense, merged_dense({700, 300}, 2));
    check_reduction(Op::argmax, t, {3, 100'000}, 2, Layout::dense, merged_dense({3, 100'000}, 2));
  }
}

/// Into and out of memory that ends with the elements, which address sanitizers watch.
TEST(EagerGather, ElementsAnyDistanceApart) {
  for (const std::int64_t bytes : {1, 2, 4, 8})
    for (const std::int64_t step : {-1, 2, -2, 1, 3, 0})
      for (std::int64_t count = 1; count < 80; ++count) {
        const std::int64_t reach = (count - 1) * std::abs(step) + 1;
        std::vector<char> from(static_cast<std::size_t>(reach * bytes)), to(static_cast<std::size_t>(count * bytes));
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 37 + i / 256);
        const std::int64_t first = step < 0 ? (reach - 1) * bytes : 0;
        gather(to.data(), from.data() + first, step * bytes, count, static_cast<std::size_t>(bytes));
        for (std::int64_t i = 0; i < count * bytes; ++i)
          ASSERT_EQ(to[static_cast<std::size_t>(i)],
                    from[static_cast<std::size_t>(first + i / bytes * step * bytes + i % bytes)])
              << bytes << " bytes, " << step << " apart, byte " << i << " of " << count << " elements";
      }
}

}  // namespace
}  // namespace fermata::eager
