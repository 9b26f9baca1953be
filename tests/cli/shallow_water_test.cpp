// The shallow-water example as a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"

namespace fermata {
namespace {

TEST(ShallowWaterExample, ConservesWhatItShould) {
  const Scratch scratch;
  const Outcome run = run_program("examples/shallow_water");
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_THAT(run.out, ::testing::HasSubstr("\nconserved\n"));
}

}  // namespace
}  // namespace fermata
