// Files: numbers that come back bit for bit, what NumPy writes, and the full text of every error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "fermata/fermata.h"
#include "fermata/io.h"
#include "fermata/modules.h"
#include "fermata/training_file.h"
#include "frontend/tools/io/file.h"
#include "ir/error.h"
#include "tests/frontend/scratch_folder.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

class Io : public test::InScratchFolder {};

TEST_F(Io, CsvIsAMatrixOfOneRowALine) {
  write("a.csv", "1, 2.5,-3\n\n4,nan,+inf\r\n");
  const Tensor x = load_csv("a.csv");
  EXPECT_EQ(x.dtype(), DType::f32);
  EXPECT_EQ(x.shape(), Shape({2, 3}));
  const std::vector<float> v = x.to_vector<float>();
  EXPECT_EQ(v[0], 1.0f);
  EXPECT_EQ(v[1], 2.5f);
  EXPECT_EQ(v[2], -3.0f);
  EXPECT_TRUE(std::isnan(v[4]));
  EXPECT_EQ(v[5], std::numeric_limits<float>::infinity());
}

TEST_F(Io, CsvHeaderSeparatorAndByteOrderMark) {
  write("a.csv", "\xef\xbb\xbfheight;width\n1;2\n3;4");
  const Tensor x = load_csv("a.csv", DType::i64, {.separator = ';', .skip_lines = 1});
  EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3, 4}));
}

TEST_F(Io, CsvWithoutValues) {
  write("a.csv", "\n");
  EXPECT_EQ(load_csv("a.csv").shape(), Shape({0, 0}));
}

TEST_F(Io, CsvIntegersAreExactAndRangesAreKept) {
  write("a.csv", "9223372036854775807,-9223372036854775808\n");
  EXPECT_EQ(
      load_csv("a.csv", DType::i64).to_vector<std::int64_t>(),
      (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}));
  write("b.csv", "0,255\n");
  EXPECT_EQ(load_csv("b.csv", DType::u8).to_vector<int>(), (std::vector<int>{0, 255}));
  write("c.csv", "true,0\n1,false\n");
  EXPECT_EQ(load_csv("c.csv", DType::boolean).to_vector<int>(), (std::vector<int>{1, 0, 1, 0}));
}

