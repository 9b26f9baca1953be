// See fermata/export.h.
#include "fermata/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "dispatch/kernel_table.h"
#include "dispatch/object_compiler.h"
#include "fermata/ops.h"
#include "fermata/sync.h"
#include "frontend/export/device_code.h"
#include "frontend/export/samples.h"
#include "frontend/run/program_file.h"
#include "frontend/tools/io/atomic_file.h"
#include "ir/error.h"
#include "ir/op_traits.h"
#include "passes/pipeline.h"
#include "runtime/bounds_check.h"
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

/// What the calls of a plan are checked for, one after the other.
class PlanCheck {
 public:
  virtual ~PlanCheck() = default;
  virtual void operator()(const CallStep& call) = 0;
  virtual void operator()(const BoxedCallStep& call) {
    throw_not_exported(fmt::format("{} is an operator with its own kernel", call.name), call.where);
  }
  void operator()(const KernelStep&) { ++kernels; }
  std::size_t kernels = 0, calls = 0;
};

bool is_of_complex(const CallStep& call) { return is_complex(call.operand_dtype) || is_complex(call.output_dtype); }

class CpuCheck final : public PlanCheck {
 public:
  using PlanCheck::operator();
  void operator()(const CallStep& call) override {
    ++calls;
    const bool may_be_called = family(call.op) == Family::irregular || call.op == Op::copy;
    if (!may_be_called && !is_of_complex(call))
      throw_not_exported(fmt::format("the kernel of {} could not be compiled", call.name), call.where);
    const BackendCell* const cell = backend_cell(call.op, BackendKey::cpu);
    const bool is_in_run =
        may_be_called && cell != nullptr && std::ranges::any_of(cell->variants, [&](const KernelVariant& v) {
          return v.ships == Ships::with_run && v.dtypes.has(call.operand_dtype);
        });
    needs_math |= !is_in_run || is_of_complex(call);
  }
  bool needs_math = false;
};

/// All calls that CUDA has no kernel for, not only the first.
class CudaCheck final : public PlanCheck {
 public:
  using PlanCheck::operator();
  void operator()(const CallStep& call) override {
    ++calls;
    const BackendCell* const cell = backend_cell(call.op, BackendKey::cuda);
    const bool has_kernel = !is_of_complex(call) && (family(call.op) == Family::irregular || call.op == Op::copy) &&
                            cell != nullptr && std::ranges::any_of(cell->variants, [&](const KernelVariant& v) {
                              return v.call != nullptr && v.name != kOnCpu && v.dtypes.has(call.operand_dtype);
                            });
    if (has_kernel) return;
    ErrorOperand missing{name(call.op), std::string(name(call.operand_dtype)),
                         call.where.line() == 0 ? "" : "at " + short_location(call.where)};
    const auto is_same = [&](const ErrorOperand& o) {
      return o.label == missing.label && o.text == missing.text && o.note == missing.note;
    };
    if (std::ranges::none_of(missing_, is_same)) missing_.push_back(std::move(missing));
  }
  void finish(Location where) const {
    if (missing_.empty()) return;
    throw UnsupportedError(
        2221, format_error(2221, "UnsupportedError",
                           fmt::format("export_program: CUDA has no kernel for {} of the calls", missing_.size()),
                           missing_, where, "omit ExportOptions::cuda, or use other ops"));
  }

 private:
  static constexpr std::string_view kOnCpu = "on_cpu";
  std::vector<ErrorOperand> missing_;
};

class Exporter {
 public:
  Exporter(const ExportCall& call) : call_(call), samples_(call) {}

  ExportSummary write() {
    const Walk& walk = samples_.first().walk();
    if (walk.backend != BackendKey::cpu)
      throw_not_exported("the function computes on a device", call_.to.where,
                         "export it with arguments and tensors of the CPU; ExportOptions::cuda names devices");
    const ExportOptions& options = call_.options;
    if (!options.targets.empty() || options.cuda.empty()) add_cpu();
    if (!options.cuda.empty()) add_cuda();
    return write_file();
  }

