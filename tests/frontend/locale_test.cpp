// Text is the same in every locale: decimal points, grouping of digits, upper and lower case.
#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <filesystem>
#include <locale>
#include <string>

#include "fermata/fermata.h"
#include "fermata/io.h"
#include "frontend/engine/graph_runner.h"
#include "ir/graph.h"

namespace fermata {
namespace {

/// 1.234,5 as in Turkish or German.
struct CommasForPoints : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// What prints numbers, and what reads them.
std::string texts() {
  const Tensor x = tensor({1234.5, -0.25, 0.125});
  std::string all = to_string(x) + to_string(x * 1e300) + to_string(arange(123456, 123460, 1, DType::i64));
  const Graph graph = parse_graph("%0 = input : f32[1234]\n%1 = add(%0, 1.5) : f32[1234]\nreturn %1\n");
  all += to_string(graph);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("fermata_locale_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string npy = folder / "x.npy", safetensors = folder / "x.safetensors", csv = folder / "x.csv";
  save_npy(npy, x);
  save_safetensors(safetensors, {{"INDIGO", x}});
  {
    std::FILE* file = std::fopen(csv.c_str(), "w");
    std::fputs("1234.5,-0.25\n1e-7,3\n", file), std::fclose(file);
  }
  all += to_string(load_npy(npy)) + to_string(load_safetensors(safetensors).at("INDIGO")) +
         to_string(load_csv(csv, DType::f64));
  std::filesystem::remove_all(folder);
  try {
    static_cast<void>(ones({1234, 2}) + ones({1235, 2}));
  } catch (const Error& error) {
    const std::string text = error.what();
    all += text.substr(0, text.find("  at "));
  }
  return all + to_string(einsum("Ii,iI->", {ones({2, 3}), ones({3, 2})}));
}

TEST(Locale, ChangesNoText) {
  const std::string expected = texts();
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new CommasForPoints));
  std::setlocale(LC_ALL, "");  // that of the environment, too
  const std::string found = texts();
  std::setlocale(LC_ALL, "C");
  std::locale::global(before);
  EXPECT_EQ(found, expected);
  EXPECT_NE(expected.find("1234.5"), std::string::npos);
}

}  // namespace
}  // namespace fermata
