// Graph passes over texts: one rule a file under golden/, in it the pass, the graph before and the graph after.
//
// A file begins with comments, of which `# pass: NAME` names the pass (several, separated by commas, run in order); a
// line `=>` divides. FERMATA_BLESS=1 rewrites what stands after it; a file without it, or with nothing after it, fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "ir/error.h"
#include "ir/graph.h"
#include "passes/pipeline.h"
#include "tests/ir/golden.h"
#include "tests/test_folder.h"

namespace fermata::testing {
namespace {

const std::string kFolder = test_folder() + "/passes/golden";
constexpr std::string_view kPass = "# pass: ", kDivider = "=>\n";

std::vector<std::string> golden_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() == ".ir") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> passes_of(std::string_view text) {
  std::vector<std::string> names;
  const std::size_t at = text.find(kPass);
  if (at == std::string_view::npos) return names;
  std::istringstream line{std::string(text.substr(at + kPass.size(), text.find('\n', at) - at - kPass.size()))};
  for (std::string name; std::getline(line >> std::ws, name, ',');) names.push_back(name);
  return names;
}

bool blessing() {
  const char* bless = std::getenv("FERMATA_BLESS");
  return bless != nullptr && *bless == '1';
}

class GoldenPass : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenPass, GivesTheGraphInTheFile) {
  const std::string path = kFolder + "/" + GetParam() + ".ir";
  const std::string text = read_text(path);
  const std::vector<std::string> passes = passes_of(text);
  ASSERT_FALSE(passes.empty()) << path << " does not name a pass";
  const std::size_t divider = text.find(kDivider);
  const std::string before = text.substr(0, divider);
  const std::string want = divider == std::string::npos ? "" : text.substr(divider + kDivider.size());
  const std::string got = to_string(run_passes(parse_graph(before), passes));
  if (blessing()) {
    std::ofstream(path, std::ios::binary) << before << kDivider << got;
    return;
  }
  ASSERT_FALSE(want.empty()) << path << " has no expectation; FERMATA_BLESS=1 writes\n" << got;
  EXPECT_EQ(got, want) << "FERMATA_BLESS=1 rewrites " << path;
  // What a pass leaves behind is left alone by it.
  EXPECT_EQ(to_string(run_passes(parse_graph(got), passes)), got) << path;
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenPass, ::testing::ValuesIn(golden_files()),
                         [](const auto& file) { return file.param; });

TEST(GoldenPasses, EveryGraphPassHasFiles) {
  std::set<std::string> covered;
  for (const std::string& name : golden_files())
    for (const std::string& pass : passes_of(read_text(kFolder + "/" + name + ".ir"))) covered.insert(pass);
  for (const std::string& pass : pass_names()) EXPECT_TRUE(covered.contains(pass)) << pass;
}

TEST(GoldenPasses, UnknownNamesAreErrors) {
  const Graph graph = parse_graph("%0 = input : f32[2]\nreturn %0\n");
  EXPECT_THROW(run_passes(graph, {"simplify", "beautify"}), ValueError);
  EXPECT_THROW(run_passes(graph, {"lower"}), ValueError);
}

}  // namespace
}  // namespace fermata::testing
