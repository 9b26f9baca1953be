// The examples that train networks: they check themselves that both modes learn, and the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;

TEST(Examples, AConvolutionalNetworkLearnsInBothModes) {
  const Scratch scratch;
  const Outcome convnet = run_program("examples/convnet");
  EXPECT_EQ(convnet.status, 0) << convnet.out << convnet.err;
  EXPECT_THAT(convnet.out, HasSubstr("compiled mode\n  epoch  1  loss "));
  EXPECT_THAT(convnet.out, HasSubstr("losses of both modes differ by at most "));
  EXPECT_EQ(run_program("examples/convnet 0").status, 1);  // what has learned nothing fails
}

TEST(Examples, ATransformerLearnsInBothModes) {
  const Scratch scratch;
  const Outcome transformer = run_program("examples/transformer");
  EXPECT_EQ(transformer.status, 0) << transformer.out << transformer.err;
  EXPECT_THAT(transformer.out, HasSubstr("compiled mode\n  step   1  loss 4."));
  EXPECT_THAT(transformer.out, HasSubstr("it writes: Shall I"));
  EXPECT_EQ(run_program("examples/transformer 100").status, 1);  // it has not learned enough
}

TEST(Examples, ASimulationTakesAnyNumberOfStepsInBothModes) {
  const Scratch scratch;
  const Outcome waves = run_program("examples/shallow_water 64 50");
  EXPECT_EQ(waves.status, 0) << waves.out << waves.err;
  EXPECT_THAT(waves.out, HasSubstr("the modes differ by 0.0e+00\n"));
}

TEST(Examples, AWholeStepOfTrainingIsOneCompiledFunction) {
  const Scratch scratch;
  const Outcome training = run_program("examples/training");
  EXPECT_EQ(training.status, 0) << training.out << training.err;  // both modes have the same parameters
  EXPECT_THAT(training.out, HasSubstr("recorded 2 times"));       // with and without gradients to forget
}

}  // namespace
}  // namespace fermata
