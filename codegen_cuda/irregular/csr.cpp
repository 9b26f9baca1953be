// Products with sparse matrices in rows (CSR). See irregular.h.
//
// A pattern is i64: row offsets, then columns. It is checked as it is read; a broken one is reported when the device is
// next waited for (FM1250), and read as far as it is safe.
#include <fmt/format.h>

#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/irregular/irregular.h"
#include "codegen_cuda/irregular/positions.h"
#include "codegen_cuda/runtime/deferred_check.h"
#include "codegen_cuda/runtime/device.h"
#include "ir/error.h"
#include "ir/ops/products.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"

namespace fermata::gpu {
namespace {

/// Integers are unsigned, so that they wrap.
std::string_view unsigned_type(DType dtype) { return is_floating(dtype) ? name(dtype) : bits_text(dtype); }

struct Pattern {
  const std::int64_t* data;  // dense
  std::int64_t rows, entries, width;
};

/// Declares `offsets`, `columns`, `rows`, `entries` and `width`, and what reads them within bounds.
void declare_pattern(CallSource& s, const Pattern& p) {
  s.line(fmt::format("const i64* const offsets = {}; const i64 rows = {}, entries = {}, width = {};",
                     s.pointer("const i64", p.data), s.number(p.rows), s.number(p.entries), s.number(p.width)));
  s.line("const i64* const columns = offsets + rows + 1;");
}
constexpr const char* kOffset =
    "(fm_load(offsets + {0}) < 0 ? 0 : fm_load(offsets + {0}) > entries ? entries : fm_load(offsets + {0}))";
std::string offset_of(const std::string& row) { return fmt::format(fmt::runtime(kOffset), row); }

void check_pattern(const CallArgs& args, const Pattern& p) {
  const Shape shape(std::span(args.inputs[0].sizes, args.inputs[0].rank));
  const auto raise = [op = args.op, shape, where = args.where](std::string what) {
    throw IndexError(1250, format_error(1250, "IndexError", fmt::format("{}: {}", name(op), what),
                                        {{"pattern", to_string(DType::i64, shape), ""}}, where));
  };
  const Address rows = deferred_check(
      [raise, p](const Found&) { raise(fmt::format("row offsets do not rise from 0 to {}", p.entries)); });
  const Address columns =
      deferred_check([raise, p](const Found&) { raise(fmt::format("a column is not in [0, {})", p.width)); });
  CallSource s("pattern");
  s.for_each("i", p.rows + 1 + p.entries);
  declare_pattern(s, p);
  s.line("const i64 here = fm_load(offsets + i);");
  s.line(fmt::format(
      "if (i == 0 ? here != 0 : i <= rows && here < fm_load(offsets + i - 1)) fm_lowest({0}, 0); if (i == rows && here != entries) fm_lowest({0}, 0);",
      s.pointer("u64", reinterpret_cast<const void*>(rows))));
  s.line(fmt::format("if (i > rows && (here < 0 || here >= width)) fm_lowest({}, 0);",
                     s.pointer("u64", reinterpret_cast<const void*>(columns))));
  s.launch(p.rows + 1 + p.entries);
}

/// A view as it lies if it lies densely, else a copy.
class DenseView {
 public:
  explicit DenseView(const TensorView& view)
      : strides_(dense_strides({view.sizes, view.rank})),
        dense_(is_dense({view.sizes, view.rank}, {view.strides, view.rank})),
        copy_(dense_ ? 0 : view.element_count() * static_cast<std::int64_t>(byte_size(view.dtype))),
        view_(view) {
    if (dense_) return;
    view_.data = copy_.data(), view_.strides = strides_.data();
    copy_elements(view, view_);
  }
  const TensorView& view() const { return view_; }

