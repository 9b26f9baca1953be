// The loop of a pointwise formula over contiguous or splat operands, for one instruction set.
#pragma once

#include <array>

#include "codegen_cpu/eager/loop_tables.h"
#include "codegen_cpu/eager/vector.h"
#include "ir/formula_rows.h"

namespace fermata::eager::FERMATA_ISA {

/// Operands of a formula over T: `where` has a bool in front.
template <class Row, class T, unsigned kOperands> struct PointwiseLoop {
  using V = FullVector<T>;
  template <unsigned k> using Operand = std::conditional_t<kOperands == 3 && k == 0, typename V::Mask, V>;
  static constexpr int kLanes = V::kLanes;

  template <std::size_t... k> static auto apply(std::index_sequence<k...>, auto&& operand) {
    return Row::template apply<V>(operand.template operator()<k>()...);
  }
  static auto apply(auto&& operand) { return apply(std::make_index_sequence<kOperands>{}, operand); }
  template <unsigned k> static Operand<k> splat_of(const void* in) {
    typename Operand<k>::Element value;
    std::memcpy(&value, in, sizeof value);
    return Operand<k>(value);
  }

  [[gnu::flatten]] static void run(void* out, const void* const* in, const bool* splat, std::int64_t n) {
    if (n < kLanes) return run_few(out, in, splat, static_cast<std::size_t>(n));
    alignas(64) std::array<std::array<char, kRegisterBytes>, kOperands> splats;
    std::array<const char*, kOperands> at;
    std::array<std::int64_t, kOperands> step;
    const auto prepare = [&]<unsigned k>() {
      if (splat[k]) store(splats[k].data(), splat_of<k>(in[k]));
      at[k] = splat[k] ? splats[k].data() : static_cast<const char*>(in[k]);
      step[k] = splat[k] ? 0 : static_cast<std::int64_t>(kElementBytes<Operand<k>>);
    };
    [&]<std::size_t... k>(std::index_sequence<k...>) { (prepare.template operator()<static_cast<unsigned>(k)>(), ...); }
    (std::make_index_sequence<kOperands>{});
    const auto result_at = [&](std::int64_t i) {
      return apply([&]<std::size_t k>() { return load<Operand<k>>(at[k] + i * step[k]); });
    };
    // The last vector overlaps the one before it. It is computed first, because `out` may be an operand.
    const auto last = result_at(n - kLanes);
    constexpr auto kBytes = static_cast<std::int64_t>(kElementBytes<decltype(last)>);
    auto* to = static_cast<char*>(out);
    for (std::int64_t i = 0; i + kLanes <= n; i += kLanes) store(to + i * kBytes, result_at(i));
    store(to + (n - kLanes) * kBytes, last);
  }

  [[gnu::flatten]] static void run_few(void* out, const void* const* in, const bool* splat, std::size_t n) {
    if (n == 0) return;
    store_part(out, apply([&]<std::size_t k>() {
                 using O = Operand<static_cast<unsigned>(k)>;
                 return splat[k] ? splat_of<static_cast<unsigned>(k)>(in[k]) : load_part<O>(in[k], n);
               }),
               n);
  }
};

/// Adds the loops of one row for the compute dtypes that its rule accepts and `wanted` selects.
template <class Row, unsigned kOperands, class Wanted> void put_loops(LoopTables& tables, Op op, Wanted) {
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    visit_compute(static_cast<DType>(t), [&]<class T>() {
      if constexpr (accepts(Row::kRule, dtype_of<T>) && Wanted::of(Row::kRule))
        tables.pointwise[static_cast<std::size_t>(op)][t] = &PointwiseLoop<Row, T, kOperands>::run;
    });
  }
}

}  // namespace fermata::eager::FERMATA_ISA
