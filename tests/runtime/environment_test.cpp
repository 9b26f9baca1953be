// Numbers in the environment.
#include "runtime/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fermata {
namespace {

constexpr const char* kVariable = "FERMATA_NO_SUCH_NUMBER";

std::uint64_t number_of(const char* text) {
  setenv(kVariable, text, 1);
  const std::uint64_t number = environment_number(kVariable, 7, 2);
  unsetenv(kVariable);
  return number;
}

TEST(Environment, ReadsWholeNumbers) {
  EXPECT_EQ(environment_number(kVariable, 7), 7u);
  EXPECT_EQ(number_of(""), 7u);
  EXPECT_EQ(number_of("4096"), 4096u);
  EXPECT_EQ(number_of("1e9"), 1'000'000'000u);
  EXPECT_EQ(number_of("18446744073709551615"), 18446744073709551615u);
}

TEST(Environment, ReportsWhatIsNoNumber) {
  for (const char* text : {"1", "-1", "1e30", "1.5", "1GB", "many", " 8", "nan", "0x10"}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(number_of(text), 7u) << text;
    EXPECT_EQ(testing::internal::GetCapturedStderr(), std::string("fermata warning: ignoring FERMATA_NO_SUCH_NUMBER=") +
                                                          text + ": it is not a whole number of at least 2\n");
  }
}

}  // namespace
}  // namespace fermata
