// Runs the exported network in C++.
#include <fermata/program.h>

#include <algorithm>
#include <cstdio>

int main(int argc, char** argv) {
  try {
    const fermata::run::Program program(argc > 1 ? argv[1] : "network.fermata");
    std::printf("code for %s\n", program.target().c_str());
    for (const std::int64_t batch : {1, 3}) {
      std::vector<float> images(static_cast<std::size_t>(batch) * 64, 0.5f);
      const fermata::run::Results results = program.run({fermata::run::tensor(images.data(), {batch, 64})});
      const float* const scores = results.data<float>(0);
      std::printf("batch of %d: class %d\n", static_cast<int>(batch),
                  static_cast<int>(std::max_element(scores, scores + 10) - scores));
    }
  } catch (const fermata::run::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
