// Collectives in a world of one rank, as in a program without mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "runtime/effects.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using distributed::Reduction;
using fermata::testing::message;
using ::testing::ElementsAre;

class WorldOfOne : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
  Tensor x_ = arange(6, DType::f32).reshape({2, 3});
};
INSTANTIATE_TEST_SUITE_P(Modes, WorldOfOne, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(WorldOfOne, HasOneRank) {
  EXPECT_EQ(distributed::world().size(), 1);
  EXPECT_EQ(distributed::world().rank(), 0);
  EXPECT_EQ(distributed::world().transport(), "one rank");
  const distributed::Group part = distributed::world().split(3, 1);
  EXPECT_EQ(part.size(), 1);
  EXPECT_NE(part.number(), distributed::world().number());
}

TEST_P(WorldOfOne, CallsGiveWhatTheyAreGiven) {
  const std::vector<float> same = x_.to_vector<float>();
  for (const Reduction r : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min, Reduction::prod}) {
    EXPECT_EQ(distributed::all_reduce(x_, r).to_vector<float>(), same);
    EXPECT_EQ(distributed::reduce(x_, 0, r).to_vector<float>(), same);
    EXPECT_EQ(distributed::reduce_scatter(x_, 1, r).to_vector<float>(), same);
  }
  EXPECT_EQ(distributed::all_gather(x_, -1).to_vector<float>(), same);
  EXPECT_EQ(distributed::all_to_all(x_, 0, 1).to_vector<float>(), same);
  EXPECT_EQ(distributed::broadcast(x_).to_vector<float>(), same);
  EXPECT_EQ(distributed::scatter(x_, 0, 1).to_vector<float>(), same);
  EXPECT_EQ(distributed::gather(x_, 0, 1).to_vector<float>(), same);
  EXPECT_EQ(distributed::permute(x_, {{0, 0}}).to_vector<float>(), same);
  EXPECT_EQ(distributed::shift(x_).to_vector<float>(), same);
  EXPECT_EQ(sum(distributed::shift(x_, 1, false)).item<float>(), 0);
  distributed::barrier();
}

TEST_P(WorldOfOne, WhatIsSentIsReceived) {
  distributed::send(x_, 0, distributed::world(), 7);
  distributed::send(x_ * 2, 0, distributed::world(), 8);
  EXPECT_EQ(distributed::receive({2, 3}, DType::f32, 0, distributed::world(), 8).to_vector<float>(),
            (x_ * 2).to_vector<float>());
  EXPECT_EQ(distributed::receive({2, 3}, DType::f32, 0, distributed::world(), 7).to_vector<float>(),
            x_.to_vector<float>());
  EXPECT_EQ(message<CollectiveError>([] { distributed::receive({2}, DType::f32, 0).sync(); }),
            "FM7005 CollectiveError: receive_from: this rank has sent no message of 8 bytes with tag 0\n"
            "  at   HERE");
}

TEST_P(WorldOfOne, SeveralAtOnce) {
  const std::vector<Tensor> tensors{x_, ones({3}), full({2}, 4, DType::i32), x_ + 1, ones({2, 1})};
  const std::vector<Tensor> reduced = distributed::all_reduce(tensors, Reduction::sum);
  ASSERT_EQ(reduced.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(reduced[i].shape(), tensors[i].shape());
    EXPECT_EQ(reduced[i].dtype(), tensors[i].dtype());
    EXPECT_EQ(reduced[i].to_vector<float>(), tensors[i].to_vector<float>());
  }
  EXPECT_EQ(distributed::all_reduce(tensors, Reduction::sum, distributed::world(), 1)[3].to_vector<float>(),
            (x_ + 1).to_vector<float>());
}

TEST_P(WorldOfOne, GradientsPassThrough) {
  Tensor x = (x_ + 1).requires_grad(true);
  const auto gradient_of = [&](auto&& f) {
    x.zero_grad();
    sum(f(x) * x_).backward();
    return x.grad().to_vector<float>();
  };
  const std::vector<float> wanted = x_.to_vector<float>();
  for (const Reduction r : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min, Reduction::prod})
    EXPECT_EQ(gradient_of([&](const Tensor& t) { return distributed::all_reduce(t, r); }), wanted);
  EXPECT_EQ(gradient_of([](const Tensor& t) { return distributed::all_gather(t, 1); }), wanted);
  EXPECT_EQ(gradient_of([](const Tensor& t) { return distributed::broadcast(t); }), wanted);
  EXPECT_EQ(gradient_of([](const Tensor& t) { return distributed::shift(t); }), wanted);
}

TEST_P(WorldOfOne, BatchesAreOneCall) {
  const auto f = [](const Tensor& t) { return distributed::all_gather(distributed::all_reduce(t), 0) * 2; };
  EXPECT_EQ(vmap(f)(x_).to_vector<float>(), (x_ * 2).to_vector<float>());
}

TEST_P(WorldOfOne, Errors) {
  EXPECT_EQ(message<ValueError>([&] { distributed::broadcast(x_, 2); }),
            "FM7002 ValueError: broadcast_from: the root is 2, but the group has ranks 0 to 0\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              distributed::permute(x_, {{0, 0}, {0, 0}});
            }),
            "FM7004 ValueError: permute_ranks: two pairs have rank 0 as their source\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([&] { distributed::all_reduce(x_ > 2); }),
            "FM1101 DTypeError: all_reduce: does not take bool\n"
            "  x    bool[2, 3]\n"
            "  at   HERE\n"
            "  hint convert it first, for example to i32");
  EXPECT_EQ(message<IndexError>([&] { distributed::all_gather(x_, 2); }),
            "FM1201 IndexError: all_gather: axis 2 is out of range for 2 axes\n"
            "  x    f32[2, 3]\n"
            "  at   HERE\n"
            "  hint axes go from -2 to 1");
}

TEST(Collectives, AreComputedInTheirOrderByAnySync) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor first = distributed::all_reduce(ones({2})), second = distributed::all_reduce(ones({3}));
  EXPECT_NE(pending_effect(), nullptr);
  EXPECT_EQ(sum(arange(3)).item<int>(), 3);  // of other values
  EXPECT_EQ(pending_effect(), nullptr);
  EXPECT_FALSE(first.node()->pending());
  EXPECT_FALSE(second.node()->pending());
}

TEST(Collectives, EqualCallsStayApart) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = arange(4);
  const Tensor y = distributed::all_reduce(x) + distributed::all_reduce(x);
  const std::string text = dump_ir(y);
  EXPECT_NE(text.find("all_reduce", text.find("all_reduce") + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace fermata
