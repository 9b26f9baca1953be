// See loaded_program.h.
#include "frontend/run/loaded_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "codegen_cpu/code_target.h"
#include "codegen_cpu/cpu_backend.h"
#include "frontend/run/kernels.h"
#include "frontend/run/shipped_executable.h"
#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::size_t kMostIdle = 16;

[[noreturn]] void throw_value(const std::string& what, const std::vector<ErrorOperand>& operands,
                              std::string_view hint) {
  throw ValueError(2210, format_error(2210, "ValueError", what, operands, {}, hint));
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void keep(Storage*) {}

}  // namespace

/// A file in memory, shared with all who map it.
class LoadedProgram::Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status {};
    const bool is_there = file >= 0 && ::fstat(file, &status) == 0;
    const int error = is_there ? S_ISREG(status.st_mode) ? 0 : EINVAL : errno;
    size_ = is_there ? static_cast<std::size_t>(status.st_size) : 0;
    if (error == 0 && size_ != 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    const int failed = data_ == MAP_FAILED ? errno : error;
    if (file >= 0) ::close(file);
    if (failed != 0)
      throw FileError(1601, format_error(1601, "FileError",
                                         fmt::format("{} cannot be opened: {}", path, std::strerror(failed)), {}, {}));
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// What one run works with; kept for the next one.
struct LoadedProgram::Runner {
  explicit Runner(const LoadedProgram& p) : records(p.file_, p.file_, p.path_), symbols(p.file_.symbols.size(), -1) {}
  RecordTable records;
  BoundPlan bound;
  std::vector<std::int64_t> symbols, wanted;
  bool is_bound = false;
  std::vector<LeafBuffer> leaves;
  std::vector<void*> buffers;
};

std::unique_ptr<LoadedProgram> LoadedProgram::load(const std::string& path) {
  auto mapping = std::make_unique<Mapping>(path);
  const std::string_view bytes = mapping->bytes();
  return std::unique_ptr<LoadedProgram>(new LoadedProgram(bytes, path, std::move(mapping)));
}

std::unique_ptr<LoadedProgram> LoadedProgram::load_bytes(std::string_view bytes, const std::string& name) {
  return std::unique_ptr<LoadedProgram>(new LoadedProgram(bytes, name, nullptr));
}

LoadedProgram::LoadedProgram(std::string_view bytes, std::string path, std::unique_ptr<Mapping> mapping)
    : mapping_(std::move(mapping)), bytes_(bytes), path_(std::move(path)) {
  add_kernels();
  try {
    file_ = decode_program(part_of(bytes_, decode_head(bytes_, path_), path_), path_);
    check_program(file_, path_);
  } catch (const InternalError& error) { throw_damaged(path_, error.what()); }
  file_.for_each_plan([&](Plan& plan) {
    plan.backend = BackendKey::cpu, plan.capabilities = kCpuCapabilities;
    for (PlanStep& step : plan.steps)
      for_each_part(step, [&](const auto& part) {
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, CallStep>)
          if (!has_kernel(part.op, part.operand_dtype))
            throw UnsupportedError(
                2204, format_error(2204, "UnsupportedError",
                                   fmt::format("{}: {} has no kernel in this library", path_, name(part.op)), {}, {},
                                   "libfermata_run_math has the kernels that this library leaves out"));
      });
  });
  choose_target();
  load_kernels();
  take_constants();
  if (!file_.symbols.empty()) return;
  auto runner = take_runner();  // errors of sizes that are fixed are those of the file
  runner->records.set({});
  runner->bound.bind(*file_.plan, runner->records.nodes());
  runner->is_bound = true;
  idle_.push_back(std::move(runner));
}

LoadedProgram::~LoadedProgram() = default;

