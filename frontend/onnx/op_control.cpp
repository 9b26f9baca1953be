// Control flow: If, Loop, Scan, SequenceMap. Where a condition can be read it decides at once, as C++ would. Inside
// compile(fn) it cannot; then cond and while_loop are recorded.
#include <array>

#include "fermata/control_flow.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/onnx/known.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"
#include "runtime/cancellation.h"

namespace fermata::onnx {
namespace {

Tensor tensor_of(const NodeCall& c, const Value& v) {
  if (v.kind() != Value::Kind::tensor) c.refuse("sequences and optionals are not supported inside compile(fn)");
  return v.tensor();
}
std::vector<Tensor> tensors_of(const NodeCall& c, const std::vector<Value>& values) {
  std::vector<Tensor> all;
  for (const Value& v : values) all.push_back(tensor_of(c, v));
  return all;
}
Value known(std::int64_t i) {
  const AtOnce guard;
  return Value(full({}, i, DType::i64), true);
}
/// A body as a function of tensors, with a copy of the frame, as it may be called again later.
TensorFunction function_of(const NodeCall& c, const Body& body) {
  return [&body, frame = c.frame(), c](std::span<const Tensor> arguments) {
    Frame own = frame;
    std::vector<Value> inputs(arguments.begin(), arguments.end());
    return tensors_of(c, call_body(body, std::move(inputs), own));
  };
}
bool can_read(const Value& v) { return v.known() || !in_capture_scope(); }

void if_op(NodeCall& c) {
  const Body &then = c.body("then_branch"), &otherwise = c.body("else_branch");
  const Value& condition = c.value(0);
  if (can_read(condition)) {
    c.results = call_body(condition.tensor().item<bool>(c.where) ? then : otherwise, {}, c.frame());
    return;
  }
  for (Tensor& y : detail::cond_flat(Operand(c.in(0), c.where), function_of(c, then), function_of(c, otherwise), {}))
    c.give(std::move(y));
}

void stack_scans(NodeCall& c, std::vector<std::vector<Tensor>>& scans) {
  for (std::vector<Tensor>& each : scans) {
    if (each.empty()) c.refuse("zero iterations leave the shape of a scan output unknown");
    c.give(stack(each, 0, c.where));
  }
}

void loop_op(NodeCall& c) {
  const Body& body = c.body("body");
  const std::size_t carried = c.input_count() < 2 ? 0 : c.input_count() - 2;
  if (body.inputs.size() < carried + 2 || body.outputs.size() < carried + 1)
    c.fail("the body has too few inputs or outputs");
  std::vector<Value> state;
  for (std::size_t k = 0; k < carried; ++k) state.push_back(c.value(k + 2));
  const bool counts = c.has(0), asks = c.has(1);
  const std::size_t scan_count = body.outputs.size() - 1 - carried;
  const bool trips_readable = !counts || can_read(c.value(0));
  const std::int64_t trips = counts && trips_readable ? c.integer(0) : std::numeric_limits<std::int64_t>::max();
  bool undecided = !trips_readable || (asks && !can_read(c.value(1)));
  if (!undecided) {
    const std::vector<Value> before = state;
    bool goes_on = !asks || c.value(1).tensor().item<bool>(c.where);
    std::vector<std::vector<Tensor>> scans(scan_count);
    for (std::int64_t i = 0; i < trips && goes_on; ++i) {
      check_stop_of_thread();
      std::vector<Value> inputs{known(i), Value(full({}, true, DType::boolean), true)};
      inputs.insert(inputs.end(), state.begin(), state.end());
      std::vector<Value> outputs = call_body(body, std::move(inputs), c.frame());
      for (std::size_t k = 0; k < carried; ++k) state[k] = outputs[k + 1];
      for (std::size_t k = 0; k < scan_count; ++k) scans[k].push_back(tensor_of(c, outputs[1 + carried + k]));
      const Value& next = outputs[0];
      undecided = !can_read(next);
      if (undecided) break;  // what the body has recorded is not used
      goes_on = next.tensor().item<bool>(c.where);
    }
    if (!undecided) {
      c.results = std::move(state);
      return stack_scans(c, scans);
    }
    state = before;
  }
  if (scan_count > 0) c.refuse("scan outputs need a known trip count inside compile(fn)");
  // State: the number of the step, whether to go on, what is carried.
  std::vector<Tensor> initial{zeros({}, DType::i64), asks ? c.in(1) : full({}, true, DType::boolean)};
  for (const Value& v : state) initial.push_back(tensor_of(c, v));
  const Tensor limit = counts ? reshape(c.in(0), Shape{}, c.where) : Tensor();
  initial[1] = reshape(initial[1], Shape{}, c.where);
  const TensorFunction step = function_of(c, body);
  const TensorFunction condition = [limit](std::span<const Tensor> s) {
    return std::vector{limit.defined() ? s[1] & (s[0] < limit) : s[1]};
  };
  const TensorFunction next = [step](std::span<const Tensor> s) {
    std::vector<Tensor> after = step(s);
    std::vector<Tensor> all{s[0] + 1, reshape(after[0], Shape{})};
    all.insert(all.end(), after.begin() + 1, after.end());
    return all;
  };
  std::vector<Tensor> last = detail::while_flat(condition, next, initial, c.where);
  for (std::size_t k = 0; k < carried; ++k) c.give(std::move(last[k + 2]));
}

/// Attributes of Scan: axes and directions, of as many sequences as there are.
std::vector<std::int64_t> flags(const NodeCall& c, std::string_view name, std::size_t count) {
  std::vector<std::int64_t> all = c.attr_integers(name);
  all.resize(count);
  return all;
}

void scan_op(NodeCall& c) {
  if (c.opset() < 9) c.refuse("batched Scan of opset 8 is not supported");
  const Body& body = c.body("body");
  const std::int64_t given = c.attr("num_scan_inputs", std::int64_t{0});
  if (given < 1 || static_cast<std::size_t>(given) > c.input_count()) c.fail("num_scan_inputs is out of range");
  const auto sequences = static_cast<std::size_t>(given);
  const std::size_t carried = c.input_count() - sequences;
  if (body.outputs.size() < carried) c.fail("the body has too few inputs or outputs");
  const std::size_t scans = body.outputs.size() - carried;
  std::vector<Tensor> init, xs;
  for (std::size_t k = 0; k < carried; ++k) init.push_back(c.in(k));
  const auto axes = flags(c, "scan_input_axes", sequences), reversed = flags(c, "scan_input_directions", sequences);
  for (std::size_t k = 0; k < sequences; ++k) {
    Tensor x = c.in(carried + k);
    x = moveaxis(x, axis_of(c, axes[k], x.rank()), 0, c.where);
    xs.push_back(reversed[k] != 0 ? flip(x, 0, c.where) : x);
  }
  std::vector<Tensor> results = detail::scan_flat(function_of(c, body), init, xs, false, c.where);
  const auto out_axes = flags(c, "scan_output_axes", scans), out_reversed = flags(c, "scan_output_directions", scans);
  for (std::size_t k = 0; k < results.size(); ++k) {
    Tensor y = results[k];
    if (k >= carried) {
      if (out_reversed[k - carried] != 0) y = flip(y, 0, c.where);
      y = moveaxis(y, 0, axis_of(c, out_axes[k - carried], y.rank()), c.where);
    }
    c.give(y);
  }
}

/// A body for each element of a sequence.
void sequence_map_op(NodeCall& c) {
  const Body& body = c.body("body");
  const std::vector<Value> first =
      c.value(0).kind() == Value::Kind::sequence ? c.value(0).sequence() : std::vector<Value>();
  std::vector<std::vector<Value>> results(body.outputs.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::vector<Value> inputs{first[i]};
    for (std::size_t k = 1; k < c.input_count(); ++k) {
      const Value& v = c.value(k);
      if (v.kind() == Value::Kind::sequence && i >= v.sequence().size()) c.fail("scan inputs have different lengths");
      inputs.push_back(v.kind() == Value::Kind::sequence ? v.sequence()[i] : v);
    }
    std::vector<Value> outputs = call_body(body, std::move(inputs), c.frame());
    for (std::size_t k = 0; k < outputs.size(); ++k) results[k].push_back(std::move(outputs[k]));
  }
  for (std::vector<Value>& each : results) c.give(Value::sequence(std::move(each)));
}

constexpr std::array kRows{
    OperatorRow{"If", &if_op, "reads the condition; inside compile(fn) both graphs are recorded", 0, false},
    OperatorRow{
        "Loop", &loop_op,
        "reads the condition; inside compile(fn) a condition that depends on values has no results that are stacked", 0,
        false},
    OperatorRow{"Scan", &scan_op, "of opset 9 and later", 0, false},
    OperatorRow{"SequenceMap", &sequence_map_op, {}, 0, false},
};

}  // namespace

Rows control_rows() { return kRows; }

}  // namespace fermata::onnx
