// One product of two matrices as a oneDNN primitive, kept per thread: what the oneDNN kernels of matmul, of bytes
// and of packed bytes share.
//
// Debian's oneDNN runs on OpenMP. Two threading runtimes at once ruin both, so OpenMP is told to use one thread for as
// long as a call is inside oneDNN, and told what it was told before afterwards: the caller's own OpenMP code is not
// affected. A primitive costs 50 to 600 us to make and is kept per thread with its memory descriptors, so that an
// execution is some pointers and a call; oneDNN itself keeps the code of the last 1024 for the whole process.
#pragma once

#include <array>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "codegen_cpu/library/matmul_problem.h"

namespace fermata::onednn {

/// OpenMP regions that this thread enters have one thread while this lives.
class SingleThreadedOpenMp {
 public:
  SingleThreadedOpenMp();
  ~SingleThreadedOpenMp();
  SingleThreadedOpenMp(const SingleThreadedOpenMp&) = delete;

 private:
  const int before_;
};

bool has_isa(dnnl::cpu_isa wanted);
/// oneDNN has static objects, which are destroyed when the process ends; destructors that run later still compute. True
/// as soon as these objects may be gone: nothing may be made or run then.
bool has_ended();
/// Has to be called after each primitive was made. For the first of its kind oneDNN makes static objects, and
/// has_ended() has to hold before they are destroyed.
enum class PrimitiveKind : unsigned { product, convolution, data_gradient, weight_gradient };
void note_made(PrimitiveKind kind);
/// The library's view of the processor: one for the process.
dnnl::engine& engine();
dnnl::memory::data_type data_type_of(DType dtype);

/// What decides the code of a primitive. Strides are row, column.
struct Key {
  DType lhs, rhs, out;
  std::array<std::int64_t, 8> numbers;  // m, n, k, lhs strides, rhs strides, stride of the rows of the result
  bool operator==(const Key&) const = default;
};

/// A primitive with everything an execution needs but the pointers. Used by one thread at a time.
class Product {
 public:
  explicit Product(const Key& key);
  void run(const void* lhs, const void* rhs, void* out);
  const Key key;

 private:
  dnnl::matmul primitive_;
  dnnl::memory lhs_, rhs_, out_, scratch_;
  std::size_t scratch_bytes_;
  dnnl::stream stream_;
};

/// The thread's primitive for a key, made if need be; the least recently used one goes.
Product& product_for(const Key& key);

/// A side as the library wants it: along an axis of one element any stride goes, but some take slower paths.
struct SideStrides {
  std::int64_t row, column;
};
SideStrides strides_of(const MatrixSide& side, std::int64_t rows, std::int64_t columns);

/// Multiply-adds of a dtype per nanosecond of one core from 256 up.
double per_ns(DType dtype);

/// What a oneDNN error becomes: OutOfMemoryError or InternalError.
[[noreturn]] void throw_error(const dnnl::error& error);

}  // namespace fermata::onednn