void LoadedProgram::choose_target() {
  std::string reason;
  const std::string_view best = code_target(&reason);
  for (const std::string_view target : kCodeTargets) {
    const auto at = std::ranges::find(file_.targets, target);
    // What is below the best one runs, too.
    const bool is_wanted = std::ranges::find(kCodeTargets, target) >= std::ranges::find(kCodeTargets, best);
    if (at == file_.targets.end() || best.empty() || !is_wanted) continue;
    target_ = target, target_number_ = static_cast<std::uint32_t>(at - file_.targets.begin());
    return;
  }
  throw UnsupportedError(
      2203, format_error(2203, "UnsupportedError",
                         fmt::format("{} has code for {}; this processor supports {}", path_, joined(file_.targets),
                                     best.empty() ? "neither: " + reason : std::string(best)),
                         {}, {}, best.empty() ? "" : fmt::format("export it with target {}", best)));
}

void LoadedProgram::load_kernels() {
  std::vector<std::shared_ptr<const Executable>> executables;
  for (const ProgramKernel& kernel : file_.kernels) {
    std::string_view object;
    std::vector<ShippedExecutable::Variant> variants;
    for (const ProgramObject& o : kernel.objects) {
      if (o.target != target_number_) continue;
      const std::string_view code = part_of(bytes_, o.code, path_);
      if (o.streamed == 0)
        object = code;
      else
        variants.push_back({o.streamed, code});
    }
    if (object.empty()) throw_damaged(path_, "a kernel without code");
    try {
      executables.push_back(std::make_shared<const ShippedExecutable>(object, deserialize_kernel(kernel.description),
                                                                      std::move(variants)));
    } catch (const NoMemoryForObject& error) {
      throw OutOfMemoryError(3001, format_error(3001, "OutOfMemoryError", error.what(), {}, {}));
    } catch (const ObjectError& error) { throw_damaged(path_, error.what()); }
  }
  file_.for_each_plan([&](Plan& plan) {
    for (PlanStep& step : plan.steps)
      for_each_part(step, [&](const auto& part) {
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, KernelStep>)
          const_cast<KernelStep&>(part).executable = executables[part.number];
      });
  });
}

void LoadedProgram::take_constants() {
  for (const FilePart& part : file_.constants) {
    if (part.offset > bytes_.size() || part.bytes > bytes_.size() - part.offset)
      throw_damaged(path_, "a constant is outside the file");
    // Nothing writes there: check_program() has seen to that.
    constants_.emplace_back(Storage::adopt(const_cast<char*>(bytes_.data()) + part.offset, part.bytes, &keep, nullptr));
  }
}

void LoadedProgram::verify() const {
  for (const FilePart& part : file_.constants) part_of(bytes_, part, path_);
}

std::size_t LoadedProgram::code_bytes() const {
  std::size_t bytes = 0;
  file_.for_each_plan([&](const Plan& plan) {
    for (const PlanStep& step : plan.steps)
      for_each_part(step, [&](const auto& part) {
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, KernelStep>)
          bytes += part.executable->code_bytes();
      });
  });
  return bytes;
}

std::unique_ptr<LoadedProgram::Runner> LoadedProgram::take_runner() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto runner = std::move(idle_.back());
      idle_.pop_back();
      return runner;
    }
  }
  return std::make_unique<Runner>(*this);
}

void LoadedProgram::read_symbols(Runner& r, std::span<const DenseView> inputs) const {
  if (inputs.size() != file_.inputs.size())
    throw_value(fmt::format("{} has {} inputs, not {}", path_, file_.inputs.size(), inputs.size()), {}, "");
  r.wanted.clear();
  for (const ProgramSymbol& s : file_.symbols) {
    const ProgramInput& in = file_.inputs[s.input];
    const DenseView& given = inputs[s.input];
    const std::int64_t size = s.axis < given.sizes.size() ? given.sizes[s.axis] : -1;
    if (size < s.least || size > s.most || size % s.multiple_of != 0)
      throw_value(fmt::format("{} of input '{}' is {}", s.name, in.name, size),
                  {{in.name, to_string(given.dtype, given.sizes), ""}},
                  fmt::format("from {} to {}{}", s.least, s.most,
                              s.multiple_of == 1 ? "" : fmt::format(", a multiple of {}", s.multiple_of)));
    r.wanted.push_back(size);
  }
}

