// See rounding_to_bf16.h.
#include "codegen_cpu/jit/rounding_to_bf16.h"

#include "codegen_cpu/jit/primitives.h"

namespace fermata::jit {

constexpr unsigned kLanes = 16;

bool has_bf16(const CodeBuilder& b, DType from) { return b.isa().bf16 && from == DType::f32 && b.lanes() == kLanes; }

Values round_to_bf16(CodeBuilder& b, const Values& vectors, bool are_cut) {
  constexpr int kSubnormal = 0x20;  // of VFPCLASSPS
  Value* any = nullptr;
  for (Value* const x : vectors) {
    Value* const here = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_fpclass_ps_512, {}, {x, b.getInt32(kSubnormal)});
    any = any == nullptr ? here : b.CreateOr(any, here);
  }
  Type* const word = b.getIntNTy(kLanes);
  Value* const are_normal = b.CreateICmpEQ(b.CreateBitCast(any, word), llvm::ConstantInt::get(word, 0));
  const auto quick = [&] {
    Values rounded;
    for (Value* const x : vectors)
      rounded.push_back(b.CreateBitCast(b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {x}),
                                        value_type(b.getContext(), DType::bf16, kLanes)));
    return rounded;
  };
  return b.either(are_normal, quick, [&] {
    Values rounded;
    for (Value* const x : vectors)
      rounded.push_back(are_cut ? cut_to_bf16(b, x) : lower_convert(b, DType::f32, DType::bf16, x));
    return rounded;
  });
}

}  // namespace fermata::jit
