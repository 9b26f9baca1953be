// Collectives on the CPU. See dispatch/collective_kernels.h.
#include "dispatch/collective_kernels.h"

#include <cstring>
#include <memory>
#include <type_traits>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "runtime/storage.h"
#include "runtime/thread_pool.h"
#include "runtime/transfers.h"

namespace fermata {
namespace {

struct CpuMemory {
  class Buffer {
   public:
    Buffer() = default;
    explicit Buffer(std::int64_t bytes) : held_(Storage::allocate(static_cast<std::size_t>(bytes))) {}
    void* data() const { return held_ == nullptr ? nullptr : held_->data; }

   private:
    StoragePtr held_;
  };

  static void copy(const TensorView& from, const TensorView& to) { copy_elements(to, from); }
  static void fill(void* to, std::byte value, std::size_t bytes) { std::memset(to, static_cast<int>(value), bytes); }
  static void widen(DType dtype, const void* from, float* to, std::int64_t count) {
    fermata::widen(dtype, from, to, count);
  }
  static void narrow(DType dtype, const float* from, void* to, std::int64_t count) {
    fermata::narrow(dtype, from, to, count);
  }
  static void divide(void* elements, DType dtype, std::int64_t count, double by) {
    const auto all = [&]<class T>(std::type_identity<T>, std::int64_t n) {
      parallel_for(0, n, 0.3, [&](std::int64_t b, std::int64_t e) {
        for (std::int64_t i = b; i < e; ++i) static_cast<T*>(elements)[i] /= static_cast<T>(by);
      });
    };
    switch (dtype) {
      case DType::f32: return all(std::type_identity<float>{}, count);
      case DType::f64: return all(std::type_identity<double>{}, count);
      case DType::c64: return all(std::type_identity<float>{}, 2 * count);
      case DType::c128: return all(std::type_identity<double>{}, 2 * count);
      default: throw_internal("a mean of other than floating numbers");
    }
  }

  static std::unique_ptr<StartedTransfer> start(const RankGroup& group, const CollectiveCall& call) {
    return start_transfer(group, call);
  }
  static void run(const RankGroup& group, const CollectiveCall& call) { run_transfer(group, call); }
  static bool computes_means(const RankGroup& group) { return group.transport->computes_means(); }
};

}  // namespace

FERMATA_KERNELS(cpu) {
  collective_kernels::add_collective_kernels<CpuMemory>([](Op op, CallKernel call) { add_native_kernel(op, call); });
}

}  // namespace fermata
