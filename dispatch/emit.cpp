// See emit.h.
#include "dispatch/emit.h"

#include "dispatch/call.h"
#include "dispatch/custom_call.h"
#include "ir/complex_form.h"
#include "ir/op_traits.h"

namespace fermata {

bool is_emitted(Op op) { return is_view(op) || has_emit_form(op); }

DTypeSet emitted_dtypes(Op op) {
  const DTypeRule rule = info(op).rule;
  // Random ops are looked up by the dtype of their result at call time and by that of key and offset at compile time.
  if (family(op) == Family::random) return kFloating | DType::u64;
  if (rule == DTypeRule::none) return kStoredReal;
  DTypeSet set;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (const auto accepted = apply_rule(rule, static_cast<DType>(t)))
      set = set | (family(op) == Family::reduce ? static_cast<DType>(t)
                                                : accepted->operand);  // reductions convert as they load
  return set & kStoredReal;                                            // scalar programs are of real numbers
}

void add_emit_variants(BackendKey backend, const std::string& variant, bool complex_parts, bool picks,
                       std::source_location where) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    DTypeSet dtypes;
    if (is_emitted(op) && (picks || !picks_elements(op))) dtypes = emitted_dtypes(op);
    if (complex_parts) dtypes = dtypes | complex_form_dtypes(op);
    if (dtypes.bits != 0)
      add_variant(op, backend, {.name = variant, .form = KernelForm::emit, .dtypes = dtypes, .where = where});
  }
}

/// Kernel descriptions are of real numbers.
static bool makes_real(const CallArgs& args) { return !is_complex(args.outputs[0].dtype); }

void add_one_op_variants(BackendKey backend, std::source_location where) {
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const Op op = static_cast<Op>(i); is_pointwise(op) || (traits(op).emit != nullptr && info(op).operands == 1))
      add_variant(op, backend,
                  {.name = "one_op",
                   .dtypes = emitted_dtypes(op),
                   .call = one_op_call(backend),
                   .fits = traits(op).takes_dtype ? &makes_real : nullptr,
                   .fits_text = "real",
                   .where = where});
}

}  // namespace fermata
