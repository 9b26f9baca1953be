// A training run that is killed and resumes with the same losses (docs/files.md).
//   resume                               starts the three runs below in both modes and compares their losses
//   resume FILE LOSSES [--die-at STEP]   trains, from FILE if it exists; appends a line for each step to LOSSES
//
// The first form starts this program again: one uninterrupted run, one that is killed in the middle of an epoch, and
// one that resumes it. It exits with an error unless all losses are bit-identical.
#include <fermata/data_loader.h>
#include <fermata/fermata.h>
#include <fermata/modules.h>
#include <fermata/schedules.h>
#include <fermata/training_file.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

extern char** environ;
namespace fm = fermata;
using fm::Tensor;

namespace {

constexpr std::int64_t kSteps = 60, kStepsBetweenFiles = 7, kDies = 40;

struct Net {
  fm::nn::Linear in{2, 32};
  fm::nn::BatchNorm norm{32};
  fm::nn::Dropout drop{0.1};
  fm::nn::Linear out{32, 2};
  Tensor forward(const Tensor& x) const { return out(drop(fm::relu(norm(in(x))))); }
};

/// Points of two spirals, and their labels.
std::tuple<Tensor, Tensor> spirals(std::int64_t count) {
  fm::Generator from(1);
  const Tensor label = fm::arange(count) % 2;
  const Tensor angle = fm::uniform({count}, 0.5, 6, fm::DType::f32, from);
  const Tensor turned = angle + label.astype(fm::DType::f32) * 3.14159f;
  const Tensor points = fm::stack({angle * fm::cos(turned), angle * fm::sin(turned)}, 1);
  return {points + fm::normal({count, 2}, 0, 0.1, fm::DType::f32, from), label};
}

void train(const std::string& path, const std::string& losses, std::int64_t dies_at) {
  fm::manual_seed(3);
  Net net;
  fm::optim::AdamW adam(net);
  fm::DataLoader batches(fm::TensorDataset(spirals(512)), {.batch_size = 64, .shuffle = true, .progress = "spirals"});
  const auto rate = fm::optim::schedule::warmup(10, fm::optim::schedule::cosine(3e-2, kSteps - 10));
  auto step = fm::compile([&](const Tensor& x, const Tensor& labels) {
    adam.zero_grad();
    const Tensor loss = fm::cross_entropy(net.forward(x), labels);
    loss.backward();
    adam.step();
    return loss.detach();
  });

  std::int64_t done = 0;
  if (std::filesystem::exists(path)) {
    const fm::TrainingState at = fm::load_training(path, net, adam);
    done = at.step;
    batches.seek(at.data);
  }
  std::ofstream lines(losses, std::ios::app);
  while (done < kSteps)
    for (const auto& [x, labels] : batches) {
      adam.options.learning_rate = rate(done);
      char line[64];
      std::snprintf(line, sizeof line, "%d %a\n", static_cast<int>(done), step(x, labels).item<double>());
      lines << line << std::flush;
      if (++done == kSteps) break;
      if (done % kStepsBetweenFiles == 0)
        fm::save_training(path, net, adam, {.step = done, .data = batches.position()});
      if (done == dies_at) std::raise(SIGKILL);
    }
}

/// Runs this program again; returns its wait status.
int run_again(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "resume");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  int status = -1;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ) != 0) return -1;
  waitpid(child, &status, 0);
  return status;
}

/// The loss of every step, as text. Repeated steps must agree.
std::map<int, std::string> read_losses(const std::string& path, bool& same) {
  std::map<int, std::string> losses;
  std::ifstream file(path);
  int step = 0;
  for (std::string text; file >> step >> text;) {
    const auto [known, is_new] = losses.emplace(step, text);
    same = same && (is_new || known->second == text);
  }
  return losses;
}

bool compare(const char* mode) {
  setenv("FERMATA_MODE", mode, 1);
  const auto folder = std::filesystem::temp_directory_path() / ("fermata_resume_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string a = folder / "a.safetensors", b = folder / "b.safetensors", whole = folder / "whole.txt",
                    parts = folder / "parts.txt";
  bool same = run_again({a, whole}) == 0;
  const int killed = run_again({b, parts, "--die-at", std::to_string(kDies)});
  same = same && WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL && run_again({b, parts}) == 0;
  const auto wanted = read_losses(whole, same), found = read_losses(parts, same);
  same = same && wanted.size() == static_cast<std::size_t>(kSteps) && wanted == found;
  std::printf("%-8s  loss %.4f at the start, %.4f at the end; killed after step %d and resumed: %s\n", mode,
              wanted.empty() ? 0 : std::strtod(wanted.begin()->second.c_str(), nullptr),
              wanted.empty() ? 0 : std::strtod(wanted.rbegin()->second.c_str(), nullptr), static_cast<int>(kDies),
              same ? "the same bits" : "OTHER LOSSES");
  std::filesystem::remove_all(folder);
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    const bool eager = compare("eager"), compiled = compare("compiled");
    return eager && compiled ? 0 : 1;
  }
  try {
    if (argc < 3) return 2;
    train(argv[1], argv[2], argc > 4 ? std::atoi(argv[4]) : -1);
    return 0;
  } catch (const fm::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
