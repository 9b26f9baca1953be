// See image_compiler.h.
#include "codegen_cuda/image_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "codegen_cuda/runtime/kernels.h"

namespace fermata::gpu {
namespace {

class ImageCompiler final : public DeviceCompiler {
 public:
  bool can_compile(std::string* failure_reason) const override { return compiler_library(failure_reason) != nullptr; }

  std::vector<std::string> targets(std::span<const DeviceArchitecture> architectures, bool for_later) const override {
    if (on_host_executor()) return {std::string(kHostArchitecture)};
    std::vector<std::string> names;
    for (const DeviceArchitecture& a : architectures) {
      std::string target = fmt::format("sm_{}{}", a.major, a.minor);
      if (std::ranges::find(names, target) == names.end()) names.push_back(std::move(target));
    }
    if (for_later && !architectures.empty()) {
      const auto newest =
          std::ranges::max(architectures, {}, [](const auto& a) { return std::pair(a.major, a.minor); });
      names.push_back(fmt::format("compute_{}{}", newest.major, newest.minor));
    }
    return names;
  }

  int kinds() const override { return 2; }
  void rehearse(int kind, bool any_size, DeviceSources& sources, FunctionRef<void()> work) const override {
    DryRun::Sources wanted;
    {
      const DryRun run(static_cast<DryDevice>(kind), any_size, wanted);
      work();
    }
    for (auto& [function, source] : wanted)
      sources.try_emplace(function, DeviceSource{std::move(source.body), static_cast<int>(source.effort)});
  }

  std::string compile(std::span<const std::pair<std::string, DeviceSource>> sources,
                      std::string_view target) const override {
    std::string bodies;
    for (const auto& [function, source] : sources) bodies += source.text;
    return compile_together(*compiler_library(), bodies, std::string(target),
                            static_cast<CompileEffort>(sources.front().second.effort));
  }

  std::string name() const override {
    int major = 0, minor = 0;
    compiler_library()->version(&major, &minor);
    return fmt::format("NVRTC {}.{}", major, minor);
  }
};

}  // namespace

const DeviceCompiler& image_compiler() {
  static const auto& compiler = *new ImageCompiler;
  return compiler;
}

}  // namespace fermata::gpu