 private:
  void add_cpu() {
    compiler_ = object_compiler(BackendKey::cpu);
    if (compiler_ == nullptr) throw_not_exported("this build has no compiler for the CPU", call_.to.where);
    cpu_.emplace();
    choose_targets(*cpu_);
    CpuCheck check;
    const std::vector<Kernel> kernels = add_plans(*cpu_, BackendKey::cpu, check);
    summary_.kernels = check.kernels, summary_.calls = check.calls, summary_.needs_math = check.needs_math;
    add_code(*cpu_, kernels);
  }

  void add_cuda() {
    const DeviceCompiler* const compiler = device_compiler(BackendKey::cuda);
    std::string reason = "this build has no CUDA support";
    if (compiler == nullptr || !compiler->can_compile(&reason))
      throw UnsupportedError(
          2224, format_error(2224, "UnsupportedError", "export_program: CUDA code requires NVRTC: " + reason, {},
                             call_.to.where));
    std::vector<DeviceArchitecture> architectures;
    for (const CudaArchitecture& a : call_.options.cuda) architectures.push_back({a.major, a.minor});
    ProgramFile& file = cuda_.emplace();
    file.targets = compiler->targets(architectures, call_.options.cuda_ptx);
    CudaCheck check;
    DeviceSources sources;
    std::vector<Kernel> kernels;
    with_stand_in(*compiler, samples_, sources, [&] { kernels = add_plans(file, BackendKey::cuda, check); });
    check.finish(call_.to.where);
    if (!cpu_) summary_.kernels = check.kernels, summary_.calls = check.calls;
    const std::vector<std::size_t> number = number_kernels(file, kernels);
    for (std::size_t i = 0; i < kernels.size(); ++i)
      if (number[i] == file.kernels.size()) file.kernels.push_back({serialize(kernels[i]), {}});
    add_device_sources(*compiler, samples_, file, sources);
    images_ = device_images(*compiler, sources, file.targets, call_.to.where);
    for (const DeviceImage& image : images_) {
      file.images.push_back({static_cast<std::uint32_t>(image.target), image.functions, parts_.add(image.code)});
      summary_.cuda_bytes += image.code.size();
    }
    summary_.cuda_functions = sources.size();
  }

  /// All that a description has but its code. Gives the kernels of all plans, by the numbers of their steps.
  std::vector<Kernel> add_plans(ProgramFile& file, BackendKey backend, PlanCheck& check) {
    const ExportRecording& recording = samples_.first();
    file.made_by = FERMATA_VERSION;
    file.symbols = samples_.symbols(), file.inputs = samples_.inputs();
    const std::vector<SampledFunction> functions = samples_.add_records(file);
    name_outputs(file, recording);
    std::vector<Kernel> kernels;
    rows_.clear();
    compile(file, import_graph(recording.walk()), backend, check, kernels);
    file.draws = samples_.draws(*file.plan), file.draw_count = samples_.draw_count();
    add_leaves(file, recording);
    for (std::size_t i = 0; i < functions.size(); ++i) {
      ProgramFunction& to = file.functions[i];
      const CapturedFunction& from = *functions[i][0];
      compile(to, graph_of(from.program(), from.output_nodes()), backend, check, kernels);
      to.draws = samples_.draws(*to.plan, functions[i]);
      add_arguments(to, from.program());
    }
    return kernels;
  }

  void choose_targets(ProgramFile& file) {
    for (const Target t : call_.options.targets) {
      const std::string name(kTargetNames[static_cast<std::size_t>(t)]);
      if (std::ranges::find(file.targets, name) == file.targets.end()) file.targets.push_back(name);
    }
    if (!file.targets.empty()) return;
    const std::string_view own = compiler_->own_target();
    if (own.empty())
      throw_not_exported("kernels cannot be compiled for this processor", call_.to.where, "name targets");
    file.targets.emplace_back(own);
  }

