// See value_checks.h.
#include "frontend/engine/value_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dispatch/devices.h"
#include "dispatch/result_check.h"
#include "fermata/checks.h"
#include "frontend/engine/interpreter.h"
#include "frontend/engine/startup.h"
#include "ir/error.h"
#include "ir/float16.h"
#include "ir/infer.h"
#include "ir/small_dtypes.h"
#include "passes/pipeline.h"
#include "runtime/backend_memory.h"
#include "runtime/bound_plan.h"
#include "runtime/environment.h"

namespace fermata {

std::atomic<std::uint8_t> checks_of_process{0};
constinit thread_local std::uint8_t checks_of_thread = 0;

namespace {

template <class T> double number_of(T value) { return static_cast<double>(value); }
double number_of(Float16 value) { return static_cast<double>(to_float(value)); }
double number_of(BFloat16 value) { return static_cast<double>(to_float(value)); }
template <unsigned kFormat> double number_of(SmallFloat<kFormat> value) { return static_cast<double>(to_float(value)); }

/// Calls f(value) for each element of a real floating tensor; false for other dtypes.
template <class T, class F> void each_element(const TensorView& x, F&& f) {
  const std::int64_t count = x.element_count();
  std::array<std::int64_t, 16> index{};
  const auto* at = static_cast<const T*>(x.data);
  for (std::int64_t i = 0; i < count; ++i) {
    f(number_of(*at));
    for (unsigned axis = x.rank; axis-- > 0;) {
      at += x.strides[axis];
      if (++index[axis] < x.sizes[axis]) break;
      at -= x.strides[axis] * x.sizes[axis], index[axis] = 0;
    }
  }
}
template <class F> bool each_real(const TensorView& x, F&& f) {
  switch (x.dtype) {
    case DType::f64: each_element<double>(x, f); return true;
    case DType::f32: each_element<float>(x, f); return true;
    case DType::f16: each_element<Float16>(x, f); return true;
    case DType::bf16: each_element<BFloat16>(x, f); return true;
    default: break;
  }
  visit_small(x.dtype, [&]<class T>() {
    if constexpr (kIsSmallFloat<T>) each_element<T>(x, f);
  });
  return is_small_float(x.dtype);
}

struct ValueRange {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  std::uint64_t nans = 0, infinities = 0, elements = 0;
  std::string text() const {
    if (elements == 0) return {};
    std::string out = least <= most ? fmt::format("from {:.6g} to {:.6g}", least, most) : std::string();
    if (nans != 0) out += fmt::format("{}{} NaN", out.empty() ? "" : ", ", nans);
    if (infinities != 0) out += fmt::format("{}{} infinite", out.empty() ? "" : ", ", infinities);
    return out;
  }
};
ValueRange range_of(const TensorView& x) {
  ValueRange range;
  each_real(x, [&](double value) {
    ++range.elements;
    if (std::isnan(value))
      ++range.nans;
    else if (std::isinf(value))
      ++range.infinities;
    else
      range.least = std::min(range.least, value), range.most = std::max(range.most, value);
  });
  return range;
}

std::string type_text(const TensorView& x) {
  return to_string(x.dtype, Shape(std::span<const std::int64_t>(x.sizes, x.rank)));
}

/// The error of a call that made NaN or infinities of operands without; nothing for others.
std::optional<std::string> find_made(Op op, std::span<const TensorView> operands, const TensorView& result,
                                     std::source_location where) {
  if (operands.empty()) return std::nullopt;  // what the program asked for
  const ValueRange made = range_of(result);
  if (made.nans == 0 && made.infinities == 0) return std::nullopt;
  bool had_nan = false, had_infinity = false;
  std::vector<ErrorOperand> texts;
  constexpr std::array<std::string_view, 4> kLabels{"operand 0", "operand 1", "operand 2", "operand 3"};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const ValueRange range = range_of(operands[i]);
    had_nan = had_nan || range.nans != 0, had_infinity = had_infinity || range.infinities != 0;
    if (i < kLabels.size()) texts.push_back({kLabels[i], type_text(operands[i]), range.text()});
  }
  const bool is_new_nan = made.nans != 0 && !had_nan;
  const bool is_new_infinity = made.infinities != 0 && !had_infinity && !had_nan;
  if (!is_new_nan && !is_new_infinity) return std::nullopt;
  const std::string what = is_new_nan
                               ? fmt::format("{} NaN", made.nans)
                               : fmt::format("{} infinite element{}", made.infinities, made.infinities == 1 ? "" : "s");
  return format_error(
      2401, "ValueError",
      fmt::format("{}: produced {} among {} elements from operands that have none", name(op), what, made.elements),
      texts, where);
}

void check_eager(Op op, std::span<const TensorView> operands, const TensorView& result, std::source_location where) {
  if ((value_checks() & kCheckNan) == 0) return;
  if (const auto error = find_made(op, operands, result, where)) throw ValueError(2401, *error);
}

TensorView dense_view(const Node& n, void* data, Shape& strides) {
  strides = dense_strides(n.sizes());
  return {data, n.dtype, n.rank, n.sizes().data(), strides.data()};
}

/// What a plan of its own computes for one node of a graph that is pending.
StoragePtr compiled_value(Node* node) {
  Walk walk;
  walk.run({&node, 1}, true);
  const auto plan = compile_plan(import_graph(walk), {walk.key.begin(), walk.key.end()}, walk.backend);
  std::vector<const Node*> records;
  for (const Walk::Entry& e : walk.order) records.push_back(e.node);
  BoundPlan bound;
  bound.bind(*plan, records);
  std::vector<StoragePtr> staged;
  std::vector<LeafBuffer> leaves;
  for (const std::uint32_t record : plan->leaf_records)
    leaves.push_back(leaf_buffer(*walk.order[record].node, *walk.order[record].storage, plan->backend, staged));
  StoragePtr result(allocate_on(plan->backend, bound.output_bytes(0)));
  void* const data = result->data;
  bound.run(*plan, leaves, {&data, 1}, {&result, 1});
  return result;
}

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-9;
    case DType::f16: return 2e-2;
    case DType::bf16: return 1e-1;
    default: return 1e-3;
  }
}

