// Exports a small network with its weights as a program for any batch size.
#include <fermata/export.h>
#include <fermata/fermata.h>

#include <cstdio>

namespace fm = fermata;

int main(int argc, char** argv) {
  const char* const path = argc > 1 ? argv[1] : "network.fermata";
  fm::manual_seed(1);
  const fm::Tensor w1 = fm::randn({64, 32}) * 0.2, b1 = fm::zeros({32}), w2 = fm::randn({32, 10}) * 0.3;
  const auto network = [&](const fm::Tensor& x) {
    return fm::softmax(fm::matmul(fm::relu(fm::matmul(x, w1) + b1), w2), -1);
  };
  try {
    const fm::ExportSummary made = fm::export_program(path,
                                                      {.targets = {fm::Target::avx2, fm::Target::avx512},
                                                       .dynamic = {{.input = "image", .axis = 0, .name = "batch"}},
                                                       .inputs = {"image"},
                                                       .outputs = {"scores"}},
                                                      network, fm::zeros({2, 64}));
    std::printf("%s: %zu kernels, %zu calls, %zu bytes of code, %zu bytes of constants\n", path, made.kernels,
                made.calls, made.code_bytes, made.constant_bytes);
  } catch (const fm::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
