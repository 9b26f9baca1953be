// Learns to recognize handwritten digits, in the mode of FERMATA_MODE (compiled by default).
//   digits [EPOCHS [DATA.csv]]
//   mpirun -n 4 digits [EPOCHS] --mesh data=2,model=2
//   digits [EPOCHS] --mesh data=2,model=2 --simulate
//
// On a mesh it first trains on one process, and exits with an error unless the losses are the same.
#include <mesh_argument.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <digits/training.h>

namespace {

/// Rounding differs, because sums are computed from partial sums.
constexpr double kDifference = 1e-3;

void show(const digits::Result& result) {
  std::printf("%.1f us per step, %.2f s in total\n", result.us_per_step, result.seconds);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const examples::MeshArgument argument = examples::take_mesh(argc, argv);
    digits::Settings settings;
    if (argc > 1) settings.epochs = std::atoi(argv[1]);
    const digits::Data data = digits::load_data(argc > 2 ? argv[2] : digits::find_data());
    const auto show_epoch = [&](int epoch, double loss, double accuracy) {
      std::printf("epoch %2d/%d  loss %.4f  test accuracy %.2f%%\n", epoch, settings.epochs, loss, 100 * accuracy);
    };
    const auto show_nothing = [](int, double, double) {};
    if (argument.processes() == 1) return show(digits::train(data, settings, show_epoch)), 0;
    const digits::Result alone = digits::train(data, settings, show_nothing);
    bool same = true;
    examples::on_mesh(argument, [&](const fermata::Mesh& mesh) {
      digits::Settings together = settings;
      together.mesh = &mesh;
      const bool is_first = mesh.rank() == 0;
      const digits::Result result =
          is_first ? digits::train(data, together, show_epoch) : digits::train(data, together, show_nothing);
      if (!is_first) return;
      show(result);
      double difference = 0;
      for (std::size_t i = 0; i < alone.losses.size(); ++i)
        difference = std::max(difference, std::abs(result.losses[i] - alone.losses[i]));
      std::printf("%lld processes: losses at most %.1e from those of one process\n",
                  static_cast<long long>(mesh.processes()), difference);
      same = difference <= kDifference;
    });
    return same ? 0 : 1;
  } catch (const fermata::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
