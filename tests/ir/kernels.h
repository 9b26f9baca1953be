// Kernels built by hand for the tests of this folder, and what launching one takes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ir/kernel.h"
#include "ir/op.h"

namespace fermata::testing {

/// Writes a kernel description one value at a time.
struct KernelBuilder {
  Kernel kernel;

  std::uint16_t access(DType type, std::uint16_t axes, bool unit = false, bool address_only = false) {
    kernel.accesses.push_back({type, axes, unit, address_only});
    return static_cast<std::uint16_t>(kernel.accesses.size() - 1);
  }
  ValueId input(DType type, std::uint16_t axes, bool unit = false) {
    return kernel.program.add({.prim = Prim::input, .type = type, .index = access(type, axes, unit)});
  }
  ValueId offset(std::uint16_t axes) {
    return kernel.program.add(
        {.prim = Prim::offset, .type = DType::i64, .index = access(DType::i64, axes, false, true)});
  }
  ValueId scalar(DType type) {
    kernel.scalars.push_back(type);
    return kernel.program.add(
        {.prim = Prim::scalar, .type = type, .index = static_cast<std::uint16_t>(kernel.scalars.size() - 1)});
  }
  template <class T> ValueId constant(T value) { return kernel.program.constant(dtype_of<T>, constant_bits(value)); }
  ValueId op(Prim prim, DType type, ValueId a, ValueId b = kNoValue, ValueId c = kNoValue) {
    return kernel.program.add({.prim = prim, .type = type, .a = a, .b = b, .c = c});
  }
  ValueId pointwise(Op op, std::vector<ValueId> operands) {
    const Formula& formula = pointwise_formula(op, kernel.program[operands.back()].type);
    return kernel.program.inline_program(formula.program, operands, formula.results)[0];
  }
  /// A reduction of `x` (with its position, for argmax) and the value that it finishes as.
  ValueId reduce(Op op, ValueId x, ValueId position = kNoValue) {
    const ReduceFormula& monoid = reduce_formula(op, kernel.program[x].type);
    const ValueId index = position == kNoValue ? constant(std::int64_t{0}) : position;
    Reduction reduction;
    reduction.lifted = kernel.program.inline_program(monoid.lift.program, {x, index}, monoid.lift.results);
    reduction.types = monoid.types, reduction.identity = monoid.identity, reduction.combine = monoid.combine;
    const auto number = static_cast<std::uint16_t>(kernel.reductions.size());
    kernel.reductions.push_back(reduction);
    std::vector<ValueId> state;
    for (std::uint64_t i = 0; i < reduction.types.size(); ++i)
      state.push_back(
          kernel.program.add({.prim = Prim::reduced, .type = reduction.types[i], .index = number, .bits = i}));
    return kernel.program.inline_program(monoid.finish.program, state, monoid.finish.results)[0];
  }
  void store(std::uint16_t axes, ValueId value, bool unit = false) {
    kernel.stores.push_back({access(kernel.program[value].type, axes, unit), value});
  }
};

/// Operands and sizes of a launch over everything. Accesses are given in order; strides default to zero.
struct Launch {
  const Kernel& kernel;
  std::vector<std::int64_t> sizes;
  std::vector<void*> pointers{};
  std::vector<std::int64_t> strides{}, offsets{};
  std::vector<std::uint64_t> scalars{};

  Launch& bind(const void* data, std::vector<std::int64_t> axis_strides, std::int64_t offset = 0) {
    pointers.push_back(const_cast<void*>(data));
    strides.insert(strides.end(), axis_strides.begin(), axis_strides.end());
    offsets.push_back(offset);
    return *this;
  }
  std::int64_t rows() const {
    std::int64_t rows = 1;
    const unsigned end = kernel.is_row_kernel() ? kernel.rank : kernel.rank - 1u;
    for (unsigned axis = 0; axis < end; ++axis)
      if (!kernel.is_reduced(axis)) rows *= sizes[axis];
    return rows;
  }
  KernelLaunch whole() const {
    return {.pointers = pointers.data(),
            .sizes = sizes.data(),
            .strides = strides.data(),
            .offsets = offsets.data(),
            .scalars = scalars.data(),
            .row_begin = 0,
            .row_end = rows(),
            .column_begin = 0,
            .column_end = kernel.is_row_kernel() ? 0 : sizes[kernel.rank - 1u]};
  }
};

/// y = (x + s) * 2 over two axes, x broadcast along the first.
inline Kernel map_kernel() {
  KernelBuilder b;
  b.kernel.rank = 2;
  const ValueId x = b.input(DType::f32, 2, true), s = b.scalar(DType::f32);
  const ValueId moved = b.op(Prim::add, DType::f32, x, s), two = b.constant(2.0f);
  b.store(3, b.op(Prim::mul, DType::f32, moved, two), true);
  return b.kernel;
}

/// One reduction over the given axes of a rank-2 domain, kept along the others.
inline Kernel reduce_kernel(Op op, DType type, std::uint16_t reduced) {
  KernelBuilder b;
  b.kernel.rank = 2;
  b.kernel.reduced = reduced;
  const ValueId x = b.input(type, 3, true);
  const bool positions = info(op).rule == DTypeRule::index;
  b.store(static_cast<std::uint16_t>(3 & ~reduced), b.reduce(op, x, positions ? b.offset(reduced) : kNoValue));
  return b.kernel;
}

/// softmax along the last of two axes: three stages.
inline Kernel softmax_kernel() {
  KernelBuilder b;
  b.kernel.rank = 2;
  b.kernel.reduced = 2;
  const ValueId x = b.input(DType::f32, 3, true);
  const ValueId shifted = b.op(Prim::sub, DType::f32, x, b.reduce(Op::max, x));
  const ValueId e = b.pointwise(Op::exp, {shifted});
  b.store(3, b.op(Prim::div, DType::f32, e, b.reduce(Op::sum, e)), true);
  return b.kernel;
}

}  // namespace fermata::testing