TEST_F(Io, CsvFloatsOutOfRangeRoundLikeAnyOther) {
  write("a.csv", "1e39,-1e39,1e-60,1e-40\n");
  const std::vector<float> v = load_csv("a.csv").to_vector<float>();
  EXPECT_EQ(v[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(v[1], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(v[2], 0.0f);
  EXPECT_EQ(v[3], 1e-40f);
}

TEST_F(Io, CsvComesBackBitForBit) {
  write("c.csv", "0.1,-0,0.3333333333333333,5e-324,1.7976931348623157e+308,-inf\n");
  save_csv("d.csv", load_csv("c.csv", DType::f64));
  EXPECT_EQ(contents("d.csv"), contents("c.csv"));
}

TEST_F(Io, CsvKeepsHalfPrecision) {
  write("a.csv", "0.5,65504,70000\n");
  for (const DType t : {DType::f16, DType::bf16}) {
    const Tensor x = load_csv("a.csv", t);
    EXPECT_EQ(x.dtype(), t);
    save_csv("b.csv", x);
    EXPECT_EQ(load_csv("b.csv", t).to_vector<float>(), x.to_vector<float>());
  }
  EXPECT_EQ(load_csv("a.csv", DType::f16).to_vector<float>()[2], std::numeric_limits<float>::infinity());
}

TEST_F(Io, CsvErrors) {
  EXPECT_EQ(test::headline<FileError>([] { load_csv("gone.csv"); }),
            "FM1601 FileError: load_csv: gone.csv: cannot be opened (No such file or directory)");
  write("a.csv", "1,2\n3\n");
  EXPECT_EQ(test::headline<FileError>([] { load_csv("a.csv"); }),
            "FM1603 FileError: load_csv: a.csv: line 2 has 1 values, not 2");
  write("b.csv", "1,2\n3,four\n");
  EXPECT_EQ(test::headline<FileError>([] { load_csv("b.csv"); }),
            "FM1603 FileError: load_csv: b.csv: line 2, value 2: 'four' is not an f32");
  write("c.csv", "256\n");
  EXPECT_EQ(test::headline<FileError>([] { load_csv("c.csv", DType::u8); }),
            "FM1603 FileError: load_csv: c.csv: line 1, value 1: '256' is not a u8");
  write("d.csv", "1.5\n");
  EXPECT_EQ(test::headline<FileError>([] { load_csv("d.csv", DType::i32); }),
            "FM1603 FileError: load_csv: d.csv: line 1, value 1: '1.5' is not an i32");
  write("e.csv", "1,,2\n");
  EXPECT_EQ(test::headline<FileError>([] { load_csv("e.csv"); }),
            "FM1603 FileError: load_csv: e.csv: line 1, value 2: '' is not an f32");
  EXPECT_EQ(test::headline<DTypeError>([] { load_csv("a.csv", DType::c64); }),
            "FM1101 DTypeError: load_csv: does not take c64");
  EXPECT_EQ(test::headline<ShapeError>([] {
              save_csv("f.csv", ones({1, 2, 3}));
            }),
            "FM1013 ShapeError: save_csv: a table must have one or two axes\n  x    f32[1, 2, 3]");
  EXPECT_EQ(test::headline<FileError>([] { save_csv("gone/a.csv", ones({1})); }),
            "FM1602 FileError: save_csv: gone/a.csv: cannot be written (No such file or directory)");
}

/// A .npy file of version 1, or of a later one with its longer length field.
std::string npy(std::string header, std::string_view elements, char version = 1) {
  header += '\n';
  std::string file("\x93NUMPY");
  file += {version, '\0', static_cast<char>(header.size()), '\0'};
  if (version > 1) file += {'\0', '\0'};
  return file + header + std::string(elements);
}

TEST_F(Io, NpyLayoutsAndByteOrders) {
  using namespace std::string_view_literals;
  write("c.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }", "\1\0\2\0\3\0\4\0\5\0\6\0"sv));
  EXPECT_EQ(load_npy("c.npy").dtype(), DType::i16);
  EXPECT_EQ(load_npy("c.npy").shape(), Shape({2, 3}));
  EXPECT_EQ(load_npy("c.npy").to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  write("f.npy", npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", "\0\1\0\2\0\3\0\4\0\5\0\6"sv, 2));
  EXPECT_EQ(load_npy("f.npy").to_vector<int>(), (std::vector<int>{1, 3, 5, 2, 4, 6}));
  write("s.npy", npy("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "\2", 3));
  EXPECT_EQ(load_npy("s.npy").shape(), Shape({}));
  EXPECT_EQ(load_npy("s.npy").item<int>(), 1);
  write("e.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4), }", ""));
  EXPECT_EQ(load_npy("e.npy").shape(), Shape({0, 4}));
}

TEST_F(Io, NpyComesBackForEveryDtype) {
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const DType t = static_cast<DType>(i);
    if (!kRealOrBoolean.has(t) || t == DType::bf16) continue;
    write("a.csv", "0,1,1\n1,0,1\n");
    const Tensor x = load_csv("a.csv", t);
    save_npy("a.npy", x);
    const Tensor y = load_npy("a.npy");
    EXPECT_EQ(y.dtype(), t) << name(t);
    EXPECT_EQ(y.shape(), Shape({2, 3})) << name(t);
    EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 1, 1, 1, 0, 1})) << name(t);
  }
}

TEST_F(Io, NpyIsWrittenFromViewsAndReadFromPipes) {
  const Tensor x = reshape(arange(6, DType::f32), {2, 3});
  save_npy("a.npy", x.mT());
  EXPECT_EQ(load_npy("a.npy").to_vector<int>(), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  const std::string whole = contents("a.npy");
  for (const std::size_t bytes : {whole.size(), whole.size() - 3, std::size_t{20}, std::size_t{4}, std::size_t{0}}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    std::thread writer([&] {
      EXPECT_EQ(::write(ends[1], whole.data(), bytes), static_cast<ssize_t>(bytes));
      ::close(ends[1]);
    });
    const std::string pipe = "/proc/self/fd/" + std::to_string(ends[0]);  // as of a shell
    if (bytes == whole.size())
      EXPECT_EQ(load_npy(pipe).to_vector<int>(), (std::vector<int>{0, 3, 1, 4, 2, 5}));
    else
      EXPECT_THROW(load_npy(pipe), FileError) << bytes;
    writer.join();
    ::close(ends[0]);
  }
}

TEST_F(Io, WhatMightNeverEndIsAnErrorAtOnce) {
  ASSERT_EQ(mkfifo("fifo", 0600), 0);
  nn::Linear model(2, 2);
  optim::SGD optimizer(model, {});
  const std::pair<std::string, std::function<void(const std::string&)>> readers[] = {
      {"load_npy", [](const std::string& path) { load_npy(path); }},
      {"map_npy", [](const std::string& path) { map_npy(path); }},
      {"load_csv", [](const std::string& path) { load_csv(path); }},
      {"load_npz", [](const std::string& path) { load_npz(path); }},
      {"load_safetensors", [](const std::string& path) { load_safetensors(path); }},
      {"SafetensorsFile", [](const std::string& path) { SafetensorsFile file(path); }},
      {"load_training", [&](const std::string& path) { load_training(path, model, optimizer); }}};
  for (const auto& [name, read] : readers)
    for (const auto& [path, what] : {std::pair("fifo", "a named pipe"), std::pair("/dev/zero", "a device"),
                                     std::pair("/dev/null", "a device"), std::pair(".", "a directory")})
      EXPECT_EQ(test::headline<FileError>([&] { read(path); }),
                "FM1601 FileError: " + name + ": " + path + ": is " + what + ", not a regular file");
}

TEST_F(Io, NpyIsWhatNumpyWrites) {
  write("a.csv", "1\n2\n");
  save_npy("a.npy", load_csv("a.csv", DType::u8));
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1), }";
  header.resize(117, ' ');
  EXPECT_EQ(contents("a.npy"), npy(header, "\1\2"));
  EXPECT_EQ(contents("a.npy").size(), 128u + 2u);
}