void LoadedProgram::check_inputs(const Runner& r, std::span<const DenseView> inputs) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ProgramInput& in = file_.inputs[i];
    const DenseView& given = inputs[i];
    bool fits = given.dtype == in.dtype && given.sizes.size() == in.sizes.size();
    for (std::size_t d = 0; fits && d < in.sizes.size(); ++d)
      fits = given.sizes[d] == value_of(in.sizes[d], r.wanted, path_);
    if (!fits) {
      Shape wanted;
      for (const SizeExpression& x : in.sizes) wanted.push_back(value_of(x, r.wanted, path_));
      throw_value(fmt::format("input '{}' is {}, not {}", in.name, to_string(in.dtype, wanted),
                              to_string(given.dtype, given.sizes)),
                  {}, "");
    }
    const auto address = reinterpret_cast<std::uintptr_t>(given.data);
    const bool is_empty = std::ranges::find(given.sizes, 0) != given.sizes.end();
    if ((given.data == nullptr && !is_empty) || address % std::min<std::size_t>(byte_size(in.dtype), 8) != 0)
      throw_value(fmt::format("input '{}' has no data, or is not aligned to its elements", in.name), {}, "");
  }
}

std::vector<DenseResult> LoadedProgram::run(std::span<const DenseView> inputs, std::span<const DenseView> outputs) {
  auto runner = take_runner();
  Runner& r = *runner;
  const Plan& plan = *file_.plan;
  read_symbols(r, inputs);
  check_inputs(r, inputs);
  if (!outputs.empty() && outputs.size() != file_.outputs.size())
    throw_value(fmt::format("{} has {} outputs, not {}", path_, file_.outputs.size(), outputs.size()), {}, "");
  if (!r.is_bound || r.wanted != r.symbols) {
    r.is_bound = false;
    r.records.set(r.wanted);
    r.bound.bind(plan, r.records.nodes());
    r.symbols = r.wanted, r.is_bound = true;
  }
  const std::uint64_t first = next_draw_.fetch_add(file_.draw_count, std::memory_order_relaxed);
  for (const ProgramDraw& d : file_.draws)
    r.bound.scalars()[d.slot] = d.is_key ? key_.load(std::memory_order_relaxed)
                                         : first + static_cast<std::uint64_t>(value_of(d.delta, r.symbols, path_));
  r.leaves.clear(), r.buffers.assign(plan.output_slots.size(), nullptr);
  for (const ProgramLeaf& leaf : file_.leaves) {
    if (leaf.is_constant)
      r.leaves.push_back({constants_[leaf.number]->data, constants_[leaf.number].get()});
    else
      r.leaves.push_back({inputs[leaf.number].data});
  }
  std::vector<DenseResult> results;
  std::vector<StoragePtr> more;  // of outputs of the plan that nobody asks for
  for (std::size_t i = 0; i < file_.outputs.size(); ++i) {
    const ProgramOutput& out = file_.outputs[i];
    DenseResult& result =
        results.emplace_back(DenseResult{nullptr, r.records.nodes()[plan.output_records[out.number]]->type(), nullptr});
    if (i < outputs.size() && outputs[i].data != nullptr) {
      if (outputs[i].dtype != result.type.dtype || !std::ranges::equal(outputs[i].sizes, result.type.shape))
        throw_value(fmt::format("output '{}' is {}, not {}", out.name, to_string(result.type.dtype, result.type.shape),
                                to_string(outputs[i].dtype, outputs[i].sizes)),
                    {}, "");
      result.data = outputs[i].data;
    } else {
      result.owner.reset(Storage::allocate(r.bound.output_bytes(out.number)));
      result.data = result.owner->data;
    }
    r.buffers[out.number] = result.data;
  }
  for (std::size_t i = 0; i < r.buffers.size(); ++i)
    if (r.buffers[i] == nullptr) {
      more.emplace_back(Storage::allocate(r.bound.output_bytes(i)));
      r.buffers[i] = more.back()->data;
    }
  r.bound.run(plan, r.leaves, r.buffers);
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(runner));
  return results;
}

}  // namespace fermata
