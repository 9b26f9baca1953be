// Random kernel descriptions: any shape of loop nest, any dtype, any primitive, several stages.
#pragma once

#include "ir/op.h"
#include "tests/codegen_cpu/kernel_case.h"

namespace fermata::test {

enum class KernelShape { map, row, column };

inline const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> types = {DType::boolean, DType::u8,  DType::u16, DType::u32, DType::u64,
                                           DType::i8,      DType::i16, DType::i32, DType::i64, DType::f16,
                                           DType::bf16,    DType::f32, DType::f64};
  return types;
}

class KernelGenerator {
 public:
  /// `costly` kernels have whole formulas in them: values that are worth keeping from stage to stage. With `gathers`,
  /// some read at positions that they compute, and parts that are not everywhere.
  KernelGenerator(Random& random, KernelShape shape, bool costly = false, bool gathers = false)
      : random_(random), shape_(shape), costly_(costly), gathers_(gathers) {}

  Kernel kernel() {
    choose_axes();
    focus_ = {random_.chance(60) ? DType::f32 : random_.pick(all_dtypes()), random_.pick(all_dtypes())};
    const std::int64_t leaves = 1 + random_.below(4);
    for (std::int64_t i = 0; i < leaves; ++i) add_leaf();
    grow(1 + random_.below(12));
    if (costly_) add_formula();
    if (shape_ != KernelShape::map)
      for (std::int64_t stages = 1 + random_.below(3); stages > 0; --stages) {
        for (std::int64_t count = 1 + random_.below(2); count > 0; --count) add_reduction();
        grow(random_.below(6));
        if (costly_ && random_.chance(60)) add_formula();
      }
    for (std::int64_t stores = 1 + random_.below(3); stores > 0; --stores) add_store(random_.pick(pool_));
    add_store(pool_.back());
    return kernel_;
  }

  std::vector<std::int64_t> sizes() {
    static const std::vector<std::int64_t> lengths = {0,  1,  2,  7,   8,   15,  16,  31,  33,
                                                      63, 64, 65, 100, 127, 128, 129, 257, 1000};
    std::vector<std::int64_t> sizes;
    for (unsigned axis = 0; axis < kernel_.rank; ++axis) {
      const bool is_vector_axis = axis == kernel_.rank - 1u;
      if (is_vector_axis)
        sizes.push_back(random_.pick(lengths));
      else if (shape_ == KernelShape::column && kernel_.is_reduced(axis) && random_.chance(30))
        sizes.push_back(100 + random_.below(200));
      else if (shape_ == KernelShape::map && axis + 2u == kernel_.rank && random_.chance(25))  // rows of whole tiles
        sizes.push_back(16 + random_.below(200));
      else
        sizes.push_back(random_.chance(3) ? 0 : 1 + random_.below(kernel_.rank > 2 ? 3 : 9));
    }
    if (shape_ == KernelShape::row && random_.chance(12)) {  // several blocks
      for (std::int64_t& size : sizes) size = std::min<std::int64_t>(size, 2);
      sizes.back() = 8000 + random_.below(20000);
    }
    constexpr std::int64_t kMostPoints = 50000;
    for (auto points = [&] { return element_count(sizes); }; points() > kMostPoints;)
      *std::ranges::max_element(sizes) /= 2;
    return sizes;
  }

 private:
  void choose_axes() {
    kernel_.rank = static_cast<std::uint8_t>(1 + random_.below(random_.chance(70) ? 2 : 4));
    if (shape_ == KernelShape::column && kernel_.rank == 1) kernel_.rank = 2;
    const unsigned vector_bit = 1u << (kernel_.rank - 1), others = vector_bit - 1;
    if (shape_ == KernelShape::row)
      kernel_.reduced = static_cast<std::uint16_t>(vector_bit | (random_.chance(35) ? random_.bits() & others : 0));
    if (shape_ == KernelShape::column)
      while (kernel_.reduced == 0) kernel_.reduced = static_cast<std::uint16_t>(random_.bits() & others);
  }

  std::uint16_t add_access(DType dtype, unsigned axes) {
    Access access{.dtype = dtype, .axes = static_cast<std::uint16_t>(axes)};
    access.unit_stride = (axes >> (kernel_.rank - 1) & 1u) != 0 && random_.chance(70);
    kernel_.accesses.push_back(access);
    return static_cast<std::uint16_t>(kernel_.accesses.size() - 1);
  }
  unsigned random_axes() {
    const unsigned all = (1u << kernel_.rank) - 1;
    return random_.chance(60) ? all : static_cast<unsigned>(random_.bits()) & all;
  }
  void add(const Instr& instr) { pool_.push_back(kernel_.program.add(instr)); }

  void add_leaf() {
    const DType dtype = random_.pick(focus_);
    const std::int64_t kind = pool_.empty() ? 0 : random_.below(10);
    if (kind <= 6) {
      add({.prim = Prim::input, .type = dtype, .index = add_access(dtype, random_axes())});
    } else if (kind == 7) {
      kernel_.scalars.push_back(dtype);
      add({.prim = Prim::scalar, .type = dtype, .index = static_cast<std::uint16_t>(kernel_.scalars.size() - 1)});
    } else if (kind == 8) {
      add({.prim = Prim::constant, .type = dtype, .bits = random_value(dtype, random_, 25)});
    } else {
      const std::uint16_t access = add_access(random_.pick(all_dtypes()), random_axes());
      kernel_.accesses[access].address_only = random_.chance(80);
      add({.prim = Prim::offset, .type = DType::i64, .index = access});
    }
  }

