// Work in the background: order, waiting, and what one thread does.
#include "runtime/background.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/thread_pool.h"

namespace fermata {
namespace {

class Background : public ::testing::Test {
 protected:
  ~Background() override { set_thread_count(before_); }
  int before_ = thread_count();
};

TEST_F(Background, WorkIsDoneInOrderByAnotherThread) {
  set_thread_count(2);
  std::vector<int> done;  // of the one background thread; read after waiting
  std::vector<std::thread::id> by;
  for (int i = 0; i < 50; ++i)
    run_in_background([&, i] { done.push_back(i), by.push_back(std::this_thread::get_id()); });
  wait_for_background();
  ASSERT_EQ(done.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
    EXPECT_NE(by[static_cast<std::size_t>(i)], std::this_thread::get_id());
  }
}

std::atomic<bool> has_begun{false}, is_alive{false};
struct Made {
  Made() { is_alive = true; }
  ~Made() { is_alive = false; }
};
/// Makes something static, and uses it when the main thread has long begun to end the process.
void make_and_use() {
  static const Made made;
  has_begun = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (!is_alive) std::_Exit(3);
}

TEST_F(Background, EndsBeforeWhatItsWorkHasMade) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, which may start threads
  set_thread_count(2);
  for (const auto run : {&run_in_background, &run_beside}) {
    const auto exit_at_once = [&] {
      run(make_and_use);
      while (!has_begun) std::this_thread::yield();
      std::exit(0);
    };
    EXPECT_EXIT(exit_at_once(), ::testing::ExitedWithCode(0), "");
  }
}

TEST_F(Background, EndsWithAMainThreadThatGaveNoWork) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_at_once = [] {
    std::thread([] { run_beside(make_and_use); }).join();
    while (!has_begun) std::this_thread::yield();
    std::exit(0);
  };
  EXPECT_EXIT(exit_at_once(), ::testing::ExitedWithCode(0), "");
}

TEST_F(Background, NobodyWaitsForIt) {
  set_thread_count(2);
  std::atomic<bool> may_end{false}, ended{false};
  run_in_background([&] {
    while (!may_end.load()) std::this_thread::yield();
    ended = true;
  });
  EXPECT_FALSE(ended.load());
  may_end = true;
  wait_for_background();
  EXPECT_TRUE(ended.load());
}

TEST_F(Background, OneThreadDoesItItself) {
  set_thread_count(1);
  std::thread::id by;
  run_in_background([&] { by = std::this_thread::get_id(); });
  EXPECT_EQ(by, std::this_thread::get_id());
}

TEST_F(Background, WorkBesideTheCallerIsDoneByAnotherThreadEvenOfOne) {
  set_thread_count(1);
  std::thread::id by;
  run_beside([&] { by = std::this_thread::get_id(); });
  wait_for_background();
  EXPECT_NE(by, std::thread::id());
  EXPECT_NE(by, std::this_thread::get_id());
}

TEST_F(Background, AForkedProcessHasAThreadOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer follows no threads of a forked process";
#endif
  std::atomic<int> done{0};
  for (int i = 0; i < 20; ++i) run_beside([&] { std::this_thread::sleep_for(std::chrono::milliseconds(1)), ++done; });
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int before = done.load();  // the parent's, which does not continue in the child
    run_beside([&] { ++done; });
    wait_for_background();
    _exit(done.load() == before + 1 ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  wait_for_background();
  EXPECT_EQ(done.load(), 20);
}

TEST_F(Background, WorkLeftAtTheEndOfTheProcessIsDropped) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        set_thread_count(2);
        for (int i = 0; i < 1000; ++i)
          run_in_background([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace fermata
