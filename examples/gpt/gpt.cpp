// Continues a text with a GPT-2- or Llama-shaped model from a folder in Hugging Face's layout: config.json,
// tokenizer.json, and model.safetensors or several files and their index.
//   gpt FOLDER TEXT [--tokens N] [--temperature T] [--top-k K] [--top-p P] [--seed S] [--bits 8|4]
//   mpirun -n 2 gpt FOLDER TEXT --mesh model=2
//   gpt FOLDER TEXT --mesh model=2 --simulate
//
// --bits keeps weights in 8 or 4 bits. Prints the text and, on standard error, tokens per second.
#include <fermata/fermata.h>
#include <mesh_argument.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "checkpoint.h"
#include "decoder.h"
#include "sampling.h"
#include "tokenizer.h"

namespace {

namespace fm = fermata;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string folder, text;
  std::int64_t tokens = 100;
  std::uint64_t seed = 0;
  std::int64_t bits = 32;
  gpt::Sampling sampling;
};

int usage() {
  std::fprintf(
      stderr,
      "usage: gpt FOLDER TEXT [--tokens N] [--temperature T] [--top-k K] [--top-p P] [--seed S] [--bits 8|4]\n");
  return 2;
}

bool read_arguments(int argc, char** argv, Arguments& a) {
  if (argc < 3 || argc % 2 == 0) return false;
  a.folder = argv[1], a.text = argv[2];
  for (int i = 3; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--tokens")
      a.tokens = std::atoll(argv[i + 1]);
    else if (name == "--temperature")
      a.sampling.temperature = std::atof(argv[i + 1]);
    else if (name == "--top-k")
      a.sampling.top_k = std::atoll(argv[i + 1]);
    else if (name == "--top-p")
      a.sampling.top_p = std::atof(argv[i + 1]);
    else if (name == "--seed")
      a.seed = static_cast<std::uint64_t>(std::atoll(argv[i + 1]));
    else if (name == "--bits")
      a.bits = std::atoll(argv[i + 1]);
    else
      return false;
  }
  return true;
}

void write(const Arguments& a, const fm::Mesh* mesh) {
  gpt::Decoder decoder(gpt::read_config(a.folder), a.folder);
  if (a.bits != 32) {
    if (mesh != nullptr)
      throw std::runtime_error("weights in fewer bits cannot be divided: leave out --bits or --mesh");
    decoder.quantize({.bits = a.bits});
  }
  if (mesh != nullptr) decoder.divide(*mesh, mesh->axes().back());
  const bool prints = mesh == nullptr || mesh->rank() == 0;
  const gpt::Tokenizer tokenizer(gpt::read_tokenizer(a.folder));
  const std::vector<std::int64_t> prompt = tokenizer.encode(a.text);
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (prompt.empty()) throw std::runtime_error("the text has no tokens");
  const std::int64_t capacity = std::min(length + a.tokens, decoder.config().context);
  if (length >= capacity) throw std::runtime_error("the text is longer than the model's context");
  const fm::NoGradGuard no_grad;
  const gpt::Cache cache = decoder.make_cache(capacity);
  const auto next =
      fm::compile([&](const fm::Tensor& tokens, const gpt::Cache& state) { return decoder.forward(tokens, state); });
  std::mt19937_64 random(a.seed);
  if (prints) std::printf("%s", a.text.c_str());
  const auto start = Clock::now();
  std::vector<float> logits = next(fm::tensor(prompt), cache).to_vector<float>();
  const auto read = Clock::now();
  std::int64_t made = 0;
  for (; length + made < capacity; ++made) {
    const std::int64_t token = gpt::sample(logits, a.sampling, random);
    if (prints) std::printf("%s", tokenizer.decode(token).c_str()), std::fflush(stdout);
    if (length + made + 1 < capacity) logits = next(fm::tensor(std::vector{token}), cache).to_vector<float>();
  }
  if (!prints) return;
  std::printf("\n");
  const double prompt_seconds = std::chrono::duration<double>(read - start).count();
  const double seconds = std::chrono::duration<double>(Clock::now() - read).count();
  std::fprintf(stderr, "%lld tokens read in %.2f s, %lld written, %.1f tokens/s\n", static_cast<long long>(length),
               prompt_seconds, static_cast<long long>(made), static_cast<double>(made) / seconds);
}

}  // namespace

int main(int argc, char** argv) {
  const examples::MeshArgument mesh = examples::take_mesh(argc, argv);
  Arguments arguments;
  if (!read_arguments(argc, argv, arguments)) return usage();
  try {
    if (mesh.processes() == 1)
      write(arguments, nullptr);
    else
      examples::on_mesh(mesh, [&](const fm::Mesh& on) { write(arguments, &on); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
