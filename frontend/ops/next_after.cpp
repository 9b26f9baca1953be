// nextafter of fermata/dtypes.h. An op of the table knows what it computes in, f32 for f16 and bf16, but not what the
// result is rounded to, and here that is all that matters: so there are three operators, one for each spacing.
#include "ir/scalar_math/next_after.h"

#include "dispatch/library.h"
#include "fermata/custom_function.h"
#include "fermata/dtypes.h"
#include "fermata/ops.h"
#include "frontend/engine/startup.h"
#include "frontend/ops/calls.h"

namespace fermata {
namespace {

using NextAfter = Tensor(const Operand&, const Operand&);

const auto& operator_of(DType dtype) {
  static const auto own = OperatorHandle::find("fermata::nextafter").typed<NextAfter>(),
                    f16 = OperatorHandle::find("fermata::nextafter_f16").typed<NextAfter>(),
                    bf16 = OperatorHandle::find("fermata::nextafter_bf16").typed<NextAfter>();
  return dtype == DType::f16 ? f16 : dtype == DType::bf16 ? bf16 : own;
}

}  // namespace

Tensor nextafter(const Operand& x, const Operand& towards) {
  return operator_of(result_type(x, towards))(x, towards, x.where());
}

void register_next_after() {
  constexpr auto kFloating = DTypeRule::floating;
  constexpr const char* kText = "The next representable float after a in the direction of b";
  using math::FloatsOf;
  Library m(Library::Kind::fragment, "fermata");
  m.pointwise<kFloating>(
      "nextafter", [](auto a, auto b) { return math::next_after<FloatsOf::element>(a, b); }, kText);
  m.pointwise<kFloating>(
      "nextafter_f16", [](auto a, auto b) { return math::next_after<FloatsOf::f16>(a, b); }, kText);
  m.pointwise<kFloating>(
      "nextafter_bf16", [](auto a, auto b) { return math::next_after<FloatsOf::bf16>(a, b); }, kText);
  m.keep();
}

}  // namespace fermata
