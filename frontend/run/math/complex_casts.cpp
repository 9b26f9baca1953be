// Casts of real numbers to complex ones: in the engine a part of the kernel that casts everything.
#include "codegen_cpu/complex/complex.h"

namespace fermata {

FERMATA_KERNELS(cpu) {
  add_variant(Op::cast, BackendKey::cpu,
              {.name = "complex", .dtypes = kStored, .call = &complex_cast_call, .fits = [](const CallArgs& args) {
                 return is_complex(args.outputs[0].dtype);
               }});
}

}  // namespace fermata
