// What calls throw where one of their own allocations fails: OutOfMemoryError or a FileError, and no bare
// std::bad_alloc. Each allocation of a call fails in turn.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <new>
#include <thread>

#include "fermata/fermata.h"
#include "fermata/io.h"
#include "fermata/safetensors.h"
#include "ir/error.h"
#include "tests/faults/faults.h"

namespace fermata {
namespace {

class NoMemory : public ::testing::Test {
 protected:
  NoMemory() {
    faults::install();
    std::filesystem::create_directories(folder_);
  }
  ~NoMemory() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return folder_ / name; }

  /// Gives how often the call ended in an error.
  int each_allocation_fails(const char* what, const std::function<void()>& call) {
    call();  // what is made once is there
    int errors = 0;
    for (std::uint64_t point = 1;; ++point) {
      faults::arm(FaultKind::allocation, point);
      std::string bare;
      try {
        call();
        faults::disarm();
      } catch (const Error&) { faults::disarm(), ++errors; } catch (const std::bad_alloc&) {
        faults::disarm();
        if (!faults::was_of_program()) bare = faults::place();
      }
      EXPECT_EQ(bare, "") << what << ", allocation " << point;
      if (!faults::has_failed() || HasFailure()) return errors;
    }
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("fermata_no_memory_test_" + std::to_string(::getpid()));
  const Tensor x_ = ones({2, 3, 2, 2, 2, 2}).sync(), y_ = ones({2, 1, 2, 2, 2, 1}).sync();
};

TEST_F(NoMemory, PointwiseCallsOfHighRank) {
  // On a thread that has no blocks yet: each of its blocks is an allocation.
  std::thread([&] {
    for (const Mode mode : {Mode::eager, Mode::compiled}) {
      const ModeGuard guard(mode);
      EXPECT_GT(each_allocation_fails("add", [&] { x_ + y_; }), 0);
      EXPECT_GT(each_allocation_fails("where", [&] { where(x_ > y_, x_, y_ * 2); }), 0);
      EXPECT_GT(each_allocation_fails("astype", [&] { x_.astype(DType::f64) * y_; }), 0);
    }
  }).join();
}

TEST_F(NoMemory, Files) {
  const std::string npy = path("x.npy"), safetensors = path("x.safetensors"), csv = path("x.csv"), name = "x";
  const NamedTensors named{{name, x_}};
  const Tensor table = y_.reshape({4, 4}).sync();
  EXPECT_GT(each_allocation_fails("save_npy", [&] { save_npy(npy, x_); }), 0);
  EXPECT_GT(each_allocation_fails("load_npy", [&] { load_npy(npy); }), 0);
  EXPECT_GT(each_allocation_fails("map_npy", [&] { map_npy(npy); }), 0);
  EXPECT_GT(each_allocation_fails("save_safetensors", [&] { save_safetensors(safetensors, named); }), 0);
  EXPECT_GT(each_allocation_fails("load_safetensors", [&] { load_safetensors(safetensors); }), 0);
  EXPECT_GT(each_allocation_fails("SafetensorsFile", [&] { SafetensorsFile(safetensors).tensor(name); }), 0);
  EXPECT_GT(each_allocation_fails("save_csv", [&] { save_csv(csv, table); }), 0);
  EXPECT_GT(each_allocation_fails("load_csv", [&] { load_csv(csv, DType::f32); }), 0);
}

TEST_F(NoMemory, ReadingElements) {
  const Tensor z = sum(x_).sync(), view = transpose(x_);
  EXPECT_GT(each_allocation_fails("item", [&] { z.item<double>(); }), 0);
  EXPECT_GT(each_allocation_fails("to_vector", [&] { x_.to_vector<double>(); }), 0);
  EXPECT_GT(each_allocation_fails("to_vector of a view", [&] { view.to_vector<float>(); }), 0);
}

/// The first call of an op makes what later ones find.
TEST_F(NoMemory, FirstCalls) {
  const ModeGuard eager(Mode::eager);
  const Tensor x = full({3, 4}, 0.5).sync(), strided = transpose(x);
  Tensor (*const calls[])(Operand) = {asinh, acosh, atanh, erfc, expm1,    log1p, ndtr,    sinc,
                                      cbrt,  i0e,   i1e,   mish, softsign, selu,  digamma, lgamma};
  int errors = 0;
  for (std::uint64_t i = 0; i < std::size(calls); ++i) {
    const Tensor& operand = i % 2 == 0 ? x : strided;
    std::string bare;
    faults::arm(FaultKind::allocation, 1 + i / 2);
    try {
      calls[i](operand);
      faults::disarm();
    } catch (const Error&) { faults::disarm(), ++errors; } catch (const std::bad_alloc&) {
      faults::disarm();
      if (!faults::was_of_program()) bare = faults::place();
    }
    EXPECT_EQ(bare, "") << "call " << i;
  }
  EXPECT_GT(errors, 0);
}

TEST_F(NoMemory, Texts) {
  const Tensor z = sum(exp(x_ + y_) * 2, {1});
  EXPECT_GT(each_allocation_fails("explain", [&] { explain(z); }), 0);
  EXPECT_GT(each_allocation_fails("to_string", [&] { to_string(x_); }), 0);
}

}  // namespace
}  // namespace fermata
