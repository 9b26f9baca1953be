// See schema.h.
#include "dispatch/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ir/error.h"

namespace fermata {
namespace {

[[noreturn]] void fail_at(std::string_view text, std::size_t at, const std::string& what) {
  throw ParseError(1511, fmt::format("FM1511 ParseError: schema: {}\n  {}\n  {:>{}}", what, text, '^', at + 1));
}
[[noreturn]] void refuse(std::string_view text, const std::string& what) {
  throw ParseError(1512, format_error(1512, "ParseError", "schema: " + what, {{"schema", std::string(text), ""}}, {}));
}

class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text) {}

  Schema parse() {
    Schema schema;
    schema.name = word("the name of an operator");
    for (const Effect effect : {Effect::pure, Effect::random, Effect::effect})
      if (!schema.effect && at_word() && schema.name == fermata::name(effect))
        schema.effect = effect, schema.name = word("the name of an operator");
    if (accept("::")) schema.space = std::exchange(schema.name, word("the name of an operator"));
    if (accept(".")) schema.overload = word("the name of an overload");
    expect("(");
    parse_arguments(schema);
    expect("->");
    parse_results(schema);
    if (at_ != text_.size()) fail_at(text_, at_, "unexpected text after the results");
    check(schema);
    return schema;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(std::string_view symbol) {
    skip();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    skip();
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) fail_at(text_, at_, fmt::format("expected '{}'", symbol));
  }
  bool at_word() {
    skip();
    return at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_');
  }
  std::string word(std::string_view what) {
    skip();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    if (begin == at_) fail_at(text_, begin, fmt::format("expected {}", what));
    const std::string found(text_.substr(begin, at_ - begin));
    skip();
    return found;
  }

  std::pair<ArgType, AliasInfo> parse_type() {
    skip();
    const std::size_t begin = at_;
    const std::string name = word("a type");
    ArgType type;
    AliasInfo alias;
    if (name == "Tensor")
      type.kind = TypeKind::tensor;
    else if (name == "Operand")
      type.kind = TypeKind::operand;
    else if (name == "Scalar")
      type.kind = TypeKind::scalar;
    else if (name == "int")
      type.kind = TypeKind::integer;
    else if (name == "float")
      type.kind = TypeKind::floating;
    else if (name == "bool")
      type.kind = TypeKind::boolean;
    else if (name == "str")
      type.kind = TypeKind::string;
    else if (name == "dtype")
      type.kind = TypeKind::dtype;
    else if (name == "Device")
      type.kind = TypeKind::device;
    else if (name == "Shape")
      type.kind = TypeKind::integer, type.list = true;
    else
      fail_at(text_, begin,
              fmt::format(
                  "unknown type {}; use one of Tensor, Operand, Scalar, int, float, bool, str, dtype, Device, Shape",
                  name));
    if (accept("(")) {
      if (type.kind != TypeKind::tensor) fail_at(text_, begin, "only tensors may have alias annotations");
      alias.set = word("a letter");
      alias.write = accept("!");
      expect(")");
    }
    if (accept("[")) {
      expect("]");
      const bool known =
          type.kind == TypeKind::tensor || type.kind == TypeKind::integer || type.kind == TypeKind::floating;
      if (!known || type.list) fail_at(text_, begin, fmt::format("lists of {} are not supported", name));
      type.list = true;
    }
    type.optional = accept("?");
    return {type, alias};
  }

  Value parse_default(const ArgType& type) {
    skip();
    if (accept("[")) {
      std::vector<double> numbers;
      while (!accept("]")) {
        if (!numbers.empty()) expect(",");
        numbers.push_back(number());
      }
      if (type.kind == TypeKind::tensor) return std::vector<Tensor>();
      if (type.kind == TypeKind::floating) return numbers;
      return std::vector<std::int64_t>(numbers.begin(), numbers.end());
    }
    if (accept("\"")) {
      const std::size_t end = text_.find('"', at_);
      if (end == text_.npos) fail_at(text_, at_, "an unterminated string");
      const std::string text(text_.substr(at_, end - at_));
      at_ = end + 1;
      skip();
      return text;
    }
    const std::size_t begin = at_;
    if (at_word()) {
      const std::string name = word("a value");
      if (name == "None") return {};
      if (name == "True" || name == "False")
        return type.kind == TypeKind::boolean ? Value(name == "True") : Value(Scalar(name == "True"));
      if (type.kind == TypeKind::dtype)
        if (const auto dtype = dtype_from_name(name)) return *dtype;
      if (type.kind == TypeKind::device)
        for (std::size_t i = 0; i < kBackendCount; ++i)
          if (kBackendNames[i] == name) return Device(static_cast<BackendKey>(i));
      fail_at(text_, begin, fmt::format("{} is not a value of type {}", name, to_string(type)));
    }
    const double value = number();
    const bool whole = text_.substr(begin, at_ - begin).find_first_of(".eE") == std::string_view::npos;
    std::int64_t integer = 0;
    if (whole && type.kind != TypeKind::floating &&
        std::from_chars(text_.data() + begin, text_.data() + at_, integer).ec != std::errc())
      fail_at(text_, begin, "the integer needs more than 64 bits");
    switch (type.kind) {
      case TypeKind::integer: return whole ? Value(integer) : Value(value);
      case TypeKind::scalar:
      case TypeKind::operand: return whole ? Scalar(integer) : Scalar(value);
      default: return value;
    }
  }
  double number() {
    double value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail_at(text_, at_, "expected a number");
    at_ += static_cast<std::size_t>(end - begin);
    skip();
    return value;
  }

