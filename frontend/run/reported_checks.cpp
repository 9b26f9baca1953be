// See reported_checks.h.
#include "frontend/run/reported_checks.h"

#include <fmt/format.h>

#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {

void ReportedChecks::throw_error(const KernelLaunch&, std::span<const BoundNode> bound) const {
  std::vector<ErrorOperand> calls;
  std::string title;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const Node& n = nodes()[i];
    const std::int64_t size = bound[i].x[static_cast<std::size_t>(n.axis)];
    const std::string what = fmt::format("{}: a position leaves axis {} of size {}", name(n.op), n.axis, size);
    if (title.find(what) == std::string::npos) title += (title.empty() ? "" : ", or ") + what;
    calls.push_back({"x", to_string(n.x.dtype, bound[i].x), fmt::format("axis {} is {}", n.axis, size)});
    calls.push_back({"index", to_string(n.index.dtype, bound[i].index), ""});
  }
  throw IndexError(
      1204, format_error(1204, "IndexError", title, calls, bound.front().where, "compile(fn) names the position"));
}

}  // namespace fermata
