// See checkpoint.h.
#include "checkpoint.h"

#include <stdexcept>

#if __has_include(<nlohmann/json.hpp>)
#include <fstream>
#include <nlohmann/json.hpp>

namespace gpt {
namespace {

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  try {
    return nlohmann::json::parse(file);
  } catch (const nlohmann::json::exception& error) { throw std::runtime_error(path + ": " + error.what()); }
}

std::int64_t size_of(const nlohmann::json& json, const char* name) {
  const std::int64_t size = json.at(name).get<std::int64_t>();
  if (size < 1) throw std::runtime_error(std::string("config.json: ") + name + " is not positive");
  return size;
}

}  // namespace

Config read_config(const std::string& folder) {
  const nlohmann::json json = read_json(folder + "/config.json");
  Config c;
  try {
    const std::string type = json.value("model_type", "");
    c.vocabulary = size_of(json, "vocab_size");
    if (type == "gpt2") {
      c.layers = size_of(json, "n_layer"), c.heads = c.key_heads = size_of(json, "n_head");
      c.width = size_of(json, "n_embd"), c.context = size_of(json, "n_positions");
      c.eps = json.value("layer_norm_epsilon", 1e-5);
      c.head_width = c.width / c.heads;
    } else if (type == "llama" || type == "mistral") {
      c.family = Config::Family::llama;
      c.layers = size_of(json, "num_hidden_layers"), c.heads = size_of(json, "num_attention_heads");
      c.key_heads = json.value("num_key_value_heads", c.heads);
      c.width = size_of(json, "hidden_size"), c.context = size_of(json, "max_position_embeddings");
      c.eps = json.value("rms_norm_eps", 1e-6), c.rope_theta = json.value("rope_theta", 10000.0);
      c.head_width = json.value("head_dim", c.width / c.heads);
    } else {
      throw std::runtime_error("config.json: model_type '" + type + "' is neither gpt2 nor llama");
    }
    if (c.heads % c.key_heads != 0) throw std::runtime_error("config.json: heads are no multiple of key heads");
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("config.json: ") + error.what());
  }
  return c;
}

TokenizerFile read_tokenizer(const std::string& folder) {
  const nlohmann::json json = read_json(folder + "/tokenizer.json");
  TokenizerFile file;
  try {
    const nlohmann::json& model = json.at("model");
    for (const auto& [token, number] : model.at("vocab").items()) file.vocabulary[token] = number.get<std::int64_t>();
    for (const nlohmann::json& merge : model.at("merges")) {  // "a b", or ["a", "b"]
      if (merge.is_array()) {
        file.merges.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
        continue;
      }
      const std::string pair = merge.get<std::string>();
      const std::size_t space = pair.find(' ');
      file.merges.emplace_back(pair.substr(0, space), pair.substr(space + 1));
    }
    if (json.contains("added_tokens"))
      for (const nlohmann::json& added : json.at("added_tokens"))
        file.special[added.at("content").get<std::string>()] = added.at("id").get<std::int64_t>();
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("tokenizer.json: ") + error.what());
  }
  return file;
}

}  // namespace gpt

#else

namespace gpt {

Config read_config(const std::string&) { throw std::runtime_error("built without nlohmann-json3-dev"); }
TokenizerFile read_tokenizer(const std::string&) { throw std::runtime_error("built without nlohmann-json3-dev"); }

}  // namespace gpt

#endif