  void name_outputs(ProgramFile& file, const ExportRecording& recording) {
    const std::vector<std::string>& names = call_.options.outputs;
    const auto& results = recording.results;
    if (!names.empty() && names.size() != results.size())
      throw ValueError(
          2220, format_error(2220, "ValueError",
                             fmt::format("export_program: {} names for {} outputs", names.size(), results.size()), {},
                             call_.to.where));
    for (std::size_t i = 0; i < results.size(); ++i)
      file.outputs.push_back({names.empty() ? results[i].name : names[i], results[i].output});
  }

  /// Kernels are numbered through all plans.
  void compile(ProgramBody& body, Graph graph, BackendKey backend, PlanCheck& check, std::vector<Kernel>& kernels) {
    std::vector<Kernel> made;
    std::map<std::uint32_t, Shape> shapes;  // of records
    for (const GraphNode& n : graph.nodes) shapes.try_emplace(n.record, n.shape);
    body.plan = std::make_unique<Plan>(*compile_shipped_plan(std::move(graph), backend, made));
    std::map<std::uint32_t, std::uint32_t> numbers;  // of those that are kept as they were made
    const auto add = [&](Kernel kernel) {
      kernels.push_back(std::move(kernel));
      rows_.push_back(std::numeric_limits<std::int64_t>::max());
      return static_cast<std::uint32_t>(kernels.size() - 1);
    };
    for (PlanStep& step : body.plan->steps)
      for_each_part(step, [&](const auto& part) {
        check(part);
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, KernelStep>) {
          auto& number = const_cast<KernelStep&>(part).number;
          if (auto narrowed = backend == BackendKey::cpu ? narrow(body, part, made[number]) : std::nullopt)
            number = add(*std::move(narrowed));
          else if (const auto at = numbers.find(number); at != numbers.end())
            number = at->second;
          else
            number = numbers.try_emplace(number, add(made[number])).first->second;
          rows_[number] = std::min(rows_[number], row_of(part, shapes.at(part.record)));
        }
      });
  }
  /// The kernel of a step that has the same integers in every run.
  std::optional<Kernel> narrow(const ProgramBody& body, const KernelStep& step, const Kernel& kernel) const {
    std::vector<std::uint64_t> numbers(kernel.scalars.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (!is_integer(kernel.scalars[i])) continue;
      const ScalarSource& from = body.plan->scalars[step.scalars.first + i];
      const ProgramRecord& record = body.records[from.record];
      if (draws_numbers(record.op) || from.index >= record.scalars.size() ||
          record.scalars[from.index].form != NumberExpression::Form::bits)
        return {};
      numbers[i] = record.scalars[from.index].bits;
    }
    return compiler_->narrowed(kernel, numbers.data());
  }
  /// Elements along the vector axis of a kernel.
  static std::int64_t row_of(const KernelStep& step, const Shape& domain) {
    std::int64_t row = 1;
    for (unsigned i = step.axes.back().first; i <= step.axes.back().last && i < domain.rank(); ++i) row *= domain[i];
    return row;
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

  void add_leaves(ProgramFile& file, const ExportRecording& recording) {
    std::map<std::pair<const char*, std::size_t>, std::uint32_t> known;
    for (const std::uint32_t record : file.plan->leaf_records) {
      const ProgramNode& n = recording.program.nodes[record];
      const Place& place = recording.program.leaves[static_cast<std::size_t>(n.leaf)];
      if (place.is_of_argument()) {
        file.leaves.push_back({false, static_cast<std::uint32_t>(place.argument), {}, 0});
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
      const auto [at, is_new] = known.try_emplace(part, static_cast<std::uint32_t>(file.constants.size()));
      if (is_new) {  // both descriptions name the same bytes
        auto& written = written_.try_emplace(part).first->second;
        if (!written) written = parts_.add({part.first, part.second}), summary_.constant_bytes += part.second;
        file.constants.push_back(*written);
      }
      ProgramLeaf leaf{true, at->second, {}, 0};
      if (!is_dense) {
        leaf.strides.assign(value.extra->strides.begin(), value.extra->strides.end());
        leaf.offset = value.extra->offset - low;
      }
      file.leaves.push_back(std::move(leaf));
    }
  }

  /// Equal kernels get one number, in the steps as well. Gives the numbers.
  static std::vector<std::size_t> number_kernels(ProgramFile& file, const std::vector<Kernel>& kernels) {
    std::map<std::string, std::size_t> known;
    std::vector<std::size_t> number;
    for (const Kernel& k : kernels) number.push_back(known.try_emplace(serialize(k), known.size()).first->second);
    file.for_each_plan([&](Plan& plan) {
      for (PlanStep& step : plan.steps)
        for_each_part(step, [&](const auto& part) {
          if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, KernelStep>)
            const_cast<KernelStep&>(part).number = static_cast<std::uint32_t>(number[part.number]);
        });
    });
    return number;
  }

  /// Kernels are compiled side by side.
  void add_code(ProgramFile& file, const std::vector<Kernel>& kernels) {
    constexpr double kNanoseconds = 1e7;
    const std::vector<std::size_t> number = number_kernels(file, kernels);
    std::vector<const Kernel*> distinct;
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < kernels.size(); ++i)
      if (number[i] == distinct.size())
        distinct.push_back(&kernels[i]), rows.push_back(rows_[i]);
      else
        rows[number[i]] = std::min(rows[number[i]], rows_[i]);
    const std::size_t targets = file.targets.size();
    // Checks of bounds are of this process: libfermata_run has none.
    struct Unchecked {
      const bool before = set_bounds_checks(false);
      ~Unchecked() { set_bounds_checks(before); }
    } const unchecked;
    code_.resize(distinct.size() * targets);
    parallel_for(0, static_cast<std::int64_t>(code_.size()), kNanoseconds, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        code_[i] = compiler_->compile(*distinct[i / targets], rows[i / targets], file.targets[i % targets]);
    });
    std::vector<ProgramKernel> made(distinct.size());
    for (std::size_t i = 0; i < code_.size(); ++i) {
      ProgramKernel& kernel = made[i / targets];
      kernel.description = serialize(*distinct[i / targets]);
      for (const ObjectCode& object : code_[i]) {
        kernel.objects.push_back(
            {static_cast<std::uint32_t>(i % targets), object.form, object.streamed, parts_.add(object.bytes)});
        summary_.code_bytes += object.bytes.size();
      }
    }
    file.kernels = std::move(made);
  }

  ExportSummary write_file() {
    const std::string cpu = cpu_ ? encode_program(*cpu_) : "", cuda = cuda_ ? encode_program(*cuda_) : "";
    ProgramHead head;
    if (cpu_) head.cpu = parts_.add(cpu);
    if (cuda_) head.cuda = parts_.add(cuda);
    summary_.file_bytes = parts_.end();
    AtomicFile file("export_program", call_.to.path, call_.to.where);
    file.write(encode_head(head, parts_.end()));
    parts_.write(file);
    file.commit();
    const ProgramFile& any = cpu_ ? *cpu_ : *cuda_;
    for (const ProgramInput& in : any.inputs) summary_.inputs.push_back(in.name);
    for (const ProgramOutput& out : any.outputs) summary_.outputs.push_back(out.name);
    return summary_;
  }

  const ExportCall& call_;
  const ExportSamples samples_;
  const ObjectCompiler* compiler_ = nullptr;
  std::optional<ProgramFile> cpu_, cuda_;
  FileParts parts_;
  std::map<std::pair<const char*, std::size_t>, std::optional<FilePart>> written_;  // constants
  std::vector<std::vector<ObjectCode>> code_;
  std::vector<DeviceImage> images_;
  std::vector<std::int64_t> rows_;  // of the kernels of a description
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
