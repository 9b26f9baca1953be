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

#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::size_t kMostIdle = 16;

[[noreturn]] void throw_value(const std::string& what, const std::vector<ErrorOperand>& operands,
                              std::string_view hint) {
  throw ValueError(2210, format_error(2210, "ValueError", what, operands, {}, hint));
}

template <class F> void for_each_kernel(const ProgramFile& file, F&& f) {
  file.for_each_plan([&](Plan& plan) {
    for (PlanStep& step : plan.steps)
      for_each_part(step, [&](const auto& part) {
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, KernelStep>) f(const_cast<KernelStep&>(part));
      });
  });
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  const bool is_there = file >= 0 && ::fstat(file, &status) == 0;
  const bool is_other = is_there && !S_ISREG(status.st_mode);  // a pipe or a device need not end
  const int error = is_there ? is_other ? EINVAL : 0 : errno;
  size_ = is_there ? static_cast<std::size_t>(status.st_size) : 0;
  if (error == 0 && size_ != 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
  const int failed = data_ == MAP_FAILED ? errno : error;
  if (file >= 0) ::close(file);
  if (failed != 0)
    throw FileError(1601, format_error(1601, "FileError",
                                       path + (is_other ? std::string(" is not a regular file")
                                                        : " cannot be opened: " + std::string(std::strerror(failed))),
                                       {}, {}));
}
MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

LoadedProgram::LoadedProgram(ProgramBytes file, const FilePart& description, const ProgramBackend& backend)
    : source_(std::move(file)) {
  try {
    file_ = decode_program(part(description), source_.path);
    check_program(file_, source_.path);
  } catch (const InternalError& error) { throw_damaged(source_.path, error.what()); }
  file_.for_each_plan([&](Plan& plan) {
    plan.backend = backend.key, plan.capabilities = backend.capabilities;
    for (PlanStep& step : plan.steps)
      for_each_part(step, [&](const auto& part) {
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, CallStep>)
          if (!backend.has_kernel(part.op, part.operand_dtype))
            throw UnsupportedError(
                2204, format_error(2204, "UnsupportedError",
                                   fmt::format("{}: {} has no kernel in this library", source_.path, name(part.op)), {},
                                   {}, backend.missing_hint));
      });
  });
}

LoadedProgram::~LoadedProgram() { delete recent_.load(); }

std::string_view LoadedProgram::part(const FilePart& part) const { return part_of(source_.bytes, part, source_.path); }

std::string_view LoadedProgram::constant(const FilePart& part) const {
  const std::string_view bytes = source_.bytes;
  if (part.offset > bytes.size() || part.bytes > bytes.size() - part.offset)
    throw_damaged(source_.path, "a constant is outside the file");
  return bytes.substr(part.offset, part.bytes);
}

void LoadedProgram::bind_fixed_sizes() {
  if (!file_.symbols.empty()) return;
  auto runner = take_runner();
  runner->records.set({});
  runner->bound.bind(*file_.plan, runner->records.nodes());
  runner->is_bound = true;
  give_back(std::move(runner));
}

void LoadedProgram::take_executables(const std::vector<std::shared_ptr<const Executable>>& executables) {
  for_each_kernel(file_, [&](KernelStep& step) { step.executable = executables[step.number]; });
}

void LoadedProgram::verify() const {
  for (const FilePart& constant : file_.constants) part(constant);
}

std::size_t LoadedProgram::code_bytes() const {
  std::size_t bytes = 0;
  for_each_kernel(file_, [&](const KernelStep& step) { bytes += step.executable->code_bytes(); });
  return bytes;
}

std::unique_ptr<LoadedProgram::Runner> LoadedProgram::take_runner() {
  if (Runner* const recent = recent_.exchange(nullptr, std::memory_order_acquire))
    return std::unique_ptr<Runner>(recent);
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

void LoadedProgram::give_back(std::unique_ptr<Runner> runner) {
  Runner* none = nullptr;
  if (recent_.compare_exchange_strong(none, runner.get(), std::memory_order_release, std::memory_order_relaxed)) {
    static_cast<void>(runner.release());
    return;
  }
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(runner));
}

void LoadedProgram::read_symbols(Runner& r, std::span<const DenseView> inputs) const {
  if (inputs.size() != file_.inputs.size())
    throw_value(fmt::format("{} has {} inputs, not {}", source_.path, file_.inputs.size(), inputs.size()), {}, "");
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
      fits = given.sizes[d] == value_of(in.sizes[d], r.wanted, source_.path);
    if (!fits) {
      Shape wanted;
      for (const SizeExpression& x : in.sizes) wanted.push_back(value_of(x, r.wanted, source_.path));
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

std::vector<DenseResult> LoadedProgram::run(std::span<const DenseView> inputs, std::span<const DenseView> outputs,
                                            bool stay) {
  auto runner = take_runner();
  Runner& r = *runner;
  const Plan& plan = *file_.plan;
  read_symbols(r, inputs);
  check_inputs(r, inputs);
  if (!outputs.empty() && outputs.size() != file_.outputs.size())
    throw_value(fmt::format("{} has {} outputs, not {}", source_.path, file_.outputs.size(), outputs.size()), {}, "");
  if (!r.is_bound || r.wanted != r.symbols) {
    r.is_bound = false;
    r.records.set(r.wanted);
    r.bound.bind(plan, r.records.nodes());
    r.symbols = r.wanted, r.is_bound = true;
  }
  const std::uint64_t first = next_draw_.fetch_add(file_.draw_count, std::memory_order_relaxed);
  for (const ProgramDraw& d : file_.draws)
    r.bound.scalars()[d.slot] = d.is_key
                                    ? key_.load(std::memory_order_relaxed)
                                    : first + static_cast<std::uint64_t>(value_of(d.delta, r.symbols, source_.path));
  std::vector<DenseResult> results;
  results.reserve(file_.outputs.size());
  for (std::size_t i = 0; i < file_.outputs.size(); ++i) {
    const ProgramOutput& out = file_.outputs[i];
    const TensorType& type = results
                                 .emplace_back(nullptr, r.records.nodes()[plan.output_records[out.number]]->type(),
                                               DenseResult::own(nullptr))
                                 .type;
    if (i < outputs.size() && outputs[i].data != nullptr &&
        (outputs[i].dtype != type.dtype || !std::ranges::equal(outputs[i].sizes, type.shape)))
      throw_value(fmt::format("output '{}' is {}, not {}", out.name, to_string(type.dtype, type.shape),
                              to_string(outputs[i].dtype, outputs[i].sizes)),
                  {}, "");
  }
  r.leaves.clear(), r.buffers.assign(plan.output_slots.size(), nullptr);
  run_bound(r, inputs, outputs, results, stay);
  give_back(std::move(runner));
  return results;
}

}  // namespace fermata
