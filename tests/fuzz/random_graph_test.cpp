// Random programs: eager against compiled against the reference.
//
// FERMATA_FUZZ_COUNT says how many programs, FERMATA_SEED which ones; program i of seed s is program 0 of seed s + i.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "fermata/fermata.h"
#include "ir/float16.h"
#include "passes/pipeline.h"
#include "runtime/plan_cache.h"
#include "tests/fuzz/random_program.h"
#include "tests/fuzz/reference_check.h"
#include "tests/ir/seed.h"

namespace fermata::testing {
namespace {

std::uint64_t program_count() {
  const char* given = std::getenv("FERMATA_FUZZ_COUNT");
  return given == nullptr ? 200 : std::strtoull(given, nullptr, 10);
}

/// A value as it lies in memory.
struct Bytes {
  Certainty certainty;
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;

  double element(std::size_t i) const {
    const std::byte* at = bytes.data() + i * byte_size(dtype);
    const auto get = [&](auto x) { return std::memcpy(&x, at, sizeof(x)), x; };
    switch (dtype) {
      case DType::f16: return static_cast<double>(to_float(get(Float16{})));
      case DType::bf16: return static_cast<double>(to_float(get(BFloat16{})));
      case DType::f32: return static_cast<double>(get(0.0f));
      default: return get(0.0);
    }
  }
};

Bytes read(const Tensor& x, Certainty certainty) {
  const Tensor dense = copy(x.detach()).sync();
  const auto size = static_cast<std::size_t>(x.element_count()) * byte_size(x.dtype());
  Bytes out{certainty, x.dtype(), x.shape(), std::vector<std::byte>(size)};
  if (size != 0) std::memcpy(out.bytes.data(), dense.node()->storage.load()->data, size);
  return out;
}

/// The largest finite magnitude: what rounding errors of sums go with.
double magnitude(const Bytes& a) {
  double largest = 1;
  for (std::size_t i = 0; i < a.bytes.size() / byte_size(a.dtype); ++i)
    if (std::isfinite(a.element(i))) largest = std::max(largest, std::abs(a.element(i)));
  return largest;
}
double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-11 : dtype == DType::f32 ? 1e-3 : 5e-2; }

/// NaNs are equal whatever their payload.
std::string difference(const Bytes& a, const Bytes& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return "types differ";
  const bool floating = info(a.dtype).kind == DTypeKind::floating;
  const std::size_t width = byte_size(a.dtype);
  if (a.certainty == Certainty::unknown) return {};
  const double allowed = a.certainty == Certainty::exact ? 0 : tolerance(a.dtype) * magnitude(a);
  for (std::size_t i = 0; i < a.bytes.size() / width; ++i) {
    if (std::memcmp(&a.bytes[i * width], &b.bytes[i * width], width) == 0) continue;
    if (floating && std::isnan(a.element(i)) && std::isnan(b.element(i))) continue;
    if (allowed > 0 && std::abs(a.element(i) - b.element(i)) <= allowed) continue;
    return "element " + std::to_string(i) +
           (floating ? ": " + std::to_string(a.element(i)) + " and " + std::to_string(b.element(i)) : "");
  }
  return {};
}

struct Outcome {
  std::vector<Bytes> values;
  std::string errors;
};

/// The values that a program keeps, all wanted at once or one after another.
Outcome outcome(const Program& program, const AxisSizes& sizes, bool together) {
  Execution execution(sizes);
  execution.run(program);
  std::vector<Tensor> kept;
  std::vector<Certainty> certainties;
  for (const std::uint32_t v : program.kept)
    if (execution.values[v].defined())
      kept.push_back(execution.values[v]), certainties.push_back(execution.certainty(v));
  execution.values.clear();
  if (together) sync(kept);
  Outcome out{{}, std::move(execution.errors)};
  for (std::size_t i = 0; i < kept.size(); ++i) out.values.push_back(read(kept[i], certainties[i]));
  return out;
}

std::string text_of(const Program& program, const AxisSizes& sizes) {
  const CompilePolicy policy = set_compile_policy(CompilePolicy::never);
  Execution execution(sizes);
  execution.run(program);
  std::vector<Tensor> kept;
  for (const std::uint32_t v : program.kept)
    if (execution.values[v].defined()) kept.push_back(execution.values[v]);
  execution.values.clear();
  set_compile_policy(policy);
  return dump_ir(kept);
}

class RandomGraphs : public ::testing::Test {
 protected:
  ~RandomGraphs() override {
    set_compile_policy(policy_);
    set_disabled_passes({});
  }

  void expect_same(const Outcome& want, const Outcome& got, const char* how) {
    ASSERT_EQ(want.errors, got.errors) << how;
    ASSERT_EQ(want.values.size(), got.values.size()) << how;
    for (std::size_t i = 0; i < want.values.size(); ++i)
      if (const std::string text = difference(want.values[i], got.values[i]); !text.empty()) {
        ADD_FAILURE() << how << ", kept value " << i << ": " << text;
        return;
      }
  }

  void compare_modes(const Program& program, const AxisSizes& sizes) {
    Outcome eager;
    {
      const ModeGuard guard(Mode::eager);
      eager = outcome(program, sizes, false);
    }
    const ModeGuard guard(Mode::compiled);
    set_compile_policy(CompilePolicy::immediate);
    expect_same(eager, outcome(program, sizes, true), "compiled at once");
    expect_same(eager, outcome(program, sizes, false), "compiled, value by value");
    PlanCache::instance().clear();
    set_compile_policy(CompilePolicy::second_sight);
    expect_same(eager, outcome(program, sizes, true), "first sight");
    expect_same(eager, outcome(program, sizes, true), "second sight");
    if (program.steps.size() % 4 == 0) {
      PlanCache::instance().clear();
      set_compile_policy(CompilePolicy::immediate);
      set_disabled_passes({"fuse", "simplify"});
      expect_same(eager, outcome(program, sizes, true), "compiled without fusion");
      set_disabled_passes({});
      PlanCache::instance().clear();
    }
  }

  void check_reference(const Program& program, const AxisSizes& sizes) {
    const ModeGuard guard(Mode::compiled);
    set_compile_policy(CompilePolicy::never);
    Execution execution(sizes);
    execution.run(program);
    std::vector<Tensor> there;
    for (const Tensor& t : execution.values)
      if (t.defined()) there.push_back(t);
    EXPECT_EQ(check_against_reference(there), "");
  }

  const std::uint64_t seed_ = test_seed(20240607);
  const CompilePolicy policy_ = set_compile_policy(CompilePolicy::second_sight);
};

TEST_F(RandomGraphs, EagerCompiledAndReferenceAgree) {
  constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65, 70, 0};
  for (std::uint64_t i = 0; i < program_count(); ++i) {
    std::mt19937_64 random(seed_ + i);
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed_ + i) + " FERMATA_FUZZ_COUNT=1");
    AxisSizes sizes, others;
    for (std::int64_t& size : sizes) size = kSizes[random() % (std::size(kSizes) - (random() % 4 == 0 ? 0 : 1))];
    for (std::int64_t& size : others) size = kSizes[random() % std::size(kSizes)];
    const Program program = random_program(random, 4 + random() % 20, sizes);
    try {
      compare_modes(program, sizes);
      if (!HasFailure()) compare_modes(program, others);
      if (!HasFailure()) check_reference(program, sizes);
    } catch (const Error& error) { ADD_FAILURE() << error.what(); }
    if (HasFailure()) {
      ADD_FAILURE() << text_of(program, sizes) << "with the other sizes\n" << text_of(program, others);
      return;
    }
  }
}

}  // namespace
}  // namespace fermata::testing
