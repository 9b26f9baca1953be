// See matmul.h: products by cuBLASLt.
//
// The library counts by columns, so what is a product of lhs and rhs by rows is one of rhs and lhs to it, and neither
// is moved. What the library's heuristic proposes is kept per shape; its workspace comes from our allocator.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>

#include "codegen_cuda/library/matmul.h"
#include "codegen_cuda/library/matmul_epilogue.h"
#include "codegen_cuda/library/matmul_problem.h"
#include "codegen_cuda/runtime/device.h"
#include "dispatch/kernel_files.h"
#include "ir/error.h"
#include "runtime/environment.h"

namespace fermata::gpu {
namespace {

std::atomic<bool>& tf32() {
  static std::atomic<bool> on = [] {
    const char* const text = environment_variable("FERMATA_CUDA_TF32");
    return text != nullptr && *text != '\0' && std::string_view(text) != "0";
  }();
  return on;
}

/// What NVIDIA recommends for the newest devices; smaller ones take as well.
std::int64_t workspace_bytes() { return on_host_executor() ? 1 << 16 : 32 << 20; }

[[noreturn]] void throw_failed(Result r, const char* call) {
  throw InternalError(9101, format_error(9101, "InternalError", fmt::format("cuda: {} returned status {}", call, r), {},
                                         run_location()));
}
void check_library(Result r, const char* call) {
  if (r != kSuccess) throw_failed(r, call);
}

const MatmulFunctions& library() { return *matmul_library(); }

Handle library_handle() {
  static std::mutex mutex;
  static auto* const handles = new std::map<int, Handle>;
  const std::lock_guard lock(mutex);
  Handle& mine = (*handles)[current_device().number()];
  if (mine == nullptr) check_library(library().create(&mine), "cublasLtCreate");
  return mine;
}

int data_type(DType t) {
  switch (t) {
    case DType::f16: return kReal16F;
    case DType::bf16: return kReal16BF;
    case DType::f64: return kReal64F;
    case DType::i8: return kReal8I;
    case DType::i32: return kReal32I;
    default: return kReal32F;
  }
}

/// A side as the library sees it: columns of this length, that far apart, to be transposed or not.
struct Operand {
  std::uint64_t rows, columns;
  std::int64_t leading, batch_stride;
  int operation;
  bool operator<(const Operand& o) const {
    return std::tie(rows, columns, leading, batch_stride, operation) <
           std::tie(o.rows, o.columns, o.leading, o.batch_stride, o.operation);
  }
};

/// Everything that the choice of an algorithm depends on.
struct Shapes {
  int device, factor_type, result_type, compute_type, scale_type, batches;
  unsigned epilogue;
  std::array<std::uint32_t, 3> alignments;  // in bytes, of a, b and d
  Operand a, b, d;
  bool operator<(const Shapes& o) const {
    return std::tie(device, factor_type, result_type, compute_type, scale_type, batches, epilogue, alignments, a, b,
                    d) < std::tie(o.device, o.factor_type, o.result_type, o.compute_type, o.scale_type, o.batches,
                                  o.epilogue, o.alignments, o.a, o.b, o.d);
  }
};

/// Descriptors of one product, gone with it.
class Descriptors {
 public:
  Descriptors(const Shapes& s, const void* bias) {
    check_library(library().description_create(&matmul, s.compute_type, s.scale_type), "cublasLtMatmulDescCreate");
    set(kTransA, s.a.operation), set(kTransB, s.b.operation), set(kEpilogue, s.epilogue);
    // cuBLASLt refuses a bias that the epilogue does not add.
    if (bias != nullptr && (s.epilogue & kEpilogueBias) != 0)
      set(kBiasPointer, bias), set(kBiasDataType, s.result_type);
    a = layout(s.a, s.factor_type, s.batches), b = layout(s.b, s.factor_type, s.batches),
    d = layout(s.d, s.result_type, s.batches);
  }
  ~Descriptors() {
    for (const Handle each : {a, b, d})
      if (each != nullptr) library().layout_destroy(each);
    if (matmul != nullptr) library().description_destroy(matmul);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  Handle matmul = nullptr, a = nullptr, b = nullptr, d = nullptr;

 private:
  template <class T> void set(int attribute, const T& value) {
    check_library(library().description_set(matmul, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  static Handle layout(const Operand& o, int type, int batches) {
    Handle made = nullptr;
    check_library(library().layout_create(&made, type, o.rows, o.columns, o.leading), "cublasLtMatrixLayoutCreate");
    if (batches > 1) {
      library().layout_set(made, kLayoutBatchCount, &batches, sizeof batches);
      library().layout_set(made, kLayoutBatchStride, &o.batch_stride, sizeof o.batch_stride);
    }
    return made;
  }
};

/// What the library proposes for a product, best first.
class Proposals {
 public:
  Proposals(const Shapes& shapes, const Descriptors& d) {
    Handle preference = nullptr;
    check_library(library().preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const auto bytes = static_cast<std::uint64_t>(workspace_bytes());
    library().preference_set(preference, kPreferenceMaxWorkspace, &bytes, sizeof bytes);
    const std::uint32_t aligned_to[] = {shapes.alignments[0], shapes.alignments[1], shapes.alignments[2],
                                        shapes.alignments[2]};
    for (int i = 0; i < 4; ++i)
      library().preference_set(preference, kPreferenceAlignmentA + i, &aligned_to[i], sizeof aligned_to[i]);
    const Result r = library().heuristic(library_handle(), d.matmul, d.a, d.b, d.d, d.d, preference,
                                         static_cast<int>(all_.size()), all_.data(), &count_);
    library().preference_destroy(preference);
    if (r != kSuccess) count_ = 0;
  }
  std::optional<MatmulHeuristic> best() const {
    for (int i = 0; i < count_; ++i)
      if (all_[static_cast<std::size_t>(i)].state == kSuccess) return all_[static_cast<std::size_t>(i)];
    return std::nullopt;
  }
  /// The library did not run what it had proposed.
  void strike_best(Result because) {
    for (int i = 0; i < count_; ++i)
      if (Result& state = all_[static_cast<std::size_t>(i)].state; state == kSuccess) {
        state = because;
        return;
      }
  }

 private:
  std::array<MatmulHeuristic, 4> all_{};
  int count_ = 0;
};

/// Calls f with the proposals for these shapes, which are kept.
template <class F> auto with_proposals(const Shapes& shapes, const Descriptors& d, F f) {
  constexpr std::size_t kMostKept = 4096;
  static std::mutex mutex;
  static auto* const known = new std::map<Shapes, Proposals>;
  const std::lock_guard lock(mutex);
  if (known->size() > kMostKept) known->clear();
  auto at = known->find(shapes);
  if (at == known->end()) at = known->emplace(shapes, Proposals(shapes, d)).first;
  return f(at->second);
}

/// Of an address and of what is added to it; nothing asks for more than 256.
std::uint32_t alignment_of(const void* data, std::int64_t bytes_added = 0) {
  const auto bits = reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(bytes_added) | 256;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// A side that the library can read in place, or a dense copy of it.
class ReadableSide {
 public:
  /// `by_columns`: it must lie so.
  ReadableSide(const MatmulProblem& p, const MatrixSide& side, std::int64_t rows, std::int64_t columns, bool by_rows,
               bool by_columns)
      : side_(side), copy_(accepted(side, rows, columns, by_rows, by_columns) ? 0 : bytes_of(p, side, rows, columns)) {
    if (accepted(side, rows, columns, by_rows, by_columns)) return;
    Shape sizes, from, to;
    for (std::size_t i = 0; i < p.batch_sizes.rank(); ++i)
      sizes.push_back(side.batch_strides[i] == 0 ? 1 : p.batch_sizes[i]), from.push_back(side.batch_strides[i]);
    sizes.push_back(by_rows ? rows : columns), sizes.push_back(by_rows ? columns : rows);
    from.push_back(by_rows ? side.row_stride : side.column_stride),
        from.push_back(by_rows ? side.column_stride : side.row_stride);
    to = dense_strides(sizes);
    const auto rank = static_cast<std::uint8_t>(sizes.rank());
    copy_elements({const_cast<void*>(side.data), side.dtype, rank, sizes.data(), from.data()},
                  {copy_.data(), side.dtype, rank, sizes.data(), to.data()});
    side_.data = copy_.data();
    side_.row_stride = by_rows ? columns : 1, side_.column_stride = by_rows ? 1 : rows;
    for (std::size_t i = 0; i < side_.batch_strides.rank(); ++i)
      side_.batch_strides[i] = side.batch_strides[i] == 0 ? 0 : to[i];
  }
  const MatrixSide& side() const { return side_; }

 private:
  static bool accepted(const MatrixSide& s, std::int64_t rows, std::int64_t columns, bool by_rows, bool by_columns) {
    return (by_rows && lies_by_rows(s, rows, columns)) || (by_columns && lies_by_columns(s, rows, columns));
  }
  static std::int64_t bytes_of(const MatmulProblem& p, const MatrixSide& s, std::int64_t rows, std::int64_t columns) {
    std::int64_t count = rows * columns;
    for (std::size_t i = 0; i < p.batch_sizes.rank(); ++i) count *= s.batch_strides[i] == 0 ? 1 : p.batch_sizes[i];
    return count * static_cast<std::int64_t>(byte_size(s.dtype));
  }
  MatrixSide side_;
  Workspace copy_;
};

/// A matrix of rows x columns that lies by rows is, by columns, its transpose.
Operand operand_of(const MatrixSide& s, std::int64_t rows, std::int64_t columns, std::int64_t batch_stride) {
  if (lies_by_rows(s, rows, columns))
    return {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), rows == 1 ? columns : s.row_stride,
            batch_stride, kOperationNone};
  return {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), columns == 1 ? rows : s.column_stride,
          batch_stride, kOperationTranspose};
}

bool is_bytes(const MatmulProblem& p) { return p.out_dtype == DType::i32 && p.lhs.dtype == DType::i8; }

Shapes shapes_of(const MatmulProblem& p, const MatrixSide& lhs, const MatrixSide& rhs, unsigned epilogue) {
  const bool batched = !p.batch_sizes.empty();
  const auto alignment = [&](const MatrixSide& side) {
    std::int64_t strides = 0;
    for (std::size_t i = 0; i < p.batch_sizes.rank(); ++i) strides |= side.batch_strides[i];
    return alignment_of(side.data, strides * static_cast<std::int64_t>(byte_size(side.dtype)));
  };
  const auto stride = [&](const MatrixSide& s) { return batched ? s.batch_strides.back() : 0; };
  const int factor = data_type(p.lhs.dtype), result = data_type(p.out_dtype);
  int compute = uses_tf32() && p.lhs.dtype == DType::f32 ? kCompute32FFastTF32 : kCompute32F;
  int scale = kReal32F;
  if (factor == kReal64F) compute = kCompute64F, scale = kReal64F;
  if (factor == kReal8I) compute = kCompute32I, scale = kReal32I;
  return {current_device().number(),
          factor,
          result,
          compute,
          scale,
          batched ? static_cast<int>(p.batch_sizes.back()) : 1,
          epilogue,
          {alignment(rhs), alignment(lhs),
           alignment_of(p.out, batched ? p.m * p.n * static_cast<std::int64_t>(byte_size(p.out_dtype)) : 0)},
          operand_of(rhs, p.k, p.n, stride(rhs)),
          operand_of(lhs, p.m, p.k, stride(lhs)),
          {static_cast<std::uint64_t>(p.n), static_cast<std::uint64_t>(p.m), p.n, p.m * p.n, kOperationNone}};
}

const void* moved(const void* data, std::int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(data) + elements * static_cast<std::int64_t>(byte_size(dtype));
}

unsigned code_of(MatmulEpilogue epilogue) {
  constexpr unsigned kEpilogues[] = {kEpilogueDefault,  kEpilogueBias, kEpilogueRelu,
                                     kEpilogueReluBias, kEpilogueGelu, kEpilogueGeluBias};
  return kEpilogues[static_cast<std::size_t>(epilogue)];
}

/// False where the library takes none of it; nothing has been done then.
bool multiply(const MatmulProblem& p, MatmulEpilogue epilogue, const void* bias) {
  // int8 wants the first factor, which is rhs, transposed, and the other as it is.
  const ReadableSide lhs(p, p.lhs, p.m, p.k, true, !is_bytes(p)), rhs(p, p.rhs, p.k, p.n, !is_bytes(p), true);
  const Shapes shapes = shapes_of(p, lhs.side(), rhs.side(), code_of(epilogue));
  const Descriptors d(shapes, bias);
  std::optional<MatmulHeuristic> chosen = with_proposals(shapes, d, [](const Proposals& all) { return all.best(); });
  if (!chosen) return false;
  const Workspace workspace(workspace_bytes());
  const float one_f32 = 1, zero_f32 = 0;
  const double one_f64 = 1, zero_f64 = 0;
  const std::int32_t one_i32 = 1, zero_i32 = 0;
  const void *alpha = &one_f32, *beta = &zero_f32;
  if (shapes.scale_type == kReal64F) alpha = &one_f64, beta = &zero_f64;
  if (shapes.scale_type == kReal32I) alpha = &one_i32, beta = &zero_i32;
  // The innermost batch axis is the library's; the others are a loop.
  std::int64_t outer = 1;
  for (std::size_t i = 0; i + 1 < p.batch_sizes.rank(); ++i) outer *= p.batch_sizes[i];
  for (std::int64_t batch = 0; batch < outer; ++batch) {
    std::int64_t left = 0, right = 0, rest = batch;
    for (std::size_t i = p.batch_sizes.rank(); i-- > 0;) {
      if (i + 1 == p.batch_sizes.rank()) continue;
      left += rest % p.batch_sizes[i] * lhs.side().batch_strides[i],
          right += rest % p.batch_sizes[i] * rhs.side().batch_strides[i];
      rest /= p.batch_sizes[i];
    }
    auto* const out = const_cast<void*>(moved(p.out, batch * shapes.batches * p.m * p.n, p.out_dtype));
    const auto run = [&] {
      return library().matmul(library_handle(), d.matmul, alpha, moved(rhs.side().data, right, p.rhs.dtype), d.a,
                              moved(lhs.side().data, left, p.lhs.dtype), d.b, beta, out, d.d, out, d.d,
                              &chosen->algorithm, workspace.data(), static_cast<std::size_t>(workspace_bytes()),
                              launch_handle());
    };
    Result r = run();
    // Some proposals are refused: cuBLASLt 13.0 did so for a small product with an epilogue. Nothing has been started
    // then.
    while (r != kSuccess && batch == 0) {
      chosen = with_proposals(shapes, d, [r](Proposals& all) { return all.strike_best(r), all.best(); });
      if (!chosen) return false;
      r = run();
    }
    check_library(r, "cublasLtMatmul");
    note_started("cublasLtMatmul");
  }
  return true;
}

}  // namespace

bool set_tf32(bool on) { return tf32().exchange(on); }
bool uses_tf32() { return tf32().load(std::memory_order_relaxed); }

bool matmul_cublaslt_fits(const CallArgs& args) {
  if (args.op == Op::matmul_i32 && (args.inputs[0].dtype != DType::i8 || args.inputs[1].dtype != DType::i8))
    return false;
  return usable() && matmul_library() != nullptr;
}

double matmul_cublaslt_cost(const CallArgs& args) { return 3000 + (matmul_tiled_cost(args) - 5000) / 10; }

bool matmul_with(const CallArgs& args, MatmulEpilogue epilogue, const void* bias) {
  const MatmulProblem p = decode_matmul(args);
  if (epilogue != MatmulEpilogue::none && (p.k == 0 || p.batches() * p.m * p.n == 0)) return false;
  use_operands(args);
  if (bias != nullptr) use_buffer(bias);
  if (p.batches() * p.m * p.n == 0) return true;
  if (p.k == 0) {
    check(driver().fill_bytes(reinterpret_cast<Address>(p.out), 0,
                              static_cast<std::size_t>(args.outputs[0].element_count()) * byte_size(p.out_dtype),
                              launch_handle()),
          "cuMemsetD8Async");
    return true;
  }
  if (multiply(p, epilogue, bias)) return true;
  if (epilogue == MatmulEpilogue::none) matmul_tiled(args);
  return epilogue == MatmulEpilogue::none;
}

void matmul_cublaslt(const CallArgs& args) {
  if (!matmul_with_epilogue(args)) matmul_with(args, MatmulEpilogue::none, nullptr);
}

FERMATA_KERNELS(cuda) {
  const KernelVariant library{.name = "cublaslt",
                              .form = KernelForm::library,
                              .dtypes = DTypeSet(DType::f32) | DType::f16 | DType::bf16 | DType::f64,
                              .call = &matmul_cublaslt,
                              .fits = &matmul_cublaslt_fits,
                              .cost = &matmul_cublaslt_cost,
                              .fits_text = kMatmulCublasltFits,
                              .epilogue = EpilogueForm::whole,
                              .by_rows = true};
  KernelVariant bytes = library;
  bytes.dtypes = DType::i8;
  add_variant(Op::matmul, BackendKey::cuda, library);
  add_variant(Op::matmul_i32, BackendKey::cuda, bytes);
  KernelVariant halves = library;
  halves.dtypes = DTypeSet(DType::f16) | DType::bf16;
  add_variant(Op::matmul_f32, BackendKey::cuda, halves);
}

}  // namespace fermata::gpu