 private:
  Shape strides_;
  bool dense_;
  Workspace copy_;
  TensorView view_;
};

constexpr const char* kProduct = "({0})(({1}){2} * ({1}){3})";
/// a * b in a type that integers of 16 bits do not overflow.
std::string product(std::string_view type, const std::string& a, const std::string& b) {
  return fmt::format(fmt::runtime(kProduct), type, type == "u8" || type == "u16" ? "u32" : type, a, b);
}

void multiply_rows(const CallArgs& args, const Pattern& p, const TensorView& values, const TensorView& dense) {
  const TensorView& out = args.outputs[0];
  const std::string_view type = unsigned_type(dense.dtype);
  CallSource s("csr");
  s.for_each("i", p.rows * dense.sizes[1]);
  declare_pattern(s, p);
  s.line(fmt::format("const i64 wide = {}, row = i / wide, column = i % wide;", s.number(dense.sizes[1])));
  s.line(fmt::format("const {0}* const values = {1}; const {0}* const dense = {2};", type,
                     s.pointer(fmt::format("const {}", type), values.data),
                     s.pointer(fmt::format("const {}", type), dense.data)));
  s.line(fmt::format("{} sum = 0;", type));
  s.line(fmt::format("for (i64 e = {}; e < {}; ++e) {{", offset_of("row"), offset_of("row + 1")));
  s.line("const i64 at = fm_load(columns + e); if (at < 0 || at >= width) continue;");
  s.line(fmt::format("sum = ({})(sum + {});", type,
                     product(type, "fm_load(values + e)", "fm_load(dense + at * wide + column)")));
  s.line("}");
  s.line(fmt::format("fm_store({} + i, sum);", s.pointer(type, out.data)));
  s.launch(p.rows * dense.sizes[1]);
}

/// The row that an entry belongs to: the last whose offset is not above it.
void declare_row(CallSource& s, const std::string& entry) {
  s.line("i64 low = 0, high = rows;");
  s.line(fmt::format(
      "while (high - low > 1) {{ const i64 middle = low + (high - low) / 2; if (fm_load(offsets + middle) <= {}) low = middle; else high = middle; }}",
      entry));
  s.line("const i64 row = low;");
}

/// The transpose: entries sorted by column, each row of the result by the threads of its first one.
void multiply_transposed(const CallArgs& args, const Pattern& p, const TensorView& values, const TensorView& dense) {
  const TensorView& out = args.outputs[0];
  const std::int64_t count = out.element_count();
  if (count == 0) return;
  check(driver().fill_bytes(reinterpret_cast<Address>(out.data), 0,
                            static_cast<std::size_t>(count) * byte_size(out.dtype), launch_handle()),
        "cuMemsetD8Async");
  if (p.entries == 0) return;
  const Workspace pairs(p.entries * 4 * 8);
  auto* const unsorted = static_cast<std::int64_t*>(pairs.data());
  {
    CallSource s("columns");
    s.for_each("i", p.entries);
    declare_pattern(s, p);
    const std::string to = s.pointer("i64", unsorted);
    s.line(fmt::format("fm_store({0} + i, fm_load(columns + i)); fm_store({0} + count + i, i);", to));
    s.launch(p.entries);
  }
  const std::int64_t* const sorted = sort_lines(unsorted, p.entries, p.entries);
  const std::string_view type = unsigned_type(dense.dtype);
  CallSource s("csr_transposed");
  s.for_each("i", p.entries * dense.sizes[1]);
  declare_pattern(s, p);
  s.line(fmt::format("const i64 wide = {}, column = i % wide, first = i / wide;", s.number(dense.sizes[1])));
  s.line(fmt::format("const i64* const keys = {};", s.pointer("const i64", sorted)));
  s.line("const i64 key = fm_load(keys + first);");
  s.line("if (key < 0 || key >= width || (first > 0 && fm_load(keys + first - 1) == key)) continue;");
  s.line(fmt::format("const {0}* const values = {1}; const {0}* const dense = {2};", type,
                     s.pointer(fmt::format("const {}", type), values.data),
                     s.pointer(fmt::format("const {}", type), dense.data)));
  s.line(fmt::format("{} sum = 0;", type));
  s.line("for (i64 at = first; at < entries && fm_load(keys + at) == key; ++at) {");
  s.line("const i64 e = fm_load(keys + entries + at);");
  declare_row(s, "e");
  s.line(fmt::format("sum = ({})(sum + {});", type,
                     product(type, "fm_load(values + e)", "fm_load(dense + row * wide + column)")));
  s.line("}");
  s.line(fmt::format("fm_store({} + key * wide + column, sum);", s.pointer(type, out.data)));
  s.launch(p.entries * dense.sizes[1]);
}

void csr_matmul_call(const CallArgs& args) {
  use_operands(args);
  const DenseView pattern(args.inputs[0]), values(args.inputs[1]), dense(args.inputs[2]);
  const std::int64_t entries = args.inputs[1].sizes[0];
  const auto [columns, transposed] = attributes_of<ops::CsrMatmul>(args);
  const Pattern p{static_cast<const std::int64_t*>(pattern.view().data), args.inputs[0].sizes[0] - 1 - entries, entries,
                  columns.value};
  check_pattern(args, p);
  if (transposed.value) return multiply_transposed(args, p, values.view(), dense.view());
  multiply_rows(args, p, values.view(), dense.view());
}

void csr_sampled_matmul_call(const CallArgs& args) {
  use_operands(args);
  const DenseView pattern(args.inputs[0]), lhs(args.inputs[1]), rhs(args.inputs[2]);
  const std::int64_t rows = args.inputs[1].sizes[0], entries = args.inputs[0].sizes[0] - 1 - rows,
                     depth = args.inputs[1].sizes[1];
  const Pattern p{static_cast<const std::int64_t*>(pattern.view().data), rows, entries, args.inputs[2].sizes[0]};
  check_pattern(args, p);
  const std::string_view type = unsigned_type(args.inputs[1].dtype);
  CallSource s("csr_sampled");
  s.for_each("i", entries);
  declare_pattern(s, p);
  declare_row(s, "i");
  s.line(fmt::format("const i64 depth = {}, column = fm_load(columns + i);", s.number(depth)));
  s.line(fmt::format("const {0}* const x = {1} + row * depth; const {0}* const y = {2} + column * depth;", type,
                     s.pointer(fmt::format("const {}", type), lhs.view().data),
                     s.pointer(fmt::format("const {}", type), rhs.view().data)));
  s.line(fmt::format("{} sum = 0;", type));
  s.line("if (column >= 0 && column < width)");
  s.line(fmt::format("for (i64 k = 0; k < depth; ++k) sum = ({})(sum + {});", type,
                     product(type, "fm_load(x + k)", "fm_load(y + k)")));
  s.line(fmt::format("fm_store({} + i, sum);", s.pointer(type, args.outputs[0].data)));
  s.launch(entries);
}

}  // namespace

FERMATA_KERNELS(cuda) {
  add_nvrtc_kernel(Op::csr_matmul, &csr_matmul_call);
  add_nvrtc_kernel(Op::csr_sampled_matmul, &csr_sampled_matmul_call);
}

}  // namespace fermata::gpu