  ValueId operand(DType dtype) {
    std::vector<ValueId> fitting;
    for (const ValueId id : pool_)
      if (kernel_.program[id].type == dtype) fitting.push_back(id);
    if (!fitting.empty() && !random_.chance(10)) return random_.pick(fitting);
    add({.prim = Prim::constant, .type = dtype, .bits = random_value(dtype, random_, 25)});
    return pool_.back();
  }

  std::uint16_t add_offsets(unsigned axes) {
    kernel_.accesses.push_back({.dtype = DType::i64, .axes = static_cast<std::uint16_t>(axes), .address_only = true});
    return static_cast<std::uint16_t>(kernel_.accesses.size() - 1);
  }
  ValueId number_of_layout() {
    const std::uint16_t access = add_offsets(0);
    return kernel_.program.add({.prim = Prim::offset, .type = DType::i64, .index = access});
  }
  void add_gather() {
    const ValueId size = number_of_layout();
    ValueId at = random_.pick(pool_);
    if (kernel_.program[at].type != DType::i64)
      at = kernel_.program.add({.prim = Prim::convert, .type = DType::i64, .a = at});
    if (random_.chance(80)) {
      const auto bound = static_cast<std::uint64_t>(1 + random_.below(8));
      at = kernel_.program.add(
          {.prim = Prim::rem, .type = DType::i64, .a = at, .b = kernel_.program.constant(DType::i64, bound)});
    }
    at = kernel_.program.add(
        {.prim = Prim::position, .type = DType::i64, .index = add_offsets(random_axes()), .a = at, .b = size});
    if (random_.chance(50))
      at = kernel_.program.add({.prim = Prim::mul, .type = DType::i64, .a = at, .b = number_of_layout()});
    const DType dtype = random_.pick(focus_);
    const std::uint16_t access = add_access(dtype, random_axes());
    kernel_.accesses[access].gathered = true;
    add({.prim = Prim::gather, .type = dtype, .index = access, .a = at});
  }

  void add_guarded() {
    ValueId at = kernel_.program.add({.prim = Prim::offset, .type = DType::i64, .index = add_offsets(random_axes())});
    if (random_.chance(20))  // INT64_MAX stands for no end, and is no position
      at = kernel_.program.add({.prim = Prim::bit_and,
                                .type = DType::i64,
                                .a = operand(DType::i64),
                                .b = kernel_.program.constant(DType::i64, 0x7ff)});
    const std::int64_t first = random_.below(1200);
    const auto bound = [&](std::int64_t value) {
      return kernel_.program.constant(DType::i64, static_cast<std::uint64_t>(value));
    };
    const ValueId begin = bound(random_.chance(40) ? INT64_MIN : first),
                  end = bound(random_.chance(40) ? INT64_MAX : first + random_.below(400));
    const DType dtype = random_.pick(focus_);
    const std::uint16_t access = add_access(dtype, random_axes());
    kernel_.accesses[access].guarded = true;
    add({.prim = Prim::guarded_input, .type = dtype, .index = access, .a = at, .b = begin, .c = end});
  }

  /// What a position along the vector axis is compared with.
  ValueId bound() {
    const unsigned vector_bit = 1u << (kernel_.rank - 1);
    switch (random_.below(4)) {
      case 0: return number_of_layout();
      case 1: {
        const std::uint16_t access = add_offsets(random_axes() & ~vector_bit);
        return kernel_.program.add({.prim = Prim::offset, .type = DType::i64, .index = access});
      }
      case 2: return kernel_.program.constant(DType::i64, random_value(DType::i64, random_, 50));
      default: return kernel_.program.constant(DType::i64, static_cast<std::uint64_t>(random_.below(1500)));
    }
  }
  /// Parts that are joined along the vector axis.
  void add_parts() {
    const std::uint16_t counted = add_offsets(random_axes() | 1u << (kernel_.rank - 1));
    kernel_.accesses[counted].unit_stride = true;
    ScalarProgram& program = kernel_.program;
    const ValueId at = program.add({.prim = Prim::offset, .type = DType::i64, .index = counted});
    const ValueId least = program.constant(DType::i64, static_cast<std::uint64_t>(INT64_MIN)),
                  most = program.constant(DType::i64, static_cast<std::uint64_t>(INT64_MAX));
    const DType dtype = random_.pick(focus_);
    ValueId end = random_.chance(70) ? most : bound(), whole = kNoValue;
    for (std::int64_t parts = 1 + random_.below(3); parts > 0; --parts) {
      const ValueId begin = parts == 1 && random_.chance(70) ? least : bound();
      const std::uint16_t access = add_access(dtype, random_axes());
      kernel_.accesses[access].guarded = true;
      const ValueId part =
          program.add({.prim = Prim::guarded_input, .type = dtype, .index = access, .a = at, .b = begin, .c = end});
      if (whole != kNoValue) {
        const bool less = random_.chance(50), first = random_.chance(70);
        const ValueId here = program.add(
            {.prim = less ? Prim::lt : Prim::le, .type = DType::boolean, .a = first ? at : end, .b = first ? end : at});
        whole = program.add({.prim = Prim::select, .type = dtype, .a = here, .b = part, .c = whole});
        if (random_.chance(20)) pool_.push_back(here);
      } else {
        whole = part;
      }
      if (random_.chance(20)) pool_.push_back(part);
      end = begin;
    }
    pool_.push_back(whole);
  }