  void parse_arguments(Schema& schema) {
    bool keyword_only = false;
    for (bool first = true; !accept(")"); first = false) {
      if (!first) expect(",");
      if (accept("*")) {
        keyword_only = true;
        continue;
      }
      SchemaArgument argument;
      std::tie(argument.type, argument.alias) = parse_type();
      argument.name = word("the name of an argument"), argument.keyword_only = keyword_only;
      if (accept("=")) {
        argument.default_value = parse_default(argument.type);
        if (!argument.default_value->fits(argument.type))
          refuse(text_, fmt::format("the default of {} is not of type {}", argument.name, to_string(argument.type)));
      }
      schema.arguments.push_back(std::move(argument));
    }
  }
  void parse_result(Schema& schema) {
    SchemaResult result;
    std::tie(result.type, result.alias) = parse_type();
    if (at_word()) result.name = word("the name of a result");
    schema.results.push_back(std::move(result));
  }
  void parse_results(Schema& schema) {
    if (!accept("(")) return parse_result(schema);
    for (bool first = true; !accept(")"); first = false) {
      if (!first) expect(",");
      parse_result(schema);
    }
  }

  void check(const Schema& schema) const {
    bool defaults = false;
    for (std::size_t i = 0; i < schema.arguments.size(); ++i) {
      const SchemaArgument& a = schema.arguments[i];
      for (std::size_t j = 0; j < i; ++j)
        if (schema.arguments[j].name == a.name) refuse(text_, fmt::format("duplicate argument name {}", a.name));
      if (a.keyword_only) continue;
      if (defaults && !a.default_value)
        refuse(text_, fmt::format("{} has no default, but an argument before it does", a.name));
      defaults = a.default_value.has_value();
    }
    for (const SchemaResult& r : schema.results) {
      if (r.alias.set.empty()) continue;
      const auto same =
          std::ranges::find_if(schema.arguments, [&](const SchemaArgument& a) { return a.alias.set == r.alias.set; });
      if (same == schema.arguments.end())
        refuse(text_, fmt::format("a result aliases ({}), which no argument has", r.alias.set));
      if (r.alias.write != same->alias.write)
        refuse(text_, fmt::format("({}) is marked as written in one place but not the other", r.alias.set));
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string with_alias(const ArgType& type, const AliasInfo& alias) {
  std::string text = to_string(type);
  if (alias.set.empty()) return text;
  return text.insert(text.find_first_of("[?") == text.npos ? text.size() : text.find_first_of("[?"),
                     fmt::format("({}{})", alias.set, alias.write ? "!" : ""));
}

}  // namespace

std::string Schema::qualified_name() const {
  return fmt::format("{}{}{}{}{}", space, space.empty() ? "" : "::", name, overload.empty() ? "" : ".", overload);
}

bool Schema::has_alias() const {
  return std::ranges::any_of(arguments, [](const SchemaArgument& a) { return !a.alias.set.empty(); });
}
bool Schema::writes() const {
  return std::ranges::any_of(arguments, [](const SchemaArgument& a) { return a.alias.write; });
}

Schema parse_schema(std::string_view text) { return SchemaParser(text).parse(); }

std::string to_string(const Schema& schema) {
  std::string text = schema.effect ? std::string(name(*schema.effect)) + " " : "";
  text += schema.qualified_name() + "(";
  bool keyword_only = false;
  for (std::size_t i = 0; i < schema.arguments.size(); ++i) {
    const SchemaArgument& a = schema.arguments[i];
    if (i > 0) text += ", ";
    if (a.keyword_only && !std::exchange(keyword_only, true)) text += "*, ";
    text += fmt::format("{} {}", with_alias(a.type, a.alias), a.name);
    if (a.default_value) text += "=" + to_string(*a.default_value);
  }
  text += ") -> ";
  const bool one = schema.results.size() == 1;
  if (!one) text += "(";
  for (std::size_t i = 0; i < schema.results.size(); ++i) {
    const SchemaResult& r = schema.results[i];
    text += fmt::format("{}{}{}{}", i > 0 ? ", " : "", with_alias(r.type, r.alias), r.name.empty() ? "" : " ", r.name);
  }
  return one ? text : text + ")";
}

}  // namespace fermata
