// See program_file.h.
#include "frontend/cli/program_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "fermata/fermata.h"
#include "frontend/tools/io/file.h"
#include "ir/op_traits.h"
#include "ir/ops/products.h"

namespace fermata::cli {
namespace {

[[noreturn]] void throw_input(std::string_view what, std::string_view hint) {
  throw ValueError(1332, format_error(1332, "ValueError", what, {}, {}, hint));
}

/// Whether node v is an operand of n with such elements.
bool is_operand_with(const GraphNode& n, ValueId v, OperandElements elements) {
  const auto named = traits(n.op).operands;
  for (std::size_t k = 0; k < n.operands.size() && k < named.size(); ++k)
    if (named[k].elements == elements && n.operands[k].value == v) return true;
  return false;
}

/// Positions along an axis must lie in it: how many there are, where node v is used as such.
std::optional<std::int64_t> positions_below(const Graph& graph, ValueId v) {
  std::optional<std::int64_t> least;
  for (const GraphNode& n : graph.nodes) {
    if (!is_operand_with(n, v, OperandElements::positions)) continue;
    const Shape& indexed = graph.nodes[n.operands[0].value].shape;
    const std::int64_t size = indexed[static_cast<std::size_t>(axis_of(n.op, n.attributes))];
    least = std::min(least.value_or(size), size);
  }
  return least;
}

/// Row offsets and columns of a sparse matrix, where node v is used as such: rows have about as many entries each.
std::optional<Tensor> made_up_pattern(const Graph& graph, ValueId v, Generator& generator) {
  for (const GraphNode& n : graph.nodes) {
    if (!is_operand_with(n, v, OperandElements::pattern)) continue;
    const bool sampled = n.op == Op::csr_sampled_matmul;
    const Shape &second = graph.nodes[n.operands[1].value].shape, &third = graph.nodes[n.operands[2].value].shape;
    const std::int64_t size = graph.nodes[v].shape[0], rows = sampled ? second[0] : size - 1 - second[0];
    const std::int64_t entries = size - 1 - rows,
                       width = sampled ? third[0] : attributes_of<ops::CsrMatmul>(n).columns.value;
    const Tensor offsets = floor_divide(arange(rows + 1) * entries, std::max<std::int64_t>(rows, 1));
    return concat({offsets, randint(0, std::max<std::int64_t>(width, 1), {entries}, DType::i64, generator)}, 0);
  }
  return std::nullopt;
}

Tensor made_up(const Graph& graph, ValueId v, std::uint64_t seed) {
  const GraphNode& n = graph.nodes[v];
  Generator generator(seed);
  generator.set_offset(std::uint64_t{v} << 32);
  if (is_floating(n.dtype)) return normal(n.shape, 0, 1, n.dtype, generator);
  if (n.dtype == DType::boolean) return bernoulli(0.5, n.shape, generator);
  if (const auto pattern = made_up_pattern(graph, v, generator)) return *pattern;
  constexpr std::int64_t kSmall = 10;
  const std::int64_t low = is_signed(n.dtype) ? -kSmall : 0;
  if (const auto positions = positions_below(graph, v)) {
    const std::int64_t high = std::max<std::int64_t>(*positions, 1);
    return randint(0, is_integer(n.dtype) && byte_size(n.dtype) == 1 ? std::min<std::int64_t>(high, 127) : high,
                   n.shape, n.dtype, generator);
  }
  return randint(low, kSmall, n.shape, n.dtype, generator);
}

Tensor from_file(const GraphNode& n, const std::string& path) {
  const Tensor x = path.ends_with(".npy") ? load_npy(path, {}) : load_csv(path, n.dtype, {}, {});
  if (x.element_count() != element_count(n.shape))
    throw_input(fmt::format("{} holds {}, but the program expects {}", path, to_string(x.dtype(), x.shape()),
                            to_string(n.dtype, n.shape)),
                {});
  return reshape(astype(x, n.dtype), n.shape);
}

std::map<ValueId, std::string> given_files(const std::vector<std::string>& assignments) {
  std::map<ValueId, std::string> files;
  for (const std::string& text : assignments) {
    const std::size_t equals = text.find('=');
    const char* const first = text.data() + text.starts_with('%');
    const char* const last = text.data() + std::min(equals, text.size());
    ValueId id = kNoValue;
    const auto [end, problem] = std::from_chars(first, last, id);
    if (equals == std::string::npos || problem != std::errc{} || end != last || equals + 1 == text.size())
      throw_input(fmt::format("--input {}: expected %N=FILE", text), "for example --input %0=x.npy");
    files[id] = text.substr(equals + 1);
  }
  return files;
}

/// A file that a program names itself: regular, and in the folder of the program or below. A program from somebody else
/// opens nothing else.
std::string file_beside(const std::string& program, std::string_view name) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(program).parent_path(), path = folder / name;
  std::error_code error;
  const fs::path home = fs::canonical(folder.empty() ? "." : folder, error), whole = fs::canonical(path, error);
  if (error) return path.string();  // it does not exist: loading reports this
  const bool is_below = std::ranges::mismatch(home, whole).in1 == home.end();
  if (!is_below || !fs::is_regular_file(whole, error))
    throw_input(fmt::format("{} refers to {}, which is not a file in its folder", program, name),
                "pass it with --input");
  return path.string();
}

/// Adds what the program lists itself, unless other files are given.
void add_listed_files(const std::string& program, std::map<ValueId, std::string>& files) {
  const std::string text = read_file("fermata", program, {});
  constexpr std::string_view kBefore = "// %", kBetween = " = \"";
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    if (!line.starts_with(kBefore)) continue;
    line.remove_prefix(kBefore.size());
    ValueId id = kNoValue;
    const auto [rest, problem] = std::from_chars(line.data(), line.data() + line.size(), id);
    if (problem != std::errc{}) continue;
    line.remove_prefix(static_cast<std::size_t>(rest - line.data()));
    if (!line.starts_with(kBetween)) continue;
    line.remove_prefix(kBetween.size());
    if (const std::size_t quote = line.find('"'); quote != std::string_view::npos && !files.contains(id))
      files[id] = file_beside(program, line.substr(0, quote));
  }
}

}  // namespace

Graph read_program(const std::string& path) {
  const std::string text = read_file("fermata", path, {});
  try {
    return parse_graph(text);
  } catch (const ParseError& error) {
    throw ParseError(error.code(), fmt::format("{}\n  in   {}", error.what(), path));
  }
}

std::map<ValueId, std::string> input_files(const std::string& program, const std::vector<std::string>& assignments) {
  std::map<ValueId, std::string> files = given_files(assignments);
  add_listed_files(program, files);
  return files;
}

std::vector<Tensor> make_inputs(const Graph& graph, const std::map<ValueId, std::string>& files, std::uint64_t seed) {
  for (const auto& [id, path] : files)
    if (id >= graph.nodes.size() || graph.nodes[id].op != Op::input)
      throw_input(fmt::format("--input %{}={}: %{} is not an input of the program", id, path, id), {});
  std::vector<Tensor> inputs;
  for (ValueId v = 0; v < graph.nodes.size(); ++v) {
    if (graph.nodes[v].op != Op::input) continue;
    const auto file = files.find(v);
    const Tensor x = file == files.end() ? made_up(graph, v, seed) : from_file(graph.nodes[v], file->second);
    x.sync();
    inputs.push_back(x);
  }
  return inputs;
}

}  // namespace fermata::cli
