// The kept inputs of every fuzz target, and mutations of them: bytes changed, taken out, put in and moved between
// inputs. clang's libFuzzer finds more (scripts/fuzz.sh); what it finds is kept here.
//
// FERMATA_FUZZ_COUNT says how many mutations of each target, FERMATA_SEED which ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/frontend/op_calls.h"
#include "tests/fuzz/targets/target.h"
#include "tests/ir/seed.h"
#include "tests/test_folder.h"

namespace fermata::testing {
namespace {

std::vector<std::string> a_call_of_each_op() {
  std::vector<std::string> programs;
  for (std::size_t op = 0; op < kOpCount; ++op)
    if (const auto call = test::good_call(static_cast<Op>(op)))
      programs.push_back(test::text_of(static_cast<Op>(op), *call));
  return programs;
}

std::vector<std::string> corpus_of(std::string_view target) {
  const std::filesystem::path folder = std::filesystem::path(test_folder()) / "fuzz" / "corpus" / target;
  std::vector<std::filesystem::path> files;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::string> inputs;
  for (const auto& file : files) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    inputs.push_back(text.str());
  }
  if (target == "program") {
    const std::vector<std::string> calls = a_call_of_each_op();
    inputs.insert(inputs.end(), calls.begin(), calls.end());
  }
  return inputs;
}

std::string mutation_of(std::string input, const std::vector<std::string>& corpus, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % std::max<std::size_t>(n, 1)); };
  constexpr std::string_view kPieces[] = {"-1",
                                          "0",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "\xff\xff\xff\xff",
                                          "%1",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "\"",
                                          ",",
                                          "4294967296",
                                          "\n"};
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(input.size());
    switch (below(7)) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(random());
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(input[at] ^ 1 << below(8));
        break;
      case 2: input.erase(at, 1 + below(8)); break;
      case 3: input.insert(at, kPieces[below(std::size(kPieces))]); break;
      case 4: input.insert(at, input.substr(below(input.size()), below(24))); break;
      case 5: {
        const std::string& other = corpus[below(corpus.size())];
        input.replace(at, below(24), other.substr(below(other.size()), below(24)));
        break;
      }
      default: input.resize(at); break;
    }
  }
  return input;
}

std::string printable(std::string_view input) {
  std::ostringstream text;
  for (const char c : input)
    if (c >= ' ' && c <= '~' && c != '\\')
      text << c;
    else
      text << "\\x" << std::hex << (static_cast<unsigned>(c) >> 4 & 15) << (static_cast<unsigned>(c) & 15);
  return text.str();
}

/// FERMATA_FUZZ_INPUTS names a folder that holds the input that runs, as a file with the name of the target: what
/// remains after a crash.
void keep_input(const FuzzTarget& target, std::string_view input) {
  static const char* const folder = std::getenv("FERMATA_FUZZ_INPUTS");
  if (folder == nullptr) return;
  std::ofstream(std::filesystem::path(folder) / target.name, std::ios::binary) << input;
}

class FuzzCorpus : public ::testing::TestWithParam<FuzzTarget> {};

TEST_P(FuzzCorpus, GivesResultsOrErrors) {
  const FuzzTarget& target = GetParam();
  const std::vector<std::string> corpus = corpus_of(target.name);
  ASSERT_FALSE(corpus.empty()) << "no input in tests/fuzz/corpus/" << target.name;
  const auto run = [&](const std::string& input) {
    keep_input(target, input);
    try {
      run_target(target, input);
    } catch (const std::exception& error) { ADD_FAILURE() << error.what() << "\nfor " << printable(input); }
  };
  for (const std::string& input : corpus) run(input);
  const char* const given = std::getenv("FERMATA_FUZZ_COUNT");
  const std::uint64_t count = given == nullptr ? 300 : std::strtoull(given, nullptr, 10);
  std::mt19937_64 random(test_seed(20261123));
  for (std::uint64_t i = 0; i < count && !HasFailure(); ++i)
    run(mutation_of(corpus[random() % corpus.size()], corpus, random));
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, FuzzCorpus, ::testing::ValuesIn(fuzz_targets()),
                         [](const auto& at) { return std::string(at.param.name); });

}  // namespace
}  // namespace fermata::testing
