// The CPU's half of dispatch/object_compiler.h.
#include "codegen_cpu/object_compiler.h"

#include "codegen_cpu/code_target.h"
#include "codegen_cpu/jit_compiler.h"

namespace fermata {
namespace {

std::vector<ObjectCode> compile_objects(const Kernel& kernel, std::string_view target) {
  JitCompiler& compiler = JitCompiler::instance();
  std::vector<ObjectCode> objects;
  objects.push_back({0, compiler.object_for(kernel, nullptr, target, {.streamed = 0, .wide = true})});
  const StreamedStores streamable = JitCompiler::streamable(objects.front().bytes);
  if (streamable != 0)
    objects.push_back(
        {streamable, compiler.object_for(kernel, nullptr, target, {.streamed = streamable, .wide = true})});
  return objects;
}

}  // namespace

const ObjectCompiler& cpu_object_compiler() {
  static constexpr ObjectCompiler kCompiler{
      .targets = kCodeTargets, .own_target = [] { return code_target(); }, .compile = &compile_objects};
  return kCompiler;
}

}  // namespace fermata
