// Tokens, logits and the cache of the example against checkpoints whose values come from golden/write_checkpoints.py.
#if __has_include(<nlohmann/json.hpp>)
#include <fermata/mesh.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint.h"
#include "decoder.h"
#include "sampling.h"
#include "tests/test_folder.h"
#include "tokenizer.h"

namespace fermata {
namespace {

class Gpt : public testing::TestWithParam<const char*> {
 protected:
  Gpt() : folder(fermata::test_folder() + "/gpt/golden/" + GetParam()) {
    std::ifstream file(folder + "/golden.json");
    golden = nlohmann::json::parse(file);
    tokens = golden.at("tokens").get<std::vector<std::int64_t>>();
  }
  static void expect_near(const std::vector<float>& got, const std::vector<double>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-4) << i;
  }
  std::vector<double> logits(std::size_t i) const { return golden.at("logits").at(i).get<std::vector<double>>(); }

  const std::string folder;
  nlohmann::json golden;
  std::vector<std::int64_t> tokens;
};

TEST_P(Gpt, TokensAreThoseOfTheFile) {
  const gpt::Tokenizer tokenizer(gpt::read_tokenizer(folder));
  const std::string text = golden.at("text").get<std::string>();
  EXPECT_EQ(tokenizer.encode(text), tokens);
  EXPECT_EQ(tokenizer.decode(tokens), text);
  std::vector<std::int64_t> ended = tokens;
  ended.push_back(gpt::read_config(folder).vocabulary - 1);
  EXPECT_EQ(tokenizer.encode(text + "<|endoftext|>"), ended);
}

TEST_P(Gpt, LogitsAreThoseOfTheModel) {
  const gpt::Decoder decoder(gpt::read_config(folder), folder);
  for (const auto& [count, at] : {std::pair{std::size_t{1}, 0}, {tokens.size() / 2 + 1, 1}, {tokens.size(), 2}}) {
    const gpt::Cache cache = decoder.make_cache(64);
    const std::vector some(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    expect_near(decoder.forward(tensor(some), cache).to_vector<float>(), logits(static_cast<std::size_t>(at)));
  }
}

TEST_P(Gpt, ACompiledStepGoesOnWithoutCompiling) {
  const gpt::Decoder decoder(gpt::read_config(folder), folder);
  const gpt::Cache cache = decoder.make_cache(64);
  const auto next = compile([&](const Tensor& t, const gpt::Cache& state) { return decoder.forward(t, state); });
  const std::size_t first = 5;
  std::vector<float> values =
      next(tensor(std::vector(tokens.begin(), tokens.begin() + first)), cache).to_vector<float>();
  for (std::size_t i = first; i < tokens.size(); ++i) {
    values = next(tensor(std::vector{tokens[i]}), cache).to_vector<float>();
    if (i == tokens.size() / 2) expect_near(values, logits(1));
  }
  expect_near(values, logits(2));
  std::mt19937_64 random(0);
  for (const std::int64_t wanted : golden.at("follow").get<std::vector<std::int64_t>>()) {
    const std::int64_t token = gpt::sample(values, {.temperature = 0}, random);
    EXPECT_EQ(token, wanted);
    values = next(tensor(std::vector{token}), cache).to_vector<float>();
  }
  EXPECT_EQ(next.captures(), 2u);
}

TEST_P(Gpt, WeightsInFewerBitsGiveNearlyTheSameLogits) {
  for (const auto& [bits, tolerance] : {std::pair<std::int64_t, double>{8, 0.05}, {4, 0.6}}) {
    gpt::Decoder decoder(gpt::read_config(folder), folder);
    decoder.quantize({.bits = bits});
    const auto next = compile([&](const Tensor& t, const gpt::Cache& state) { return decoder.forward(t, state); });
    const gpt::Cache cache = decoder.make_cache(64), other = decoder.make_cache(64);
    const std::vector<float> compiled = next(tensor(tokens), cache).to_vector<float>();
    const std::vector<double> wanted = logits(2);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      difference += (compiled[i] - wanted[i]) * (compiled[i] - wanted[i]);
      size += wanted[i] * wanted[i];
    }
    EXPECT_GT(difference, 0);
    EXPECT_LT(std::sqrt(difference / size), tolerance) << bits;
    const ModeGuard eager(Mode::eager);
    const std::vector<float> eagerly = decoder.forward(tensor(tokens), other).to_vector<float>();
    expect_near(eagerly, {compiled.begin(), compiled.end()});
  }
}

TEST_P(Gpt, HeadsAreDividedAmongProcesses) {
  distributed::simulate(2, [&](int) {
    gpt::Decoder decoder(gpt::read_config(folder), folder);
    const Mesh mesh({{"model", 2}});
    decoder.divide(mesh, "model");
    const gpt::Cache cache = decoder.make_cache(64);
    EXPECT_TRUE(is_sharded(cache.layers[0].keys));
    const auto next = compile([&](const Tensor& t, const gpt::Cache& state) { return decoder.forward(t, state); });
    const std::size_t first = 5;
    std::vector<float> values =
        next(tensor(std::vector(tokens.begin(), tokens.begin() + first)), cache).to_vector<float>();
    for (std::size_t i = first; i < tokens.size(); ++i)
      values = next(tensor(std::vector{tokens[i]}), cache).to_vector<float>();
    expect_near(values, logits(2));
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gpt, testing::Values("gpt2", "llama"));

TEST(GptSampling, KeepsToTheLikeliest) {
  const std::vector<float> logits{0, 3, 1, 2.5f, -1};
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t a = gpt::sample(logits, {.temperature = 1, .top_k = 2}, random);
    EXPECT_TRUE(a == 1 || a == 3);
    EXPECT_EQ(gpt::sample(logits, {.temperature = 1, .top_p = 0.3}, random), 1);
    EXPECT_EQ(gpt::sample(logits, {.temperature = 0}, random), 1);
  }
  std::mt19937_64 one(9), other(9);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(gpt::sample(logits, {}, one), gpt::sample(logits, {}, other));
}

TEST(GptTokenizer, CutsWords) {
  EXPECT_EQ(gpt::split_words("I've  2 cats!  \n"),
            (std::vector<std::string_view>{"I", "'ve", " ", " 2", " cats", "!", "  \n"}));
}

}  // namespace
}  // namespace fermata

#endif
