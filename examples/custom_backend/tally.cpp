// See tally.h.
//
// A device address is an address in a window that nobody may touch: a kernel that forgets to run on the device crashes
// instead of reading stale numbers. What is stored at it lies at the same place of a second window.
#include "tally.h"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <tuple>
#include <vector>

#include "ir/error.h"
#include "ir/float16.h"

namespace tally {
namespace {

using fermata::BackendKey, fermata::CallArgs, fermata::DType, fermata::Storage, fermata::TensorView;

std::atomic<std::uint64_t> copies_in{0}, copies_out{0}, compiled{0}, launched{0}, matmuls{0};

// ---- Memory
// -------------------------------------------------------------------------------------------------------------

class Memory {
 public:
  static Memory& instance() {
    static Memory* memory = new Memory;  // outlives every tensor
    return *memory;
  }

  /// A device address. First fit: enough for an example.
  void* allocate(std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
    const std::lock_guard lock(mutex_);
    std::size_t at = 0;
    for (const auto& [offset, size] : taken_) {
      if (offset - at >= bytes) break;
      at = offset + size;
    }
    if (at + bytes > kWindow)
      throw fermata::OutOfMemoryError(
          3001, fermata::format_error(3001, "OutOfMemoryError", "tally: the device's memory is full", {}, {}));
    taken_[at] = bytes, live_ += bytes;
    return window_ + at;
  }
  void release(void* address) {
    const std::lock_guard lock(mutex_);
    const auto block = taken_.find(static_cast<std::size_t>(static_cast<std::byte*>(address) - window_));
    live_ -= block->second;
    taken_.erase(block);
  }
  /// Where the device keeps what a device address names.
  void* backing(const void* address) const {
    return address == nullptr ? nullptr : backing_ + (static_cast<const std::byte*>(address) - window_);
  }
  std::uint64_t live() {
    const std::lock_guard lock(mutex_);
    return live_;
  }

 private:
  static constexpr std::size_t kWindow = std::size_t{1} << 30, kAlignment = 64;

  Memory() : window_(map(PROT_NONE)), backing_(map(PROT_READ | PROT_WRITE)) {}
  static std::byte* map(int protection) {
    void* memory = mmap(nullptr, kWindow, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }

  std::byte* const window_;
  std::byte* const backing_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> taken_;  // offset, size
  std::uint64_t live_ = 0;
};

// ---- Kernels
// ------------------------------------------------------------------------------------------------------------

/// A compiled kernel: here the description itself, which is interpreted with the device's memory.
class Interpreted final : public fermata::Executable {
 public:
  explicit Interpreted(const fermata::Kernel& kernel) : kernel_(kernel) {}
  void launch(const fermata::KernelLaunch& launch) const override {
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < kernel_.accesses.size(); ++i)
      pointers.push_back(kernel_.accesses[i].address_only ? nullptr : Memory::instance().backing(launch.pointers[i]));
    fermata::KernelLaunch inside = launch;
    inside.pointers = pointers.data();
    fermata::interpret(kernel_, inside);
    ++launched;
  }
  std::size_t code_bytes() const override { return 0; }

 private:
  fermata::Kernel kernel_;
};

class TallyBackend final : public fermata::Backend {
 public:
  std::string_view name() const override { return "tally"; }
  bool can_compile(std::string*) const override { return true; }
  std::shared_ptr<const fermata::Executable> compile(const fermata::Kernel& kernel,
                                                     fermata::KernelListing* listing) override {
    if (listing != nullptr) listing->kernel = to_string(kernel);
    ++compiled;
    return std::make_shared<Interpreted>(kernel);
  }
  Storage* allocate(std::size_t bytes) override {
    return Storage::adopt(
        Memory::instance().allocate(bytes), bytes, [](Storage* s) { Memory::instance().release(s->data); }, nullptr);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, Memory::instance().backing(from), bytes);
    ++copies_out;
  }
  void copy_from_host(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(Memory::instance().backing(to), from, bytes);
    ++copies_in;
  }
  void synchronize() override {}  // launches have run when they return
};

// ---- A kernel of its own
// ------------------------------------------------------------------------------------------------

/// [.., M, K] times [.., K, N] at any strides; axes in front broadcast. Operands of rank 1 are a row and a column.
template <class T> void multiply(const TensorView& a, const TensorView& b, const TensorView& out) {
  const Memory& memory = Memory::instance();
  const auto* x = static_cast<const T*>(memory.backing(a.data));
  const auto* y = static_cast<const T*>(memory.backing(b.data));
  auto* z = static_cast<T*>(memory.backing(out.data));
  const bool row = a.rank == 1, column = b.rank == 1;
  const std::int64_t depth = a.sizes[a.rank - 1], rows = row ? 1 : a.sizes[a.rank - 2],
                     columns = column ? 1 : b.sizes[b.rank - 1];
  const std::int64_t a_row = row ? 0 : a.strides[a.rank - 2], a_depth = a.strides[a.rank - 1];
  const std::int64_t b_depth = column ? b.strides[0] : b.strides[b.rank - 2],
                     b_column = column ? 0 : b.strides[b.rank - 1];
  const unsigned matrix_axes = (row ? 0u : 1u) + (column ? 0u : 1u);
  const unsigned batch_axes = out.rank - matrix_axes;
  const std::int64_t batches = rows * columns == 0 ? 0 : out.element_count() / (rows * columns);
  // The offset of batch `index` in an operand: its batch axes are aligned with those of the result to the right.
  const auto offset = [&](const TensorView& v, std::int64_t index) {
    const unsigned own = v.rank < 2 ? 0 : v.rank - 2u;
    std::int64_t at = 0;
    for (unsigned i = batch_axes; i-- > 0; index /= out.sizes[i]) {
      if (i + own < batch_axes) break;
      const unsigned axis = i + own - batch_axes;
      if (v.sizes[axis] != 1) at += index % out.sizes[i] * v.strides[axis];
    }
    return at;
  };
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const T *from_a = x + offset(a, batch), *from_b = y + offset(b, batch);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        T total = 0;
        for (std::int64_t k = 0; k < depth; ++k)
          total += from_a[i * a_row + k * a_depth] * from_b[k * b_depth + j * b_column];
        z[(batch * rows + i) * columns + j] = total;
      }
  }
}

void run_matmul(const CallArgs& args) {
  ++matmuls;
  const auto& [a, b] = std::tie(args.inputs[0], args.inputs[1]);
  if (args.outputs[0].dtype == DType::f32)
    multiply<float>(a, b, args.outputs[0]);
  else
    multiply<double>(a, b, args.outputs[0]);
}

}  // namespace

Counts counts() { return {copies_in, copies_out, compiled, launched, matmuls, Memory::instance().live()}; }

void register_device(bool missing_on_cpu) {
  fermata::add_variant(fermata::Op::matmul, BackendKey::private_use1,
                       {.name = "plain_loops",
                        .form = fermata::KernelForm::library,
                        .dtypes = fermata::DTypeSet(DType::f32) | DType::f64,
                        .call = &run_matmul});
  fermata::register_device(BackendKey::private_use1, std::make_unique<TallyBackend>(),
                           {.missing_on_cpu = missing_on_cpu});
}

}  // namespace tally
