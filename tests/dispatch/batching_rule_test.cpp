// Batching rules of custom operators: their arguments, and the required results.
#include <fermata/fermata.h>
#include <fermata/library.h>
#include <gmock/gmock.h>

namespace fermata {
namespace {

using testing::ElementsAre;

FERMATA_LIBRARY(batching, m) {
  m.def("scaled_sum(Tensor x, Tensor factor) -> Tensor",
        [](const Tensor& x, const Tensor& factor) { return sum(x) * factor; });
  m.def("flat(Tensor x) -> Tensor", [](const Tensor& x) { return sum(x); });
}
FERMATA_LIBRARY_IMPL(batching, Batched, m) {
  m.impl_boxed("scaled_sum", batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
                 const Tensor x = b.arguments[0].as<Tensor>(), factor = b.arguments[1].as<Tensor>();
                 const Tensor total = b.batched[0] ? sum(reshape(x, {b.size, -1}), 1) : broadcast_to(sum(x), b.size);
                 return {total * factor};  // per element where it is batched, else the same for all
               }));
  m.impl_boxed("flat", batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
                 return {sum(b.arguments[0].as<Tensor>())};
               }));
}

class BatchingRules : public testing::TestWithParam<Mode> {
 protected:
  ~BatchingRules() override { EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2})); }
  ModeGuard mode_{GetParam()};
  Tensor x_ = iota(6).astype(DType::f32).reshape({3, 2}), factor_ = tensor({1.0f, 10.0f, 100.0f});
  static Tensor call(const Tensor& x, const Tensor& factor) {
    static const auto op = OperatorHandle::find("batching::scaled_sum").typed<Tensor(const Tensor&, const Tensor&)>();
    return op(x, factor);
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, BatchingRules, testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& mode) { return mode.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(BatchingRules, RunOnceForTheBatch) {
  const auto loops = stats().vmap_loops;
  EXPECT_THAT(vmap(&call)(x_, factor_).to_vector<float>(), ElementsAre(1, 50, 900));
  EXPECT_THAT(vmap(&call, {0, unbatched})(x_, factor_[1]).to_vector<float>(), ElementsAre(10, 50, 90));
  EXPECT_THAT(vmap(&call, {unbatched, 0})(x_, factor_).to_vector<float>(), ElementsAre(15, 150, 1500));
  EXPECT_EQ(stats().vmap_loops, loops);
}

TEST_P(BatchingRules, Nest) {
  const auto inner = [&](const Tensor& x) { return vmap([&](const Tensor& f) { return call(x, f); })(factor_); };
  EXPECT_THAT(vmap(inner)(x_).to_vector<float>(), ElementsAre(1, 10, 100, 5, 50, 500, 9, 90, 900));
}

TEST_P(BatchingRules, AResultWithoutTheBatchIsAnError) {
  const auto op = OperatorHandle::find("batching::flat").typed<Tensor(const Tensor&)>();
  std::string text = "no error";
  try {
    vmap([&](const Tensor& x) { return op(x); })(x_);
  } catch (const ShapeError& error) { text = error.what(); }
  EXPECT_EQ(text.substr(0, text.find("\n  at")),
            "FM1031 ShapeError: batching::flat: a result of the batching rule does not have the batch of 3 as axis 0\n"
            "  x    f32[]");
}

}  // namespace
}  // namespace fermata
