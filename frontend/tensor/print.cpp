// See fermata/print.h.
//
// Every element is formatted first, in one style for the whole tensor, and padded to a common width; the brackets are
// then a matter of counting.
#include "fermata/print.h"

#include <fmt/format.h>
#include <new>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <ostream>
#include <system_error>

#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/engine/no_memory.h"
#include "frontend/layouts/quantized_tensor.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/layouts/sparse_tensor.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::int64_t kMaxElements = 1000, kEdgeElements = 3;
constexpr int kMaxDigits = 4;
constexpr std::string_view kOpening = "tensor(";

/// The style of all floats of a tensor, as NumPy chooses it.
struct FloatStyle {
  bool scientific = false;
  int digits = 0;  // after the point

  explicit FloatStyle(const std::vector<double>& values) {
    double smallest = HUGE_VAL, largest = 0;
    for (const double v : values) {
      if (!std::isfinite(v) || v == 0) continue;
      smallest = std::min(smallest, std::fabs(v)), largest = std::max(largest, std::fabs(v));
    }
    scientific = largest >= 1e8 || (largest > 0 && (smallest < 1e-4 || largest / smallest > 1e6));
    for (const double v : values)
      while (digits < kMaxDigits && std::isfinite(v) && !is_shown(v)) ++digits;
  }
  std::string text(double v) const {
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
    if (scientific) return fmt::format("{:.{}e}", v, digits);
    const std::string fixed = fmt::format("{:.{}f}", v, digits);
    return digits == 0 ? fixed + "." : fixed;
  }

 private:
  /// Do the digits so far give back v, as far as kMaxDigits would?
  bool is_shown(double v) const {
    // Rounded up, the largest numbers are no number any more. std::stod would throw, there and for subnormal numbers,
    // and reads what the locale calls a number.
    const auto rounded = [&](int n) -> std::optional<double> {
      const std::string text = scientific ? fmt::format("{:.{}e}", v, n) : fmt::format("{:.{}f}", v, n);
      double number = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      return error == std::errc() ? std::optional(number) : std::nullopt;
    };
    const std::optional<double> shown = rounded(digits);
    return shown && shown == rounded(kMaxDigits);
  }
};

std::vector<std::string> formatted(const HostElements& elements) {
  std::vector<std::string> cells;
  std::vector<double> floats;
  visit_stored(elements.dtype(), [&]<class T>() {
    const auto* values = static_cast<const T*>(elements.data());
    for (std::int64_t i = 0; i < elements.count(); ++i) {
      if constexpr (std::is_same_v<T, bool>)
        cells.push_back(values[i] ? "true" : "false");
      else if constexpr (std::is_integral_v<T>)
        cells.push_back(fmt::format("{}", values[i]));
      else if constexpr (kIsSmallInteger<T>)
        cells.push_back(fmt::format("{}", to_integer(values[i])));
      else
        floats.push_back(convert_element<double>(values[i]));
    }
  });
  visit_complex(elements.dtype(), [&]<class T>() {
    const auto* values = static_cast<const T*>(elements.data());
    for (std::int64_t i = 0; i < elements.count(); ++i)
      floats.push_back(static_cast<double>(values[i].real())), floats.push_back(static_cast<double>(values[i].imag()));
  });
  if (floats.empty()) return cells;
  const FloatStyle style(floats);
  if (!is_complex(elements.dtype()))
    for (const double v : floats) cells.push_back(style.text(v));
  else
    for (std::size_t i = 0; i < floats.size(); i += 2)
      cells.push_back(fmt::format("{}{}{}j", style.text(floats[i]), std::signbit(floats[i + 1]) ? "" : "+",
                                  style.text(floats[i + 1])));
  return cells;
}

/// Writes brackets around cells that are taken in order. `cut` axes show kEdgeElements at either end.
class Brackets {
 public:
  Brackets(const Shape& shape, bool cut, std::vector<std::string> cells)
      : shape_(shape), cut_(cut), cells_(std::move(cells)) {
    for (const std::string& cell : cells_) width_ = std::max(width_, cell.size());
  }
  std::string text() {
    write(0);
    return std::move(text_);
  }

 private:
  void write(unsigned axis) {
    if (axis == shape_.rank()) {
      const std::string& cell = cells_[next_++];
      text_.append(shape_.rank() == 0 ? 0 : width_ - cell.size(), ' ') += cell;
      return;
    }
    text_ += '[';
    const std::int64_t size = shape_[axis];
    const bool shortened = cut_ && size > 2 * kEdgeElements;
    for (std::int64_t i = 0; i < size; ++i) {
      if (i > 0) separate(axis);
      if (shortened && i == kEdgeElements) {
        text_ += "...";
        i = size - kEdgeElements;
        separate(axis);
      }
      write(axis + 1);
    }
    text_ += ']';
  }
  /// Within a row a blank, between rows a new line, between matrices an empty one.
  void separate(unsigned axis) {
    const unsigned below = shape_.rank() - axis - 1;
    text_ += below == 0 ? ", " : ",";
    if (below == 0) return;
    text_.append(below, '\n').append(kOpening.size() + axis + 1, ' ');
  }

  const Shape& shape_;
  bool cut_;
  std::vector<std::string> cells_;
  std::size_t width_ = 0, next_ = 0;
  std::string text_;
};

/// x with what is not shown of a long axis taken out.
Tensor edges(Tensor x, Location where) {
  for (unsigned axis = 0; axis < x.rank(); ++axis)
    if (x.size(axis) > 2 * kEdgeElements)
      x = concat({slice(x, axis, 0, kEdgeElements, 1, where), slice(x, axis, -kEdgeElements, kNone, 1, where)}, axis,
                 where);
  return x;
}

}  // namespace

std::string to_string(const Tensor& x, Location where) try {
  if (!x.defined()) return "tensor(undefined)";
  if (quantized_payload(x) != nullptr) return quantized_to_string(x, where);
  if (weight_payload(x) != nullptr) return weights_to_string(x, where);
  if (sparse_payload(x) != nullptr) return sparse_to_string(x, where);
  const Shape shape = x.shape();
  const std::int64_t count = x.element_count();
  if (is_batched(x)) return fmt::format("tensor({}, batched)", to_string(x.dtype(), shape));
  if (!kStored.has(x.dtype())) return fmt::format("tensor({})", to_string(x.dtype(), shape));
  const bool cut = count > kMaxElements;
  x.sync(where);  // before it is sliced, so that the whole value is computed once
  std::optional<KeyGuard> eager;
  if (cut) eager.emplace(DispatchKeySet(), DispatchKeySet(Functionality::capture) | Functionality::autograd);
  std::vector<std::string> cells = formatted(HostElements(cut ? edges(to(x, cpu()), where) : x, "printing", where));
  const std::string size = cut || count == 0 ? fmt::format("shape={}, ", to_string(shape)) : "";
  // A shape with a 0 in it has no cells to put brackets around.
  const std::string body = count == 0 ? "[]" : Brackets(shape, cut, std::move(cells)).text();
  return fmt::format("{}{}, {}{})", kOpening, body, size, name(x.dtype()));
} catch (const std::bad_alloc&) { throw_no_memory("to_string", where); }

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x, {}); }
std::ostream& operator<<(std::ostream& out, const Shape& sizes) { return out << to_string(sizes); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace fermata
