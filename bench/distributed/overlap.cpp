// What communication costs two ranks or more that train examples/transformer together, and how much of it runs beside
// computation:
//
//   mpirun -n 2 --bind-to core build/release/bin/fermata_overlap [ROWS]
//
// Each rank trains on ROWS rows of a batch (half of the example's batch). Rounds of these kinds of steps alternate, so
// that all see the machine in the same state:
//
//   one rank alone      the first rank trains by itself while the others sleep
//   side by side        all ranks train, each for itself: what they lose to shared caches and memory, without any
//                       communication. The other losses are relative to it
//   groups of one rank  the same with the calls of a run together, each rank in a group of its own: what is recorded,
//                       launched and copied for collectives, and updates that are not fused with gradients
//   together            with communication
//   compile(fn)         the step as a compiled function, side by side and together, as the example runs it
//
// Medians of all steps, on the first rank; means say what other programs on the machine add, which hit all ranks once
// they wait for each other. Steps of ranks do not take equally long, and with communication each takes as long as that
// of the slowest rank, which no transport would change: so what communication costs is what is lost beside the slowest
// rank side by side. What is lost beside the slowest in groups of one rank are the transfers alone.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "examples/transformer/model.h"
#include "frontend/tools/profile/profile_data.h"

namespace {

namespace fm = fermata;
using fm::distributed::world;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 31, kSteps = 20;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size()))];
}

class Training {
 public:
  virtual ~Training() = default;
  Training(std::int64_t rows, const fm::distributed::Group* together)
      : rows_(rows), together_(together), places_(static_cast<std::uint64_t>(world().rank()) + 2) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) static_cast<void>(train_on(next_batch()).item<float>());
  }
  /// Milliseconds of each step of a round.
  std::vector<double> time() {
    std::vector<double> times;
    for (int i = 0; i < kSteps; ++i) {
      const auto begin = Clock::now();
      run(1);
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    return times;
  }
  std::vector<fm::Tensor> parameters() const { return model_.parameters(); }

 protected:
  virtual fm::Tensor train_on(const examples::Batch& batch) {
    return examples::train_on(model_, adam_, batch, together_, false);
  }

  examples::Batch next_batch() {
    return examples::batch_at(
        corpus_, fm::randint(0, corpus_.characters.size(0) - examples::kContext, {rows_, 1}, fm::DType::i64, places_));
  }

  std::int64_t rows_;
  const fm::distributed::Group* together_;
  fm::Generator places_;
  examples::Corpus corpus_{SONNETS_FILE, fm::cpu()};
  examples::Transformer model_{corpus_.kinds(), 1, fm::cpu()};
  fm::optim::AdamW adam_{model_.parameters(), {.learning_rate = 3e-3, .weight_decay = 0.01}};
};

class CompiledTraining : public Training {
 public:
  using Training::Training;

 private:
  fm::Tensor train_on(const examples::Batch& batch) override { return step_(batch.given, batch.wanted); }

  fm::Tensor step(const fm::Tensor& given, const fm::Tensor& wanted) {
    return examples::train_on(model_, adam_, {given, wanted}, together_, true);
  }

  struct Step {
    CompiledTraining* self;
    fm::Tensor operator()(const fm::Tensor& given, const fm::Tensor& wanted) const { return self->step(given, wanted); }
  };
  fm::CompiledFunction<Step> step_ = fm::compile(Step{this});
};

/// Milliseconds of a step that transfers were on their way, and of steps that waited for one or started one.
struct Transfers {
  double on_the_way = 0, waits = 0, starts = 0;
  int number = 0;
};
Transfers look_at_transfers(Training& training) {
  fm::Profile profile;
  training.run(kSteps);
  profile.stop();
  if (world().rank() == 0 && std::getenv("SHOW")) std::printf("%s\n", fm::to_string(profile.summary()).c_str());
  Transfers found;
  for (const fm::ThreadEvents& thread : profile.data().threads)
    for (const fm::Event& e : thread.events) {
      const double ms = static_cast<double>(e.end_ns - e.begin_ns) / 1e6 / kSteps;
      if (e.info->kind == fm::EventKind::transfer)
        found.on_the_way += ms, ++found.number;
      else if (e.info->name.starts_with("wait for"))
        found.waits += ms;
      else if (e.info->name.starts_with("all_reduce"))
        found.starts += ms;
    }
  found.number /= kSteps;
  return found;
}

/// Milliseconds for the same transfers without computation.
double time_alone(const std::vector<fm::Tensor>& parameters) {
  const fm::ModeGuard eager(fm::Mode::eager);
  std::vector<fm::Tensor> flat;
  for (const fm::Tensor& p : parameters) flat.push_back(p.detach().reshape({-1}));
  const fm::Tensor all = fm::concat(flat, 0).sync();
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    fm::distributed::barrier();
    const auto begin = Clock::now();
    for (int k = 0; k < kSteps; ++k)
      static_cast<void>(fm::distributed::all_reduce(all, fm::distributed::Reduction::mean));
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / kSteps);
  }
  return quantile(times, 0.5);
}

