// Times of steps by the events of their streams, in profiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "codegen_cuda/runtime/device.h"
#include "fermata/cuda.h"
#include "fermata/profile.h"
#include "frontend/tools/profile/profile_data.h"
#include "tests/codegen_cuda/cuda_case.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;

class CudaDeviceTimes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  }
  const ModeGuard compiled_{Mode::compiled};
};

const ThreadEvents* track(const ProfileData& data, const std::string& name) {
  const auto found = std::ranges::find_if(
      data.threads, [&](const ThreadEvents& thread) { return thread.is_device && thread.name == name; });
  return found == data.threads.end() ? nullptr : &*found;
}

TEST_F(CudaDeviceTimes, EventsTellTimesOnceTheyAreReached) {
  constexpr gpu::Result kInvalid = 400, kNotYet = 600;
  const gpu::DriverFunctions& driver = gpu::driver();
  gpu::Handle first = nullptr, second = nullptr, untimed = nullptr;
  const gpu::Handle stream = gpu::current_stream().handle;
  ASSERT_EQ(driver.event_create(&first, 0), 0);
  ASSERT_EQ(driver.event_create(&second, 0), 0);
  ASSERT_EQ(driver.event_create(&untimed, gpu::kEventDisableTiming), 0);
  float milliseconds = -1;
  EXPECT_EQ(driver.event_elapsed(&milliseconds, first, second), kInvalid);  // not recorded
  ASSERT_EQ(driver.event_record(first, stream), 0);
  ASSERT_EQ(driver.event_record(second, stream), 0);
  ASSERT_EQ(driver.event_record(untimed, stream), 0);
  if (gpu::on_host_executor()) { EXPECT_EQ(driver.event_elapsed(&milliseconds, first, second), kNotYet); }
  ASSERT_EQ(driver.event_synchronize(untimed), 0);
  EXPECT_EQ(driver.event_elapsed(&milliseconds, first, second), 0);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(driver.event_elapsed(&milliseconds, first, untimed), kInvalid);
  for (const gpu::Handle event : {first, second, untimed}) EXPECT_EQ(driver.event_destroy(event), 0);
}

TEST_F(CudaDeviceTimes, StepsAreATrackOfTheirDevice) {
  const Tensor x = ones({64, 32}).to(cuda()).sync();
  const auto run = [&] { return sum(exp(x * 2) + 1, 1).sync(); };
  run(), run();
  Profile profile;
  run();
  cuda_synchronize();
  const ProfileData& data = profile.data();
  const ThreadEvents* const device = track(data, "cuda:0");
  ASSERT_NE(device, nullptr);
  std::int64_t before = data.begin_ns;
  for (const Event& event : device->events) {
    EXPECT_GE(event.begin_ns, before);
    EXPECT_GE(event.end_ns, event.begin_ns);
    before = event.end_ns;
  }
  const ProfileSummary summary = profile.summary();
  EXPECT_GT(summary.device_us, 0);
  double us = 0;
  for (const ProfileStep& step : summary.steps) us += step.us;
  EXPECT_NEAR(us, summary.device_us, 1e-3);  // and nothing of how long launches took
  EXPECT_EQ(summary.kernels_us, 0);
  EXPECT_THAT(to_string(summary), HasSubstr("steps on devices, in addition"));
  save(profile, "device_times.json");
  std::stringstream text;
  text << std::ifstream("device_times.json").rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\"name\":\"cuda:0\""));
  std::remove("device_times.json");
}

TEST_F(CudaDeviceTimes, RecordedPlansAreTimedAsAWhole) {
  const Tensor x = ones({8, 8}).to(cuda()).sync(), w = ones({8, 8}).to(cuda()).sync();
  auto step = compile([](const Tensor& a, const Tensor& b) { return sum(exp(matmul(a, b) * 0.01), 0); });
  Tensor y;
  for (int i = 0; i < 4; ++i) y = step(x, w);
  cuda_synchronize();
  Profile profile;
  {
    Profile inner;
    y = step(x, w);
    ASSERT_NE(track(inner.data(), "cuda:0"), nullptr);
  }
  y = step(x, w);
  const ThreadEvents* const device = track(profile.data(), "cuda:0");
  ASSERT_NE(device, nullptr);
  EXPECT_GE(device->events.size(), 2u);
  EXPECT_TRUE(std::ranges::all_of(device->events, [](const Event& e) { return !e.info->name.empty(); }));
}

TEST_F(CudaDeviceTimes, QueuesAreTracksOfTheirOwn) {
  const Tensor x = ones({64}).to(cuda()).sync();
  exp(x + 1).sync();
  Profile profile;
  exp(x + 1).sync();
  {
    const CudaStream other;
    const CudaStreamGuard guard(other);
    exp(x + 1).sync();
  }
  const ProfileData& data = profile.data();
  EXPECT_NE(track(data, "cuda:0"), nullptr);
  EXPECT_NE(track(data, "cuda:0 queue 1"), nullptr);
}

}  // namespace
}  // namespace fermata
