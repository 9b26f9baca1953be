// See cuda_program.h.
#include "frontend/run/cuda/cuda_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "codegen_cuda/image_compiler.h"
#include "dispatch/kernel_cache.h"
#include "frontend/run/cuda/kernels.h"
#include "ir/error.h"
#include "runtime/backend_memory.h"

namespace fermata {
namespace {

using gpu::Address;

ProgramBackend cuda_backend() {
  add_cuda_kernels();
  return {BackendKey::cuda, {}, &has_cuda_kernel, "export it again with this version"};
}

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

StoragePtr device_buffer(std::size_t bytes) {
  return StoragePtr(allocate_on(BackendKey::cuda, std::max<std::size_t>(bytes, 1)));
}

/// The caller that copies a device result may have selected another device.
void copy_from_device(const DenseResult& result, void* to) {
  gpu::Device& device = *static_cast<gpu::Block*>(result.owner->owner)->device;
  const gpu::ContextScope scope(device, nullptr);
  gpu::use_buffer(result.data);
  if (const std::size_t bytes = result.bytes(); bytes != 0)
    gpu::check(gpu::driver().copy_to_host(to, address_of(result.data), bytes, gpu::current_stream().handle),
               "cuMemcpyDtoHAsync");
  gpu::synchronize(gpu::current_stream());
}

/// Whether a caller's pointer is device memory.
bool is_on_device(const void* pointer) {
  int kind = 0;
  const bool is_known = gpu::driver().pointer_attribute(&kind, gpu::kPointerMemoryType, address_of(pointer)) == 0;
  return is_known && kind == gpu::kMemoryOfDevice;
}

/// "sm_90", "compute_120": the architecture behind a prefix.
std::optional<std::pair<int, int>> architecture_behind(std::string_view target, std::string_view prefix) {
  if (!target.starts_with(prefix)) return {};
  int number = 0;
  for (const char digit : target.substr(prefix.size())) {
    if (digit < '0' || digit > '9' || number > 9999) return {};
    number = number * 10 + (digit - '0');
  }
  return std::pair(number / 10, number % 10);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

gpu::Device& wanted_device(int number) {
  gpu::require_usable("load", {});
  gpu::check_number(number);
  return gpu::device(number);
}

}  // namespace

CudaProgram::CudaProgram(ProgramBytes file, const ProgramHead& head, int device)
    : LoadedProgram(std::move(file), head.cuda, cuda_backend()), device_(&wanted_device(device)) {
  choose_target();
  const gpu::ContextScope scope(*device_, nullptr);
  for (const ProgramImage& image : file_.images)
    if (image.target == target_number_) images_.add(device, image.functions, part(image.code));
  std::vector<std::shared_ptr<const Executable>> executables;
  for (const ProgramKernel& kernel : file_.kernels)
    executables.push_back(compile_cached(BackendKey::cuda, deserialize_kernel(kernel.description)));
  take_executables(executables);
  for (const FilePart& c : file_.constants) {
    const std::string_view bytes = constant(c);
    constants_.push_back(device_buffer(bytes.size()));
    if (!bytes.empty())
      gpu::check(gpu::driver().copy_to_device(address_of(constants_.back()->data), bytes.data(), bytes.size(),
                                              gpu::current_stream().handle),
                 "cuMemcpyHtoDAsync");
  }
  gpu::synchronize(gpu::current_stream());
  bind_fixed_sizes();
}

CudaProgram::~CudaProgram() {
  if (stream_ != nullptr) device_->return_stream(stream_);
}

/// Machine code runs on devices of its major version from its minor one on; PTX on all later ones.
void CudaProgram::choose_target() {
  const std::pair own(device_->info().major, device_->info().minor);
  std::pair best(-1, 0);
  bool is_code = false;
  for (std::size_t i = 0; i < file_.targets.size(); ++i) {
    const std::string& target = file_.targets[i];
    if (gpu::on_host_executor()) {
      if (target == gpu::kHostArchitecture) return set_target(i);
      continue;
    }
    if (const auto code = architecture_behind(target, "sm_");
        code && code->first == own.first && *code <= own && (!is_code || *code > best))
      best = *code, is_code = true, set_target(i);
    if (const auto ptx = architecture_behind(target, "compute_"); ptx && !is_code && *ptx <= own && *ptx > best)
      best = *ptx, set_target(i);
  }
  if (!target_.empty()) return;
  const std::string architecture =
      gpu::on_host_executor() ? std::string(gpu::kHostArchitecture) : fmt::format("sm_{}{}", own.first, own.second);
  throw UnsupportedError(
      2203,
      format_error(2203, "UnsupportedError",
                   fmt::format("{} has code for {}; CUDA device {} ({}) is {}", source_.path, joined(file_.targets),
                               device_->number(), device_->info().name, architecture),
                   {}, {}, fmt::format("export it with {{{}, {}}} among its architectures", own.first, own.second)));
}

std::vector<DenseResult> CudaProgram::run(std::span<const DenseView> inputs, std::span<const DenseView> outputs,
                                          bool stay) {
  const gpu::ContextScope scope(*device_, stream_);
  return LoadedProgram::run(inputs, outputs, stay);
}

void* CudaProgram::on_device(const DenseView& input, std::vector<StoragePtr>& held) const {
  if (device_->allocator().has(address_of(input.data))) return input.data;  // a device result of an earlier run
  std::size_t bytes = byte_size(input.dtype);
  for (const std::int64_t size : input.sizes) bytes *= static_cast<std::size_t>(size);
  void* const to = held.emplace_back(device_buffer(bytes))->data;
  if (bytes == 0) return to;
  gpu::use_buffer(to);
  const gpu::Handle stream = gpu::current_stream().handle;
  if (is_on_device(input.data))
    gpu::check(gpu::driver().copy_on_device(address_of(to), address_of(input.data), bytes, stream),
               "cuMemcpyDtoDAsync");
  else
    gpu::check(gpu::driver().copy_to_device(address_of(to), input.data, bytes, stream), "cuMemcpyHtoDAsync");
  return to;
}

void CudaProgram::run_bound(Runner& r, std::span<const DenseView> inputs, std::span<const DenseView> outputs,
                            std::vector<DenseResult>& results, bool stay) {
  std::vector<StoragePtr> held;  // stream order allows freeing these once all work is enqueued
  std::vector<void*> given(inputs.size());
  for (const ProgramLeaf& leaf : file_.leaves) {
    if (leaf.is_constant) {
      r.leaves.push_back({constants_[leaf.number]->data, constants_[leaf.number].get()});
      continue;
    }
    void*& input = given[leaf.number];
    if (input == nullptr) input = on_device(inputs[leaf.number], held);
    r.leaves.push_back({input});
  }
  gpu::Allocator& allocator = device_->allocator();
  for (std::size_t i = 0; i < results.size(); ++i) {
    void*& buffer = r.buffers[file_.outputs[i].number];
    DenseResult& result = results[i];
    const bool is_given = i < outputs.size() && outputs[i].data != nullptr;
    if (is_given) result.data = outputs[i].data;
    if (is_given && allocator.has(address_of(result.data))) {
      buffer = result.data;
      continue;
    }
    StoragePtr made = device_buffer(result.bytes());
    buffer = made->data;
    if (stay && !is_given)
      result.data = made->data, result.owner = DenseResult::own(made.release()), result.copy = &copy_from_device;
    else
      held.push_back(std::move(made));
  }
  for (std::size_t i = 0; i < r.buffers.size(); ++i)
    if (r.buffers[i] == nullptr) r.buffers[i] = held.emplace_back(device_buffer(r.bound.output_bytes(i)))->data;
  r.bound.run(*file_.plan, r.leaves, r.buffers);
  const gpu::Handle stream = gpu::current_stream().handle;
  for (std::size_t i = 0; i < results.size(); ++i) {
    DenseResult& result = results[i];
    const Address from = address_of(r.buffers[file_.outputs[i].number]);
    if (address_of(result.data) == from) continue;
    const std::size_t bytes = result.bytes();
    if (result.data == nullptr)
      result.owner = DenseResult::own(Storage::allocate(bytes)), result.data = result.owner->data;
    if (bytes == 0) continue;
    if (is_on_device(result.data))
      gpu::check(gpu::driver().copy_on_device(address_of(result.data), from, bytes, stream), "cuMemcpyDtoDAsync");
    else
      gpu::check(gpu::driver().copy_to_host(result.data, from, bytes, stream), "cuMemcpyDtoHAsync");
  }
  if (!stay) gpu::synchronize(gpu::current_stream());
}

void CudaProgram::wait() {
  const gpu::ContextScope scope(*device_, stream_);
  gpu::synchronize(gpu::current_stream());
}

bool CudaProgram::set_stream(void* stream) {
  const gpu::ContextScope scope(*device_, nullptr);
  if (stream_ != nullptr) device_->return_stream(std::exchange(stream_, nullptr));
  if (stream != nullptr) stream_ = device_->lent_stream(stream);
  return true;
}

}  // namespace fermata
