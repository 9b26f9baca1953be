// Runs the node tests of the onnx package through fermata::onnx, for scripts/onnx_node_tests.sh:
//   node_tests FOLDER [FILTER]
// A folder of a test has model.onnx and test_data_set_0/input_N.pb and output_N.pb. Prints one line for each test,
// "passed", "refused" or "WRONG" with what was said, and a table at the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "fermata/fermata.h"
#include "fermata/onnx.h"
#include "frontend/onnx/schema.h"
#include "frontend/onnx/tensor_proto.h"
#include "ir/error.h"

namespace fm = fermata;
namespace fs = std::filesystem;

namespace {

::onnx::TensorProto read_tensor(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  ::onnx::TensorProto proto;
  if (!proto.ParseFromString(bytes)) throw std::runtime_error(path.string() + " is no tensor");
  return proto;
}

/// Empty if they agree.
std::string difference(const fm::Tensor& got, const fm::Tensor& wanted, bool only_shape) {
  if (got.dtype() != wanted.dtype() || got.shape() != wanted.shape())
    return fmt::format("{} instead of {}", to_string(got.dtype(), got.shape()),
                       to_string(wanted.dtype(), wanted.shape()));
  if (only_shape) return {};
  const auto parts = [](const fm::Tensor& x) {
    return is_complex(x.dtype()) ? fm::stack({fm::real(x), fm::imag(x)}) : x;
  };
  const auto a = parts(got).to_vector<double>(), b = parts(wanted).to_vector<double>();
  const bool is_byte = byte_size(wanted.dtype()) == 1 && fm::is_integer(wanted.dtype());
  const bool is_half = wanted.dtype() == fm::DType::f16 || wanted.dtype() == fm::DType::bf16;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double distance = std::abs(a[i] - b[i]);
    const double allowed = is_byte ? 0 : (is_half ? 1e-2 : 1e-3) * std::abs(b[i]) + (is_half ? 1e-3 : 1e-5);
    if (!(distance <= allowed)) return fmt::format("element {} is {} instead of {}", i, a[i], b[i]);
  }
  return {};
}

/// Results that are drawn have a shape alone.
bool is_random(const std::string& name) {
  return name.find("bernoulli") != std::string::npos || name.starts_with("test_training_dropout");
}

std::string run(const fs::path& folder) {
  const fm::onnx::Model model = fm::onnx::load((folder / "model.onnx").string());
  const fs::path data = folder / "test_data_set_0";
  fm::onnx::TensorReader reader(folder.string(), {});
  std::vector<fm::Tensor> inputs;
  for (std::size_t i = 0; fs::exists(data / fmt::format("input_{}.pb", i)); ++i) {
    if (i >= model.inputs().size() || !model.inputs()[i].dtype)
      throw fm::UnsupportedError(2306, "an input is no tensor");
    ::onnx::TensorProto proto = read_tensor(data / fmt::format("input_{}.pb", i));
    inputs.push_back(reader.read(proto));
  }
  const std::vector<fm::Tensor> results = model(inputs);
  for (std::size_t i = 0; i < results.size(); ++i) {
    ::onnx::TensorProto proto = read_tensor(data / fmt::format("output_{}.pb", i));
    const std::string text = difference(results[i], reader.read(proto), is_random(folder.filename().string()));
    if (!text.empty()) return fmt::format("result {}: {}", i, text);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(argv[1]))
    if (argc < 3 || entry.path().filename().string().find(argv[2]) != std::string::npos)
      folders.push_back(entry.path());
  std::ranges::sort(folders);
  std::map<std::string, int> counts;
  for (const fs::path& folder : folders) {
    std::string outcome = "passed", text;
    try {
      text = run(folder);
      if (!text.empty()) outcome = "WRONG";
    } catch (const fm::UnsupportedError& error) {
      outcome = "refused", text = error.what();
    } catch (const std::exception& error) { outcome = "WRONG", text = error.what(); }
    ++counts[outcome];
    std::ranges::replace(text, '\n', ' ');
    std::cout << fmt::format("{:8} {} {}\n", outcome, folder.filename().string(), text) << std::flush;
  }
  std::cout << '\n';
  for (const auto& [outcome, count] : counts) std::cout << fmt::format("{:8} {:5}\n", outcome, count);
  return counts["WRONG"] == 0 ? 0 : 1;
}