  void grow(std::int64_t count) {
    while (count-- > 0)
      if (gathers_ && random_.chance(20))
        add_parts();
      else if (gathers_ && random_.chance(20))
        add_guarded();
      else if (gathers_ && random_.chance(25))
        add_gather();
      else if (random_.chance(15))
        add_leaf();
      else
        add_instruction();
  }

  void add_instruction() {
    const ValueId a = random_.chance(50) ? pool_.back() : random_.pick(pool_);
    const DType from = kernel_.program[a].type;
    // The bits of a computed NaN are unspecified.
    const bool has_bits = !is_floating(from) || kernel_.program[a].prim == Prim::input;
    for (;;) {
      Instr instr{
          .prim = static_cast<Prim>(random_.below(static_cast<std::int64_t>(Prim::bitcast) + 1)), .type = from, .a = a};
      if (operand_count(instr.prim) == 0) continue;
      if (instr.prim >= Prim::eq && instr.prim <= Prim::le) instr.type = DType::boolean;
      if (instr.prim == Prim::convert || instr.prim == Prim::bitcast)
        instr.type = random_.pick(random_.chance(50) ? focus_ : all_dtypes());
      if (instr.prim == Prim::bitcast && (!has_bits || instr.type == DType::boolean)) continue;
      if (prim_function(instr.prim, instr.type, from) == nullptr) continue;
      if (instr.prim == Prim::select) {
        instr.b = a, instr.c = operand(from), instr.a = operand(DType::boolean);
      } else {
        if (operand_count(instr.prim) > 1) instr.b = operand(from);
        if (operand_count(instr.prim) > 2) instr.c = operand(from);
      }
      return add(instr);
    }
  }

  void add_formula() {
    static const std::vector<Op> ops = {Op::exp, Op::gelu, Op::tanh, Op::log, Op::sqrt, Op::sin};
    ValueId x = random_.pick(pool_);
    const DType compute = random_.chance(80) ? DType::f32 : DType::f64;
    if (kernel_.program[x].type != compute) x = kernel_.program.add({.prim = Prim::convert, .type = compute, .a = x});
    const Formula& formula = pointwise_formula(random_.pick(ops), compute);
    pool_.push_back(kernel_.program.inline_program(formula.program, {x}, formula.results)[0]);
  }

  void add_reduction() {
    ValueId lifted = random_.pick(pool_);
    const DType compute = compute_dtype(kernel_.program[lifted].type);
    if (compute != kernel_.program[lifted].type) {
      add({.prim = Prim::convert, .type = compute, .a = lifted});
      lifted = pool_.back();
    }
    Reduction reduction;
    const bool accumulates = is_floating(compute) || compute == DType::i64 || compute == DType::u64;
    std::vector<Op> ops = {Op::max, Op::min, Op::argmax, Op::argmin};
    if (accumulates) ops.insert(ops.end(), {Op::sum, Op::sum, Op::sum, Op::prod});
    if (compute == DType::boolean) ops = {Op::all, Op::any};
    const Op op = random_.pick(ops);
    const ReduceFormula& formula = reduce_formula(op, compute);
    reduction.types = formula.types, reduction.identity = formula.identity, reduction.combine = formula.combine;
    const std::uint16_t where = add_access(DType::i64, random_axes());
    kernel_.accesses[where].address_only = true;
    add({.prim = Prim::offset, .type = DType::i64, .index = where});
    reduction.lifted =
        kernel_.program.inline_program(formula.lift.program, {lifted, pool_.back()}, formula.lift.results);
    kernel_.reductions.push_back(reduction);
    for (std::size_t c = 0; c < reduction.types.size(); ++c)
      add({.prim = Prim::reduced,
           .type = reduction.types[c],
           .index = static_cast<std::uint16_t>(kernel_.reductions.size() - 1),
           .bits = c});
  }

  void add_store(ValueId value) {
    const unsigned all = (1u << kernel_.rank) - 1;
    const bool row_level = schedule(kernel_).row_level[value] && kernel_.reduced != 0;
    const bool per_row = row_level && !random_.chance(10);
    kernel_.stores.push_back(
        {add_access(kernel_.program[value].type, per_row ? all & ~unsigned{kernel_.reduced} : all), value});
  }

  Random& random_;
  KernelShape shape_;
  bool costly_, gathers_;
  Kernel kernel_;
  std::vector<ValueId> pool_;
  std::vector<DType> focus_;
};

}  // namespace fermata::test
