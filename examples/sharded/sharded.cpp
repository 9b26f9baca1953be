// A transformer that is trained on a mesh of processes, from the source of one process.
//   mpirun -n 4 sharded [STEPS] --mesh data=2,model=2
//   sharded [STEPS] --mesh data=2,model=2 --simulate
//   sharded [STEPS] --mesh data=4 --zero --simulate
//   FERMATA_DUMP=partition sharded 1 --mesh data=2,model=2 --simulate
//   mpirun -n 2 sharded 400 --mesh data=2 --times
//
// Along "data" the batch is sharded, and with --zero the state of the optimizer; along "model" the heads of attention
// and the hidden layers. FERMATA_DUMP=partition prints what the partitioner makes of a step, and --times how long one
// takes: bench/scale.py reads both. Exits with an error unless the losses are those of one process.
#include <fermata/profile.h>
#include <mesh_argument.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

namespace fm = fermata;
using fm::Tensor;

namespace {

constexpr std::int64_t kWords = 32, kContext = 16, kBatch = 8, kWidth = 32, kHeads = 4, kLayers = 2;
constexpr double kDifference = 1e-4;
constexpr std::size_t kComparedSteps = 20;  // later ones differ by more: rounding grows from step to step

struct Layer {
  Tensor query, key, value, output, widening, narrowing, attention_norm, inner_norm;
};

struct Transformer {
  Tensor embedding, positions, norm;
  std::vector<Layer> layers;

  /// Logits of the next word for each position of [N, length].
  Tensor logits(const Tensor& words) const {
    const std::int64_t n = words.size(0), length = words.size(1);
    const auto heads = [&](const Tensor& t) {
      return fm::permute(t.reshape({n, length, kHeads, kWidth / kHeads}), {0, 2, 1, 3});
    };
    Tensor x = fm::embedding(words, embedding) + positions.slice(0, 0, length);
    for (const Layer& layer : layers) {
      const Tensor in = fm::rms_norm(x, layer.attention_norm);
      const Tensor seen =
          fm::scaled_dot_product_attention(heads(fm::matmul(in, layer.query)), heads(fm::matmul(in, layer.key)),
                                           heads(fm::matmul(in, layer.value)), {.is_causal = true});
      x = x + fm::matmul(fm::permute(seen, {0, 2, 1, 3}).reshape({n, length, kWidth}), layer.output);
      x = x + fm::matmul(fm::gelu(fm::matmul(fm::rms_norm(x, layer.inner_norm), layer.widening)), layer.narrowing);
    }
    return fm::matmul(fm::rms_norm(x, norm), embedding.T());
  }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all{embedding, positions, norm};
    for (const Layer& l : layers)
      all.insert(all.end(),
                 {l.query, l.key, l.value, l.output, l.widening, l.narrowing, l.attention_norm, l.inner_norm});
    return all;
  }
};

Transformer make_model() {
  fm::Generator generator(1);
  const auto weight = [&](const fm::IntegerList& sizes, double deviation) {
    return fm::normal(sizes, 0, deviation, fm::DType::f32, generator).requires_grad(true);
  };
  const auto ones = [] { return fm::ones({kWidth}).requires_grad(true); };
  const double scale = 1 / std::sqrt(static_cast<double>(kWidth));
  Transformer model{weight({kWords, kWidth}, 0.3), weight({kContext, kWidth}, 0.1), ones(), {}};
  for (std::int64_t i = 0; i < kLayers; ++i)
    model.layers.push_back({weight({kWidth, kWidth}, scale), weight({kWidth, kWidth}, scale),
                            weight({kWidth, kWidth}, scale), weight({kWidth, kWidth}, scale / 2),
                            weight({kWidth, 4 * kWidth}, scale), weight({4 * kWidth, kWidth}, scale / 4), ones(),
                            ones()});
  return model;
}

/// What is particular to several processes.
struct Placement {
  const fm::Mesh* mesh = nullptr;
  bool along_data = false, along_model = false, divides_state = false;

  void place(const Transformer& model, const fm::optim::Optimizer& optimizer) const {
    if (along_model)
      for (const Layer& l : model.layers) {
        for (const Tensor& w : {l.query, l.key, l.value, l.widening}) fm::shard_(w, *mesh, {{}, "model"});
        for (const Tensor& w : {l.output, l.narrowing}) fm::shard_(w, *mesh, {"model"});
      }
    if (!divides_state || !along_data) return;
    for (const Tensor& p : model.parameters())
      if (!fm::is_sharded(p)) fm::shard_(p, *mesh, {});
    for (const Tensor& t : optimizer.state())
      if (t.rank() > 0 && !fm::is_sharded(t)) fm::shard_(t, *mesh, {"data"});
  }
};

/// Milliseconds of the steps of the second half of a training: the first one compiles.
struct StepTimes {
  bool with_transfers = true;
  std::vector<double> steps;
  double collectives = 0;                    // of a step, as a profile sees it: starting them, waiting for them
  std::vector<std::vector<double>> between;  // without transfers: of each step, between its collectives