/// How two dense buffers of the same type differ, in words; empty if they do not.
std::string difference(const TensorView& eager, const TensorView& compiled) {
  std::vector<double> wanted;
  if (!each_real(eager, [&](double value) { wanted.push_back(value); })) {
    if (eager.dtype == DType::c64 || eager.dtype == DType::c128) return {};
    const auto bytes = static_cast<std::size_t>(eager.element_count()) * byte_size(eager.dtype);
    return bytes == 0 || std::memcmp(eager.data, compiled.data, bytes) == 0 ? "" : "elements differ";
  }
  double scale = 0;
  for (const double value : wanted)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  std::string found;
  std::size_t i = 0;
  each_real(compiled, [&](double value) {
    const double other = wanted[i++];
    const bool same = value == other || (std::isnan(value) && std::isnan(other)) ||
                      std::abs(value - other) <= tolerance(eager.dtype) * std::max(scale, 1e-30);
    if (!same && found.empty())
      found = fmt::format("element {} is {:.9g}, but {:.9g} in eager mode", i - 1, value, other);
  });
  return found;
}

[[noreturn]] void throw_different(const Node& n, const std::string& how) {
  throw ValueError(2402,
                   format_error(2402, "ValueError",
                                fmt::format("{}: the compiled value differs from the eager one: {}", name(n.op), how),
                                {{"result", to_string(n.dtype, Shape(n.sizes())), ""}}, n.where));
}

bool is_set(const char* variable) {
  const char* const value = environment_variable(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

void look_at_eager_calls() { check_result.store(&check_eager, std::memory_order_relaxed); }

}  // namespace

bool can_check(const Walk& walk, ValueCheck check) {
  return walk.backend == BackendKey::cpu && (check == kCheckNan || !(walk.has_boxed || walk.has_effects));
}

void interpret_looking_for_nan(const Walk& walk, std::span<StoragePtr> outputs) {
  std::optional<std::string> first;
  interpret(walk, outputs, [&](const Node& n, std::span<const TensorView> operands, const TensorView& result) {
    if (!first) first = find_made(n.op, operands, result, n.where);
  });
  if (!first) return;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Shape strides;
    const ValueRange range = range_of(dense_view(*walk.order[walk.outputs[i]].node, outputs[i]->data, strides));
    if (range.nans != 0 || range.infinities != 0) throw ValueError(2401, *first);
  }
}

void compare_with_calls(const Walk& walk, std::span<const StoragePtr> outputs) {
  std::vector<StoragePtr> wanted(outputs.size());
  interpret(walk, wanted, nullptr);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Node& n = *walk.order[walk.outputs[i]].node;
    Shape strides;
    const std::string how =
        difference(dense_view(n, wanted[i]->data, strides), dense_view(n, outputs[i]->data, strides));
    if (how.empty()) continue;
    const auto find_first = [&](const Node& node, std::span<const TensorView>, const TensorView& result) {
      Shape own;
      const StoragePtr compiled = compiled_value(const_cast<Node*>(&node));
      const std::string here = difference(result, dense_view(node, compiled->data, own));
      if (!here.empty()) throw_different(node, here);
    };
    interpret(walk, wanted, find_first);
    throw_different(n, how);
  }
}

void check_values_from_environment() {
  const int checks = (is_set("FERMATA_CHECK_NAN") ? kCheckNan : 0) | (is_set("FERMATA_CHECK_MODES") ? kCheckModes : 0);
  checks_of_process.store(static_cast<std::uint8_t>(checks));
  if ((checks & kCheckNan) != 0) look_at_eager_calls();
}

CheckNanGuard::CheckNanGuard() : before_(checks_of_thread) {
  look_at_eager_calls();
  checks_of_thread = static_cast<std::uint8_t>(checks_of_thread | kCheckNan);
}
CheckNanGuard::~CheckNanGuard() { checks_of_thread = before_; }
CheckModesGuard::CheckModesGuard() : before_(checks_of_thread) {
  checks_of_thread = static_cast<std::uint8_t>(checks_of_thread | kCheckModes);
}
CheckModesGuard::~CheckModesGuard() { checks_of_thread = before_; }

}  // namespace fermata
