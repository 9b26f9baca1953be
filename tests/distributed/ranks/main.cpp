// Tests that several ranks run together: mpirun -n 4 fermata_ranks_test. All ranks run the same tests; the first one
// prints, the others print what fails.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fermata/fermata.h"

namespace {

class FailurePrinter : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s: %s:%d\n%s\n", static_cast<int>(fermata::distributed::world().rank()),
                 test_.c_str(), result.file_name() == nullptr ? "" : result.file_name(), result.line_number(),
                 result.message());
  }
  std::string test_;  // GoogleTest does not say it while it holds its lock
};

}  // namespace

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  if (fermata::distributed::world().rank() != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  const int status = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0 && std::getenv("GTEST_TOTAL_SHARDS") == nullptr) {
    std::fprintf(stderr, "no test was selected\n");
    return 1;
  }
  return status;
}
