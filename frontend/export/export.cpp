// See fermata/export.h.
#include "fermata/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "dispatch/kernel_table.h"
#include "dispatch/object_compiler.h"
#include "fermata/ops.h"
#include "fermata/sync.h"
#include "frontend/export/samples.h"
#include "frontend/run/program_file.h"
#include "frontend/tools/io/atomic_file.h"
#include "ir/error.h"
#include "ir/op_traits.h"
#include "passes/pipeline.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::string_view kTargetNames[] = {"avx2", "avx512"};

/// The bytes of a file behind its head, in the order in which they are added.
class FileParts {
 public:
  /// Of bytes that stay where they are.
  FilePart add(std::string_view bytes) {
    const FilePart part{end_, bytes.size(), checksum_of(bytes)};
    parts_.push_back(bytes);
    end_ += bytes.size();
    pad_ = (kPartAlignment - end_ % kPartAlignment) % kPartAlignment;
    end_ += pad_;
    pads_.push_back(pad_);
    return part;
  }
  std::uint64_t end() const { return end_; }
  void write(AtomicFile& file) const {
    const std::string zeros(kPartAlignment, '\0');
    for (std::size_t i = 0; i < parts_.size(); ++i)
      file.write(parts_[i]), file.write(std::string_view(zeros).substr(0, pads_[i]));
  }

 private:
  std::vector<std::string_view> parts_;
  std::vector<std::uint64_t> pads_;
  std::uint64_t end_ = kHeadBytes, pad_ = 0;
};

class Exporter {
 public:
  Exporter(const ExportCall& call) : call_(call), samples_(call) {}

  ExportSummary write() {
    const ExportRecording& recording = samples_.first();
    const Walk& walk = recording.walk();
    if (walk.backend != BackendKey::cpu) throw_not_exported("exported programs run on the CPU", call_.to.where);
    compiler_ = object_compiler(walk.backend);
    if (compiler_ == nullptr) throw_not_exported("this build has no compiler for the CPU", call_.to.where);
    file_.made_by = FERMATA_VERSION;
    choose_targets();
    file_.symbols = samples_.symbols(), file_.inputs = samples_.inputs();
    const std::vector<SampledFunction> functions = samples_.add_records(file_);
    name_outputs(recording);
    compile(file_, import_graph(walk));
    file_.draws = samples_.draws(*file_.plan), file_.draw_count = samples_.draw_count();
    add_leaves(recording);
    for (std::size_t i = 0; i < functions.size(); ++i) {
      ProgramFunction& to = file_.functions[i];
      const CapturedFunction& from = *functions[i][0];
      compile(to, graph_of(from.program(), from.output_nodes()));
      to.draws = samples_.draws(*to.plan, functions[i]);
      add_arguments(to, from.program());
    }
    add_code();
    return write_file();
  }

 private:
  void choose_targets() {
    for (const Target t : call_.options.targets) {
      const std::string name(kTargetNames[static_cast<std::size_t>(t)]);
      if (std::ranges::find(file_.targets, name) == file_.targets.end()) file_.targets.push_back(name);
    }
    if (!file_.targets.empty()) return;
    const std::string_view own = compiler_->own_target();
    if (own.empty())
      throw_not_exported("kernels cannot be compiled for this processor", call_.to.where, "name targets");
    file_.targets.emplace_back(own);
  }

  void name_outputs(const ExportRecording& recording) {
    const std::vector<std::string>& names = call_.options.outputs;
    const auto& results = recording.results;
    if (!names.empty() && names.size() != results.size())
      throw ValueError(
          2220, format_error(2220, "ValueError",
                             fmt::format("export_program: {} names for {} outputs", names.size(), results.size()), {},
                             call_.to.where));
    for (std::size_t i = 0; i < results.size(); ++i)
      file_.outputs.push_back({names.empty() ? results[i].name : names[i], results[i].output});
  }

  void require_kernel(const KernelStep&) { ++summary_.kernels; }
  void require_kernel(const BoxedCallStep& call) {
    throw_not_exported(fmt::format("{} is an operator with its own kernel", call.name), call.where);
  }
  void require_kernel(const CallStep& call) {
    ++summary_.calls;
    const bool has_complex = is_complex(call.operand_dtype) || is_complex(call.output_dtype);
    const bool may_be_called = family(call.op) == Family::irregular || call.op == Op::copy;
    if (!may_be_called && !has_complex)
      throw_not_exported(fmt::format("the kernel of {} could not be compiled", call.name), call.where);
    const BackendCell* const cell = backend_cell(call.op, BackendKey::cpu);
    const bool is_in_run =
        may_be_called && cell != nullptr && std::ranges::any_of(cell->variants, [&](const KernelVariant& v) {
          return v.ships == Ships::with_run && v.dtypes.has(call.operand_dtype);
        });
    summary_.needs_math |= !is_in_run;
  }

