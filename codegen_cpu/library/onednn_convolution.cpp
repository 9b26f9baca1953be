// See onednn_convolution.h.
#if FERMATA_ONEDNN

#include "codegen_cpu/library/onednn_convolution.h"

#include <list>
#include <unordered_map>

#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/library/onednn_product.h"
#include "ir/channels_last.h"
#include "ir/per_thread.h"
#include "runtime/prepacked_weights.h"

namespace fermata::onednn {
namespace {

using dnnl::memory;

/// A network has some dozen convolutions, each in a few parts.
constexpr std::size_t kPrimitivesPerThread = 512;

memory::desc any(const memory::desc& d, const Dims& sizes) {
  return memory::desc(sizes, d.data_type(), memory::format_tag::any);
}
memory::desc channels_last(const memory::desc& d, const Dims& sizes) {
  const Shape strides = channels_last_strides(sizes);
  return memory::desc(sizes, d.data_type(), Dims(strides.begin(), strides.end()));
}

/// Where every element of a descriptor lies.
std::vector<std::int64_t> numbers_of(const memory::desc& description) {
  const dnnl_memory_desc_t& d = description.data;
  const dnnl_blocking_desc_t& blocking = d.format_desc.blocking;
  std::vector<std::int64_t> all{d.ndims, static_cast<std::int64_t>(d.data_type), blocking.inner_nblks};
  for (int i = 0; i < d.ndims; ++i) all.insert(all.end(), {d.dims[i], d.padded_dims[i], blocking.strides[i]});
  for (int i = 0; i < blocking.inner_nblks; ++i)
    all.insert(all.end(), {blocking.inner_blks[i], blocking.inner_idxs[i]});
  return all;
}

}  // namespace

Layout layout_of(const TensorView& view) {
  Layout layout{{view.sizes, view.sizes + view.rank}, {view.strides, view.strides + view.rank}};
  if (is_channels_last(layout.sizes, layout.strides)) {
    const Shape strides = channels_last_strides(layout.sizes);
    layout.strides.assign(strides.begin(), strides.end());
    return layout;
  }
  for (std::size_t i = view.rank; i-- > 0;)  // of an axis of one element any stride is right
    if (view.sizes[i] == 1) layout.strides[i] = i + 1 < view.rank ? layout.strides[i + 1] * view.sizes[i + 1] : 1;
  return layout;
}

std::size_t ConvolutionKey::hash() const {
  auto h = static_cast<std::uint64_t>(op) * 31 + static_cast<std::uint64_t>(dtype);
  for (const Dims* d : {&x.sizes, &weight.sizes, &y.sizes, &y.strides, &strides, &padding})
    for (const std::int64_t n : *d) h = (h ^ static_cast<std::uint64_t>(n)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  return h;
}

Side::Side(const memory::desc& as_given, const memory::desc& as_used, bool is_result) {
  given = memory(as_given, engine(), nullptr);
  if (as_given == as_used) return;
  used = memory(as_used, engine(), nullptr);
  bytes = (as_used.get_size() + 63) / 64 * 64;
  reorder = is_result ? dnnl::reorder(used, given) : dnnl::reorder(given, used);
}

std::byte* Side::place(const void* data, std::byte* scratch) {
  given.set_data_handle(const_cast<void*>(data));
  if (bytes != 0) used.set_data_handle(scratch);
  return scratch + bytes;
}

Convolution::Convolution(const ConvolutionKey& k) : key_(k), stream_(engine()) {
  const auto type = data_type_of(k.dtype);
  const bool sums_weights = k.op == Op::convolution_weight_gradient;
  const memory::desc x(k.x.sizes, type, k.x.strides), y(k.y.sizes, type, k.y.strides);
  const memory::desc weight(k.weight.sizes, sums_weights ? memory::data_type::f32 : type, k.weight.strides);
  const memory::desc any_x = any(x, k.x.sizes), any_y = any(y, k.y.sizes), any_weight = any(weight, k.weight.sizes);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc forward_weight(k.weight.sizes, type, memory::format_tag::any);
  using Forward = dnnl::convolution_forward;
  using Data = dnnl::convolution_backward_data;
  using Weights = dnnl::convolution_backward_weights;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const auto forward = [&](dnnl::prop_kind kind, const memory::desc& in, const memory::desc& out) {
    return Forward::primitive_desc(
        Forward::desc(kind, kDirect, in, forward_weight, out, k.strides, k.dilation, k.padding, k.padding_end),
        attributes, engine());
  };
  if (k.op == Op::convolution) {
    const auto description =
        forward(dnnl::prop_kind::forward_inference, channels_last(x, k.x.sizes), channels_last(y, k.y.sizes));
    primitive_ = Forward(description);
    finish(description, x, description.src_desc(), weight, description.weights_desc(), y, description.dst_desc());
    return;
  }
  const auto hint = forward(dnnl::prop_kind::forward_training, any_x, any_y);
  if (k.op == Op::convolution_data_gradient) {
    const Data::primitive_desc data(
        Data::desc(kDirect, any_x, any_weight, any_y, k.strides, k.dilation, k.padding, k.padding_end), attributes,
        engine(), hint);
    primitive_ = Data(data);
    finish(data, x, data.diff_src_desc(), weight, data.weights_desc(), y, data.diff_dst_desc());
  } else {
    const Weights::primitive_desc weights(
        Weights::desc(kDirect, any_x, any_weight, any_y, k.strides, k.dilation, k.padding, k.padding_end), attributes,
        engine(), hint);
    primitive_ = Weights(weights);
    finish(weights, x, weights.src_desc(), weight, weights.diff_weights_desc(), y, weights.diff_dst_desc());
  }
}

template <class Description> void Convolution::finish(const Description& d, const memory::desc& x,
                                                      const memory::desc& used_x, const memory::desc& weight,
                                                      const memory::desc& used_weight, const memory::desc& y,
                                                      const memory::desc& used_y) {
  result_ = key_.op == Op::convolution ? 2 : key_.op == Op::convolution_data_gradient ? 0 : 1;
  sides_.emplace_back(x, used_x, result_ == 0);
  sides_.emplace_back(weight, used_weight, result_ == 1);
  sides_.emplace_back(y, used_y, result_ == 2);
  weight_numbers_ = numbers_of(used_weight);
  weight_numbers_.insert(weight_numbers_.end(), key_.weight.strides.begin(), key_.weight.strides.end());
  scratch_ = memory(d.scratchpad_desc(), engine(), nullptr);
  note_made(result_ == 2   ? PrimitiveKind::convolution
            : result_ == 0 ? PrimitiveKind::data_gradient
                           : PrimitiveKind::weight_gradient);
  scratch_bytes_ = d.scratchpad_desc().get_size();
}

void Convolution::run(const void* x, const void* weight, const void* y, Storage* constant) {
  const StoragePtr kept = kept_weights(weight, constant);
  const Scratch<std::byte> scratch(
      static_cast<std::int64_t>(sides_[0].bytes + sides_[1].bytes + sides_[2].bytes + scratch_bytes_));
  std::byte* at = scratch.data();
  const void* const data[] = {x, weight, y};
  for (std::size_t i = 0; i < 3; ++i) {
    at = sides_[i].place(data[i], at);
    if (i == 1 && kept != nullptr) {
      sides_[i].used.set_data_handle(kept->data);
      continue;
    }
    if (i != result_ && sides_[i].bytes != 0) sides_[i].reorder.execute(stream_, sides_[i].given, sides_[i].used);
  }
  scratch_.set_data_handle(at);
  const bool data_gradient = result_ == 0, weight_gradient = result_ == 1;
  const dnnl_exec_arg_t arguments[] = {
      {data_gradient ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, sides_[0].operand().get()},
      {weight_gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, sides_[1].operand().get()},
      {result_ == 2 ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, sides_[2].operand().get()},
      {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream_.get(), 4, arguments),
                          "could not execute a convolution primitive");
  Side& result = sides_[result_];
  if (result.bytes != 0) result.reorder.execute(stream_, result.used, result.given);
}

/// Parts of one convolution mostly have weights alike, whatever their sizes.
StoragePtr Convolution::kept_weights(const void* weight, Storage* constant) {
  Side& side = sides_[1];
  if (constant == nullptr || result_ == 1 || side.bytes == 0) return nullptr;
  static constexpr std::byte kLayout{};
  return PrepackedWeights::find(constant, {&kLayout, weight, weight_numbers_}, side.bytes, [&](std::byte* to) {
    side.given.set_data_handle(const_cast<void*>(weight)), side.used.set_data_handle(to);
    side.reorder.execute(stream_, side.given, side.used);
  });
}

Convolution& convolution_for(const ConvolutionKey& key) {
  struct Hash {
    std::size_t operator()(const ConvolutionKey& k) const { return k.hash(); }
  };
  struct Kept {
    std::list<std::pair<const ConvolutionKey, Convolution>> recent;
    std::unordered_map<ConvolutionKey, decltype(recent)::iterator, Hash> by_key;
  };
  static constinit thread_local PerThread<Kept> kept_of_thread;
  Kept& kept = kept_of_thread.get();
  if (const auto known = kept.by_key.find(key); known != kept.by_key.end()) {
    kept.recent.splice(kept.recent.begin(), kept.recent, known->second);
    return known->second->second;
  }
  if (kept.recent.size() == kPrimitivesPerThread) {
    kept.by_key.erase(kept.recent.back().first);
    kept.recent.pop_back();
  }
  kept.recent.emplace_front(std::piecewise_construct, std::forward_as_tuple(key), std::forward_as_tuple(key));
  kept.by_key.emplace(key, kept.recent.begin());
  return kept.recent.front().second;
}

bool convolves_natively(DType t) {
  return t == DType::f32 || (t == DType::bf16 && has_isa(dnnl::cpu_isa::avx512_core_bf16));
}

}  // namespace fermata::onednn

#endif
