// Modes: per thread, nested, and from the environment.
#include "fermata/modes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "fermata/fermata.h"

namespace fermata {
namespace {

TEST(Modes, CompiledRecordsAndEagerRuns) {
  const Tensor x = ones({3});
  {
    const ModeGuard eager(Mode::eager);
    EXPECT_EQ(mode(), Mode::eager);
    EXPECT_FALSE((x + 1).pending());
  }
  const ModeGuard compiled(Mode::compiled);
  EXPECT_TRUE((x + 1).pending());
}

TEST(Modes, GuardsNestAndRestoreOnExceptions) {
  const Mode before = mode();
  try {
    const ModeGuard outer(Mode::eager);
    {
      const ModeGuard inner(Mode::compiled);
      EXPECT_EQ(mode(), Mode::compiled);
    }
    EXPECT_EQ(mode(), Mode::eager);
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {}
  EXPECT_EQ(mode(), before);
}

TEST(Modes, EachThreadHasItsOwn) {
  const ModeGuard eager(Mode::eager);
  Mode other = Mode::eager;
  std::thread([&] {
    set_mode(Mode::compiled);
    other = mode();
  }).join();
  EXPECT_EQ(other, Mode::compiled);
  EXPECT_EQ(mode(), Mode::eager);
}

TEST(Modes, EagerCodeReadsWhatWasRecorded) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = ones({3}) + 1;
  ASSERT_TRUE(x.pending());
  const ModeGuard eager(Mode::eager);
  const Tensor y = x * 2;
  EXPECT_FALSE(x.pending());
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{4, 4, 4}));
}

/// Runs in a process of its own, in which FERMATA_MODE=eager is set from the start.
TEST(ModesEnvironment, DISABLED_NewThreadsAreEager) {
  bool pending = true, compiled_pending = false;
  Mode seen = Mode::compiled;
  std::thread([&] {
    seen = mode();
    pending = (ones({2}) + 1).pending();
    const ModeGuard compiled(Mode::compiled);
    compiled_pending = (ones({2}) + 1).pending();
  }).join();
  EXPECT_EQ(seen, Mode::eager);
  EXPECT_FALSE(pending);
  EXPECT_TRUE(compiled_pending);
  EXPECT_EQ(mode(), Mode::eager);
}

TEST(ModesEnvironment, EagerFromTheStart) {
  // Other tests may have left the folder that the program was started in.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "FERMATA_MODE=eager GTEST_OUTPUT= '" + program +
                              "' --gtest_also_run_disabled_tests "
                              "--gtest_filter=ModesEnvironment.DISABLED_NewThreadsAreEager > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace fermata
