// See cpu_program.h.
#include "frontend/run/cpu_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen_cpu/code_target.h"
#include "codegen_cpu/cpu_backend.h"
#include "frontend/run/kernels.h"
#include "frontend/run/shipped_executable.h"
#include "ir/error.h"

namespace fermata {
namespace {

void keep(Storage*) {}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

ProgramBackend cpu_backend() {
  add_kernels();
  return {BackendKey::cpu, kCpuCapabilities, &has_kernel,
          "libfermata_run_math has the kernels that this library leaves out"};
}

}  // namespace

CpuProgram::CpuProgram(ProgramBytes file, const ProgramHead& head)
    : LoadedProgram(std::move(file), head.cpu, cpu_backend()) {
  choose_target();
  load_kernels();
  // Nothing writes there: check_program() has seen to that.
  for (const FilePart& c : file_.constants)
    constants_.emplace_back(Storage::adopt(const_cast<char*>(constant(c).data()), c.bytes, &keep, nullptr));
  bind_fixed_sizes();
}

void CpuProgram::choose_target() {
  std::string reason;
  const std::string_view best = code_target(&reason);
  for (const std::string_view target : kCodeTargets) {
    const auto at = std::ranges::find(file_.targets, target);
    // What is below the best one runs, too.
    const bool is_wanted = std::ranges::find(kCodeTargets, target) >= std::ranges::find(kCodeTargets, best);
    if (at == file_.targets.end() || best.empty() || !is_wanted) continue;
    return set_target(static_cast<std::size_t>(at - file_.targets.begin()));
  }
  throw UnsupportedError(
      2203, format_error(2203, "UnsupportedError",
                         fmt::format("{} has code for {}; this processor supports {}", source_.path,
                                     joined(file_.targets), best.empty() ? "neither: " + reason : std::string(best)),
                         {}, {}, best.empty() ? "" : fmt::format("export it with target {}", best)));
}

void CpuProgram::load_kernels() {
  std::vector<std::shared_ptr<const Executable>> executables;
  for (const ProgramKernel& kernel : file_.kernels) {
    std::string_view object;
    std::vector<ShippedExecutable::Variant> variants;
    for (const ProgramObject& o : kernel.objects) {
      if (o.target != target_number_) continue;
      const std::string_view code = part(o.code);
      if (o.form == ObjectForm::plain && o.streamed == 0)
        object = code;
      else
        variants.push_back({o.form, o.streamed, code});
    }
    if (object.empty()) throw_damaged(source_.path, "a kernel without code");
    try {
      executables.push_back(std::make_shared<const ShippedExecutable>(object, deserialize_kernel(kernel.description),
                                                                      std::move(variants)));
    } catch (const ObjectError& error) { throw_damaged(source_.path, error.what()); }
  }
  take_executables(executables);
}

void CpuProgram::run_bound(Runner& r, std::span<const DenseView> inputs, std::span<const DenseView> outputs,
                           std::vector<DenseResult>& results, bool) {
  for (const ProgramLeaf& leaf : file_.leaves) {
    if (leaf.is_constant)
      r.leaves.push_back({constants_[leaf.number]->data, constants_[leaf.number].get()});
    else
      r.leaves.push_back({inputs[leaf.number].data});
  }
  std::vector<StoragePtr> more;  // of outputs of the plan that the caller does not request
  for (std::size_t i = 0; i < results.size(); ++i) {
    DenseResult& result = results[i];
    const std::uint32_t number = file_.outputs[i].number;
    if (i < outputs.size() && outputs[i].data != nullptr) {
      result.data = outputs[i].data;
    } else {
      result.owner = DenseResult::own(Storage::allocate(r.bound.output_bytes(number)));
      result.data = result.owner->data;
    }
    r.buffers[number] = result.data;
  }
  for (std::size_t i = 0; i < r.buffers.size(); ++i)
    if (r.buffers[i] == nullptr) {
      more.emplace_back(Storage::allocate(r.bound.output_bytes(i)));
      r.buffers[i] = more.back()->data;
    }
  r.bound.run(*file_.plan, r.leaves, r.buffers);
}

}  // namespace fermata
