// Custom operators on divided tensors, with rules that the program declares.
#include <fermata/fermata.h>
#include <fermata/library.h>
#include <fermata/mesh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sharding/sharded_values.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

template <class E, class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) { return error.what(); }
  return "no error";
}

std::vector<float> elements_of(const Tensor& x) { return x.to_vector<float>(); }

Tensor filled(const Shape& shape, const std::vector<float>& from) {
  const Tensor made = empty(shape, DType::f32);
  std::copy(from.begin(), from.end(), elements_to_fill<float>(made));
  return made;
}

/// y = x * s[row], where s has one element for each row.
Tensor scale_rows(const Call&, const Tensor& x, const Tensor& s) {
  std::vector<float> out = elements_of(x);
  const std::vector<float> factors = elements_of(s);
  const auto last = static_cast<std::size_t>(x.size(1));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= factors[i / last];
  return filled(x.shape(), out);
}
/// Scores of queries and keys: [.., q, d], [.., k, d] -> [.., q, k].
Tensor scores(const Call&, const Tensor& q, const Tensor& k) { return matmul(q, swapaxes(k, -1, -2)).sync(); }

FERMATA_LIBRARY(custom_rules, m) {
  m.def("pure scale_rows(Tensor x, Tensor s) -> Tensor");
  m.def("pure scores(Tensor q, Tensor k) -> Tensor");
  m.def("pure halves(Tensor x) -> Tensor");
  sharding_rule("custom_rules::scale_rows", "b f, b -> b f");
  sharding_rule("custom_rules::scores", "... q d, ... k d -> ... q k; sum d");
}
FERMATA_LIBRARY_IMPL(custom_rules, CPU, m) {
  m.impl("scale_rows", &scale_rows);
  m.impl("scores", &scores);
  m.impl("halves", [](const Call&, const Tensor& x) { return copy(x.slice(0, 0, 4)).sync(); });
}
FERMATA_LIBRARY_IMPL(custom_rules, Meta, m) {
  m.impl("scale_rows", [](const Call&, const Tensor& x, const Tensor&) { return meta_tensor({x.dtype(), x.shape()}); });
  m.impl("scores", [](const Call&, const Tensor& q, const Tensor& k) {
    Shape shape = q.shape();
    shape[shape.rank() - 1] = k.size(-2);
    return meta_tensor({q.dtype(), shape});
  });
  m.impl("halves", [](const Call&, const Tensor& x) { return meta_tensor({x.dtype(), Shape{4, x.size(1)}}); });
}

Tensor call(const char* name, const Tensor& a, const Tensor& b) {
  return OperatorHandle::find(name).typed<Tensor(const Tensor&, const Tensor&)>()(a, b);
}

void on_mesh(int rows, int columns, const std::function<void(const Mesh&)>& fn) {
  distributed::simulate(rows * columns, [&](int) {
    for (const Mode mode : {Mode::compiled, Mode::eager}) {
      const ModeGuard guard(mode);
      manual_seed(1);
      fn(Mesh({{"data", rows}, {"model", columns}}));
    }
  });
}

TEST(CustomShardingRules, WorkOnBlocks) {
  for (const test::MeshCase at : test::kMeshes)
    on_mesh(at.rows, at.columns, [](const Mesh& mesh) {
      const Tensor x = randn({12, 12}).sync(), s = randn({12}).sync();
      for (const AxisSplits& splits : std::vector<AxisSplits>{{"data"}, {{}, "model"}, {"data", "model"}, {}}) {
        const PartitionCounts before = partition_counts();
        const Tensor y = call("custom_rules::scale_rows", shard(x, mesh, splits), shard(s, mesh, {"data"}));
        y.sync();
        EXPECT_EQ(partition_counts().gathered_calls, before.gathered_calls);
        EXPECT_EQ(test::difference(call("custom_rules::scale_rows", x, s), y), "");
      }
      // Nothing moves where operands are divided alike.
      const Tensor a = shard(x, mesh, {"data"}), b = shard(s, mesh, {"data"});
      const std::uint64_t before = partition_counts().collectives;
      call("custom_rules::scale_rows", a, b).sync();
      EXPECT_EQ(partition_counts().collectives, before);
    });
}

