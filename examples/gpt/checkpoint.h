// Reads the files of a checkpoint in Hugging Face's layout: config.json and tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpt {

struct Config {
  enum class Family { gpt2, llama } family = Family::gpt2;
  std::int64_t layers = 0, heads = 0, key_heads = 0, width = 0, head_width = 0, vocabulary = 0, context = 0;
  double eps = 1e-5, rope_theta = 10000;
};
/// Throws std::runtime_error if a file cannot be read, or the model is neither GPT-2- nor Llama-shaped.
Config read_config(const std::string& folder);

/// A byte-level BPE model.
struct TokenizerFile {
  std::unordered_map<std::string, std::int64_t> vocabulary;  // tokens as the file spells them, bytes as characters
  std::vector<std::pair<std::string, std::string>> merges;   // by rank
  std::unordered_map<std::string, std::int64_t> special;     // never split or merged
};
TokenizerFile read_tokenizer(const std::string& folder);

}  // namespace gpt
