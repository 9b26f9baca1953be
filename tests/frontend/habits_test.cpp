// Calls as users of PyTorch, NumPy and MLX type them from habit: they compile, run in both modes, and give what the
// spelled-out call gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "fermata/fermata.h"

namespace fermata {
namespace {

using ::testing::ElementsAre;
namespace fm = fermata;

class Habits : public ::testing::TestWithParam<Mode> {
 protected:
  Tensor x() const { return tensor({{1.0f, -2.0f, 3.0f}, {4.0f, 5.0f, -6.0f}}); }
  Tensor square() const { return tensor({{4.0f, 1.0f}, {1.0f, 3.0f}}); }
  Tensor labels() const { return tensor({2, 0, 1}); }
  /// Equal shapes, dtypes and elements.
  static void same(const Tensor& got, const Tensor& wanted, int line) {
    EXPECT_EQ(got.dtype(), wanted.dtype()) << "line " << line;
    EXPECT_TRUE(fm::array_equal(got, wanted)) << "line " << line << "\n" << got << "\n" << wanted;
  }
  ModeGuard mode_{GetParam()};
};
#define SAME(got, wanted) same(got, wanted, __LINE__)
INSTANTIATE_TEST_SUITE_P(Modes, Habits, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(Habits, what_is_known) {
  const Tensor x = this->x();
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.sizes(), (Shape{2, 3}));
  EXPECT_EQ(x.size(-1), 3);
  EXPECT_EQ(x.shape()[0], 2);
  EXPECT_EQ(x.dim(), 2u);
  EXPECT_EQ(x.ndim(), 2u);
  EXPECT_EQ(x.numel(), 6);
  EXPECT_EQ(x.dtype(), fm::float32);
  EXPECT_EQ(x.device(), fm::cpu());
  EXPECT_EQ(x.sum().item<float>(), 5);
  EXPECT_EQ(x[1][2].item<float>(), -6);
  EXPECT_THAT(x[0].to_vector<float>(), ElementsAre(1, -2, 3));
  EXPECT_EQ(x.clone().data<float>()[1], -2);
  std::ostringstream text;
  text << x.shape() << ' ' << x.dtype() << ' ' << x.device() << ' ' << fm::cuda(1) << ' ' << fm::meta();
  EXPECT_EQ(text.str(), "[2, 3] f32 cpu cuda:1 meta");
}

TEST_P(Habits, types_and_places) {
  const Tensor x = this->x();
  EXPECT_EQ(x.to(fm::float64).dtype(), fm::float64);
  EXPECT_EQ(x.to(fm::bfloat16).dtype(), DType::bf16);
  EXPECT_EQ(x.astype(fm::int32).dtype(), DType::i32);
  EXPECT_EQ(x.to(fm::bool_).dtype(), DType::boolean);
  SAME(x.to(fm::cpu()), x);
  SAME(x.cpu(), x);
  SAME(x.clone(), x);
  SAME(x.copy(), x);
  SAME(x.contiguous(), x);
  SAME(x.T().contiguous(), transpose(x));
  SAME(x.detach(), x);
}

TEST_P(Habits, shapes) {
  const Tensor x = this->x();
  SAME(x.T(), permute(x, {1, 0}));
  SAME(x.t(), permute(x, {1, 0}));
  SAME(x.mT(), permute(x, {1, 0}));
  SAME(x.transpose(0, 1), permute(x, {1, 0}));
  SAME(x.reshape(-1), reshape(x, {6}));
  SAME(x.reshape({3, -1}), reshape(x, {3, 2}));
  SAME(x.reshape(3, 2), reshape(x, {3, 2}));
  SAME(x.reshape(1, 3, 2), reshape(x, {1, 3, 2}));
  SAME(x.reshape(square().shape().rank() == 2 ? Shape{6} : Shape{}), reshape(x, {6}));
  SAME(x.view(-1), reshape(x, {6}));
  SAME(x.view({3, 2}), reshape(x, {3, 2}));
  SAME(x.view(3, -1), reshape(x, {3, 2}));
  SAME(x.flatten(), reshape(x, {6}));
  SAME(x.ravel(), reshape(x, {6}));
  SAME(x.permute({1, 0}), transpose(x));
  SAME(x.permute(1, 0), transpose(x));
  SAME(x.swapaxes(0, 1), transpose(x));
  SAME(x.moveaxis(0, 1), transpose(x));
  SAME(x.unsqueeze(0), expand_dims(x, 0));
  SAME(x.unsqueeze(-1), expand_dims(x, -1));
  SAME(x.expand_dims(0), expand_dims(x, 0));
  SAME(x.unsqueeze(0).squeeze(), x);
  SAME(x.unsqueeze(0).squeeze(0), x);
  SAME(x[0].expand({2, -1}), broadcast_to(x[0], {2, 3}));
  SAME(x[0].broadcast_to({2, 3}), broadcast_to(x[0], {2, 3}));
  SAME(x.flip(0), flip(x, 0));
  SAME(x.roll(1, 0), roll(x, 1, 0));
  SAME(x.repeat(2, 0), repeat(x, 2, 0));
  SAME(x.tile({1, 2}), tile(x, {1, 2}));
  SAME(x.diagonal(), linalg::diagonal(x));
  SAME(x.slice(1, 0, 2), slice(x, 1, 0, 2));
  SAME(x.slice(1, 1), slice(x, 1, 1, kNone));
  SAME(x.select(1, 0), select(x, 1, 0));
  SAME(x.index({1, Slice(0, 2)}), slice(x[1], 0, 0, 2));
  SAME(x.index({ellipsis, 0}), select(x, 1, 0));
  EXPECT_EQ(x.split(3, 1).size(), 3u);
  EXPECT_EQ(x.split({1, 2}, 1)[1].shape(), (Shape{2, 2}));
  EXPECT_EQ(x.chunk(2, 1)[1].shape(), (Shape{2, 1}));
  EXPECT_EQ(x.unbind()[1].shape(), (Shape{3}));
}

TEST_P(Habits, pointwise) {
  const Tensor x = this->x(), y = x * 2, p = abs(x);
  SAME(x.abs(), abs(x));
  SAME(x.exp(), exp(x));
  SAME(p.log(), log(p));
  SAME(p.sqrt(), sqrt(p));
  SAME(p.rsqrt(), rsqrt(p));
  SAME(x.square(), x * x);
  SAME(x.pow(2), x * x);
  SAME(x.sin(), sin(x));
  SAME(x.cos(), cos(x));
  SAME(x.tanh(), tanh(x));
  SAME(x.sigmoid(), sigmoid(x));
  SAME(x.relu(), relu(x));
  SAME(x.round(), round(x));
  SAME(x.floor(), floor(x));
  SAME(x.ceil(), ceil(x));
  SAME(x.sign(), sign(x));
  SAME(x.neg(), -x);
  SAME(x.reciprocal(), reciprocal(x));
  SAME(x.isnan(), isnan(x));
  SAME(x.isinf(), isinf(x));
  SAME(x.add(y), x + y);
  SAME(x.sub(1), x - 1);
  SAME(x.mul(y), x * y);
  SAME(x.div(2), x / 2);
  SAME(x.maximum(0), maximum(x, 0));
  SAME(x.minimum(y), minimum(x, y));
  SAME(x.remainder(2), x % 2);
  SAME(x.floor_divide(2), floor_divide(x, 2));
  SAME(x.clamp(-1, 1), clip(x, -1, 1));
  SAME(x.clip(-1, 1), clip(x, -1, 1));
  SAME(x.eq(y), x == y);
  SAME(x.ne(y), x != y);
  SAME(x.lt(0), x < 0);
  SAME(x.le(0), x <= 0);
  SAME(x.gt(0), x > 0);
  SAME(x.ge(0), x >= 0);
  SAME((x > 0).logical_and(x < 4), logical_and(x > 0, x < 4));
  SAME(x.where(x > 0, 0), where(x > 0, x, 0));
  SAME(x.masked_fill(x < 0, 0), maximum(x, 0));
  EXPECT_TRUE(x.allclose(x + 1e-9));
  EXPECT_FALSE(x.allclose(y));
  SAME(x.isclose(x), ones_like(x, DType::boolean));
  SAME(x.softmax(-1), softmax(x, -1));
  SAME(x.log_softmax(1), log_softmax(x, 1));
  SAME(fm::relu(x), maximum(x, 0));
  SAME(-x + 1, 1 - x);
}

TEST_P(Habits, reductions) {
  const Tensor x = this->x();
  SAME(x.sum(), sum(x));
  SAME(x.sum(0), sum(x, 0));
  SAME(x.sum({0, 1}), sum(x));
  SAME(x.sum(-1, true), sum(x, -1, true));
  SAME(x.mean(), mean(x));
  SAME(x.mean(1), mean(x, 1));
  SAME(x.mean(-1, true), mean(x, -1, true));
  SAME(x.max(), max(x));
  SAME(x.max(1), max(x, 1));
  SAME(x.min(), min(x));
  SAME(x.prod(), prod(x));
  SAME(x.argmax(), argmax(x));
  SAME(x.argmax(1), argmax(x, 1));
  SAME(x.argmin(-1), argmin(x, -1));
  SAME(x.std(), stddev(x));
  SAME(x.std(0), stddev(x, 0));
  SAME(x.var(), var(x));
  SAME(x.norm(), linalg::vector_norm(x));
  SAME(x.median(), median(x));
  SAME(x.logsumexp(-1), logsumexp(x, -1));
  SAME(x.cumsum(0), cumulative_sum(x, 0));
  SAME(x.cumprod(1), cumulative_prod(x, 1));
  EXPECT_TRUE((x > 0).any().item<bool>());
  EXPECT_FALSE((x > 0).all().item<bool>());
  SAME(x.sort(), sort(x));
  SAME(x.argsort(0), argsort(x, 0));
  SAME(x.topk(2).values, topk(x, 2).values);
  EXPECT_EQ((x > 0).nonzero().size(), 2u);
  SAME(x.unique(), unique_values(x));
  SAME(fm::amax(x, 1), max(x, 1));
  SAME(fm::amin(x, 1), min(x, 1));
  SAME(fm::norm(x), linalg::vector_norm(x));
  SAME(fm::cumsum(x, 0), cumulative_sum(x, 0));
  SAME(fm::cumprod(x, 0), cumulative_prod(x, 0));
  SAME(fm::unique(x), unique_values(x));
}

TEST_P(Habits, products) {
  const Tensor x = this->x(), a = square(), v = a[0];
  SAME(x.matmul(x.T()), matmul(x, transpose(x)));
  SAME(a.mm(a), matmul(a, a));
  SAME(v.dot(v), sum(v * v));
  SAME(fm::mm(a, a), matmul(a, a));
  SAME(fm::bmm(a.unsqueeze(0), a.unsqueeze(0)), matmul(a, a).unsqueeze(0));
  SAME(fm::inner(a, a), matmul(a, transpose(a)));
  SAME(fm::outer(v, v), linalg::outer(v, v));
  SAME(fm::diag(v), tensor({{4.0f, 0.0f}, {0.0f, 1.0f}}));
  SAME(fm::diag(v, -1), tensor({{0.0f, 0.0f, 0.0f}, {4.0f, 0.0f, 0.0f}, {0.0f, 1.0f, 0.0f}}));
  SAME(fm::diag(v, 1), tensor({{0.0f, 4.0f, 0.0f}, {0.0f, 0.0f, 1.0f}, {0.0f, 0.0f, 0.0f}}));
  SAME(fm::diag(a), linalg::diagonal(a));
  SAME(a.trace(), tensor(7.0f));
  SAME(a.tril(), tril(a));
  SAME(a.triu(1), triu(a, 1));
  SAME(fm::einsum("ij,jk->ik", {a, a}), matmul(a, a));
  EXPECT_TRUE(fm::allclose(fm::linalg::inv(a).matmul(a), fm::eye(2), 1e-5, 1e-6));
}

TEST_P(Habits, places) {
  const Tensor x = this->x(), at = tensor({1, 0});
  SAME(x[at], take(x, at));
  SAME(x[x > 0], masked_select(x, x > 0));
  SAME(x.take(at), take(x, at));
  SAME(x.index_select(0, at), take(x, at));
  SAME(x.gather(tensor({{0, 1, 1}})), gather(x, tensor({{0, 1, 1}})));
  SAME(x.masked_select(x > 0), masked_select(x, x > 0));
  SAME(fm::index_select(x, 1, at), take(x, at, 1));
  SAME(fm::masked_fill(x, x < 0, 0), maximum(x, 0));
  Tensor y = x.clone();
  y[0].assign(0);
  y.index({1, 2}).fill_(9);
  SAME(y, tensor({{0.0f, 0.0f, 0.0f}, {4.0f, 5.0f, 9.0f}}));
  fm::index_put(y, {y > 4}, -1);
  SAME(y, tensor({{0.0f, 0.0f, 0.0f}, {4.0f, -1.0f, -1.0f}}));
}

TEST_P(Habits, writes) {
  Tensor y = ones({2, 3}), mask = y > 0;
  y += 1, y -= 0.5, y *= 4, y /= 3, y %= 5;
  SAME(y, full({2, 3}, 2.0f));
  y.add_(1), y.sub_(2), y.mul_(6), y.div_(2);
  SAME(y, full({2, 3}, 3.0f));
  y.fill_(7);
  SAME(y, full({2, 3}, 7.0f));
  y.zero_();
  SAME(y, zeros({2, 3}));
  y.copy_(x());
  SAME(y, x());
  mask &= y > 0, mask |= y < -5, mask ^= true;
  SAME(mask, logical_not(logical_or(y > 0, y < -5)));
}

TEST_P(Habits, joining) {
  const Tensor x = this->x(), v = x[0];
  SAME(fm::cat({x, x}), concat({x, x}));
  SAME(fm::cat({x, x}, 1), concat({x, x}, 1));
  SAME(fm::cat(std::vector<Tensor>{x, x}, -1), concat({x, x}, 1));
  SAME(fm::concatenate({x, x}, 0), concat({x, x}));
  SAME(fm::stack({v, v}), concat({v.unsqueeze(0), v.unsqueeze(0)}));
  SAME(fm::vstack({v, v}), stack({v, v}));
  SAME(fm::hstack({v, v}), concat({v, v}));
  SAME(fm::hstack({x, x}), concat({x, x}, 1));
  EXPECT_EQ(fm::chunk(v, 2)[0].shape(), (Shape{2}));
  EXPECT_EQ(fm::unbind(x)[0].shape(), (Shape{3}));
  EXPECT_EQ(fm::split(x, 3, 1).size(), 3u);
  SAME(fm::unsqueeze(v, 0), expand_dims(v, 0));
  SAME(fm::ravel(x), flatten(x));
  EXPECT_EQ(fm::meshgrid({v, v}).size(), 2u);
}

TEST_P(Habits, names) {
  const Tensor x = this->x(), u = x / 10;
  SAME(fm::sub(x, 1), x - 1);
  SAME(fm::mul(x, x), x * x);
  SAME(fm::div(x, 2), x / 2);
  SAME(fm::true_divide(x, 2), x / 2);
  SAME(fm::power(x, 2), x * x);
  SAME(fm::mod(x, 2), x % 2);
  SAME(fm::neg(x), -x);
  SAME(fm::absolute(x), abs(x));
  SAME(fm::clamp(x, -1, 1), clip(x, -1, 1));
  SAME(fm::arcsin(u), asin(u));
  SAME(fm::arccos(u), acos(u));
  SAME(fm::arctan(u), atan(u));
  SAME(fm::arctan2(u, x), atan2(u, x));
  SAME(fm::arcsinh(u), asinh(u));
  SAME(fm::arccosh(abs(x)), acosh(abs(x)));
  SAME(fm::arctanh(u), atanh(u));
  SAME(fm::nan_to_num(tensor({NAN, INFINITY, 1.0f})), tensor({0.0f, std::numeric_limits<float>::max(), 1.0f}));
  SAME(fm::eq(x, 1), x == 1);
  SAME(fm::ne(x, 1), x != 1);
  SAME(fm::lt(x, 1), x < 1);
  SAME(fm::le(x, 1), x <= 1);
  SAME(fm::gt(x, 1), x > 1);
  SAME(fm::ge(x, 1), x >= 1);
}

TEST_P(Habits, creation) {
  EXPECT_EQ(fm::zeros({2, 3}).dtype(), fm::float32);
  EXPECT_EQ(fm::ones({2, 3}, fm::int64).dtype(), fm::int64);
  EXPECT_EQ(fm::zeros({2, 3}, fm::float32, fm::cpu()).device(), fm::cpu());
  SAME(fm::full({2}, 7), tensor({7, 7}));
  SAME(fm::arange(3), tensor({0, 1, 2}));
  SAME(fm::arange(1, 6, 2), tensor({1, 3, 5}));
  SAME(fm::linspace(0, 1, 3), tensor({0.0f, 0.5f, 1.0f}));
  EXPECT_EQ(fm::eye(3).shape(), (Shape{3, 3}));
  EXPECT_EQ(fm::empty({2}).shape(), (Shape{2}));
  EXPECT_EQ(fm::zeros_like(x()).shape(), (Shape{2, 3}));
  EXPECT_EQ(fm::rand({2, 3}).shape(), (Shape{2, 3}));
  EXPECT_EQ(fm::randn({2, 3}).dtype(), fm::float32);
  EXPECT_EQ(fm::randint(0, 10, {4}).dtype(), fm::int64);
  EXPECT_EQ(fm::randperm(5).sort().to_vector<int>(), fm::arange(5).to_vector<int>());
  EXPECT_EQ(fm::rand_like(x()).shape(), (Shape{2, 3}));
  EXPECT_EQ(fm::randn_like(x()).shape(), (Shape{2, 3}));
  EXPECT_EQ(fm::tensor(std::vector<float>{1, 2}).shape(), (Shape{2}));
  EXPECT_EQ(fm::tensor({{1, 2}, {3, 4}}).dtype(), fm::int64);
  EXPECT_EQ(fm::tensor(3.5).item<double>(), 3.5);
}

TEST_P(Habits, training) {
  Tensor w = fm::randn({3, 4}).requires_grad_();
  const Tensor logits = labels().to(fm::float32).unsqueeze(1).expand({3, 3}).matmul(w);
  const Tensor loss = fm::cross_entropy(logits, labels());
  loss.backward();
  EXPECT_EQ(w.grad().shape(), w.shape());
  w.zero_grad();
  EXPECT_FALSE(w.grad().defined());
  {
    const fm::NoGradGuard guard;
    w -= 0.1;
  }
  EXPECT_TRUE(w.requires_grad());
  EXPECT_EQ(fm::one_hot(labels(), 3).shape(), (Shape{3, 3}));
  EXPECT_EQ((logits.argmax(1) == labels()).to(fm::float32).mean().dtype(), fm::float32);
}

TEST_P(Habits, closeness) {
  const Tensor odd = tensor({1.0f, INFINITY, NAN});
  SAME(fm::isclose(odd, odd), tensor({true, true, false}));
  SAME(fm::isclose(odd, odd, 1e-5, 1e-8, true), tensor({true, true, true}));
  SAME(fm::isclose(tensor({100, 101}), 100 + tensor({0, 0}), 1e-3), tensor({true, false}));
  EXPECT_TRUE(fm::allclose(tensor({1.0f}), tensor({{1.0f}, {1.0f}})));
  EXPECT_FALSE(fm::allclose(tensor({-INFINITY}), tensor({INFINITY})));
  EXPECT_FALSE(fm::array_equal(tensor({1, 2}), tensor({{1, 2}})));
  EXPECT_TRUE(fm::array_equal(tensor({1, 2}), tensor({1.0, 2.0})));
}

}  // namespace
}  // namespace fermata
