// See onednn_product.h.
#if FERMATA_ONEDNN

#include "codegen_cpu/library/onednn_product.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <list>
#include <string>
#include <string_view>

#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/library/product_rates.h"
#include "ir/error.h"
#include "ir/per_thread.h"
#include "runtime/environment.h"

namespace fermata::onednn {
namespace {

constexpr std::size_t kPrimitivesPerThread = 64;

using GetThreads = int (*)();
using SetThreads = void (*)(int);
// Looked up, not linked: which OpenMP library it is, or whether there is one, is oneDNN's affair.
GetThreads get_threads() {
  static const auto f = reinterpret_cast<GetThreads>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  return f;
}
SetThreads set_threads() {
  static const auto f = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  return f;
}

/// Keeps the library to the instruction set that FERMATA_CPU names. Has to come before all else that asks it; a program
/// that has used the library before goes on with what it has.
void bound_isa() {
  static const bool once = [] {
    const char* const wanted = environment_variable("FERMATA_CPU");
    const std::string_view name = wanted == nullptr ? "" : wanted;
    if (name == "avx2") dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (name == "avx512") dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
    return true;
  }();
  static_cast<void>(once);
}

constinit std::atomic<bool> ended{false};

}  // namespace

bool has_ended() { return ended.load(std::memory_order_relaxed); }

void note_made(PrimitiveKind kind) {
  static constinit std::atomic<unsigned> known{0};
  const unsigned bit = 1u << static_cast<unsigned>(kind);
  if ((known.load(std::memory_order_relaxed) & bit) != 0 || (known.fetch_or(bit) & bit) != 0) return;
  std::atexit([] { ended.store(true); });  // runs before the destructors of what was made until now
}

dnnl::engine& engine() {
  bound_isa();
  static dnnl::engine* const cpu = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives static destructors
  return *cpu;
}

dnnl::memory::data_type data_type_of(DType t) {
  switch (t) {
    case DType::bf16: return dnnl::memory::data_type::bf16;
    case DType::i8: return dnnl::memory::data_type::s8;
    case DType::u8: return dnnl::memory::data_type::u8;
    case DType::i32: return dnnl::memory::data_type::s32;
    default: return dnnl::memory::data_type::f32;
  }
}

SingleThreadedOpenMp::SingleThreadedOpenMp() : before_(get_threads() != nullptr ? get_threads()() : 1) {
  if (before_ != 1) set_threads()(1);
}
SingleThreadedOpenMp::~SingleThreadedOpenMp() {
  if (before_ != 1) set_threads()(before_);
}

bool has_isa(dnnl::cpu_isa wanted) {
  bound_isa();
  static const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

Product::Product(const Key& k) : key(k), stream_(engine()) {
  const auto& [m, n, depth, lhs_row, lhs_column, rhs_row, rhs_column, out_row] = k.numbers;
  const dnnl::memory::desc lhs({m, depth}, data_type_of(k.lhs), {lhs_row, lhs_column});
  const dnnl::memory::desc rhs({depth, n}, data_type_of(k.rhs), {rhs_row, rhs_column});
  const dnnl::memory::desc out({m, n}, data_type_of(k.out), {out_row, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // the library's own is not safe between threads
  const dnnl::matmul::primitive_desc description({lhs, rhs, out}, attributes, engine());
  primitive_ = dnnl::matmul(description);
  lhs_ = dnnl::memory(lhs, engine(), nullptr);
  rhs_ = dnnl::memory(rhs, engine(), nullptr);
  out_ = dnnl::memory(out, engine(), nullptr);
  scratch_ = dnnl::memory(description.scratchpad_desc(), engine(), nullptr);
  scratch_bytes_ = description.scratchpad_desc().get_size();
  note_made(PrimitiveKind::product);
}

void Product::run(const void* lhs, const void* rhs, void* out) {
  const Scratch<std::byte> scratch(static_cast<std::int64_t>(scratch_bytes_));
  lhs_.set_data_handle(const_cast<void*>(lhs));
  rhs_.set_data_handle(const_cast<void*>(rhs));
  out_.set_data_handle(out);
  scratch_.set_data_handle(scratch.data());
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, lhs_.get()},
                                       {DNNL_ARG_WEIGHTS, rhs_.get()},
                                       {DNNL_ARG_DST, out_.get()},
                                       {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
  // The C function: its C++ wrapper takes a hash map per execution.
  const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream_.get(), 4, arguments);
  dnnl::error::wrap_c_api(status, "could not execute a matmul primitive");
}

Product& product_for(const Key& key) {
  static constinit thread_local PerThread<std::list<Product>> recent_of_thread;
  std::list<Product>& recent = recent_of_thread.get();
  for (auto p = recent.begin(); p != recent.end(); ++p) {
    if (p->key != key) continue;
    if (p != recent.begin()) recent.splice(recent.begin(), recent, p);
    return *p;
  }
  if (recent.size() == kPrimitivesPerThread) recent.pop_back();
  return recent.emplace_front(key);
}

SideStrides strides_of(const MatrixSide& side, std::int64_t rows, std::int64_t columns) {
  if (rows == 1 && columns == 1) return {1, 1};
  if (rows == 1) return {side.column_stride == 1 ? columns : 1, side.column_stride};
  if (columns == 1) return {side.row_stride, side.row_stride == 1 ? rows : 1};
  return {side.row_stride, side.column_stride};
}

double per_ns(DType t) {
  const ProductRates& rates = product_rates();
  if (t == DType::f32) return has_isa(dnnl::cpu_isa::avx512_core) ? rates.onednn_avx512 : rates.onednn_avx2;
  const bool tiles = has_isa(dnnl::cpu_isa::avx512_core_amx);
  if (byte_size(t) == 1) return tiles ? rates.onednn_tiles_bytes : rates.onednn_bytes;
  return tiles ? rates.onednn_tiles_bf16 : has_isa(dnnl::cpu_isa::avx512_core_bf16) ? rates.onednn_bf16 : 40;
}

void throw_error(const dnnl::error& e) {
  if (e.status == dnnl_out_of_memory)
    throw OutOfMemoryError(3001, format_error(3001, "OutOfMemoryError", "oneDNN has no memory for a matmul", {}, {}));
  throw_internal(std::string("oneDNN: ") + e.what());
}

}  // namespace fermata::onednn

#endif
