// Records the formula of every row of the op table as a scalar program, per compute dtype, on first use.
#include <array>
#include <mutex>
#include <utility>

#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/fork.h"
#include "ir/formula_rows.h"
#include "ir/monoids.h"
#include "ir/op.h"
#include "ir/scalar_math.h"

namespace fermata {
namespace {

template <class... P> auto parameters(Formula& f) {
  f.parameters = {dtype_of<P>...};
  return [&f]<std::size_t... I>(std::index_sequence<I...>) {
    return std::tuple<Sym<P>...>{Sym<P>::from_id(
        f.program.add({.prim = Prim::parameter, .type = dtype_of<P>, .index = static_cast<std::uint16_t>(I)}))...};
  }
  (std::index_sequence_for<P...>{});
}
template <class... T> void set_results(Formula& f, const std::tuple<Sym<T>...>& results) {
  std::apply([&](auto... r) { f.results = {r.id()...}; }, results);
}

template <class Row, class T> Formula record_unary() {
  Formula f;
  Recorder recorder(f.program);
  const auto [x] = parameters<T>(f);
  f.results = {Row::apply(x).id()};
  return f;
}
template <class Row, class T> Formula record_binary() {
  Formula f;
  Recorder recorder(f.program);
  const auto [a, b] = parameters<T, T>(f);
  f.results = {Row::apply(a, b).id()};
  return f;
}
template <class Row, class T> Formula record_ternary() {
  Formula f;
  Recorder recorder(f.program);
  const auto [a, b, c] = parameters<bool, T, T>(f);
  f.results = {Row::apply(a, b, c).id()};
  return f;
}
template <class Row, class T> Formula record_random() {
  Formula f;
  Recorder recorder(f.program);
  const auto [index, key, offset] = parameters<std::int64_t, std::uint64_t, std::uint64_t>(f);
  f.results = {Row::template apply<Sym<T>>(index, key, offset).id()};
  return f;
}

template <class Monoid, class... S> void record_monoid(ReduceFormula& r, const std::tuple<S...>& identity) {
  r.types = {dtype_of<S>...};
  std::apply([&](auto... v) { r.identity = {constant_bits(v)...}; }, identity);
  {
    Recorder recorder(r.combine.program);
    const auto all = parameters<S..., S...>(r.combine);
    const auto half = [&]<std::size_t... I>(std::index_sequence<I...>, auto first) {
      return std::tuple<Sym<S>...>{std::get<I + decltype(first)::value>(all)...};
    };
    constexpr auto seq = std::index_sequence_for<S...>{};
    set_results(r.combine, Monoid::combine(half(seq, std::integral_constant<std::size_t, 0>{}),
                                           half(seq, std::integral_constant<std::size_t, sizeof...(S)>{})));
  }
  Recorder recorder(r.finish.program);
  r.finish.results = {Monoid::finish(parameters<S...>(r.finish)).id()};
}
template <class Monoid, class T> ReduceFormula record_reduce() {
  ReduceFormula r;
  record_monoid<Monoid>(r, Monoid::template identity<T>());
  Recorder recorder(r.lift.program);
  const auto [x, index] = parameters<T, std::int64_t>(r.lift);
  set_results(r.lift, Monoid::lift(x, index));
  return r;
}

/// Formulas are recorded once, under a lock, and never change or move after.
template <class F> struct Cache {
  ForkSafeMutex mutex;
  std::array<std::array<const F*, kDTypeCount>, kOpCount> made{};
  template <class Make> const F& get(Op op, DType t, Make&& make) {
    std::lock_guard lock(mutex);
    const F*& slot = made[static_cast<std::size_t>(op)][static_cast<std::size_t>(t)];
    if (slot == nullptr) slot = new F(make());
    return *slot;
  }
};

template <class F> [[noreturn]] F refuse(Op op, DType t) {
  throw_internal("no formula of " + std::string(name(op)) + " for " + std::string(name(t)));
}

Formula make_pointwise(Op op, DType t) {
  Formula f;
  bool done = false;
  const auto record = [&]<class Row>(auto recorder) {
    visit_compute(t, [&]<class T>() {
      if constexpr (accepts(Row::kRule, dtype_of<T>)) f = recorder.template operator()<Row, T>(), done = true;
    });
  };
  const auto unary = []<class Row, class T>() { return record_unary<Row, T>(); };
  const auto binary = []<class Row, class T>() { return record_binary<Row, T>(); };
  const auto ternary = []<class Row, class T>() { return record_ternary<Row, T>(); };
  switch (op) {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) \
  case Op::name:                                     \
    record.template operator()<name##_row>(unary);   \
    break;
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  case Op::name:                                               \
    record.template operator()<name##_row>(binary);            \
    break;
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) \
  case Op::name:                                                       \
    record.template operator()<name##_row>(ternary);                   \
    break;
#include "ir/ops.def"
    default: break;
  }
  if (!done) refuse<Formula>(op, t);
  return f;
}

Formula make_random(Op op, DType t) {
  switch (op) {
#define FERMATA_RANDOM(name, formula, doc) \
  case Op::name:                           \
    return t == DType::f64 ? record_random<name##_row, double>() : record_random<name##_row, float>();
#include "ir/ops.def"
    default: refuse<Formula>(op, t);
  }
}

ReduceFormula make_reduce(Op op, DType t) {
  ReduceFormula r;
  bool done = false;
  switch (op) {
#define FERMATA_REDUCE(name, rule, vjp, doc)                                                                   \
  case Op::name:                                                                                               \
    visit_compute(t, [&]<class T>() {                                                                          \
      if constexpr (accepts(DTypeRule::rule, dtype_of<T>)) r = record_reduce<name##_monoid, T>(), done = true; \
    });                                                                                                        \
    break;
#include "ir/ops.def"
    default: break;
  }
  if (!done) refuse<ReduceFormula>(op, t);
  return r;
}

}  // namespace

const Formula& pointwise_formula(Op op, DType compute) {
  if (is_external(op)) return external_formula(op, compute);
  static auto& cache = *new Cache<Formula>;
  return cache.get(op, compute, [&] { return make_pointwise(op, compute); });
}
const Formula& random_formula(Op op, DType compute) {
  static auto& cache = *new Cache<Formula>;
  return cache.get(op, compute, [&] { return make_random(op, compute); });
}
const ReduceFormula& reduce_formula(Op op, DType operand) {
  static auto& cache = *new Cache<ReduceFormula>;
  return cache.get(op, operand, [&] { return make_reduce(op, operand); });
}

}  // namespace fermata
