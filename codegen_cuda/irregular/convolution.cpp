// Convolutions and their gradients. See irregular.h. One thread for each element of the result, which adds its products
// in a fixed order: filters row by row, images in order.
#include "codegen_cuda/library/convolution.h"

#include <fmt/format.h>

#include "codegen_cuda/irregular/call_source.h"
#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/irregular/irregular.h"

namespace fermata::gpu {
namespace {

/// i64 names for the spatial coordinates of a number: <prefix>2, <prefix>3, ...; what is left is in `rest`.
void spatial(CallSource& s, const std::string& prefix, const std::string& rest, const TensorView& v) {
  for (unsigned i = v.rank; i-- > 2;) {
    const std::string size = s.number(v.sizes[i]);
    s.line(fmt::format("const i64 {0}{1} = {2} % {3}; {2} /= {3};", prefix, i, rest, size));
  }
}
std::string stride(CallSource& s, const TensorView& v, unsigned axis) { return s.number(v.strides[axis]); }

/// Opens loops over the spatial axes of a view, as <prefix>2, ...
void spatial_loops(CallSource& s, const std::string& prefix, const TensorView& v) {
  for (unsigned i = 2; i < v.rank; ++i)
    s.line(fmt::format("for (i64 {0}{1} = 0; {0}{1} < {2}; ++{0}{1}) {{", prefix, i, s.number(v.sizes[i])));
}
void close(CallSource& s, unsigned count) { s.line(std::string(count, '}')); }

std::string offset(CallSource& s, const TensorView& v, const std::string& prefix) {
  std::string sum;
  for (unsigned i = 2; i < v.rank; ++i) sum += fmt::format(" + {}{} * {}", prefix, i, stride(s, v, i));
  return sum;
}

void convolution_call(const CallArgs& args) {
  use_operands(args);
  const Convolution c = tensors_of(args);
  const ConvolutionAttributes a = convolution_attributes(args);
  const TensorView& out = args.outputs[0];
  const std::int64_t count = out.element_count();
  if (count == 0) return;
  const ElementText t = element_text(out.dtype, false);
  const std::int64_t filters = c.weight.sizes[0] / a.groups, channels = c.weight.sizes[1];
  const unsigned axes = static_cast<unsigned>(a.axes());
  CallSource s("convolution");
  s.for_each("i", count);
  s.line(fmt::format("const i64 filters = {}, channels = {}; i64 rest = i; {} sum = 0;", s.number(filters),
                     s.number(channels), t.sum));
  const auto of = [&](const char* name, const TensorView& v) {
    const std::string text = s.pointer(t.memory, v.data);
    s.line(fmt::format("{0}* const {1} = {2};", t.memory, name, text));
  };
  of("x", c.x), of("w", c.weight), of("y", c.y);
  // For each product the places p in y, k in the filter and q in x: q = p * stride + k * dilation - padding.
  const auto x_from_places = [&] {
    for (unsigned i = 2; i < axes + 2; ++i) {
      s.line(fmt::format("const i64 q{0} = p{0} * {1} + k{0} * {2} - {3};", i, s.number(a.strides[i - 2]),
                         s.number(a.dilation[i - 2]), s.number(a.padding[i - 2])));
      s.line(fmt::format("if (q{0} < 0 || q{0} >= {1}) continue;", i, s.number(c.x.sizes[i])));
    }
  };
  if (args.op == Op::convolution) {
    spatial(s, "p", "rest", c.y);
    s.line(fmt::format("const i64 o = rest % {0}, n = rest / {0};", s.number(c.y.sizes[1])));
    s.line("for (i64 c = 0; c < channels; ++c) {");
    spatial_loops(s, "k", c.weight);
    x_from_places();
    s.line(fmt::format("sum = sum + {} * {};",
                       t.load(fmt::format("x + n * {} + (o / filters * channels + c) * {}{}", stride(s, c.x, 0),
                                          stride(s, c.x, 1), offset(s, c.x, "q"))),
                       t.load(fmt::format("w + o * {} + c * {}{}", stride(s, c.weight, 0), stride(s, c.weight, 1),
                                          offset(s, c.weight, "k")))));
    close(s, axes + 1);
  } else if (args.op == Op::convolution_data_gradient) {
    spatial(s, "q", "rest", c.x);
    s.line(fmt::format("const i64 in = rest % {0}, n = rest / {0}, group = in / channels, c = in % channels;",
                       s.number(c.x.sizes[1])));
    s.line("for (i64 o = group * filters; o < (group + 1) * filters; ++o) {");
    spatial_loops(s, "k", c.weight);
    for (unsigned i = 2; i < axes + 2; ++i) {
      s.line(fmt::format("const i64 step{0} = {1}, u{0} = q{0} + {2} - k{0} * {3};", i, s.number(a.strides[i - 2]),
                         s.number(a.padding[i - 2]), s.number(a.dilation[i - 2])));
      s.line(fmt::format(
          "if (u{0} < 0 || u{0} % step{0} != 0 || u{0} / step{0} >= {1}) continue; const i64 p{0} = u{0} / step{0};", i,
          s.number(c.y.sizes[i])));
    }
    s.line(fmt::format(
        "sum = sum + {} * {};",
        t.load(fmt::format("y + n * {} + o * {}{}", stride(s, c.y, 0), stride(s, c.y, 1), offset(s, c.y, "p"))),
        t.load(fmt::format("w + o * {} + c * {}{}", stride(s, c.weight, 0), stride(s, c.weight, 1),
                           offset(s, c.weight, "k")))));
    close(s, axes + 1);
  } else {
    spatial(s, "k", "rest", c.weight);
    s.line("const i64 c = rest % channels, o = rest / channels;");
    s.line(fmt::format("for (i64 n = 0; n < {}; ++n) {{", s.number(c.x.sizes[0])));
    spatial_loops(s, "p", c.y);
    x_from_places();
    s.line(fmt::format(
        "sum = sum + {} * {};",
        t.load(fmt::format("x + n * {} + (o / filters * channels + c) * {}{}", stride(s, c.x, 0), stride(s, c.x, 1),
                           offset(s, c.x, "q"))),
        t.load(fmt::format("y + n * {} + o * {}{}", stride(s, c.y, 0), stride(s, c.y, 1), offset(s, c.y, "p")))));
    close(s, axes + 1);
  }
  s.line(fmt::format("fm_store({} + i, {});", s.pointer(t.memory, out.data), t.stored("sum")));
  s.launch(count);
}

}  // namespace

FERMATA_KERNELS(cuda) {
  for (const Op op : {Op::convolution, Op::convolution_data_gradient, Op::convolution_weight_gradient})
    add_variant(op, BackendKey::cuda,
                {.name = "nvrtc",
                 .form = KernelForm::library,
                 .dtypes = kFloating,
                 .call = &convolution_call,
                 .cost = &convolution_direct_cost});
}

}  // namespace fermata::gpu