TEST(CustomShardingRules, CombineParts) {
  for (const test::MeshCase at : test::kMeshes)
    on_mesh(at.rows, at.columns, [](const Mesh& mesh) {
      const test::CheapTransfers cheap;
      const Tensor q = randn({12, 12, 24}).sync(), k = randn({12, 12, 24}).sync();
      const Tensor want = call("custom_rules::scores", q, k);
      for (const AxisSplits& splits : std::vector<AxisSplits>{
               {"data"}, {{}, "model"}, {{}, {}, "data"}, {{}, "data", "model"}, {"model", {}, "data"}}) {
        const PartitionCounts before = partition_counts();
        EXPECT_EQ(test::difference(want, call("custom_rules::scores", shard(q, mesh, splits), shard(k, mesh, splits))),
                  "");
        EXPECT_EQ(partition_counts().gathered_calls, before.gathered_calls);
      }
      const Tensor y = call("custom_rules::scores", shard(q[0], mesh, {{}, "data"}), shard(k[0], mesh, {{}, "data"}));
      EXPECT_EQ(test::difference(want[0], y), "");
    });
}

TEST(CustomShardingRules, CallsOfOtherAxesAndRemovedRulesGather) {
  on_mesh(2, 1, [](const Mesh& mesh) {
    const Tensor x = shard(randn({8, 4}).sync(), mesh, {"data"});
    const auto gathered = [&] {
      const std::uint64_t before = partition_counts().gathered_calls;
      OperatorHandle::find("custom_rules::halves").typed<Tensor(const Tensor&)>()(x).sync();
      return partition_counts().gathered_calls - before;
    };
    if (mode() == Mode::compiled) { EXPECT_EQ(gathered(), 1u); }
  });
  sharding_rule("custom_rules::halves", "_ f -> _ f");
  on_mesh(2, 1, [](const Mesh& mesh) {
    const Tensor whole = randn({8, 4}).sync(), x = shard(whole, mesh, {{}, "data"});
    const auto halves = OperatorHandle::find("custom_rules::halves").typed<Tensor(const Tensor&)>();
    const std::uint64_t before = partition_counts().gathered_calls;
    EXPECT_EQ(test::difference(halves(whole), halves(x)), "");
    EXPECT_EQ(partition_counts().gathered_calls, before);
  });
  sharding_rule("custom_rules::halves", "");
}

TEST(CustomShardingRules, Errors) {
  const auto message = [](const char* rule) {
    return message_of<ValueError>([&] { sharding_rule("custom_rules::halves", rule); });
  };
  EXPECT_THAT(message("a b"), StartsWith("FM7113 ValueError: sharding_rule: custom_rules::halves: it needs one ->\n"
                                         "  rule a b\n"));
  EXPECT_THAT(message("a b"), HasSubstr("  hint write it like \"b m k, k n -> b m n; sum k\""));
  EXPECT_THAT(message("a a -> a"), HasSubstr(": a is named twice in one tensor\n"));
  EXPECT_THAT(message("a -> a b"), HasSubstr(": b is an axis of the result alone\n"));
  EXPECT_THAT(message("a b -> a"), HasSubstr(": b is no axis of the result: say how parts are combined, or write _\n"));
  EXPECT_THAT(message("a b -> a b; sum b"), HasSubstr(": b is an axis of the result, and is combined as well\n"));
  EXPECT_THAT(message("a -> a; sum c"), HasSubstr(": no operand has an axis c\n"));
  EXPECT_THAT(message("a -> a; times c"), HasSubstr(": after ; comes sum, max, min or prod, and names of axes\n"));
  EXPECT_THAT(message("a ... -> a"), HasSubstr(": ... comes first\n"));
  EXPECT_THAT(message("a-b -> c"), HasSubstr(": a-b is no name of an axis\n"));
  EXPECT_THAT(message_of<UnsupportedError>([] { sharding_rule("custom_rules::none", "a -> a"); }),
              StartsWith("FM2006 UnsupportedError: custom_rules::none"));
}

TEST(CustomShardingRules, ThatDoNotFitTheOperator) {
  sharding_rule("custom_rules::halves", "r f -> r f");
  distributed::simulate(2, [](int) {
    const ModeGuard mode(Mode::compiled);
    const test::CheapTransfers cheap;
    const Mesh mesh({{"data", 2}});
    const Tensor x = shard(ones({4, 4}), mesh, {"data"});
    EXPECT_THAT(message_of<ShapeError>(
                    [&] { OperatorHandle::find("custom_rules::halves").typed<Tensor(const Tensor&)>()(x).sync(); }),
                StartsWith("FM7114 ShapeError: custom_rules::halves: its sharding rule says that it gives f32[2, 4] on "
                           "blocks, but it gives f32[4, 4]\n  block f32[2, 4]\n"));
  });
  sharding_rule("custom_rules::halves", "");
}

}  // namespace
}  // namespace fermata
