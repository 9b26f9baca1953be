// `fermata demo`: learns to read handwritten digits op by op and then compiled, and shows what the compiler made of a
// training step.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include <digits/training.h>
#include <nlohmann/json.hpp>

#include "fermata/inspect.h"
#include "fermata/modes.h"
#include "fermata/profile.h"
#include "frontend/cli/commands.h"
#include "frontend/tools/io/file.h"
#include "ir/graph.h"
#include "passes/pipeline.h"
#include "runtime/thread_pool.h"

namespace fermata::cli {
namespace {

struct Options {
  std::string json, data, page;
  bool details = false;
  digits::Settings settings;
};

/// One line per epoch that rewrites itself on a terminal; where the output is kept, every tenth of the way.
void show_progress(int epoch, int epochs, double loss, double accuracy) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  const bool last = epoch == epochs;
  if (!terminal && !last && epoch != 1 && epoch % std::max(epochs / 10, 1) != 0) return;
  constexpr int kWidth = 24;
  const int done = kWidth * epoch / std::max(epochs, 1);
  fmt::print("{}  [{:#<{}}{:.<{}}] epoch {:>3}/{}  loss {:.4f}  test accuracy {:6.2f}%{}", terminal ? "\r" : "", "",
             done, "", kWidth - done, epoch, epochs, loss, 100 * accuracy, !terminal || last ? "\n" : "");
  std::fflush(stdout);
}

digits::Result train(const digits::Data& data, const digits::Settings& settings, Mode mode) {
  const ModeGuard guard(mode);
  set_replace_kernels(false);  // so that both modes round in the same way from the first step on
  fmt::print("\nTraining {}:\n", mode == Mode::eager ? "eager, op by op" : "compiled");
  const digits::Result result = digits::train(data, settings, [&](int epoch, double loss, double accuracy) {
    show_progress(epoch, settings.epochs, loss, accuracy);
  });
  fmt::print("  {} steps, {:.1f} us each, {:.2f} s in total; {:.2f}% of the test images are classified correctly\n",
             result.losses.size(), result.us_per_step, result.seconds, 100 * result.accuracy);
  return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / std::max(std::abs(a[i]), 1e-30);
    if (!(d <= largest)) largest = d;  // also if it is not a number
  }
  return largest;
}

struct Batch {
  Tensor images, labels;
  explicit Batch(const digits::Data& data, std::int64_t size)
      : images(copy(data.train_images.slice(0, 0, size))), labels(copy(data.train_labels.slice(0, 0, size))) {
    sync({images, labels});
  }
};

std::vector<Tensor> one_step(digits::Classifier& classifier, const Batch& batch, double learning_rate) {
  std::vector<Tensor> results{classifier.step(batch.images, batch.labels, learning_rate)};
  for (const Tensor& t : classifier.state()) results.push_back(t);
  return results;
}

Graph recorded_step(const digits::Data& data, const digits::Settings& settings) {
  const ModeGuard compiled(Mode::compiled);
  const Batch batch(data, settings.batch);
  digits::Classifier classifier(settings.seed);
  return parse_graph(dump_ir(one_step(classifier, batch, settings.learning_rate)));
}

/// What one training step is compiled to, and what its ops cost in each mode.
void show_one_step(const digits::Data& data, const digits::Settings& settings) {
  const ModeGuard compiled(Mode::compiled);
  const Batch batch(data, settings.batch);
  digits::Classifier classifier(settings.seed);
  fmt::print("\nOne training step as recorded, and its plan:\n\n{}",
             explain(one_step(classifier, batch, settings.learning_rate)));
  digits::Classifier fresh(settings.seed);
  fmt::print("\nThe cost of that step, op by op and fused:\n\n{}",
             to_string(compare_modes([&] { return one_step(fresh, batch, settings.learning_rate); })));
}

