// See call_source.h.
#include "codegen_cuda/irregular/call_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen_cuda/executable.h"
#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "codegen_cuda/runtime/kernels.h"
#include "dispatch/kernel_cache.h"

namespace fermata::gpu {
namespace {

constexpr unsigned kThreads = 256;

/// A kernel description that copies: `rank` axes, both sides at any strides.
Kernel copy_kernel(DType dtype, unsigned rank, bool unit_from, bool unit_to) {
  const auto all = static_cast<std::uint16_t>((1u << rank) - 1u);
  Kernel k;
  k.rank = static_cast<std::uint8_t>(rank);
  k.accesses = {{dtype, all, unit_from, false}, {dtype, all, unit_to, false}};
  k.program.add({.prim = Prim::input, .type = dtype, .index = 0});
  k.stores = {{1, 0}};
  return k;
}

}  // namespace

std::string CallSource::number(std::int64_t value) {
  slots_.push_back(static_cast<std::uint64_t>(value));
  return fmt::format("((i64)a.v[{}])", slots_.size() - 1);
}

std::string CallSource::pointer(std::string_view type, const void* address) {
  slots_.push_back(reinterpret_cast<std::uintptr_t>(address));
  return fmt::format("(({}*)a.v[{}])", type, slots_.size() - 1);
}

void CallSource::offset(const std::string& name, const std::string& number_of, const TensorView& view, unsigned begin,
                        unsigned end) {
  line(fmt::format("i64 {} = 0;", name));
  if (begin >= end) return;
  std::int64_t numbers = 1;
  for (unsigned axis = begin; axis < end; ++axis) numbers *= view.sizes[axis];
  is_wide_ = is_wide_ || numbers > INT32_MAX;
  const std::string rest = fmt::format("rest{}", names_++);
  line(fmt::format("index {} = (index)({});", rest, number_of));
  for (unsigned axis = end; axis-- > begin;) {
    const std::string stride = number(view.strides[axis]);
    if (axis == begin) {
      line(fmt::format("{} += {} * {};", name, rest, stride));
      break;
    }
    const std::string size = number(view.sizes[axis]);
    line(fmt::format("{0} += {1} % (index){2} * {3}; {1} /= (index){2};", name, rest, size, stride));
  }
}

void CallSource::for_each(const std::string& variable, std::int64_t count) {
  is_wide_ = is_wide_ || count > INT32_MAX;
  line(fmt::format("const i64 count = {};", number(count)));
  line(fmt::format("for (i64 {0} = (i64)blockIdx.x * {1} + threadIdx.x; {0} < count; {0} += (i64)gridDim.x * {1}) {{",
                   variable, kThreads));
  ++open_loops_;
}

void CallSource::launch(std::int64_t count, unsigned shared_bytes) const {
  if (count > 0) launch_blocks((count + kThreads - 1) / kThreads, kThreads, shared_bytes);
}

void CallSource::launch_blocks(std::int64_t blocks, unsigned threads, unsigned shared_bytes) const {
  if (blocks <= 0) return;
  std::string body = text_;
  for (unsigned i = 0; i < open_loops_; ++i) body += "  }\n";
  const std::int64_t most = std::int64_t{64} * current_device().info().multiprocessors;
  const DryRun* const dry = DryRun::current();
  for (const bool wide : {false, true}) {
    if (wide != is_wide_ && (dry == nullptr || !dry->wants_both_widths())) continue;
    const std::string whole = fmt::format("  typedef {} index;\n{}", wide ? "i64" : "unsigned", body);
    const std::string name = function_name(prefix_, whole);
    const std::string source = fmt::format("FM_KERNEL({}, {}, {}) {{\n{}}}\n", name, slots_.size(), threads, whole);
    kernel_of(name, source)
        ->launch({static_cast<unsigned>(std::min(blocks, most)), threads, shared_bytes}, slots_.data());
  }
}

void copy_elements(const TensorView& from, const TensorView& to) {
  if (from.element_count() == 0) return;
  const unsigned rank = std::max<unsigned>(from.rank, 1);
  static constexpr std::int64_t kOne = 1;
  const std::int64_t* const sizes = from.rank == 0 ? &kOne : from.sizes;
  std::vector<std::int64_t> both;
  for (const TensorView* const side : {&from, &to})
    for (unsigned i = 0; i < rank; ++i) both.push_back(i < side->rank ? side->strides[i] : 1);
  const Kernel kernel = copy_kernel(from.dtype, rank, both[rank - 1] == 1, both.back() == 1);
  void* const pointers[] = {from.data, to.data};
  const std::int64_t offsets[] = {0, 0};
  std::int64_t rows = 1;
  for (unsigned i = 0; i + 1 < rank; ++i) rows *= sizes[i];
  compile_cached(BackendKey::cuda, kernel)
      ->launch({pointers, sizes, both.data(), offsets, nullptr, 0, rows, 0, sizes[rank - 1]});
}

Workspace::Workspace(std::int64_t bytes)
    : block_(current_device().allocator().allocate(static_cast<std::size_t>(bytes), current_stream())) {}
Workspace::~Workspace() {
  auto* const block = static_cast<Block*>(block_);
  block->device->allocator().release(block);
}
void* Workspace::data() const { return reinterpret_cast<void*>(static_cast<Block*>(block_)->address); }

void use_operands(const CallArgs& args) {
  for (const auto& views : {args.inputs, args.outputs})
    for (const TensorView& v : views) use_buffer(v.data);
}

}  // namespace fermata::gpu