TEST_F(Io, NpyErrors) {
  write("a.npy", "not NumPy at all");
  EXPECT_EQ(test::headline<FileError>([] { load_npy("a.npy"); }),
            "FM1603 FileError: load_npy: a.npy: is not a .npy file");
  write("b.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "\1\2\3\4"));
  EXPECT_EQ(test::headline<FileError>([] { load_npy("b.npy"); }),
            "FM1603 FileError: load_npy: b.npy: has 4 bytes of elements, not 12");
  write("c.npy", npy("{'descr': '|S5', 'fortran_order': False, 'shape': (3,), }", ""));
  EXPECT_EQ(test::headline<UnsupportedError>([] { load_npy("c.npy"); }),
            "FM2003 UnsupportedError: load_npy: c.npy: cannot read elements of type '|S5'");
  write("d.npy", npy("{'descr': '<f4', 'shape': (3,), }", ""));
  EXPECT_EQ(test::headline<FileError>([] { load_npy("d.npy"); }),
            "FM1603 FileError: load_npy: d.npy: has no fortran_order in its header");
  write("e.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "").substr(0, 20));
  EXPECT_EQ(test::headline<FileError>([] { load_npy("e.npy"); }),
            "FM1603 FileError: load_npy: e.npy: ends within its header");
  write("f.npy", npy("{}", "", 9));
  EXPECT_EQ(test::headline<FileError>([] { load_npy("f.npy"); }),
            "FM1603 FileError: load_npy: f.npy: has format version 9, not 1 to 3");
}

TEST_F(Io, DigitsAreAllThere) {
  const Tensor x = load_csv(fermata::test_folder() + "/../examples/digits/digits.csv", DType::u8);
  ASSERT_EQ(x.shape(), Shape({1797, 65}));
  const std::vector<int> values = x.to_vector<int>();
  std::vector<int> images(10);
  for (std::size_t row = 0; row < 1797; ++row) ++images.at(static_cast<std::size_t>(values[row * 65 + 64]));
  EXPECT_EQ(images, (std::vector<int>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
}

TEST_F(Io, ThreadsThatWriteOneFileLeaveAWholeOne) {
  std::vector<std::thread> threads;
  for (const char letter : {'a', 'b', 'c', 'd'})
    threads.emplace_back([letter] {
      for (int i = 0; i < 20; ++i) write_file("test", "one", {std::string(1 << 20, letter)}, Location::current());
    });
  for (std::thread& t : threads) t.join();
  const std::string left = contents("one");
  EXPECT_EQ(left, std::string(1 << 20, left.at(0)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator("."), {}), 1);
}

}  // namespace
}  // namespace fermata
