// Records, computes and reads a value with nothing but what is installed.
#include <fermata/fermata.h>
#include <fermata/modules.h>
#include <fermata/schedules.h>
#include <fermata/training_file.h>

#include <iostream>

struct Net {
  fermata::nn::Linear out{3, 1};
};

int main() {
  const fermata::Tensor x = fermata::ones({2, 3});
  const float got = fermata::sum(x + 1).item<float>();
  if (got != 12.0f) {
    std::cerr << "sum(ones({2, 3}) + 1) is " << got << ", not 12\n";
    return 1;
  }
  const auto parameters = fermata::nn::named_parameters(Net());
  if (parameters.size() != 2 || parameters[0].first != "out.weight") {
    std::cerr << "the parameters of a module have other names\n";
    return 1;
  }
  std::cout << "12\n";
}
