// einsum against the sum that it stands for, written as loops over every index; derivatives, vmap and errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/error_message.h"
#include "tests/frontend/reference_call.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;

class Einsum : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Einsum, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

/// The definition, for equations without an ellipsis: a sum over all values of all letters.
std::vector<Complex> by_loops(const std::string& equation, const std::vector<Tensor>& operands) {
  const std::string inputs = equation.substr(0, equation.find("->")), result = equation.substr(equation.find("->") + 2);
  std::vector<std::string> terms{""};
  for (const char c : inputs)
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  std::map<char, std::int64_t> sizes, at;
  for (std::size_t k = 0; k < terms.size(); ++k)
    for (std::size_t i = 0; i < terms[k].size(); ++i)
      sizes[terms[k][i]] = std::max(sizes[terms[k][i]], operands[k].shape()[i]);
  std::vector<std::vector<Complex>> values;
  for (const Tensor& x : operands) values.push_back(elements(x));
  std::int64_t count = 1, total = 1;
  for (const char c : result) count *= sizes[c];
  for (const auto& [c, size] : sizes) total *= size;
  std::vector<Complex> sums(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < total; ++n) {
    std::int64_t rest = n;
    for (const auto& [c, size] : sizes) at[c] = rest % size, rest /= size;
    Complex product = 1;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < terms[k].size(); ++i) {
        const std::int64_t size = operands[k].shape()[i];
        offset = offset * size + (size == 1 ? 0 : at[terms[k][i]]);
      }
      product *= values[k][static_cast<std::size_t>(offset)];
    }
    std::int64_t to = 0;
    for (const char c : result) to = to * sizes[c] + at[c];
    sums[static_cast<std::size_t>(to)] += product;
  }
  return sums;
}

TEST_P(Einsum, EquationsAgainstLoops) {
  const std::map<char, std::int64_t> sizes = {{'i', 2}, {'j', 3}, {'k', 4}, {'l', 5}, {'m', 2}, {'n', 1}, {'z', 0}};
  for (const std::string equation :
       {"ij->ji",     "ij->",           "ij->i",      "ii->i",       "ii->",         "iji->j",          "ijj->ij",
        "iii->i",     "ij,jk->ik",      "ij,jk->ki",  "ij,ij->ij",   "ij,ij->",      "i,j->ij",         "ij,j->i",
        "i,i->",      "ijk,ikl->ijl",   "ijk,jk->i",  "ij,kl->ikjl", "ij,jk,kl->il", "ij,jk,kl,lm->im", "ij,jk,ki->",
        "ij,jk,kl->", "ijk,ijk,ijk->k", "ii,jj->ij",  "ij,in->ijn",  "nj,jk->nk",    "iz,zj->ij",       "ij,kl->",
        "ijkl->lkji", "ij,jk,ik->ij",   "i,j,k->ijk", "ij,jj,jk->ik"})
    for (const DType t : {DType::f64, DType::f32, DType::c128}) {
      SCOPED_TRACE(equation);
      std::vector<Tensor> operands;
      Shape shape;
      for (const char c : equation.substr(0, equation.find("->")) + ",") {
        if (c != ',') {
          shape.push_back(sizes.at(c));
          continue;
        }
        operands.push_back(random_number(shape, t, 1 + operands.size()));
        shape = {};
      }
      const Tensor y = einsum(equation, operands);
      ASSERT_EQ(y.dtype(), t);
      expect_near(y, by_loops(equation, operands), 10 * rounding(t));
      std::vector<Tensor> flipped;  // other layouts
      for (const Tensor& x : operands) flipped.push_back(x.rank() == 0 ? x : flip(copy(flip(x))));
      expect_near(einsum(equation, flipped), by_loops(equation, operands), 10 * rounding(t));
    }
}

