// See error.h.
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/scope.h"

namespace fermata {

std::string short_location(std::source_location where) {
  std::string_view path = where.file_name();
  std::size_t cut = path.rfind('/');
  if (cut != std::string_view::npos && cut != 0) cut = path.rfind('/', cut - 1);
  if (cut != std::string_view::npos) path.remove_prefix(cut + 1);
  return fmt::format("{}:{}", path, where.line());
}

std::string format_error(int code, std::string_view kind, std::string_view what,
                         const std::vector<ErrorOperand>& operands, std::source_location where, std::string_view hint) {
  std::string text = fmt::format("FM{:04} {}: {}", code, kind, what);
  std::size_t label_width = 4, text_width = 0;
  for (const ErrorOperand& o : operands) {
    label_width = std::max(label_width, o.label.size());
    if (!o.note.empty()) text_width = std::max(text_width, o.text.size());
  }
  for (const ErrorOperand& o : operands) {
    text += fmt::format("\n  {:<{}} {}", o.label, label_width, o.text);
    if (!o.note.empty()) text += fmt::format("{:<{}}{}", "", text_width - o.text.size() + 3, o.note);
  }
  if (where.line() != 0) text += fmt::format("\n  {:<{}} {}", "at", label_width, short_location(where));
  if (const std::string_view scope = scope_of(where).empty() ? current_scope() : scope_of(where); !scope.empty())
    text += fmt::format("\n  {:<{}} {}", "in", label_width, scope);
  std::string callers(callers_of(where));
  const auto describe = detail::describe_callers.load(std::memory_order_relaxed);
  if (callers.empty() && describe != nullptr && where.line() != 0) callers = describe(where);
  if (!callers.empty()) {
    text += '\n' + each_caller(callers, fmt::format("  {:<{}} ", "from", label_width));
    text.pop_back();
  }
  if (!hint.empty()) text += fmt::format("\n  {:<{}} {}", "hint", label_width, hint);
  return text;
}

void throw_internal(std::string_view what, std::source_location where) {
  throw InternalError(9001,
                      format_error(9001, "InternalError", what, {}, where,
                                   "this is a defect of Fermata: please report it with the IR (FERMATA_DUMP=ir)"));
}

}  // namespace fermata
