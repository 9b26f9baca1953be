// See tokenizer.h.
#include "tokenizer.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace gpt {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_other(char c) { return !is_letter(c) && !is_digit(c) && !is_space(c); }

std::string utf8(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::size_t run_from(std::string_view text, std::size_t at, bool (*is_kind)(char)) {
  while (at < text.size() && is_kind(text[at])) ++at;
  return at;
}

/// The end of the word that begins at `at`.
std::size_t word_end(std::string_view text, std::size_t at) {
  for (const std::string_view suffix : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.substr(at).starts_with(suffix)) return at + suffix.size();
  const std::size_t first = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  for (bool (*is_kind)(char) : {is_letter, is_digit, is_other})
    if (is_kind(text[first])) return run_from(text, first, is_kind);
  // Spaces: all of them at the end of a text, else without the last one, which may begin a word.
  const std::size_t end = run_from(text, at, is_space);
  return end == text.size() || end == at + 1 ? end : end - 1;
}

}  // namespace

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

Tokenizer::Tokenizer(const TokenizerFile& file) : vocabulary_(file.vocabulary), special_(file.special) {
  // Bytes that print stand for themselves, the others for the characters from 256 on.
  std::unordered_map<std::string, char> byte_of;
  unsigned next = 256;
  for (unsigned b = 0; b < 256; ++b) {
    const bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    spelled_[b] = utf8(prints ? b : next++);
    byte_of[spelled_[b]] = static_cast<char>(b);
  }
  for (std::size_t i = 0; i < file.merges.size(); ++i) rank_.emplace(file.merges[i], i);
  for (const auto& [token, number] : vocabulary_) {
    std::string bytes;
    for (std::size_t at = 0; at < token.size();) {
      const std::size_t length = static_cast<unsigned char>(token[at]) < 0x80 ? 1 : 2;
      const auto known = byte_of.find(token.substr(at, length));
      bytes += known != byte_of.end() ? std::string(1, known->second) : token.substr(at, length);
      at += length;
    }
    bytes_[number] = std::move(bytes);
  }
  for (const auto& [token, number] : special_) bytes_[number] = token;
}

void Tokenizer::encode_word(std::string_view word, std::vector<std::int64_t>& tokens) const {
  std::vector<std::string> parts;
  for (const char c : word) parts.push_back(spelled_[static_cast<unsigned char>(c)]);
  for (;;) {
    std::size_t best = std::numeric_limits<std::size_t>::max(), at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (const auto known = rank_.find({parts[i], parts[i + 1]}); known != rank_.end() && known->second < best)
        best = known->second, at = i;
    if (best == std::numeric_limits<std::size_t>::max()) break;
    const std::string left = parts[at], right = parts[at + 1];
    std::vector<std::string> merged;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool is_pair = i + 1 < parts.size() && parts[i] == left && parts[i + 1] == right;
      merged.push_back(is_pair ? left + right : parts[i]);
      i += is_pair ? 1 : 0;
    }
    parts = std::move(merged);
  }
  for (const std::string& part : parts) {
    const auto known = vocabulary_.find(part);
    if (known == vocabulary_.end()) throw std::runtime_error("the vocabulary has no token '" + part + "'");
    tokens.push_back(known->second);
  }
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  while (!text.empty()) {
    std::size_t first = text.size();  // of the special token that comes first, the longest of those
    const std::pair<const std::string, std::int64_t>* found = nullptr;
    for (const auto& s : special_) {
      const std::size_t at = text.find(s.first);
      if (at == std::string_view::npos || s.first.empty()) continue;
      if (at < first || (at == first && found != nullptr && s.first.size() > found->first.size()))
        first = at, found = &s;
    }
    for (const std::string_view word : split_words(text.substr(0, first))) encode_word(word, tokens);
    if (found == nullptr) break;
    tokens.push_back(found->second);
    text.remove_prefix(first + found->first.size());
  }
  return tokens;
}

std::string Tokenizer::decode(std::int64_t token) const {
  const auto known = bytes_.find(token);
  return known == bytes_.end() ? std::string() : known->second;
}
std::string Tokenizer::decode(const std::vector<std::int64_t>& tokens) const {
  std::string text;
  for (const std::int64_t t : tokens) text += decode(t);
  return text;
}

}  // namespace gpt
