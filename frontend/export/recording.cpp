// See recording.h.
#include "frontend/export/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fermata/modes.h"
#include "fermata/ops.h"
#include "fermata/random.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/error.h"

namespace fermata {
namespace {

Tensor stand_in(const Tensor& t, const CaptureScope& scope) {
  const Node& n = *t.node();
  Storage* const storage = n.storage.load(std::memory_order_acquire);
  storage->retain();
  Node* const leaf = make_leaf(n.type(), storage, n.backend, Node::kTensor);
  scope.mark(leaf);
  return Tensor(leaf, t.keys() & (DispatchKeySet(n.backend) | Functionality::dense));
}

}  // namespace

void throw_not_exported(std::string_view what, Location where, std::string_view hint) {
  throw UnsupportedError(
      2221, format_error(2221, "UnsupportedError", fmt::format("export_program: {}", what), {}, where, hint));
}

ExportRecording::ExportRecording(std::span<const Tensor> arguments, const detail::ExportBody& body, Location where)
    : FunctionRecording(CaptureScope::Of::compiled_function) {
  std::vector<Tensor> given;
  for (const Tensor& t : arguments) {
    given.push_back(stand_in(t, scope_));
    add_stand_in(given.back(), {.argument = static_cast<std::int32_t>(given.size() - 1)});
  }
  DrawnRange drawn{.key = default_generator().key(), .first = default_generator().offset()};
  {
    const KeyGuard plain({}, Functionality::autograd);
    const ModeGuard compiled(Mode::compiled);  // calls of eager mode would run, not be recorded
    const RecordingGuards guards(scope_, default_generator());
    std::vector<detail::NamedTensor> made = body(given);
    std::vector<Tensor> values;
    for (const detail::NamedTensor& r : made) values.push_back(r.tensor);
    take_results(std::move(values), "export_program", where);
    require_no_effects(where);
    draws = drawn.count = guards.draws();
    if (guards.is_seeded()) throw_not_exported("the function seeds the random generator", where);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      Tensor& t = values_[i];
      if (t.impl()->payload != nullptr)
        throw_not_exported(fmt::format("the result '{}' is sparse, quantized or wrapped", made[i].name), where);
      scope_.touch(t, where);
      const Node* const n = t.node();
      const bool is_computed = n->pending() && scope_.made(n);
      if (!is_computed || std::ranges::find(roots_, n) != roots_.end()) t = copy(t, where);
      add_root(t.node());
    }
    list_program(drawn);
    for (std::size_t i = 0; i < values_.size(); ++i)
      results.push_back({made[i].name, static_cast<std::uint32_t>(output_of(values_[i].node()))});
  }
}

void ExportRecording::require_no_effects(Location where) const {
  if (last_effect_.defined()) throw_not_exported("the function calls an operator that has an effect", where);
  if (!scope_.writes().empty())
    throw_not_exported("the function writes a captured tensor in place", where, "make it an argument and a result");
  for (const CaptureScope::Gradient& g : scope_.gradients())
    if (g.leaf->grad.impl() != g.before.impl())
      throw_not_exported("the function changes gradients", where, "return the gradient as a result");
  for (const StandIn& s : stand_ins_)
    if (s.tensor.version() != s.version)
      throw_not_exported("the function writes an argument in place", where, "return the new value as a result");
}

}  // namespace fermata
