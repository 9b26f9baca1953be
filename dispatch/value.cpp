// See value.h.
#include "dispatch/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstring>

#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::string_view kKindNames[] = {"Tensor", "Operand", "Scalar", "int",   "float",
                                           "bool",   "str",     "dtype",  "Device"};

template <class... F> struct Overloaded : F... { using F::operator()...; };

/// Is there a tensor at this place of the arguments? Undefined ones are written as such.
enum class Tag : std::int64_t {
  none,
  tensor,
  undefined,
  tensors,
  scalar,
  integer,
  floating,
  boolean,
  string,
  dtype,
  device,
  integers,
  floats
};

struct Encoder {
  std::vector<std::int64_t> out;
  void put(Tag tag) { out.push_back(static_cast<std::int64_t>(tag)); }
  void put(Tag tag, std::int64_t v) { put(tag), out.push_back(v); }
  void tensor(const Tensor& t) { put(t.defined() ? Tag::tensor : Tag::undefined); }
  void text(const std::string& s) {
    put(Tag::string, static_cast<std::int64_t>(s.size()));
    for (std::size_t i = 0; i < s.size(); i += 8) {
      std::int64_t word = 0;
      std::memcpy(&word, s.data() + i, std::min<std::size_t>(8, s.size() - i));
      out.push_back(word);
    }
  }
};

struct Decoder {
  std::span<const std::int64_t> in;
  std::span<const Tensor> tensors;
  [[noreturn]] static void fail() { throw_internal("the arguments of a recorded call are damaged"); }
  std::int64_t take() {
    if (in.empty()) throw_internal("the arguments of a recorded call end early");
    const std::int64_t v = in.front();
    in = in.subspan(1);
    return v;
  }
  /// How many elements follow, of which each takes a word, or `per_word` of them one.
  std::size_t take_count(std::size_t per_word = 1) {
    const auto count = static_cast<std::uint64_t>(take());
    if (count / per_word > in.size()) fail();
    return count;
  }
  /// The number of one of `count` enumerators.
  template <class Enum> Enum take_enum(std::size_t count) {
    const std::int64_t v = take();
    if (v < 0 || static_cast<std::uint64_t>(v) >= count) fail();
    return static_cast<Enum>(v);
  }
  Tensor tensor(Tag tag) {
    if (tag == Tag::undefined) return {};
    if (tensors.empty()) throw_internal("a recorded call has fewer operands than its arguments say");
    Tensor t = tensors.front();
    tensors = tensors.subspan(1);
    return t;
  }
  Value next() {
    const auto tag = take_enum<Tag>(static_cast<std::size_t>(Tag::floats) + 1);
    switch (tag) {
      case Tag::none: return {};
      case Tag::tensor:
      case Tag::undefined: return tensor(tag);
      case Tag::tensors: {
        std::vector<Tensor> list(take_count());
        for (Tensor& t : list)
          t = tensor(take() == static_cast<std::int64_t>(Tag::undefined) ? Tag::undefined : Tag::tensor);
        return list;
      }
      case Tag::scalar: {
        Scalar s;
        s.kind = take_enum<DTypeKind>(static_cast<std::size_t>(DTypeKind::complex) + 1);
        s.integer = take();
        return s;
      }
      case Tag::integer: return take();
      case Tag::floating: return std::bit_cast<double>(take());
      case Tag::boolean: return take() != 0;
      case Tag::string: {
        std::string s(take_count(sizeof(std::int64_t)), '\0');
        for (std::size_t i = 0; i < s.size(); i += 8) {
          const std::int64_t word = take();
          std::memcpy(s.data() + i, &word, std::min<std::size_t>(8, s.size() - i));
        }
        return s;
      }
      case Tag::dtype: return take_enum<DType>(kDTypeCount);
      case Tag::device: {
        const auto backend = take_enum<BackendKey>(std::size(kBackendNames));
        return Device(backend, static_cast<int>(take()));
      }
      case Tag::integers: {
        std::vector<std::int64_t> list(take_count());
        for (std::int64_t& v : list) v = take();
        return list;
      }
      case Tag::floats: {
        std::vector<double> list(take_count());
        for (double& v : list) v = std::bit_cast<double>(take());
        return list;
      }
    }
    fail();
  }
};

std::string describe(const Tensor& t) { return t.defined() ? to_string(t.dtype(), t.shape()) : "undefined"; }

}  // namespace

std::string to_string(const ArgType& type) {
  return fmt::format("{}{}{}", kKindNames[static_cast<std::size_t>(type.kind)], type.list ? "[]" : "",
                     type.optional ? "?" : "");
}

