// A program of several ranks in which something goes wrong: faults.py runs it and looks at what it says.
//
//   faults SCENARIO RANK STEP MODE FOLDER
//
// It makes steps of calculations and collectives. At step STEP rank RANK does what SCENARIO says. A rank that sees an
// error prints "rank R: ..." and returns 3; one that comes to the end prints "rank R: result X". From the middle on
// each rank saves a file in FOLDER, and all of them a checkpoint.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fermata/fermata.h"
#include "fermata/mesh.h"
#include "fermata/safetensors.h"

namespace {

namespace fm = fermata;
using fm::distributed::all_gather, fm::distributed::all_reduce, fm::distributed::world;

struct Fault {
  std::string scenario;
  std::int64_t rank;
  int step;
  std::vector<std::int64_t> processes;  // of all ranks, if the scenario needs them

  bool is_here(int at) const { return at == step && world().rank() == rank; }
  bool is(const char* name, int at) const { return is_here(at) && scenario == name; }
};

[[noreturn]] void die() {
  std::raise(SIGKILL);
  std::abort();
}

/// One that is killed in the middle of what it is doing.
void die_soon() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    die();
  }).detach();
}

void pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

/// Stops the other ranks, which wait for this one, for longer than their timeout.
void stop_others(const std::vector<std::int64_t>& processes) {
  const auto send = [&](int signal) {
    for (const std::int64_t process : processes)
      if (process != getpid()) kill(static_cast<pid_t>(process), signal);
  };
  pause(300);
  send(SIGSTOP);
  pause(4000);
  send(SIGCONT);
  pause(300);
}

fm::Tensor step(const fm::Tensor& x, const Fault& fault, int at) {
  if (fault.is("killed before", at)) die();
  if (fault.is("killed soon", at)) die_soon();
  if (fault.is("throws", at)) throw std::runtime_error("a fault");
  if (fault.is("returns", at)) std::exit(0);
  if (fault.is("slow", at)) pause(1500);
  if (fault.is("stuck", at)) pause(20000);
  if (fault.is("stops others", at)) stop_others(fault.processes);
  fm::Tensor y = all_reduce(x * 0.5f, fm::distributed::Reduction::mean);
  if (fault.is("killed recording", at)) die();
  if (fault.is("other op", at)) y = all_gather(y, 0);
  const fm::Tensor beside = fm::tanh(x) + 1;
  y = all_reduce(y + beside, fm::distributed::Reduction::mean);
  if (fault.is("other size", at)) y = all_reduce(fm::concat({y, y}, 0));
  return fm::distributed::shift(y) * 0.5f + 1;
}

int run(const Fault& fault, const std::string& folder) {
  constexpr int kSteps = 6;
  fm::Tensor x = fm::full({1000}, 0.25f * static_cast<float>(world().rank()), fm::DType::f32).sync();
  std::optional<fm::Mesh> mesh;
  const auto compiled = fm::compile(
      [](const fm::Tensor& t) { return fm::tanh(all_reduce(t, fm::distributed::Reduction::max)) + t * 0.125f; });
  for (int i = 0; i < kSteps; ++i) {
    x = step(x, fault, i);
    if (i % 2 == 1) x.sync();
    if (fault.is("killed in plan", i)) die_soon();
    x = compiled(x);
    if (fault.is("killed saving", i)) die_soon();
    if (i < kSteps / 2) continue;
    fm::save_npy(folder + "/" + std::to_string(world().rank()) + ".npy", x);
    if (!mesh) mesh.emplace(std::vector<fm::MeshAxis>{{"ranks", world().size()}});
    fm::save_safetensors(folder + "/run.safetensors.index.json", {{"x", fm::from_blocks(x, *mesh, {"ranks"})}});
  }
  std::printf("rank %d: result %.6f\n", static_cast<int>(world().rank()),
              static_cast<double>(fm::sum(x).item<float>()));
  return 0;
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 6) return 2;
  if (std::string(arguments[4]) == "eager") fm::set_mode(fm::Mode::eager);
  Fault fault{arguments[1], std::atoi(arguments[2]), std::atoi(arguments[3]), {}};
  if (fault.scenario == "stops others")
    fault.processes = all_gather(fm::full({1}, std::int64_t{getpid()}), 0).to_vector<std::int64_t>();
  return run(fault, arguments[5]);
} catch (const std::exception& error) {
  std::printf("rank %d: %s\n", static_cast<int>(world().rank()), error.what());
  std::fflush(stdout);
  return 3;
}
