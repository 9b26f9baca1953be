// Every row of the coverage table (frontend/coverage/*.def): eager equals compiled, the derivative agrees with finite
// differences, vmap with a loop, and the values with NumPy's (golden/*.txt, written by golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "fermata/fermata.h"
#include "frontend/coverage/coverage.h"
#include "tests/fuzz/layouts.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using coverage::Function;
using coverage::Verdict;

struct GoldenResult {
  char kind;
  std::string sizes;
  std::vector<double> values;
};

const std::map<std::string, std::vector<GoldenResult>>& golden() {
  static const auto all = [] {
    std::map<std::string, std::vector<GoldenResult>> results;
    for (const char* file : {"array_api", "neural_nets", "scientific"}) {
      std::ifstream in(fermata::test_folder() + "/conformance/golden/" + file + ".txt");
      for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::string name, value;
        std::size_t number = 0;
        GoldenResult r{};
        words >> name >> number >> r.kind >> r.sizes;
        while (words >> value) r.values.push_back(std::strtod(value.c_str(), nullptr));
        results[name].push_back(r);
      }
    }
    return results;
  }();
  return all;
}

std::string sizes_text(const Shape& shape) {
  std::string text = "[";
  for (unsigned i = 0; i < shape.rank(); ++i) text += (i > 0 ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

char kind_of(DType t) { return t == DType::boolean ? 'b' : is_integer(t) ? 'i' : is_complex(t) ? 'c' : 'f'; }

/// Rows whose library this engine was built without are skipped, which the test program reports.
class Standard : public ::testing::TestWithParam<Function> {
 protected:
  void SetUp() override {
    const Function& f = GetParam();
    try {
      f.call(coverage::sample_inputs(coverage::parse_inputs(f.inputs), coverage::main_dtype(f)));
    } catch (const UnsupportedError& e) { GTEST_SKIP() << e.what(); }
  }
};

TEST_P(Standard, agrees_with_itself) {
  const Function& f = GetParam();
  const coverage::Finding found = coverage::examine(f);
  EXPECT_TRUE(found.eager) << found.trouble;
  EXPECT_TRUE(found.compiled) << found.trouble;
  EXPECT_TRUE(found.equal) << "eager and compiled results differ";
  EXPECT_NE(found.dtypes.bits, 0u);
  EXPECT_NE(found.vjp, Verdict::wrong) << found.trouble;
  EXPECT_NE(found.jvp, Verdict::wrong) << found.trouble;
  EXPECT_NE(found.vmap, Verdict::wrong) << found.trouble;
}

TEST_P(Standard, agrees_with_numpy) {
  const Function& f = GetParam();
  if (f.numpy.empty()) GTEST_SKIP() << "no NumPy function to compare with";
  const auto wanted = golden().find(std::string(f.name));
  ASSERT_NE(wanted, golden().end()) << "run tests/conformance/golden.py";
  const std::vector<coverage::Input> inputs = coverage::parse_inputs(f.inputs);
  const coverage::Results got = f.call(coverage::sample_inputs(inputs, coverage::main_dtype(f)));
  ASSERT_EQ(got.size(), wanted->second.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const GoldenResult& golden = wanted->second[i];
    EXPECT_EQ(kind_of(got[i].dtype()), golden.kind);
    ASSERT_EQ(sizes_text(got[i].shape()), golden.sizes);
    const std::vector<double> values = coverage::values_of(got[i]);
    ASSERT_EQ(values.size(), golden.values.size());
    for (std::size_t e = 0; e < values.size(); ++e) {
      if (std::isnan(golden.values[e]))
        EXPECT_TRUE(std::isnan(values[e])) << "result " << i << ", element " << e;
      else if (std::isinf(golden.values[e]) || golden.kind == 'b' || golden.kind == 'i')
        EXPECT_EQ(values[e], golden.values[e]) << "result " << i << ", element " << e;
      else
        EXPECT_NEAR(values[e], golden.values[e], 1e-12 * (1 + std::fabs(golden.values[e])))
            << "result " << i << ", element " << e;
    }
  }
}

struct Outcome {
  int error = 0;  // the code
  coverage::Results results;
};

/// Results that have been computed, and no views of the inputs.
Outcome outcome_of(const Function& f, const std::vector<Tensor>& given) {
  try {
    Outcome outcome{0, f.call(given)};
    for (Tensor& result : outcome.results) result = copy(result).sync();
    return outcome;
  } catch (const UserError& error) { return {error.code(), {}}; }
}

/// The same values, lying differently in memory. Matrices whose elements share memory may be singular, which is an
/// error in every layout.
TEST_P(Standard, does_not_depend_on_the_layout) {
  const Function& f = GetParam();
  const std::vector<coverage::Input> inputs = coverage::parse_inputs(f.inputs);
  const std::vector<Tensor> dense = coverage::sample_inputs(inputs, coverage::main_dtype(f));
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    for (const testing::Layout& layout : testing::kLayouts) {
      std::vector<Tensor> laid_out, same_values;
      for (const Tensor& x : dense) {
        laid_out.push_back(layout.of(x).sync());
        same_values.push_back(copy(laid_out.back()).sync());
      }
      const Outcome got = outcome_of(f, laid_out), wanted = outcome_of(f, same_values);
      EXPECT_EQ(got.error, wanted.error) << layout.name;
      EXPECT_TRUE(layout.shares || wanted.error == 0) << layout.name;
      EXPECT_LE(coverage::difference(got.results, wanted.results), 1e-12) << layout.name;
    }
  }
}

TEST(Layouts, AreWhatTheirNamesSay) {
  for (const testing::Layout& layout : testing::kLayouts) {
    const Tensor x = (arange(24).reshape({2, 3, 4}) * 1).sync(), y = layout.of(x).sync();
    EXPECT_FALSE(y.node()->is_dense_leaf()) << layout.name;
    EXPECT_EQ(y.shape(), x.shape()) << layout.name;
    EXPECT_EQ(layout.shares, y.to_vector<std::int64_t>() != x.to_vector<std::int64_t>()) << layout.name;
  }
}

/// Elementwise functions of one number and of none; and of one number stretched over an axis, whose elements overlap.
class Elementwise : public ::testing::TestWithParam<Function> {};

TEST_P(Elementwise, takes_scalars_nothing_and_stretched_axes) {
  const Function& f = GetParam();
  std::vector<coverage::Input> inputs = coverage::parse_inputs(f.inputs);
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{1, 3}}) {
    for (coverage::Input& input : inputs) input.sizes = shape;
    const std::vector<Tensor> given = coverage::sample_inputs(inputs, coverage::main_dtype(f));
    coverage::Results of_mode[2];
    for (const Mode mode : {Mode::eager, Mode::compiled}) {
      const ModeGuard guard(mode);
      of_mode[mode == Mode::compiled] = f.call(given);
      EXPECT_EQ(of_mode[mode == Mode::compiled][0].shape(), shape);
      if (shape.rank() == 0 || shape[0] == 0) continue;
      std::vector<Tensor> stretched;
      for (const Tensor& x : given) stretched.push_back(broadcast_to(x, {4, 3}).sync());
      const Tensor wanted = broadcast_to(f.call(given)[0], {4, 3});
      EXPECT_LE(coverage::difference({f.call(stretched)[0]}, {wanted}), 1e-12);
    }
    EXPECT_LE(coverage::difference(of_mode[0], of_mode[1]), 1e-12);
  }
}

std::vector<Function> present(std::string_view section = {}) {
  std::vector<Function> all;
  for (const Function& f : coverage::functions())
    if (f.call != nullptr && (section.empty() || f.section == section)) all.push_back(f);
  return all;
}
std::string row_name(const ::testing::TestParamInfo<Function>& info) { return std::string(info.param.name); }
INSTANTIATE_TEST_SUITE_P(Rows, Standard, ::testing::ValuesIn(present()), row_name);
INSTANTIATE_TEST_SUITE_P(Rows, Elementwise, ::testing::ValuesIn(present("elementwise")), row_name);

/// A derivative is refused only because it does not exist, with a reason.
TEST(Coverage, every_cell_has_a_reason) {
  std::size_t absent = 0, all = 0;
  for (const Function& f : coverage::functions()) {
    ++all;
    if (f.call != nullptr) continue;
    ++absent;
    EXPECT_FALSE(f.reason.empty()) << f.name;
  }
  EXPECT_LE(absent * 50, all) << "fewer than 98% of the functions are there";
}

}  // namespace
}  // namespace fermata