  /// Kernels are numbered through all plans.
  void compile(ProgramBody& body, Graph graph) {
    std::vector<Kernel> kernels;
    body.plan = std::make_unique<Plan>(*compile_shipped_plan(std::move(graph), BackendKey::cpu, kernels));
    for (PlanStep& step : body.plan->steps)
      for_each_part(step, [&](const auto& part) {
        require_kernel(part);
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, KernelStep>)
          const_cast<KernelStep&>(part).number += static_cast<std::uint32_t>(kernels_.size());
      });
    std::ranges::move(kernels, std::back_inserter(kernels_));
  }

  /// What a function reads is given by its calls.
  void add_arguments(ProgramFunction& function, const Program& program) {
    for (const std::uint32_t record : function.plan->leaf_records) {
      const ProgramNode& n = program.nodes[record];
      const Place& place = program.leaves[static_cast<std::size_t>(n.leaf)];
      if (!place.is_of_argument()) throw_internal("a function reads a captured tensor", n.where);
      ProgramLeaf leaf{false, static_cast<std::uint32_t>(place.argument), {}, n.type.offset};
      leaf.strides.assign(n.type.strides.begin(), n.type.strides.end());
      function.leaves.push_back(std::move(leaf));
    }
  }

  void add_leaves(const ExportRecording& recording) {
    std::map<std::pair<const char*, std::size_t>, std::uint32_t> known;
    for (const std::uint32_t record : file_.plan->leaf_records) {
      const ProgramNode& n = recording.program.nodes[record];
      const Place& place = recording.program.leaves[static_cast<std::size_t>(n.leaf)];
      if (place.is_of_argument()) {
        file_.leaves.push_back({false, static_cast<std::uint32_t>(place.argument), {}, 0});
        continue;
      }
      const Node& value = *place.hidden.node();
      if (value.backend != BackendKey::cpu) throw_not_exported("it reads a tensor on another device", n.where);
      const std::int64_t bytes = static_cast<std::int64_t>(byte_size(value.dtype));
      const bool is_dense = value.is_dense_leaf();
      std::int64_t low = is_dense ? 0 : value.extra->offset, high = low;
      for (unsigned i = 0; i < value.rank; ++i) {
        const std::int64_t stride = is_dense ? dense_strides(value.sizes())[i] : value.extra->strides[i];
        (stride < 0 ? low : high) += stride * std::max<std::int64_t>(value.sizes()[i] - 1, 0);
      }
      const std::int64_t count = element_count(value.sizes()) == 0 ? 0 : high - low + 1;
      const char* const data = static_cast<const char*>(value.storage.load()->data) + low * bytes;
      const std::pair part{data, static_cast<std::size_t>(count * bytes)};
      const auto [at, is_new] = known.try_emplace(part, static_cast<std::uint32_t>(file_.constants.size()));
      if (is_new)
        file_.constants.push_back(parts_.add({part.first, part.second})), summary_.constant_bytes += part.second;
      ProgramLeaf leaf{true, at->second, {}, 0};
      if (!is_dense) {
        leaf.strides.assign(value.extra->strides.begin(), value.extra->strides.end());
        leaf.offset = value.extra->offset - low;
      }
      file_.leaves.push_back(std::move(leaf));
    }
  }

  /// Kernels are compiled side by side; equal ones once.
  void add_code() {
    constexpr double kNanoseconds = 1e7;
    std::map<std::string, std::size_t> known;
    std::vector<const Kernel*> distinct;
    std::vector<std::size_t> number;
    for (const Kernel& k : kernels_) {
      const auto [at, is_new] = known.try_emplace(serialize(k), distinct.size());
      if (is_new) distinct.push_back(&k);
      number.push_back(at->second);
    }
    const std::size_t targets = file_.targets.size();
    code_.resize(distinct.size() * targets);
    parallel_for(0, static_cast<std::int64_t>(code_.size()), kNanoseconds, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        code_[i] = compiler_->compile(*distinct[i / targets], file_.targets[i % targets]);
    });
    std::vector<ProgramKernel> made(distinct.size());
    for (std::size_t i = 0; i < code_.size(); ++i) {
      ProgramKernel& kernel = made[i / targets];
      kernel.description = serialize(*distinct[i / targets]);
      for (const ObjectCode& object : code_[i]) {
        kernel.objects.push_back({static_cast<std::uint32_t>(i % targets), object.streamed, parts_.add(object.bytes)});
        summary_.code_bytes += object.bytes.size();
      }
    }
    file_.kernels = std::move(made);
    file_.for_each_plan([&](Plan& plan) {
      for (PlanStep& step : plan.steps)
        for_each_part(step, [&](const auto& part) {
          if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, KernelStep>)
            const_cast<KernelStep&>(part).number = static_cast<std::uint32_t>(number[part.number]);
        });
    });
  }

  ExportSummary write_file() {
    const std::string description = encode_program(file_);
    const FilePart part = parts_.add(description);
    summary_.file_bytes = parts_.end();
    AtomicFile file("export_program", call_.to.path, call_.to.where);
    file.write(encode_head(part, parts_.end()));
    parts_.write(file);
    file.commit();
    for (const ProgramInput& in : file_.inputs) summary_.inputs.push_back(in.name);
    for (const ProgramOutput& out : file_.outputs) summary_.outputs.push_back(out.name);
    return summary_;
  }

  const ExportCall& call_;
  const ExportSamples samples_;
  const ObjectCompiler* compiler_ = nullptr;
  ProgramFile file_;
  FileParts parts_;
  std::vector<Kernel> kernels_;  // of all plans
  std::vector<std::vector<ObjectCode>> code_;
  ExportSummary summary_;
};

}  // namespace

namespace detail {

ExportSummary export_tensors(const ExportPath& to, const ExportOptions& options, std::vector<NamedTensor> arguments,
                             const ExportBody& body) {
  for (NamedTensor& a : arguments) {
    if (a.tensor.impl()->payload != nullptr || a.tensor.node()->backend != BackendKey::cpu)
      throw_not_exported(fmt::format("input '{}' is not a dense tensor on the CPU", a.name), to.where);
    sync({a.tensor});
    if (a.tensor.node()->is_dense_leaf()) continue;
    a.tensor = copy(a.tensor, to.where);
    sync({a.tensor});
  }
  const ExportCall call{to, options, arguments, body};
  return Exporter(call).write();
}

}  // namespace detail
}  // namespace fermata
