// `fermata doctor` and docs/environment.md name every environment variable that the sources read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kRoot = std::filesystem::path(fermata::test_folder()).parent_path();

/// Names in quotes in the sources of a folder.
std::set<std::string> variables_in(const std::filesystem::path& folder) {
  static const std::regex kName("\"(FERMATA_[A-Z_]+)\"");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const auto extension = entry.path().extension();
    if (!entry.is_regular_file() || (extension != ".cpp" && extension != ".h")) continue;
    const std::string text = file_text(entry.path());
    for (std::sregex_iterator at(text.begin(), text.end(), kName), end; at != end; ++at) names.insert((*at)[1]);
  }
  return names;
}

std::set<std::string> engine_variables() {
  std::set<std::string> names;
  for (const char* folder : {"ir", "runtime", "dispatch", "passes", "codegen_cpu", "frontend"})
    names.merge(variables_in(kRoot / folder));
  return names;
}

TEST(Doctor, NamesEveryVariableThatTheEngineReads) {
  const Scratch scratch;
  const Outcome doctor = run_program("fermata doctor");
  EXPECT_EQ(doctor.status, 0) << doctor.err;
  const std::set<std::string> names = engine_variables();
  EXPECT_GE(names.size(), 10u);
  for (const std::string& name : names) EXPECT_THAT(doctor.out, HasSubstr("\n" + name + " "));
}

TEST(Doctor, EveryVariableIsDocumented) {
  const std::string page = file_text(kRoot / "docs" / "environment.md");
  std::set<std::string> names = engine_variables();
  names.merge(variables_in(kRoot / "tests"));
  for (const std::string& name : names) {
    if (name.starts_with("FERMATA_NO_SUCH")) continue;  // of the test below
    EXPECT_THAT(page, HasSubstr("`" + name + "`"));
  }
}

TEST(Doctor, ShowsValuesAndPointsAtMisspeltNames) {
  const Scratch scratch;
  const Outcome doctor = run_program("fermata doctor", "FERMATA_NO_SUCH_THING=1 FERMATA_NUM_THREADS=1 ");
  EXPECT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_TRUE(std::regex_search(doctor.out, std::regex("FERMATA_NUM_THREADS +1 ")));
  EXPECT_THAT(doctor.out, HasSubstr("1 in the pool"));
  EXPECT_THAT(doctor.out, HasSubstr("- FERMATA_NO_SUCH_THING is set, but the engine does not read it.\n"));
}

TEST(Doctor, AlignsTheColumnsOfVariables) {
  const Scratch scratch;
  const Outcome doctor = run_program("fermata doctor", "FERMATA_PROFILE=/a/folder/with/a/long/name/trace.json ");
  std::istringstream lines(doctor.out.substr(doctor.out.find("\nenvironment ") + 1));
  std::string line;
  std::getline(lines, line);
  for (const char* const title : {"default", "meaning"}) EXPECT_THAT(line, HasSubstr(std::string("  ") + title));
  const std::size_t otherwise = line.find("default"), meaning = line.find("meaning");
  while (std::getline(lines, line) && !line.empty())
    for (const std::size_t column : {otherwise, meaning}) {
      EXPECT_EQ(line.substr(column - 2, 2), "  ") << line;
      EXPECT_NE(line[column], ' ') << line;
    }
}

TEST(Doctor, SaysWhyKernelsAreNotCompiled) {
  const Scratch scratch;
  const Outcome doctor = run_program("fermata doctor", "FERMATA_LLVM_PLUGIN=/nonexistent.so ");
  EXPECT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_THAT(doctor.out, HasSubstr("compiled kernels     none: "));
  EXPECT_THAT(doctor.out, HasSubstr("- Kernels are not compiled; every program is interpreted op by op."));
}

TEST(Doctor, KeepsTheRatesThatItMeasures) {
  const Scratch scratch;
  const std::string folder = "FERMATA_CALIBRATE= FERMATA_CACHE_DIR=" + std::filesystem::absolute("kept").string() + " ";
  EXPECT_THAT(run_program("fermata doctor", folder).out, HasSubstr("rates of products    shipped\n"));
  const Outcome measured = run_program("fermata doctor --calibrate", folder);
  EXPECT_EQ(measured.status, 0) << measured.err;
  EXPECT_TRUE(std::regex_search(measured.out, std::regex("\nportable_avx2 +[0-9.]+ +[0-9.]+\n"))) << measured.out;
  EXPECT_THAT(run_program("fermata doctor", folder).out, HasSubstr("rates of products    measured before\n"));
  EXPECT_THAT(run_program("fermata doctor", folder + "FERMATA_CALIBRATE=0 ").out,
              HasSubstr("rates of products    shipped\n"));
}

}  // namespace
}  // namespace fermata
