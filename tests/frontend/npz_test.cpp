// Archives of arrays, and arrays that are mapped. golden/arrays.npz and arrays_compressed.npz are NumPy's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fermata/fermata.h"
#include "fermata/io.h"
#include "tests/frontend/scratch_folder.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

class Npz : public test::InScratchFolder {
 protected:
  void SetUp() override {
    try {
      save_npz("probe.npz", {});
    } catch (const UnsupportedError& error) {
      ASSERT_EQ(error.code(), 2025) << error.what();  // built without libzip, and nothing else
      GTEST_SKIP() << error.what();
    }
    std::filesystem::remove("probe.npz");
  }
};

TEST_F(Npz, ReadsWhatNumpyWrites) {
  for (const char* name : {"arrays.npz", "arrays_compressed.npz"}) {
    const NamedTensors all = load_npz(fermata::test_folder() + "/frontend/golden/" + name);
    ASSERT_EQ(all.size(), 5u) << name;
    EXPECT_EQ(all.at("floats").to_vector<float>(), (std::vector<float>{0, 0.5, 1, 1.5, 2, 2.5}));
    EXPECT_EQ(all.at("floats").shape(), Shape({2, 3}));
    EXPECT_EQ(all.at("columns").to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4, 5}));  // Fortran order
    EXPECT_EQ(all.at("columns").shape(), Shape({2, 3}));
    EXPECT_EQ(all.at("big_endian").to_vector<int>(), (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(all.at("scalar").item<bool>(), true);
    EXPECT_EQ(sum(all.at("many")).item<std::int64_t>(), 10000);
  }
}

TEST_F(Npz, ComesBackForEveryDtype) {
  NamedTensors all;
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const DType t = static_cast<DType>(i);
    if (is_quantized(t) || is_small(t) || t == DType::bf16) continue;
    all.emplace(std::string(name(t)), tensor({0, 1, 1, 1, 0, 1}).reshape({2, 3}).astype(t));
  }
  all.emplace("empty", zeros({0, 4}));
  all.emplace("in/a/folder", full({}, 2));
  for (const bool compressed : {false, true}) {
    save_npz("a.npz", all, compressed);
    const NamedTensors again = load_npz("a.npz");
    ASSERT_EQ(again.size(), all.size());
    for (const auto& [key, x] : all) {
      EXPECT_EQ(again.at(key).dtype(), x.dtype()) << key;
      EXPECT_EQ(again.at(key).shape(), x.shape()) << key;
      const auto numbers = [](const Tensor& z) { return (is_complex(z.dtype()) ? real(z) : z).to_vector<double>(); };
      EXPECT_EQ(numbers(again.at(key)), numbers(x)) << key;
    }
  }
  const Tensor zeros_only = zeros({100000});
  save_npz("a.npz", {{"x", zeros_only}}), save_npz("b.npz", {{"x", zeros_only}}, true);
  EXPECT_LT(std::filesystem::file_size("b.npz") * 100, std::filesystem::file_size("a.npz"));
  const std::string bytes = contents("a.npz");
  save_npz("a.npz", {{"x", zeros_only}});
  EXPECT_EQ(contents("a.npz"), bytes);  // they do not depend on the time
  save_npz("none.npz", {});
  EXPECT_TRUE(load_npz("none.npz").empty());
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(".")) ++files;
  EXPECT_EQ(files, 3u);
}

TEST_F(Npz, DamageIsAnError) {
  EXPECT_EQ(test::headline<FileError>([] { load_npz("gone.npz"); }),
            "FM1601 FileError: load_npz: gone.npz: cannot be opened (No such file or directory)");
  write("a.npz", "PK is not enough");
  EXPECT_EQ(test::headline<FileError>([] { load_npz("a.npz"); }),
            "FM1603 FileError: load_npz: a.npz: is not a zip archive (Not a zip archive)");
  save_npz("whole.npz", {{"x", arange(100).astype(DType::f32)}, {"y", ones({2})}});
  const std::string whole = contents("whole.npz");
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    write("a.npz", std::string_view(whole).substr(0, size));
    EXPECT_THROW(load_npz("a.npz"), FileError) << size;
  }
  std::string flipped = whole;
  flipped[300] = static_cast<char>(flipped[300] ^ 1);  // an element
  write("a.npz", flipped);
  EXPECT_EQ(test::headline<FileError>([] { load_npz("a.npz"); }),
            "FM1603 FileError: load_npz: a.npz: an entry is damaged (CRC error)");
  for (std::size_t i = 0; i < whole.size(); i += 3) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    write("a.npz", changed);
    try {
      for (const auto& [name, x] : load_npz("a.npz")) EXPECT_LE(x.element_count(), 100) << i;
    } catch (const Error&) {}
  }
}

TEST_F(Npz, WriteErrors) {
  EXPECT_EQ(test::headline<ValueError>([] {
              save_npz("a.npz", {{"../x", ones({1})}});
            }),
            "FM1385 ValueError: save_npz: '../x' is not a valid array name");
  EXPECT_EQ(test::headline<DTypeError>([] {
              save_npz("a.npz", {{"x", ones({1}, DType::bf16)}});
            }),
            "FM1101 DTypeError: save_npz: does not take bf16");
  EXPECT_EQ(test::headline<FileError>([] {
              save_npz("gone/a.npz", {{"x", ones({1})}});
            }),
            "FM1602 FileError: save_npz: gone/a.npz: cannot be written (No such file or directory)");
}

TEST_F(Npz, MappedArraysShareTheFile) {
  save_npy("a.npy", arange(1000).astype(DType::f32).reshape({10, 100}));
  Tensor x = map_npy("a.npy");
  EXPECT_EQ(x.shape(), Shape({10, 100}));
  EXPECT_EQ(HostView<const float>(x).data(), HostView<const float>(x).data());
  EXPECT_EQ(x[9][99].item<float>(), 999);
  const std::string before = contents("a.npy");
  x += 1;
  x.data<float>()[0] = 5;
  EXPECT_EQ(contents("a.npy"), before);
  std::filesystem::remove("a.npy");
  EXPECT_EQ(sum(x).item<float>(), 499500 + 1000 + 4);
  for (const char* header : {"{'descr': '>i2', 'fortran_order': False, 'shape': (2, 3), }",
                             "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }"}) {
    std::string file("\x93NUMPY\1\0", 8);
    file += {static_cast<char>(std::string_view(header).size()), '\0'};
    file += header;
    file += std::string_view(header).find('>') != std::string_view::npos ? std::string("\0\1\0\2\0\3\0\4\0\5\0\6", 12)
                                                                         : std::string("\1\0\4\0\2\0\5\0\3\0\6\0", 12);
    write("b.npy", file);
    EXPECT_EQ(map_npy("b.npy").to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6})) << header;
  }
  write("c.npy", before.substr(0, before.size() - 1));
  EXPECT_EQ(test::headline<FileError>([] { map_npy("c.npy"); }),
            "FM1603 FileError: map_npy: c.npy: has 3999 bytes of elements, not 4000");
  write("c.npy", "");
  EXPECT_EQ(test::headline<FileError>([] { map_npy("c.npy"); }),
            "FM1603 FileError: map_npy: c.npy: is not a .npy file");
}

}  // namespace
}  // namespace fermata