  double step() const { return median(steps); }
  static double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
    return values[values.size() / 2];
  }
  /// Of ranks that wait for each other in each collective, and compute meanwhile what this rank has computed in it.
  double step_of_slowest() const {
    std::vector<double> all;
    for (const std::vector<double>& step : between) all.insert(all.end(), step.begin(), step.end());
    all = fm::distributed::all_reduce(fm::tensor(all), fm::distributed::Reduction::max).to_vector<double>();
    std::vector<double> steps_of_slowest;
    auto next = all.begin();
    for (const std::vector<double>& step : between) {
      steps_of_slowest.push_back(std::accumulate(next, next + std::ssize(step), 0.0));
      next += std::ssize(step);
    }
    return median(steps_of_slowest);
  }
};
double collectives_of(fm::Profile& profile) {
  double ms = 0;
  for (const fm::ProfileStep& step : profile.summary().steps)
    for (const char* const name : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "wait for"})
      if (step.name.starts_with(name)) ms += step.us / 1e3;
  return ms;
}

/// Sequences in which each word follows from the two before it. The losses of every step.
std::vector<double> train(int steps, const Placement& on, StepTimes* times = nullptr) {
  const Transformer model = make_model();
  fm::optim::AdamW adam(model.parameters(), {.learning_rate = 3e-3});
  on.place(model, adam);
  fm::Generator starts(2);
  std::vector<double> losses;
  std::optional<fm::Profile> profile;  // of the last quarter
  std::optional<fm::distributed::WithoutTransfers> without;
  if (times != nullptr && !times->with_transfers) without.emplace();
  const int timed = steps / 2, profiled = steps - steps / 4;
  for (int step = 0; step < steps; ++step) {
    if (times != nullptr && times->with_transfers && step == profiled) profile.emplace();
    const auto begin = std::chrono::steady_clock::now();
    if (without) static_cast<void>(without->take_times());
    const Tensor start = fm::randint(0, kWords, {kBatch, 1}, fm::DType::i64, starts);
    Tensor words = fm::remainder(start + fm::iota({kContext + 1}, 0) * (start + 1), kWords).sync();
    if (on.along_data) words = fm::shard(words, *on.mesh, {"data"});
    const Tensor loss = fm::cross_entropy(model.logits(words.slice(1, 0, kContext)), words.slice(1, 1), {.axis = -1});
    adam.zero_grad();
    loss.backward();
    adam.step();
    losses.push_back(loss.item<double>());
    if (times == nullptr || step < timed) continue;
    if (!profile)
      times->steps.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    if (without)
      for (times->between.emplace_back(); const double seconds : without->take_times())
        times->between.back().push_back(1e3 * seconds);
  }
  if (profile) times->collectives = collectives_of(*profile) / (steps - profiled);
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const examples::MeshArgument argument = examples::take_mesh(argc, argv);
    const bool divides_state = examples::take_flag(argc, argv, "--zero");
    const bool shows_times = examples::take_flag(argc, argv, "--times");
    const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
    const auto has_axis = [&](std::string_view name) {
      return std::ranges::any_of(argument.axes, [&](const fm::MeshAxis& axis) { return axis.name == name; });
    };
    const std::vector<double> alone = train(steps, {});
    bool same = true;
    examples::on_mesh(argument, [&](const fm::Mesh& mesh) {
      const Placement on{.mesh = &mesh,
                         .along_data = has_axis("data"),
                         .along_model = has_axis("model"),
                         .divides_state = divides_state};
      StepTimes times, computing{.with_transfers = false, .steps = {}, .between = {}};
      const std::vector<double> together = train(steps, on, shows_times ? &times : nullptr);
      if (shows_times) static_cast<void>(train(steps, on, &computing));
      const double slowest = shows_times ? computing.step_of_slowest() : 0;
      double difference = 0;
      for (std::size_t i = 0; i < std::min(together.size(), kComparedSteps); ++i)
        difference = std::max(difference, std::abs(together[i] - alone[i]));
      if (mesh.rank() != 0) return;
      const fm::PartitionCounts counts = fm::partition_counts();
      std::printf("%lld processes: loss %.4f to %.4f, at most %.1e from that of one process\n",
                  static_cast<long long>(mesh.processes()), together.front(), together.back(), difference);
      std::printf("%llu programs partitioned, %llu reused; %llu collectives, %.1f kB sent by each process\n",
                  static_cast<unsigned long long>(counts.partitions), static_cast<unsigned long long>(counts.cached),
                  static_cast<unsigned long long>(counts.collectives), counts.wire_bytes / 1e3);
      if (shows_times)
        std::printf(
            "a step takes %.3f ms, %.3f ms of it in collectives; without transfers %.3f ms, %.3f ms where ranks "
            "wait for the slowest between collectives\n",
            times.step(), times.collectives, computing.step(), slowest);
      same = difference <= kDifference;
    });
    return same ? 0 : 1;
  } catch (const fm::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
