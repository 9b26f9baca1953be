// What a new user sees first: the demo, and the twenty lines of the README.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kRoot = std::filesystem::path(fermata::test_folder()).parent_path();

/// A number in a flat JSON object; NaN if it is not there.
double figure(const std::string& json, const std::string& key) {
  std::smatch match;
  if (!std::regex_search(json, match, std::regex("\"" + key + "\": ([-+0-9.e]+)"))) return std::nan("");
  return std::stod(match[1]);
}

TEST(Demo, TrainsInBothModesToTheSameLosses) {
  const Scratch scratch;
  const Outcome demo = run_program("fermata demo --epochs 4 --json figures.json", "FERMATA_COMPILE=second_sight ");
  ASSERT_EQ(demo.status, 0) << demo.err;
  const std::string json = file_text("figures.json");
  EXPECT_GT(figure(json, "accuracy_eager"), 0.9);
  EXPECT_GT(figure(json, "accuracy_compiled"), 0.9);
  EXPECT_LE(figure(json, "max_relative_loss_difference"), 1e-4);
  EXPECT_EQ(figure(json, "steps"), 4 * 22);
  EXPECT_GT(figure(json, "plan_cache_hits"), 80);
  EXPECT_LE(figure(json, "plans_compiled"), 8);
  for (const char* key : {"eager_us_per_step", "compiled_us_per_step", "kernels_compiled", "compile_ms"})
    EXPECT_GT(figure(json, key), 0) << key;
  EXPECT_THAT(demo.out, HasSubstr("Training eager, op by op:"));
  EXPECT_THAT(demo.out, HasSubstr("fermata demo --report demo.html"));
  EXPECT_THAT(demo.out, HasSubstr("times as fast"));
  const std::string last = demo.out.substr(demo.out.find("                          eager    compiled"));
  EXPECT_LE(std::ranges::count(last, '\n'), 24) << "more than a screen";
}

TEST(Demo, ShowsDetailsOnRequest) {
  const Scratch scratch;
  const Outcome demo = run_program("fermata demo --epochs 2 --details");
  ASSERT_EQ(demo.status, 0) << demo.err;
  EXPECT_THAT(demo.out, HasSubstr("step 0: "));
  EXPECT_THAT(demo.out, HasSubstr("us per call"));
}

TEST(Demo, NamesTheFileThatIsNotThere) {
  const Scratch scratch;
  const Outcome demo = run_program("fermata demo --data nothing.csv");
  EXPECT_EQ(demo.status, 1);
  EXPECT_THAT(demo.err,
              HasSubstr("FM1601 FileError: load_csv: nothing.csv: cannot be opened (No such file or directory)"));
}

TEST(Readme, ShowsTheQuickstartThatIsBuilt) {
  const std::string program = file_text(kRoot / "examples" / "quickstart.cpp");
  const std::string code = program.substr(program.find("#include"));
  EXPECT_THAT(file_text(kRoot / "README.md"), HasSubstr("```cpp\n" + code + "```"));
}

TEST(Readme, TheQuickstartLearns) {
  const Scratch scratch;
  const Outcome quickstart = run_program("examples/quickstart");
  ASSERT_EQ(quickstart.status, 0) << quickstart.err;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(quickstart.out, match, std::regex("step 100  loss ([0-9.e-]+)")));
  EXPECT_LT(std::stod(match[1]), 0.02);  // the noise has variance 0.01
  EXPECT_THAT(quickstart.out, HasSubstr("step 0: kernel"));
}

TEST(Examples, AKilledTrainingRunGoesOnToTheBit) {
  const Scratch scratch;
  const Outcome resume = run_program("examples/resume");
  ASSERT_EQ(resume.status, 0) << resume.out << resume.err;
  EXPECT_THAT(resume.out, HasSubstr("compiled  loss"));
  EXPECT_THAT(resume.err, Not(HasSubstr("spirals")));  // no terminal, no progress
}

}  // namespace
}  // namespace fermata
