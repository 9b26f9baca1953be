// Mistakes that are planted into programs like the examples: the summary of a profile names each of them first, with
// its line.
#include <digits/training.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "examples/shallow_water/waves.h"
#include "fermata/profile.h"
#include "tests/frontend/fast_machine.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;

class PlantedMistakes : public ::testing::Test {
 protected:
  ~PlantedMistakes() override { set_compile_policy(before_); }
  /// What the profile of a run says first; the run before it compiles what can be known.
  template <class Run> static ProfileAdvice first_advice(Run&& run) {
    run();
    Profile profile;
    run();
    const ProfileSummary summary = summarize(profile.data(), test::kFastMachine);
    EXPECT_FALSE(summary.advice.empty()) << to_string(summary);
    SCOPED_TRACE(to_string(summary));
    return summary.advice.empty() ? ProfileAdvice() : summary.advice.front();
  }
  static void expect_line(const ProfileAdvice& advice, unsigned line) {
    EXPECT_THAT(advice.where.file_name(), HasSubstr("planted_mistakes_test.cpp"));
    EXPECT_EQ(advice.where.line(), line) << advice.text;
  }

 private:
  const CompilePolicy before_ = set_compile_policy(CompilePolicy::immediate);
  const ModeGuard compiled_{Mode::compiled};
};

TEST_F(PlantedMistakes, ASyncInTheLoopOfASimulation) {
  waves::Grid grid;
  grid.n = 32;
  unsigned line = 0;
  const ProfileAdvice advice = first_advice([&] {
    waves::State s = waves::hill(grid);
    for (int i = 0; i < 30; ++i) {
      s = waves::step(grid, s);
      line = __LINE__ + 1;
      if (max(abs(s.p)).item<double>() > 1e3) break;  // a look at every step
    }
    sync({s.depth, s.p, s.q});
  });
  EXPECT_THAT(advice.text, HasSubstr("a value is computed here 30 times"));
  expect_line(advice, line);
}

TEST_F(PlantedMistakes, ATransposedTableInALanguageModel) {
  constexpr std::int64_t kKinds = 4096, kWidth = 512;
  const Tensor table = normal({kWidth, kKinds}, 0, 0.1).sync();  // should be [kKinds, kWidth]
  const Tensor projection = normal({kWidth, kWidth}, 0, 0.05).sync(), scale = ones({kWidth}).sync();
  const Tensor characters = randint(0, kKinds, {16, 64}).sync();
  unsigned line = 0;
  const ProfileAdvice advice = first_advice([&] {
    for (int i = 0; i < 3; ++i) {
      line = __LINE__ + 1;
      const Tensor x = embedding(characters, transpose(table));
      tanh(linear(rms_norm(x, scale), projection)).sync();
    }
  });
  EXPECT_THAT(advice.text, HasSubstr("across their memory order (a transposed operand)"));
  expect_line(advice, line);
}

TEST_F(PlantedMistakes, ASizeThatChangesThePlansOfATraining) {
  const digits::Data data = digits::load_data(digits::find_data());
  const digits::Classifier classifier(1);
  unsigned line = 0;
  int runs = 0;
  const ProfileAdvice advice = first_advice([&] {
    for (std::int64_t count = 2; count < 8; ++count) {  // the size of the batch is the number of calls
      Tensor loss = zeros({});
      for (std::int64_t i = 0; i < 8 * runs + count; ++i)
        loss = loss + cross_entropy(classifier.logits(data.train_images[i]), data.train_labels[i]);
      line = __LINE__ + 1;
      loss.item<float>();
    }
    ++runs;
  });
  EXPECT_THAT(advice.text, HasSubstr("6 of 6 syncs here have a new program structure"));
  expect_line(advice, line);
}

}  // namespace
}  // namespace fermata
