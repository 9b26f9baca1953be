// Byte-level BPE as GPT-2 and Llama 3 use it (Sennrich et al., 2016; Radford et al., 2019): text is split into words,
// and the bytes of a word are merged pair by pair.
//
// Words are split like by GPT-2's regular expression for ASCII. All other characters count as letters.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint.h"

namespace gpt {

class Tokenizer {
 public:
  explicit Tokenizer(const TokenizerFile& file);

  /// Returns the tokens of a text. Throws std::runtime_error if the vocabulary lacks a byte.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Returns the bytes of a token, which may be a part of a character.
  std::string decode(std::int64_t token) const;
  std::string decode(const std::vector<std::int64_t>& tokens) const;

 private:
  void encode_word(std::string_view word, std::vector<std::int64_t>& tokens) const;

  std::array<std::string, 256> spelled_;  // the spelling of each byte in the file
  std::unordered_map<std::string, std::int64_t> vocabulary_, special_;
  std::map<std::pair<std::string, std::string>, std::size_t> rank_;  // of merges
  std::unordered_map<std::int64_t, std::string> bytes_;              // by token
};

/// The words of a text.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace gpt
