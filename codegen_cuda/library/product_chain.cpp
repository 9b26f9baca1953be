// See product_chain.h. A block of 256 threads takes 64 rows of a result and goes through the columns of what is
// between 64 at a time: a 64 x 64 part of the first product, its weights, and what they add to the second one. Each
// thread has 4 x 4 elements of the first and 4 rows of the second; 16 neighbors share their rows. Both factors pass
// through shared memory, 32 deep.
#include "codegen_cuda/library/product_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/emit/emission.h"
#include "codegen_cuda/emit/primitives.h"
#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/library/matmul.h"
#include "codegen_cuda/library/matmul_problem.h"
#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "dispatch/dump.h"
#include "ir/op.h"
#include "runtime/environment.h"

namespace fermata::gpu {
namespace {

constexpr int kRows = 64, kKeys = 64, kDepth = 32, kThreads = 256, kAcross = 16;
constexpr int kPitch = kRows + 4;  // keeps packs of four aligned and neighbors in other banks
constexpr std::int64_t kMostColumns = 256;

/// Arguments after those of the row kernel. Then size and strides (left, right, values) of each batch axis.
enum Slot : int {
  kLeft,
  kRight,
  kValues,
  kResult,
  kLeftRow,
  kLeftDeep,
  kRightDeep,
  kRightColumn,
  kValuesRow,
  kValuesColumn,
  kQueries,
  kKeyCount,
  kDeep,
  kWidth,
  kTiles,
  kBatch
};
constexpr int kSlotsPerBatchAxis = 4;

std::atomic<ChainRule>& rule() {
  static std::atomic<ChainRule> chosen = [] {
    const char* const text = environment_variable("FERMATA_CUDA_FUSE_PRODUCTS");
    const std::string_view said = text == nullptr ? "" : text;
    return said == "always" ? ChainRule::always : said == "never" ? ChainRule::never : ChainRule::by_cost;
  }();
  return chosen;
}

std::int64_t rounded_up(std::int64_t count, std::int64_t step) { return (count + step - 1) / step * step; }

/// Columns of the result for each of the 16 neighbors.
unsigned columns_of(std::int64_t width) {
  unsigned columns = 1;
  while (kAcross * columns < width) columns *= 2;
  return columns;
}

// What the choice leans on, as measured on an H200: shares of the peak of f32 multiply-adds outside the tensor cores,
// which the library goes beyond for half floats and TF32; nanoseconds to start a kernel.
constexpr double kChainShare = 0.31, kLibraryShare = 0.8, kHalfShare = 8, kTf32Share = 4, kOwnShare = 0.1,
                 kLaunch = 3000;
/// Bytes in a nanosecond, for each multiprocessor: 3.3 TB/s of an H200. Devices before have HBM2e or less.
double bytes_of(const DeviceInfo& info) { return info.major >= 9 ? 25 : 15; }
/// What is between the products is large if it takes this part of the device's memory.
constexpr double kLargePart = 8;

/// Multiply-adds of f32 in a nanosecond: at 1.5 GHz, 64 for each multiprocessor up to 8.0, 128 from 8.6 on.
double peak_of(const DeviceInfo& info) {
  const bool narrow = info.major < 8 || (info.major == 8 && info.minor == 0);
  return 1.5 * info.multiprocessors * (narrow ? 64 : 128);
}

bool multiplies_on_tensor_cores(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

unsigned factor_floats(unsigned columns) {
  return std::max<unsigned>(2 * kDepth * kPitch, kDepth * (kAcross * columns + 4));
}
unsigned shared_bytes(unsigned columns) { return 4 * (factor_floats(columns) + kKeys * kPitch); }

std::string slot(const Emission& e, int which) { return fmt::format("a.v[{}]", e.arguments.count + which); }

/// The kernel's text, piece by piece, in the order of the pieces.
class Writer {
 public:
  Writer(Emission& e, const OnlineRows& rows, std::uint16_t made, unsigned columns)
      : e_(e), rows_(rows), made_(made), columns_(columns), pack_(std::min(columns, 4u)) {}

  void open(DType left, DType right, DType values, DType result, unsigned batch_axes) {
    left_ = element_text(left, false), right_ = element_text(right, false), values_ = element_text(values, false),
    result_ = element_text(result, false);
    if (rows_.has_top) e_.define_function(exp_function(), pointwise_formula(Op::exp, DType::f32));
    e_.open(kThreads, kBatch + kSlotsPerBatchAxis * static_cast<int>(batch_axes));
    e_.line("FM_SHARED(shared);");
    e_.line("f32* const left = (f32*)shared; f32* const right = left + {}; f32* const weights = left + {};",
            kDepth * kPitch, factor_floats(columns_));
    e_.line("const int lane = threadIdx.x % 32, across = threadIdx.x % {0}, down = threadIdx.x / {0} * 4;", kAcross);
    pointer("left", left_, kLeft), pointer("right", right_, kRight), pointer("values", values_, kValues),
        pointer("result", result_, kResult);
    number("left_row", kLeftRow), number("left_deep", kLeftDeep), number("right_deep", kRightDeep),
        number("right_column", kRightColumn);
    number("values_row", kValuesRow), number("values_column", kValuesColumn);
    number("queries", kQueries), number("keys", kKeyCount), number("depth", kDeep), number("width", kWidth),
        number("tiles", kTiles);
    e_.line("const i64 row_tiles = (queries + {}) / {};", kRows - 1, kRows);
  }

  void batch(unsigned axes) {
    e_.line("const i64 batch = tile / row_tiles, top = tile % row_tiles * {};", kRows);
    e_.line("i64 left_at = 0, right_at = 0, values_at = 0;");
    if (axes == 0) return;
    e_.line("i64 rest = batch;");
    for (unsigned axis = axes; axis-- > 0;) {
      const auto of = [&](int which) {
        return fmt::format("(i64){}", slot(e_, kBatch + kSlotsPerBatchAxis * static_cast<int>(axis) + which));
      };
      e_.block(
          [&] {
            e_.line("const i64 x = rest % {0}; rest /= {0};", of(0)),
                e_.line("left_at += x * {}; right_at += x * {}; values_at += x * {};", of(1), of(2), of(3));
          },
          "");
    }
  }

  void start() {
    e_.line("f32 sums[4][{}], total[4];", columns_);
    if (rows_.has_top) e_.line("f32 highest[4], shift[4];  // the maximum so far, and what weights are relative to");
    each("i", 4, [&] {
      e_.line("total[i] = 0.0f;");
      if (rows_.has_top) e_.line("highest[i] = {}; shift[i] = 0.0f;", lowest());
      each("j", columns_, [&] { e_.line("sums[i][j] = 0.0f;"); });
    });
  }

  /// A part of the first product.
  void scores() {
    e_.line(
        "f32 scores[4][4] = {{{{0.0f, 0.0f, 0.0f, 0.0f}}, {{0.0f, 0.0f, 0.0f, 0.0f}}, {{0.0f, 0.0f, 0.0f, 0.0f}}, {{0.0f, 0.0f, 0.0f, 0.0f}}}};");
    e_.block(
        [&] {
          e_.line("fm_barrier();");
          // Neighbors read what lies side by side.
          fill("left", "i", "k", kRows, kDepth, kPitch, "left_deep == 1", "top + i < queries && from + k < depth",
               left_, "left_in + (left_at + (top + i) * left_row + (from + k) * left_deep)");
          fill("right", "i", "k", kKeys, kDepth, kPitch, "right_deep == 1", "first + i < keys && from + k < depth",
               right_, "right_in + (right_at + (first + i) * right_column + (from + k) * right_deep)");
          e_.line("fm_barrier();");
          e_.line("#pragma unroll 8");
          e_.block(
              [&] {
                e_.line("const fm_pack<f32, 4> x = fm_shared_pack<f32, 4>(left + k * {} + down);", kPitch);
                e_.line("const fm_pack<f32, 4> y = fm_shared_pack<f32, 4>(right + k * {} + across * 4);", kPitch);
                each("i", 4,
                     [&] { each("j", 4, [&] { e_.line("scores[i][j] = fm_fma(x.v[i], y.v[j], scores[i][j]);"); }); });
              },
              "for (int k = 0; k < {}; ++k)", kDepth);
        },
        "for (i64 from = 0; from < depth; from += {})", kDepth);
  }

  /// Weights of the part, by column, where the second product finds them; what was added up before is rescaled.
  void weigh() {
    e_.line("f32 part[4][4];");
    each("i", 4, [&] {
      enter_row();
      if (rows_.has_top) e_.line("f32 most = {};", lowest());
      each("j", 4, [&] {
        const unsigned v = e_.vector_axis();
        e_.line("part[i][j] = 0.0f;");
        e_.line("if (first + across * 4 + j >= keys) continue;");
        e_.line("const {0} x{1} = ({0})(first + across * 4 + j);", e_.index, v);
        for (const ValueId id : rows_.elements) element(id);
        e_.line("part[i][j] = v{};", rows_.has_top ? rows_.exponent : rows_.weight);
        if (rows_.has_top)
          e_.line("{};", combine("most", fmt::format("v{}", e_.kernel.reductions[rows_.top].lifted[0])));
      });
      if (rows_.has_top) {
        neighbors([&] {
          e_.line("const f32 other = fm_shuffle(most, lane ^ apart);"), e_.line("{};", combine("most", "other"));
        });
        e_.line("{};", combine("most", "highest[i]"));
        // Weights of rows that are nothing but -inf so far are 0, whatever the shift.
        e_.line("const f32 to = most == {} ? 0.0f : most;", lowest());
        e_.line("const f32 scale = highest[i] == {} ? 0.0f : {}(shift[i] - to);", lowest(), exp_function());
        e_.line("highest[i] = most; shift[i] = to; total[i] = total[i] * scale;");
        each("j", columns_, [&] { e_.line("sums[i][j] = sums[i][j] * scale;"); });
        each("j", 4, [&] {
          e_.line("part[i][j] = first + across * 4 + j < keys ? {}(part[i][j] - to) : 0.0f;", exp_function());
        });
      }
      each("j", 4, [&] { e_.line("total[i] = total[i] + part[i][j];"); });
    });
    each("j", 4, [&] {
      e_.line("const fm_pack<f32, 4> column = {{{{part[0][j], part[1][j], part[2][j], part[3][j]}}}};");
      e_.line("fm_shared_store_pack<f32, 4>(weights + (across * 4 + j) * {} + down, column);", kPitch);
    });
  }

  /// What the part adds to the second product.
  void add() {
    const unsigned width = kAcross * columns_, pitch = width + 4;
    e_.block(
        [&] {
          e_.line("fm_barrier();");
          fill("left", "j", "k", static_cast<int>(width), kDepth, static_cast<int>(pitch), "values_column != 1",
               "first + from + k < keys && j < width", values_,
               "values_in + (values_at + (first + from + k) * values_row + j * values_column)");
          e_.line("fm_barrier();");
          e_.line("#pragma unroll 4");
          e_.block(
              [&] {
                e_.line("const fm_pack<f32, 4> x = fm_shared_pack<f32, 4>(weights + (from + k) * {} + down);", kPitch);
                each("c", columns_ / pack_, [&] {
                  e_.line(
                      "const fm_pack<f32, {0}> y = fm_shared_pack<f32, {0}>(left + k * {1} + c * {2} + across * {0});",
                      pack_, pitch, kAcross * pack_);
                  each("i", 4, [&] {
                    each("j", pack_, [&] {
                      e_.line("sums[i][c * {0} + j] = fm_fma(x.v[i], y.v[j], sums[i][c * {0} + j]);", pack_);
                    });
                  });
                });
              },
              "for (int k = 0; k < {}; ++k)", kDepth);
        },
        "for (int from = 0; from < {} && first + from < keys; from += {})", kKeys, kDepth);
  }

  void finish() {
    each("i", 4, [&] {
      neighbors([&] { e_.line("total[i] = total[i] + fm_shuffle(total[i], lane ^ apart);"); });
      enter_row();
      if (rows_.has_top) e_.line("const f32 {} = highest[i];", e_.state(rows_.top, 0, "total"));
      std::size_t stage = 0;
      const auto& stages = e_.schedule.stages;
      while (std::ranges::find(stages[stage].reductions, rows_.total) == stages[stage].reductions.end())
        row_values(stages[stage++]);
      // From the shift to the base that the program has.
      e_.line("const f32 scale = {};",
              rows_.has_top ? fmt::format("{}(shift[i] - v{})", exp_function(), rows_.base) : "1.0f");
      e_.line("const f32 {} = total[i] * scale;", e_.state(rows_.total, 0, "total"));
      for (; stage < stages.size(); ++stage) row_values(stages[stage]);
      std::string value = "(sums[i][c] * scale)";
      for (const OnlineRows::Factor& f : rows_.factors)
        value = fmt::format("({} {} v{})", value, f.prim == Prim::mul ? '*' : '/', f.by);
      each("c", columns_, [&] {
        e_.line("const i64 column = c / {0} * {1} + across * {0} + c % {0};", pack_, kAcross * pack_);
        e_.line("if (top + down + i < queries && column < width)");
        e_.line("  fm_store(result_out + ((batch * queries + top + down + i) * width + column), {});",
                result_.stored(value));
      });
    });
  }

 private:
  template <class F> void each(const char* variable, unsigned count, F&& body) {
    e_.line("#pragma unroll");
    e_.block(body, "for (int {0} = 0; {0} < {1}; ++{0})", variable, count);
  }
  /// Over the 16 threads that share rows.
  template <class F> void neighbors(F&& body) {
    e_.line("#pragma unroll");
    e_.block(body, "for (int apart = {}; apart > 0; apart /= 2)", kAcross / 2);
  }
  void pointer(const char* what, const ElementText& type, int which) {
    e_.line("{0}* const {1}_{2} = ({0}*){3};", type.memory, what, which == kResult ? "out" : "in", slot(e_, which));
  }
  void number(const char* what, int which) { e_.line("const i64 {} = (i64){};", what, slot(e_, which)); }

  /// Brings wide x deep elements to shared memory as f32, zeros where `inside` does not hold.
  void fill(const char* to, const char* across, const char* deep, int wide_count, int deep_count, int pitch,
            const char* deep_first, const char* inside, const ElementText& type, const std::string& at) {
    e_.block(
        [&] {
          e_.line("const bool by_depth = {};", deep_first);
          e_.line("const int {} = by_depth ? e / {} : e % {}, {} = by_depth ? e % {} : e / {};", across, deep_count,
                  wide_count, deep, deep_count, wide_count);
          e_.line("fm_shared_store({} + {} * {} + {}, {} ? {} : 0.0f);", to, deep, pitch, across, inside,
                  type.load(at));
        },
        "for (int e = threadIdx.x; e < {}; e += {})", wide_count * deep_count, kThreads);
  }

  /// Row i of this thread; past the end the last one, of which nothing is stored.
  void enter_row() {
    const std::vector<unsigned> axes = e_.parallel_axes(true);
    e_.line("const {0} row = ({0})(batch * queries + (top + down + i < queries ? top + down + i : queries - 1));",
            e_.index);
    e_.coordinates("row", axes);
    e_.offsets('r', 0, axes);
    e_.values(e_.schedule.row_prologue, [](std::size_t a) { return fmt::format("r{}", a); });
  }
  void row_values(const KernelSchedule::Stage& stage) {
    e_.values(stage.row_values, [](std::size_t a) { return fmt::format("r{}", a); });
  }
  void element(ValueId id) {
    const Instr& instr = e_.kernel.program[id];
    if (instr.prim == Prim::input && instr.index == made_)  // as the product would have left it
      return e_.line("const {} v{} = {};", value_type(instr.type), id,
                     element_text(instr.type, false).stored("scores[i][j]"));
    std::string offset;
    if (instr.prim == Prim::input || instr.prim == Prim::offset) {
      const unsigned v = e_.vector_axis();
      offset = fmt::format("r{}", instr.index);
      if (e_.varies(instr.index, v)) offset += fmt::format(" + x{} * {}", v, e_.stride(instr.index, v));
    }
    e_.value(id, offset);
  }
  std::string combine(const std::string& into, const std::string& with) const {
    return fmt::format("{}_combine{}({}, {})", e_.name, rows_.top, into, with);
  }
  std::string lowest() const { return constant(DType::f32, e_.kernel.reductions[rows_.top].identity[0]); }
  std::string exp_function() const { return e_.name + "_exp"; }

  Emission& e_;
  const OnlineRows& rows_;
  const std::uint16_t made_;
  const unsigned columns_, pack_;
  ElementText left_, right_, values_, result_;
};

/// Batch axes of the result with the strides of the three factors; neighbors that can be one axis are.
std::vector<std::int64_t> batch_slots(const TensorView& result, const TensorView& left, const TensorView& right,
                                      const TensorView& values) {
  const TensorView* const factors[] = {&left, &right, &values};
  std::vector<std::array<std::int64_t, kSlotsPerBatchAxis>> axes;
  for (unsigned i = 0; i + 2 < result.rank; ++i) {
    if (result.sizes[i] == 1) continue;
    std::array<std::int64_t, kSlotsPerBatchAxis> axis{result.sizes[i]};
    for (unsigned f = 0; f < 3; ++f) {
      const int at = static_cast<int>(i + factors[f]->rank) - static_cast<int>(result.rank);
      axis[f + 1] = at < 0 || factors[f]->sizes[at] == 1 ? 0 : factors[f]->strides[at];
    }
    const bool continues = !axes.empty() && axes.back()[1] == axis[1] * axis[0] &&
                           axes.back()[2] == axis[2] * axis[0] && axes.back()[3] == axis[3] * axis[0];
    if (!continues)
      axes.push_back(axis);
    else
      axis[0] *= axes.back()[0], axes.back() = axis;
  }
  std::vector<std::int64_t> slots;
  for (const auto& axis : axes) slots.insert(slots.end(), axis.begin(), axis.end());
  return slots;
}

}  // namespace

ChainRule set_chain_rule(ChainRule to) { return rule().exchange(to); }

namespace {

std::unique_ptr<const OnlineRows> found_in(const Kernel& kernel, const KernelSchedule& schedule) {
  if (kernel.reduced == 0) return nullptr;
  const std::optional<OnlineRows> rows = online_rows(kernel, schedule);
  if (!rows) return nullptr;
  return std::make_unique<const OnlineRows>(*rows);
}

}  // namespace

ProductChain::ProductChain(const Kernel& kernel, const KernelSchedule& schedule)
    : kernel_(kernel), schedule_(schedule), rows_(found_in(kernel, schedule)) {}

std::optional<ProductChainEstimate> ProductChain::estimate(const ProductChainSizes& s) const {
  if (rows_ == nullptr || !multiplies_on_tensor_cores(s.factors) || !multiplies_on_tensor_cores(s.weights) ||
      !multiplies_on_tensor_cores(kernel_.accesses[s.made].dtype))
    return {};
  const std::uint16_t axes = kernel_.accesses[s.made].axes;
  if ((axes >> (kernel_.rank - 1u) & 1u) == 0 || s.made == rows_->result) return {};
  if (s.width > kMostColumns || s.batches * s.rows * s.columns * s.depth * s.width == 0)
    return ProductChainEstimate{false, 0, 0, 0};
  const auto points = static_cast<double>(s.batches) * static_cast<double>(s.rows) * static_cast<double>(s.columns);
  const std::int64_t tiles = s.batches * rounded_up(s.rows, kRows) / kRows;
  const auto blocks = static_cast<double>(tiles);
  const std::int64_t padded = rounded_up(s.depth, kDepth) + kAcross * columns_of(s.width);
  const DeviceInfo& info = current_device().info();
  const double idle = std::max(1.0, info.multiprocessors / blocks);
  const bool half = s.factors != DType::f32 && s.weights != DType::f32;
  const double peak = peak_of(info), rate = peak * (matmul_library() == nullptr ? kOwnShare
                                                    : half                      ? kHalfShare
                                                    : uses_tf32()               ? kTf32Share
                                                                                : kLibraryShare);
  const auto bytes = points * static_cast<double>(byte_size(kernel_.accesses[s.made].dtype) + byte_size(s.weights));
  ProductChainEstimate estimate;
  estimate.ns = points * static_cast<double>(padded) / (peak * kChainShare) * idle + kLaunch;
  estimate.apart_ns = points * static_cast<double>(s.depth + s.width) / rate +
                      2 * bytes / (bytes_of(info) * info.multiprocessors) + 3 * kLaunch;
  estimate.bytes = static_cast<std::int64_t>(bytes);
  const bool large = bytes * kLargePart > static_cast<double>(info.memory);
  const ChainRule by = rule();
  if (const DryRun* const dry = DryRun::current())
    estimate.pays = dry->chains_products();
  else
    estimate.pays = by == ChainRule::always || (by == ChainRule::by_cost && (large || estimate.ns < estimate.apart_ns));
  return estimate;
}

std::string ProductChain::source(const Shape& s, std::string* name) const {
  const std::string described =
      fmt::format("{}{}{}{}{}.{}.{}.{}{}", serialize(kernel_), fermata::name(s.left), fermata::name(s.right),
                  fermata::name(s.values), fermata::name(s.result), s.made, s.batch_axes, s.columns, s.wide ? "w" : "");
  Emission e(kernel_, schedule_, function_name("chain", described), s.wide);
  Writer w(e, *rows_, s.made, s.columns);
  w.open(s.left, s.right, s.values, s.result, s.batch_axes);
  e.block(
      [&] {
        w.batch(s.batch_axes);
        w.start();
        e.block([&] { w.scores(), w.weigh(), w.add(); }, "for (i64 first = 0; first < keys; first += {})", kKeys);
        w.finish();
      },
      "for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x)");
  e.close();
  *name = e.name;
  return std::move(e.text);
}

const LoadedKernel& ProductChain::kernel_for(const Shape& shape) const {
  if (DryRun::current() != nullptr) {  // which keeps what it is asked for
    std::string name;
    const std::string body = source(shape, &name);
    return *kernel_of(name, body);
  }
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const LoadedKernel>& known = kernels_[shape];
  if (known == nullptr) {
    std::string name;
    const std::string body = source(shape, &name);
    if (is_dump_enabled("cuda")) dump("cuda", name, body);
    known = kernel_of(name, body);
  }
  return *known;
}

void ProductChain::launch(std::uint16_t made, const CallArgs& first, const KernelLaunch& kernel,
                          const CallArgs& second) const {
  const TensorView &left = first.inputs[0], &right = first.inputs[1], &values = second.inputs[1],
                   &between = first.outputs[0], &out = second.outputs[0];
  for (const TensorView* const view : {&left, &right, &values, &out}) use_buffer(view->data);
  for (std::size_t a = 0; a < kernel_.accesses.size(); ++a)
    if (a != made && a != rows_->result && !kernel_.accesses[a].address_only) use_buffer(kernel.pointers[a]);
  const ArgumentLayout layout(kernel_);
  ArgumentValues common(layout, kernel_, kernel);
  const std::int64_t queries = between.sizes[between.rank - 2], keys = between.sizes[between.rank - 1],
                     width = out.sizes[out.rank - 1];
  const std::int64_t tiles = between.element_count() / (queries * keys) * ((queries + kRows - 1) / kRows);
  std::vector<std::uint64_t> slots(common.data(), common.data() + layout.count);
  const auto add = [&](std::int64_t value) { slots.push_back(static_cast<std::uint64_t>(value)); };
  for (const TensorView* const view : {&left, &right, &values, &out})
    slots.push_back(reinterpret_cast<std::uintptr_t>(view->data));
  for (const TensorView* const view : {&left, &right, &values})
    add(view->strides[view->rank - 2]), add(view->strides[view->rank - 1]);
  add(queries), add(keys), add(left.sizes[left.rank - 1]), add(width), add(tiles);
  const std::vector<std::int64_t> batch = batch_slots(between, left, right, values);
  for (const std::int64_t number : batch) add(number);
  const Shape shape{left.dtype,
                    right.dtype,
                    values.dtype,
                    out.dtype,
                    made,
                    static_cast<unsigned>(batch.size() / kSlotsPerBatchAxis),
                    columns_of(width),
                    !common.fits_32_bits()};
  if (const DryRun* const dry = DryRun::current(); dry != nullptr && dry->wants_both_widths()) {
    Shape other = shape;
    other.wide = !other.wide;
    kernel_for(other);
  }
  const auto most = std::int64_t{32} * current_device().info().multiprocessors;
  kernel_for(shape).launch({static_cast<unsigned>(std::min(tiles, most)), kThreads, shared_bytes(shape.columns)},
                           slots.data());
}

}  // namespace fermata::gpu
