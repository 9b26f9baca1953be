// matmul through oneDNN, one primitive execution per tile.
//
// Debian's oneDNN runs on OpenMP. Two threading runtimes at once ruin both, so OpenMP is told to use one thread for as
// long as a call is inside oneDNN, and told what it was told before afterwards: the caller's own OpenMP code is not
// affected. A primitive costs 50 to 600 us to make and is kept per thread with its memory descriptors, so that an
// execution is some pointers and a call; oneDNN itself keeps the code of the last 1024 for the whole process.
#include "codegen_cpu/library/matmul.h"

#if FERMATA_ONEDNN

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <list>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "codegen_cpu/library/matmul_problem.h"
#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::size_t kPrimitivesPerThread = 64;

/// OpenMP regions that this thread enters have one thread while this lives.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(get() != nullptr ? get()() : 1) {
    if (before_ != 1) set()(1);
  }
  ~OneOpenMpThread() {
    if (before_ != 1) set()(before_);
  }
  OneOpenMpThread(const OneOpenMpThread&) = delete;

 private:
  using Get = int (*)();
  using Set = void (*)(int);
  // Looked up, not linked: which OpenMP library it is, or whether there is one, is oneDNN's affair.
  static Get get() {
    static const auto f = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    return f;
  }
  static Set set() {
    static const auto f = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    return f;
  }
  const int before_;
};

dnnl::engine& engine() {
  static dnnl::engine* const cpu = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives static destructors
  return *cpu;
}

bool has_isa(dnnl::cpu_isa wanted) {
  static const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

dnnl::memory::data_type data_type_of(DType t) {
  switch (t) {
    case DType::bf16: return dnnl::memory::data_type::bf16;
    case DType::i8: return dnnl::memory::data_type::s8;
    default: return dnnl::memory::data_type::f32;
  }
}

/// What decides the code of a primitive. Strides are row, column.
struct Key {
  DType dtype;
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

Product::Product(const Key& k) : key(k), stream_(engine()) {
  const auto type = data_type_of(k.dtype);
  const auto& [m, n, depth, lhs_row, lhs_column, rhs_row, rhs_column, out_row] = k.numbers;
  const dnnl::memory::desc lhs({m, depth}, type, {lhs_row, lhs_column}), rhs({depth, n}, type, {rhs_row, rhs_column});
  const dnnl::memory::desc out({m, n}, k.dtype == DType::i8 ? dnnl::memory::data_type::s32 : type, {out_row, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // the library's own is not safe between threads
  const dnnl::matmul::primitive_desc description({lhs, rhs, out}, attributes, engine());
  primitive_ = dnnl::matmul(description);
  lhs_ = dnnl::memory(lhs, engine(), nullptr);
  rhs_ = dnnl::memory(rhs, engine(), nullptr);
  out_ = dnnl::memory(out, engine(), nullptr);
  scratch_ = dnnl::memory(description.scratchpad_desc(), engine(), nullptr);
  scratch_bytes_ = description.scratchpad_desc().get_size();
}

void Product::run(const void* lhs, const void* rhs, void* out) {
  const Allocation scratch = allocate_bytes(scratch_bytes_);
  lhs_.set_data_handle(const_cast<void*>(lhs));
  rhs_.set_data_handle(const_cast<void*>(rhs));
  out_.set_data_handle(out);
  scratch_.set_data_handle(scratch.data);
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, lhs_.get()},
                                       {DNNL_ARG_WEIGHTS, rhs_.get()},
                                       {DNNL_ARG_DST, out_.get()},
                                       {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
  // The C function: its C++ wrapper takes a hash map per execution.
  const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream_.get(), 4, arguments);
  release_bytes(scratch);
  dnnl::error::wrap_c_api(status, "could not execute a matmul primitive");
}

/// The thread's primitive for a key, made if need be; the least recently used one goes.
Product& product_for(const Key& key) {
  static thread_local std::list<Product> recent;
  for (auto p = recent.begin(); p != recent.end(); ++p) {
    if (p->key != key) continue;
    if (p != recent.begin()) recent.splice(recent.begin(), recent, p);
    return *p;
  }
  if (recent.size() == kPrimitivesPerThread) recent.pop_back();
  return recent.emplace_front(key);
}

/// A side as the library wants it: along an axis of one element any stride goes, but some take slower paths.
struct SideStrides {
  std::int64_t row, column;
};
SideStrides strides_of(const MatrixSide& side, std::int64_t rows, std::int64_t columns) {
  if (rows == 1 && columns == 1) return {1, 1};
  if (rows == 1) return {side.column_stride == 1 ? columns : 1, side.column_stride};
  if (columns == 1) return {side.row_stride, side.row_stride == 1 ? rows : 1};
  return {side.row_stride, side.column_stride};
}

/// i8 is multiplied into i32, of which the low byte is the wrapped product.
void run_bytes(Key key, const std::byte* lhs, const std::byte* rhs, std::byte* out) {
  const std::int64_t rows = key.numbers[0], columns = key.numbers[1], out_row = key.numbers[7];
  key.numbers[7] = columns;
  const Allocation wide = allocate_bytes(static_cast<std::size_t>(rows * columns) * sizeof(std::int32_t));
  product_for(key).run(lhs, rhs, wide.data);
  const auto* const sums = static_cast<const std::uint32_t*>(wide.data);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) out[i * out_row + j] = static_cast<std::byte>(sums[i * columns + j]);
  release_bytes(wide);
}

/// Multiply-adds per nanosecond of one core from 256 up, measured on Zen 4 (f32, VNNI, bf16) and Sapphire Rapids (AMX).
double per_ns(DType t) {
  if (t == DType::f32) return has_isa(dnnl::cpu_isa::avx512_core) ? 60 : 30;
  const bool tiles = has_isa(dnnl::cpu_isa::avx512_core_amx);
  if (t == DType::i8) return tiles ? 600 : 230;
  return tiles ? 400 : has_isa(dnnl::cpu_isa::avx512_core_bf16) ? 115 : 40;
}

void multiply(const MatmulProblem& p, MatmulEpilogue epilogue) {
  const auto bytes = static_cast<std::int64_t>(byte_size(p.dtype));
  const MatmulTiles tiles = tile_matmul(p, 64e3 * per_ns(p.dtype), 64, 512, 512);
  const double ns = 500 + static_cast<double>(tiles.rows * tiles.columns) * static_cast<double>(p.k) / per_ns(p.dtype);
  parallel_for(0, p.batches * tiles.count(), ns, [&](std::int64_t first, std::int64_t last) {
    const OneOpenMpThread single;
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t batch = task / tiles.count(), tile = task % tiles.count();
      const std::int64_t i = tile / tiles.across * tiles.rows, j = tile % tiles.across * tiles.columns;
      const std::int64_t rows = std::min(tiles.rows, p.m - i), columns = std::min(tiles.columns, p.n - j);
      const SideStrides l = strides_of(p.lhs, rows, p.k), r = strides_of(p.rhs, p.k, columns);
      const Key key{p.dtype, {rows, columns, p.k, l.row, l.column, r.row, r.column, p.n}};
      const std::byte* const lhs = p.lhs_of(batch) + i * p.lhs.row_stride * bytes;
      const std::byte* const rhs = p.rhs_of(batch) + j * p.rhs.column_stride * bytes;
      std::byte* const out = p.out_of(batch) + (i * p.n + j) * bytes;
      if (p.dtype == DType::i8)
        run_bytes(key, lhs, rhs, out);
      else
        product_for(key).run(lhs, rhs, out);
      epilogue({batch * p.m + i, batch * p.m + i + rows, j, j + columns});
    }
  });
}

bool can_multiply(DType t) {
  // Without VNNI products of bytes are added in pairs that saturate; without AVX-512 there is no bf16.
  return t == DType::f32 || (t == DType::bf16 && has_isa(dnnl::cpu_isa::avx512_core)) ||
         (t == DType::i8 && has_isa(dnnl::cpu_isa::avx512_core_vnni));
}

}  // namespace

