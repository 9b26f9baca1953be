// The CPU's half of dispatch/object_compiler.h.
#include "codegen_cpu/object_compiler.h"

#include "codegen_cpu/code_target.h"
#include "codegen_cpu/jit_compiler.h"
#include "codegen_cpu/joined_rows.h"
#include "codegen_cpu/narrowed_kernel.h"
#include "codegen_cpu/staged_columns.h"
#include "codegen_cpu/turned_rows.h"

namespace fermata {
namespace {

std::vector<ObjectCode> compile_objects(const Kernel& kernel, std::int64_t row, std::string_view target) {
  JitCompiler& compiler = JitCompiler::instance();
  std::vector<ObjectCode> objects;
  const auto add = [&](ObjectForm form, const Kernel& of, StreamedStores streamed = 0) {
    objects.push_back({form, streamed, compiler.object_for(of, nullptr, target, {.streamed = streamed, .wide = true})});
  };
  const auto add_streamed = [&](ObjectForm form, const Kernel& of) {
    add(form, of);
    const StreamedStores streamable = JitCompiler::streamable(objects.back().bytes);
    if (streamable != 0) add(form, of, streamable);
  };
  add_streamed(ObjectForm::plain, kernel);
  if (const auto joined = row <= kLongestJoinedRow ? joined_kernel(kernel) : std::nullopt)
    objects.push_back({ObjectForm::joined, 0,
                       compiler.object_for(*joined, nullptr, target, {.streamed = 0, .wide = true, .joined = true})});
  if (const auto turned = row <= longest_turned_row(kernel) ? turned_kernel(kernel) : std::nullopt)
    objects.push_back({ObjectForm::turned, 0,
                       compiler.object_for(*turned, nullptr, target, {.streamed = 0, .wide = true, .turned = true})});
  if (const auto staged = staged_kernels(kernel)) {
    add(ObjectForm::reductions, staged->reductions);
    add_streamed(ObjectForm::results, staged->results);
  }
  return objects;
}

}  // namespace

const ObjectCompiler& cpu_object_compiler() {
  static constexpr ObjectCompiler kCompiler{.targets = kCodeTargets,
                                            .own_target = [] { return code_target(); },
                                            .compile = &compile_objects,
                                            .narrowed = &narrowed_kernel};
  return kCompiler;
}

}  // namespace fermata
