// Learns to read handwritten digits, in the mode that FERMATA_MODE names (compiled by default).
//   digits [EPOCHS [DATA.csv]]
#include <cstdio>
#include <cstdlib>

#include <digits/training.h>

int main(int argc, char** argv) {
  try {
    digits::Settings settings;
    if (argc > 1) settings.epochs = std::atoi(argv[1]);
    const digits::Data data = digits::load_data(argc > 2 ? argv[2] : digits::find_data());
    const digits::Result result = digits::train(data, settings, [&](int epoch, double loss, double accuracy) {
      std::printf("epoch %2d/%d  loss %.4f  test accuracy %.2f%%\n", epoch, settings.epochs, loss, 100 * accuracy);
    });
    std::printf("%.1f us per step, %.2f s in all\n", result.us_per_step, result.seconds);
  } catch (const fermata::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