bool has_onednn() { return true; }

void matmul_onednn(const CallArgs& args, MatmulEpilogue epilogue) try {
  MatmulProblem p = decode_matmul(args);
  const PackedOperands packed(p);
  multiply(p, epilogue);
} catch (const dnnl::error& e) {
  if (e.status == dnnl_out_of_memory)
    throw OutOfMemoryError(3001, format_error(3001, "OutOfMemoryError", "oneDNN has no memory for a matmul", {}, {}));
  throw_internal(std::string("oneDNN: ") + e.what());
}

bool matmul_onednn_fits(const CallArgs& args) {
  if (!can_multiply(args.inputs[0].dtype)) return false;
  const MatmulProblem p = decode_matmul(args);
  return p.batches * p.m * p.n != 0 && p.k != 0;
}

double matmul_onednn_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  // A call costs about half a microsecond. Kernels are built for blocks of 16 columns and a few rows.
  const double rows = static_cast<double>(std::max<std::int64_t>(p.m, 4)),
               columns = static_cast<double>((p.n + 15) / 16 * 16);
  const double padded = static_cast<double>(p.batches) * rows * columns * static_cast<double>(p.k);
  return 500 * static_cast<double>(p.batches) + std::max(padded / per_ns(p.dtype), p.bytes() * 0.09);
}

}  // namespace fermata

#else

#include "ir/error.h"

namespace fermata {

bool has_onednn() { return false; }
void matmul_onednn(const CallArgs&, MatmulEpilogue) { throw_internal("matmul_onednn: built without oneDNN"); }
bool matmul_onednn_fits(const CallArgs&) { return false; }
double matmul_onednn_cost(const CallArgs&) { return 0; }

}  // namespace fermata

#endif

namespace fermata {
void matmul_onednn(const CallArgs& args) {
  matmul_onednn(args, [](const MatmulTile&) {});
}
}  // namespace fermata
