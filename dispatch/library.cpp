// See library.h.
#include "dispatch/library.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "dispatch/call.h"
#include "dispatch/kernel_table.h"
#include "dispatch/loaded_code.h"
#include "ir/error.h"

namespace fermata {
namespace {

bool is_whole_schema(std::string_view text) { return text.find('(') != text.npos; }

}  // namespace

Library::Library(Kind kind, std::string_view space, std::string_view key, std::source_location where)
    : kind_(kind),
      space_(space),
      key_(kind == Kind::implementation ? parse_key(key, where) : RegistrationKey::composite()) {
  keep_loaded(where.file_name());
  if (kind == Kind::definition) registrations_.push_back(register_namespace(space, where));
}

std::string Library::qualified(std::string_view name) const {
  return name.find("::") == name.npos ? fmt::format("{}::{}", space_, name) : std::string(name);
}

Library& Library::def(std::string_view text, std::string doc, std::source_location where) {
  Schema schema = parse_schema(text);
  if (schema.space.empty()) schema.space = space_;
  if (kind_ == Kind::implementation || schema.space != space_)
    throw ValueError(
        1519,
        format_error(1519, "ValueError",
                     fmt::format("{}: defined in a library of the namespace {}{}", schema.qualified_name(), space_,
                                 kind_ == Kind::implementation ? ", which may only register kernels" : ""),
                     {}, where, "define it in FERMATA_LIBRARY or FERMATA_LIBRARY_FRAGMENT of its namespace"));
  registrations_.push_back(register_schema(std::move(schema), std::move(doc), where));
  return *this;
}

void Library::define_with(std::string_view text, KernelFunction kernel, std::string doc, std::source_location where) {
  if (is_whole_schema(text)) {
    def(text, std::move(doc), where);
    const Schema schema = parse_schema(text);
    add_kernel(schema.name + (schema.overload.empty() ? "" : "." + schema.overload), std::move(kernel), {});
    return;
  }
  Schema schema = parse_schema(std::string(text) + "() -> ()");
  const std::string name = schema.name + (schema.overload.empty() ? "" : "." + schema.overload);
  for (const ArgType& t : kernel.signature->arguments())
    schema.arguments.push_back({fmt::format("x{}", schema.arguments.size()), t, {}, false, {}});
  for (const ArgType& t : kernel.signature->results()) schema.results.push_back({"", t, {}});
  def(to_string(schema), std::move(doc), where);
  add_kernel(name, std::move(kernel), {});
}

void Library::add_kernel(std::string_view name, KernelFunction kernel, KernelOptions options) {
  kernel.key = key_;
  kernel.variant = std::move(options.variant), kernel.fits = std::move(options.fits);
  kernel.fits_text = std::move(options.fits_text), kernel.cost = options.cost, kernel.replaces = options.replaces;
  registrations_.push_back(register_kernel(qualified(name), std::move(kernel)));
}

Library& Library::impl_boxed(std::string_view name, BoxedKernel kernel, KernelOptions options,
                             std::source_location where) {
  add_kernel(name, {.boxed = std::move(kernel), .where = where}, std::move(options));
  return *this;
}

Library& Library::fallthrough(std::string_view name, std::source_location where) {
  KernelFunction kernel{.where = where, .key = key_, .fallthrough = true};
  registrations_.push_back(register_kernel(qualified(name), std::move(kernel)));
  return *this;
}

Library& Library::fallback(BoxedKernel kernel, bool replaces, std::source_location where) {
  registrations_.push_back(
      register_fallback({.boxed = std::move(kernel), .where = where, .key = key_, .replaces = replaces}));
  return *this;
}

void Library::define_pointwise(std::string_view name, Family family, DTypeRule rule,
                               std::function<Formula(DType)> formula, std::string doc, std::source_location where) {
  constexpr std::string_view kArguments[] = {"Operand x", "Operand lhs, Operand rhs",
                                             "Operand x, Operand y, Operand z"};
  def(fmt::format("{}({}) -> Tensor", name, kArguments[static_cast<std::size_t>(family)]), std::move(doc), where);
  registrations_.push_back(register_formula(qualified(name), family, rule, std::move(formula), where));
}

void Library::keep() {
  for (Registration& r : registrations_) r.keep();
}

LibraryAtLoad::LibraryAtLoad(Library::Kind kind, const char* space, const char* key, void (*fill)(Library&),
                             std::source_location where) {
  try {
    library_.emplace_back(kind, space, key, where);
    fill(library_.back());
  } catch (const std::exception& error) {
    // Exceptions thrown while a program is loaded cannot be caught.
    fmt::print(stderr, "{}\n", error.what());
    std::terminate();
  }
}

}  // namespace fermata