void demo(const Options& options) {
  const std::string path = options.data.empty() ? digits::find_data() : options.data;
  const digits::Data data = digits::load_data(path);
  fmt::print("Handwritten digits: {} training images, {} test images; {} threads.\n", data.train_images.size(0),
             data.test_images.size(0), thread_count());
  const digits::Result eager = train(data, options.settings, Mode::eager);
  const Stats before = stats();
  const digits::Result compiled = train(data, options.settings, Mode::compiled);
  const Stats after = stats();

  const double difference = largest_difference(eager.losses, compiled.losses);
  const std::uint64_t kernels = after.kernels_compiled - before.kernels_compiled;
  const std::uint64_t plans = after.plans_compiled - before.plans_compiled, hits = after.plan_hits - before.plan_hits;
  const double compile_ms = after.compile_ms - before.compile_ms;
  if (options.details) show_one_step(data, options.settings);
  const Graph step = recorded_step(data, options.settings);
  const auto calls = std::ranges::count_if(step.nodes, [](const GraphNode& n) { return n.op != Op::input; });
  fmt::print(
      "\n"
      "                          eager    compiled\n"
      "  one training step  {:>7.0f} us  {:>7.0f} us   {:.1f} times as fast\n"
      "  images read right  {:>8.2f} %  {:>8.2f} %   all {} losses agree to {:.0e}\n"
      "\n"
      "Eager mode calls one function after the other: {} of them in a training step. Compiled mode records the\n"
      "calls and makes {} steps of them, most of which are kernels that do the work of many calls in one pass over\n"
      "memory. The source of both is the same. Compiling {} programs with {} kernels took {:.0f} ms, once; after\n"
      "that a program was found in the cache {} times.\n"
      "\n"
      "Where to go on:\n"
      "  fermata demo --details           the program of one step, what is made of it, and what each op costs\n"
      "  fermata demo --report demo.html  a page about all of this: timeline, graphs, kernels, advice\n"
      "  README.md                        twenty lines that train a network of your own\n",
      eager.us_per_step, compiled.us_per_step, eager.us_per_step / compiled.us_per_step, 100 * eager.accuracy,
      100 * compiled.accuracy, compiled.losses.size(), difference, calls, step_count(step, BackendKey::cpu), plans,
      kernels, compile_ms, hits);

  if (options.json.empty()) return;
  const nlohmann::ordered_json figures = {{"accuracy_eager", eager.accuracy},
                                          {"accuracy_compiled", compiled.accuracy},
                                          {"max_relative_loss_difference", difference},
                                          {"eager_us_per_step", eager.us_per_step},
                                          {"compiled_us_per_step", compiled.us_per_step},
                                          {"kernels_compiled", kernels},
                                          {"plans_compiled", plans},
                                          {"plan_cache_hits", hits},
                                          {"compile_ms", compile_ms},
                                          {"eager_seconds", eager.seconds},
                                          {"compiled_seconds", compiled.seconds},
                                          {"steps", compiled.losses.size()},
                                          {"final_loss_eager", eager.losses.empty() ? 0 : eager.losses.back()},
                                          {"final_loss_compiled", compiled.losses.empty() ? 0 : compiled.losses.back()},
                                          {"threads", thread_count()}};
  write_file("demo", options.json, {figures.dump(2), "\n"}, {});
}

}  // namespace

void add_demo(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("demo", "Train on handwritten digits, eager and compiled, and show the difference");
  const auto options = std::make_shared<Options>();
  command->add_option("--json", options->json, "Write the results to this file");
  command->add_option("--epochs", options->settings.epochs, "Number of epochs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--data", options->data, "Path of digits.csv, if it is not found automatically");
  command->add_flag("--details", options->details, "Show the program of one step, its plan, and the cost of each op");
  command->add_option("--report", options->page, "Write an HTML report of the run: timeline, graphs, kernels, advice");
  command->callback([options] {
    std::optional<Profile> profile;
    if (!options->page.empty()) profile.emplace();
    demo(*options);
    if (profile) {
      report(options->page, *profile);
      fmt::print("\nReport of this run: {}\n", options->page);
    }
  });
}

}  // namespace fermata::cli
