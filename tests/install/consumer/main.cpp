// Records, computes and reads a value with nothing but what is installed.
#include <fermata/fermata.h>

#include <iostream>

int main() {
  const fermata::Tensor x = fermata::ones({2, 3});
  const float got = fermata::sum(x + 1).item<float>();
  if (got != 12.0f) {
    std::cerr << "sum(ones({2, 3}) + 1) is " << got << ", not 12\n";
    return 1;
  }
  std::cout << "12\n";
}