bool Value::fits(const ArgType& type) const {
  if (is_none()) return type.optional;
  if (type.list) {
    switch (type.kind) {
      case TypeKind::tensor: return is<std::vector<Tensor>>();
      case TypeKind::integer: return is<std::vector<std::int64_t>>();
      case TypeKind::floating: return is<std::vector<double>>();
      default: return false;
    }
  }
  switch (type.kind) {
    case TypeKind::tensor: return is<Tensor>();
    case TypeKind::operand: return is<Tensor>() || is<Scalar>();
    case TypeKind::scalar: return is<Scalar>();
    case TypeKind::integer: return is<std::int64_t>();
    case TypeKind::floating: return is<double>();
    case TypeKind::boolean: return is<bool>();
    case TypeKind::string: return is<std::string>();
    case TypeKind::dtype: return is<DType>();
    case TypeKind::device: return is<Device>();
  }
  return false;
}

std::string to_string(const Value& value) {
  return std::visit(
      Overloaded{[](std::monostate) { return std::string("None"); }, [](const Tensor& t) { return describe(t); },
                 [](const std::vector<Tensor>& list) {
                   std::string text;
                   for (const Tensor& t : list) text += (text.empty() ? "" : ", ") + describe(t);
                   return "[" + text + "]";
                 },
                 [](const Scalar& s) {
                   return s.kind == DTypeKind::floating  ? fmt::format("{}", s.real)
                          : s.kind == DTypeKind::boolean ? std::string(s.integer != 0 ? "True" : "False")
                                                         : fmt::format("{}", s.integer);
                 },
                 [](bool b) { return std::string(b ? "True" : "False"); },
                 [](const std::string& s) { return fmt::format("\"{}\"", s); },
                 [](DType t) { return std::string(name(t)); },
                 [](Device d) {
                   const std::string_view backend = kBackendNames[static_cast<std::size_t>(d.backend())];
                   return d.index() == 0 ? std::string(backend) : fmt::format("{}:{}", backend, d.index());
                 },
                 [](const std::vector<std::int64_t>& v) { return fmt::format("[{}]", fmt::join(v, ", ")); },
                 [](const std::vector<double>& v) { return fmt::format("[{}]", fmt::join(v, ", ")); },
                 [](const auto& v) { return fmt::format("{}", v); }},
      value.storage());
}

std::vector<std::int64_t> encode_arguments(const Stack& stack) {
  Encoder e;
  for (const Value& value : stack)
    std::visit(Overloaded{[&](std::monostate) { e.put(Tag::none); }, [&](const Tensor& t) { e.tensor(t); },
                          [&](const std::vector<Tensor>& list) {
                            e.put(Tag::tensors, static_cast<std::int64_t>(list.size()));
                            for (const Tensor& t : list) e.tensor(t);
                          },
                          [&](const Scalar& s) {
                            e.put(Tag::scalar, static_cast<std::int64_t>(s.kind));
                            e.out.push_back(s.integer);
                          },
                          [&](std::int64_t v) { e.put(Tag::integer, v); },
                          [&](double v) { e.put(Tag::floating, std::bit_cast<std::int64_t>(v)); },
                          [&](bool v) { e.put(Tag::boolean, v ? 1 : 0); }, [&](const std::string& s) { e.text(s); },
                          [&](DType t) { e.put(Tag::dtype, static_cast<std::int64_t>(t)); },
                          [&](Device d) {
                            e.put(Tag::device, static_cast<std::int64_t>(d.backend()));
                            e.out.push_back(d.index());
                          },
                          [&](const std::vector<std::int64_t>& list) {
                            e.put(Tag::integers, static_cast<std::int64_t>(list.size()));
                            e.out.insert(e.out.end(), list.begin(), list.end());
                          },
                          [&](const std::vector<double>& list) {
                            e.put(Tag::floats, static_cast<std::int64_t>(list.size()));
                            for (const double v : list) e.out.push_back(std::bit_cast<std::int64_t>(v));
                          }},
               value.storage());
  return std::move(e.out);
}

Stack decode_arguments(std::span<const std::int64_t> encoded, std::span<const Tensor> tensors) {
  Decoder d{encoded, tensors};
  Stack stack;
  while (!d.in.empty()) stack.push_back(d.next());
  return stack;
}

std::vector<Tensor> tensors_of(const Stack& stack) {
  std::vector<Tensor> tensors;
  for (const Value& value : stack)
    const_cast<Value&>(value).for_each_tensor([&](Tensor& t) {
      if (t.defined()) tensors.push_back(t);
    });
  return tensors;
}

}  // namespace fermata
