// See cuda_backend.h.
#include "codegen_cuda/cuda_backend.h"

#include <fmt/format.h>

#include "codegen_cuda/executable.h"
#include "codegen_cuda/findings.h"
#include "codegen_cuda/library/matmul.h"
#include "codegen_cuda/listing.h"
#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/recorder.h"
#include "codegen_cuda/runtime/stream_timer.h"
#include "dispatch/dump.h"
#include "runtime/device_run.h"

namespace fermata {
namespace {

using namespace gpu;

void give_back(Storage* storage) {
  auto* const block = static_cast<Block*>(storage->owner);
  block->device->allocator().release(block);
}

class CudaUnits final : public DeviceUnits {
 public:
  int count() override { return device_count(); }
  int current() override { return current_device().number(); }
  void choose(int unit) override { choose_device(unit); }
  int unit_of(const Storage& storage) override {
    return storage.give_back == &give_back ? static_cast<Block*>(storage.owner)->device->number() : current();
  }
  std::string describe(int unit) override { return device(unit).info().name; }
  void* new_queue() override { return current_device().new_stream(); }
  void end_queue(void* queue) override {
    auto* const stream = static_cast<Stream*>(queue);
    device(stream->device).end_stream(stream);
  }
  void* current_queue() override {
    Stream& stream = current_stream();
    return &stream == &current_device().shared_stream() ? nullptr : &stream;
  }
  void choose_queue(void* queue) override { choose_stream(static_cast<Stream*>(queue)); }
  void wait_for_queue(void* queue) override {
    synchronize(queue == nullptr ? current_device().shared_stream() : *static_cast<Stream*>(queue));
  }
  Memory memory(std::size_t new_limit) override {
    Allocator& allocator = current_device().allocator();
    if (new_limit != 0) allocator.set_limit(new_limit);
    const Allocator::Counts c = allocator.counts();
    return {c.live, c.cached, c.limit};
  }
  bool fast_products(bool on) override { return set_tf32(on); }
  std::size_t trim() override { return current_device().allocator().trim(); }
};

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "nvrtc"; }
  /// Known only when a device is asked for, which loads libraries: until then it is assumed.
  bool can_compile(std::string*) const override { return true; }
  std::string_view target() const override {
    if (!usable()) return {};
    static const auto& architecture = *new std::string(current_architecture());
    return architecture;
  }

  std::shared_ptr<const Executable> compile(const Kernel& kernel, KernelListing* listing) override {
    require_usable("compile", {});
    auto executable = std::make_shared<const CudaExecutable>(kernel);
    if (listing == nullptr) {
      executable->prepare();
    } else {
      *listing = list_kernel(kernel, *executable);
    }
    return executable;
  }

  Storage* allocate(std::size_t bytes) override {
    Block* const block = current_device().allocator().allocate(bytes, current_stream());
    return Storage::adopt(reinterpret_cast<void*>(block->address), bytes, &give_back, block);
  }

  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    Stream& stream = current_stream();
    ++device_reads;
    if (bytes != 0) {
      use_buffer(from);
      check(driver().copy_to_host(to, reinterpret_cast<Address>(from), bytes, stream.handle), "cuMemcpyDtoHAsync");
    }
    gpu::synchronize(stream);
  }
  void copy_from_host(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    use_buffer(to);
    // From memory that is not pinned: the driver has taken the bytes when this returns.
    check(driver().copy_to_device(reinterpret_cast<Address>(to), from, bytes, current_stream().handle),
          "cuMemcpyHtoDAsync");
  }
  void synchronize() override { gpu::synchronize(current_stream()); }

  void require(std::string_view function, std::source_location where) override { require_usable(function, where); }
  std::vector<BackendFinding> findings() override { return cuda_findings(); }
  DeviceUnits* units() override { return &units_; }

 private:
  CudaUnits units_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() {
  set_run_recorder(BackendKey::cuda, gpu::graph_recorder());
  set_device_timer(BackendKey::cuda, gpu::stream_timer());
  return std::make_unique<CudaBackend>();
}

}  // namespace fermata