TEST_P(Einsum, ImplicitResultsEllipsesAndBroadcasting) {
  const Tensor a = random_f64({2, 3}, 0.5, 2, true, 1), b = random_f64({3, 4}, 0.5, 2, true, 2);
  expect_near(einsum("ij,jk", {a, b}), elements(matmul(a, b)), 1e-14);
  expect_near(einsum("ba", {a}), elements(copy(a.mT())), 0);
  expect_near(einsum(" i j , j k -> i k ", {a, b}), elements(matmul(a, b)), 1e-14);
  expect_near(einsum("ii", {matmul(a, a.mT())}), elements(linalg::trace(matmul(a, a.mT()))), 1e-14);
  const Tensor x = random_f64({5, 2, 3}, 0.5, 2, true, 3), y = random_f64({4, 1, 3, 2}, 0.5, 2, true, 4);
  expect_near(einsum("...ij,...jk->...ik", {x, y}), elements(matmul(x, y)), 1e-14);
  expect_near(einsum("...ij,...jk", {x, y}), elements(matmul(x, y)), 1e-14);
  expect_near(einsum("i...->...", {x}), elements(sum(x, 0)), 1e-14);
  expect_near(einsum("...->...", {x}), elements(x), 0);
  expect_near(einsum("...i->i...", {x}), elements(copy(permute(x, {2, 0, 1}))), 0);
  expect_near(einsum("ij,j->ij", {x[0], ones({1}, DType::f64) * 2}), elements(x[0] * 2), 0);
  EXPECT_EQ(einsum("ij,ij->ij", {ones({1, 3}), ones({2, 1})}).shape(), (Shape{2, 3}));
  EXPECT_EQ(einsum("ij->ij", {ones({1, 3})}).shape(), (Shape{1, 3}));
  EXPECT_EQ(einsum("ij,jk", {tensor({{1, 2}}), tensor({{3}, {4}})}).item<int>(), 11);
  EXPECT_EQ(einsum("ij,jk", {tensor({{1, 2}}), tensor({{3}, {4}})}).dtype(), DType::i64);
  EXPECT_EQ(einsum("i,i", {ones({2}, DType::i8), ones({2}, DType::f32)}).dtype(), DType::f32);
  EXPECT_EQ(einsum(",->", {tensor(2.0), tensor(3.0)}).item<double>(), 6);
}

TEST_P(Einsum, DerivativesAndVmap) {
  const Inputs xs{random_f64({2, 3}, 0.5, 2, true, 5), random_f64({3, 2}, 0.5, 2, true, 6),
                  random_f64({2, 2}, 0.5, 2, true, 7)};
  check_both_orders(
      "chain",
      [](const Inputs& x) {
        return einsum("ij,jk,kl->il", {x[0], x[1], x[2]});
      },
      xs);
  check_both_orders(
      "traces",
      [](const Inputs& x) {
        return einsum("ij,ji,kk->", {x[0], x[1], x[2]});
      },
      xs);
  check_vmap(
      "vmap",
      [](const Inputs& x) {
        return einsum("ij,jk->ki", {x[0], x[1]});
      },
      {{{xs[0], xs[0] * 2, xs[0] + 1}, 1}, {{xs[1]}, kShared}}, 3, 0, 1e-13);
}

TEST_P(Einsum, Errors) {
  const Tensor x = ones({2, 3}), y = ones({4, 2});
  EXPECT_EQ(message<ShapeError>([&] {
              einsum("ij,jk->ik", {x, y});
            }),
            "FM1094 ShapeError: einsum: \"ij,jk->ik\": sizes of 'j' differ (3 and 4)\n"
            "  x0   f32[2, 3]\n  x1   f32[4, 2]   axis 0 is 4\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { einsum("ij->k", {x}); }),
            "FM1394 ValueError: einsum: \"ij->k\" has 'k' only in its result\n  x0   f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { einsum("ij->ii", {x}); }),
            "FM1394 ValueError: einsum: \"ij->ii\" has 'i' twice in its result\n  x0   f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { einsum("ij,jk", {x}); }),
            "FM1394 ValueError: einsum: \"ij,jk\" has 2 operands, not 1\n  x0   f32[2, 3]\n  at   HERE");
  EXPECT_EQ(
      message<ValueError>([&] { einsum("ijk->k", {x}); }),
      "FM1394 ValueError: einsum: \"ijk->k\" has for operand 0 3 letters for 2 axes\n  x0   f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { einsum("i1->i", {x}); }),
            "FM1394 ValueError: einsum: \"i1->i\" has '1' instead of a letter or ...\n  x0   f32[2, 3]\n  at   HERE");
}

}  // namespace
}  // namespace fermata