/// The times of the k-th steps of all ranks: those of the slowest.
std::vector<double> of_the_slowest(const std::vector<double>& steps) {
  return fm::distributed::all_reduce(fm::tensor(steps), fm::distributed::Reduction::max).to_vector<double>();
}

void append(std::vector<double>& to, const std::vector<double>& more) { to.insert(to.end(), more.begin(), more.end()); }

void compare(std::int64_t rows) {
  const fm::distributed::Group self = world().split(world().rank());
  Training apart(rows, nullptr), of_one(rows, &self), together(rows, &world());
  CompiledTraining compiled(rows, &world()), compiled_apart(rows, nullptr);
  for (Training* const t : std::initializer_list<Training*>{&apart, &of_one, &together, &compiled, &compiled_apart})
    t->run(3 * kSteps);
  std::vector<double> alone, beside, beside_slowest, of_ones, of_ones_slowest, with, in_compiled, compiled_beside,
      compiled_slowest;
  for (int i = 0; i < kRounds; ++i) {
    fm::distributed::barrier();
    if (world().rank() == 0) append(alone, apart.time());
    fm::distributed::barrier();
    std::vector<double> steps = apart.time();
    append(beside, steps), append(beside_slowest, of_the_slowest(steps));
    steps = of_one.time();
    append(of_ones, steps), append(of_ones_slowest, of_the_slowest(steps));
    append(with, together.time());
    fm::distributed::barrier();
    append(in_compiled, compiled.time());
    fm::distributed::barrier();
    steps = compiled_apart.time();
    append(compiled_beside, steps), append(compiled_slowest, of_the_slowest(steps));
  }
  const Transfers transfers = look_at_transfers(together);
  const double bytes_alone = time_alone(together.parameters());
  if (world().rank() != 0) return;
  std::int64_t elements = 0;
  for (const fm::Tensor& p : together.parameters()) elements += fm::element_count(p.shape());
  std::printf("%d ranks, %d rows each, gradients of %.0f kB in %d calls\n", static_cast<int>(world().size()),
              static_cast<int>(rows), static_cast<double>(elements) * 4 / 1e3, transfers.number);
  const auto lost = [&](double base, double time) { return 100 * (1 - base / time); };
  const auto show = [&](const char* what, const std::vector<double>& times, const std::vector<double>* base = nullptr) {
    std::printf("  %-30s %7.3f ms", what, quantile(times, 0.5));
    if (base != nullptr)
      std::printf("   lost %4.1f %% (of the fastest tenth %4.1f %%, of means %4.1f %%)",
                  lost(quantile(*base, 0.5), quantile(times, 0.5)), lost(quantile(*base, 0.1), quantile(times, 0.1)),
                  lost(mean(*base), mean(times)));
    std::printf("\n");
  };
  show("one rank alone", alone);
  show("side by side", beside);
  show("  of the slowest rank", beside_slowest, &beside);
  show("groups of one rank", of_ones, &beside);
  show("  of the slowest rank", of_ones_slowest, &beside);
  show("together", with, &beside);
  show("compile(fn), side by side", compiled_beside);
  show("  of the slowest rank", compiled_slowest, &compiled_beside);
  show("compile(fn), together", in_compiled, &compiled_beside);
  std::printf(
      "  together, beside the slowest rank side by side: lost %4.1f %%; beside it in groups of one rank: %4.1f %%\n"
      "  compile(fn), together, beside the slowest rank side by side: lost %4.1f %%\n",
      lost(quantile(beside_slowest, 0.5), quantile(with, 0.5)),
      lost(quantile(of_ones_slowest, 0.5), quantile(with, 0.5)),
      lost(quantile(compiled_slowest, 0.5), quantile(in_compiled, 0.5)));
  std::printf("  transfers on their way         %7.3f ms   waited for %.3f ms: %.0f %% beside computation\n",
              transfers.on_the_way, transfers.waits,
              100 * (1 - transfers.waits / std::max(transfers.on_the_way, 1e-9)));
  std::printf("  starting them                  %7.3f ms\n", transfers.starts);
  std::printf("  the same, nothing beside it    %7.3f ms   %.1f %% of a step: what memory alone takes\n", bytes_alone,
              100 * bytes_alone / quantile(with, 0.5));
}

}  // namespace

int main(int argc, char** argv) try {
  if (world().size() == 1) {
    std::printf("start it with mpirun -n 2\n");
    return 1;
  }
  fm::set_compile_policy(fm::CompilePolicy::immediate);  // no thread compiles during the measurement
  compare(argc > 1 ? std::atoi(argv[1]) : examples::kBatch / 2);
  return 0;
} catch (const fm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
