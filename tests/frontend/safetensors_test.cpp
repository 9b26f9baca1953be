// safetensors: what comes back, what a mapping shares, and files that are damaged or hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fermata/fermata.h"
#include "fermata/safetensors.h"
#include "ir/small_dtypes.h"
#include "tests/frontend/scratch_folder.h"

namespace fermata {
namespace {

class Safetensors : public test::InScratchFolder {};

/// A file of this header and so many bytes of elements.
std::string file_of(const std::string& header, std::size_t bytes, std::uint64_t length = 0) {
  if (length == 0) length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file + header + std::string(bytes, '\1');
}
std::string refusal() {
  const std::string text = test::headline<FileError>([] { load_safetensors("a.safetensors"); });
  constexpr std::string_view kBegin = "FM1603 FileError: load_safetensors: a.safetensors: ";
  return text.starts_with(kBegin) ? text.substr(kBegin.size()) : text;
}

TEST_F(Safetensors, EveryDtypeComesBack) {
  NamedTensors all;
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const DType t = static_cast<DType>(i);
    if (is_quantized(t) || t == DType::c128 || (is_small(t) && bit_width(t) < 8)) continue;
    all.emplace(std::string(name(t)), tensor({0, 1, 2, 100, 0, 1, 7}).astype(t));
    all.emplace(std::string(name(t)) + "/empty", zeros({0, 3}, t));
    all.emplace(std::string(name(t)) + "/scalar", full({}, 1).astype(t));
  }
  all.emplace("a view", arange(12).reshape({3, 4}).T().slice(0, 1, 3));
  all.emplace("\"quoted\" \n \xc3\xa9", ones({1}));
  const Metadata notes{{"format", "pt"}, {"text", "a \"b\"\nc"}};
  save_safetensors("a.safetensors", all, notes);
  const SafetensorsFile file("a.safetensors");
  EXPECT_EQ(file.metadata(), notes);
  EXPECT_EQ(file.names().size(), all.size());
  for (const auto& [key, x] : all) {
    const Tensor y = file.tensor(key);
    EXPECT_EQ(y.dtype(), x.dtype()) << key;
    EXPECT_EQ(y.shape(), x.shape()) << key;
    const auto numbers = [](const Tensor& z) { return (is_complex(z.dtype()) ? real(z) : z).to_vector<double>(); };
    EXPECT_THAT(numbers(y), ::testing::Pointwise(::testing::NanSensitiveDoubleEq(), numbers(x))) << key;
  }
  EXPECT_EQ(test::headline<ValueError>([&] { file.tensor("f33"); }),
            "FM1383 ValueError: safetensors: a.safetensors: has no tensor 'f33'");
  EXPECT_EQ(test::headline<DTypeError>([] {
              save_safetensors("b.safetensors", {{"x", ones({1}, DType::c128)}});
            }),
            "FM1101 DTypeError: save_safetensors: does not take c128");
  EXPECT_FALSE(std::filesystem::exists("b.safetensors"));
}

TEST_F(Safetensors, FilesHaveTheLayoutOfTheFormat) {
  save_safetensors("a.safetensors", {{"b", tensor({1, 2}, DType::u8)}, {"a", tensor({1.0f})}}, {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string elements("\0\0\x80\x3f\1\2", 6);
  EXPECT_EQ(contents("a.safetensors"), file_of(padded, 0) + elements);
  save_safetensors("a.safetensors", {});
  EXPECT_TRUE(load_safetensors("a.safetensors").empty());
}

TEST_F(Safetensors, TensorsShareTheMappingAndKeepIt) {
  save_safetensors("a.safetensors", {{"w", arange(4096).astype(DType::f32)}});
  const std::string before = contents("a.safetensors");
  Tensor x, y;
  {
    const SafetensorsFile file("a.safetensors");
    x = file.tensor("w"), y = file.tensor("w");
  }
  EXPECT_EQ(HostView<const float>(x).data(), HostView<const float>(y).data());
  std::filesystem::remove("a.safetensors");
  EXPECT_EQ(x[4095].item<float>(), 4095);
  // Writes stay in the tensor.
  x += 1;
  x.data<float>()[1] = -1;
  EXPECT_EQ(x.slice(0, 0, 3).to_vector<float>(), (std::vector<float>{1, -1, 3}));
  EXPECT_EQ(y.slice(0, 0, 3).to_vector<float>(), (std::vector<float>{0, 1, 2}));
  write("a.safetensors", before);
  Tensor z = load_safetensors("a.safetensors").at("w");
  z.data<float>()[0] = 9;
  z += 1;
  EXPECT_EQ(z[0].item<float>(), 10);
  EXPECT_EQ(contents("a.safetensors"), before);
}

TEST_F(Safetensors, ElementsThatAreNotAlignedAreCopied) {
  write("a.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                                 5));
  EXPECT_EQ(load_safetensors("a.safetensors").at("b").to_vector<float>(), (std::vector<float>{0x1.020202p-125f}));
  std::string file = file_of(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3);
  file.back() = '\x7f';
  write("a.safetensors", file);
  EXPECT_EQ(sum(load_safetensors("a.safetensors").at("a")).item<int>(), 3);
}

TEST_F(Safetensors, ShardsHaveAnIndex) {
  NamedTensors all;
  for (int i = 0; i < 5; ++i) all.emplace("layer." + std::to_string(i), full({100}, static_cast<float>(i)));
  const std::string index = save_safetensors_sharded("model.safetensors", all, 900, {{"format", "pt"}});
  EXPECT_EQ(index, "model.safetensors.index.json");
  EXPECT_TRUE(std::filesystem::exists("model-00003-of-00003.safetensors"));
  const SafetensorsFile file(index);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.names().size(), 5u);
  EXPECT_EQ(file.tensor("layer.3")[99].item<float>(), 3);
  const auto refused = [](const std::string& text) {
    write("bad.index.json", text);
    return test::headline<FileError>([] { SafetensorsFile("bad.index.json"); });
  };
  EXPECT_EQ(refused(R"({"weight_map": {"a": "../a.safetensors"}})"),
            "FM1603 FileError: SafetensorsFile: bad.index.json: tensor 'a' is in a file outside this folder");
  EXPECT_EQ(refused(R"({"weight_map": {"a": ["b"]}})"),
            "FM1603 FileError: SafetensorsFile: bad.index.json: has no weight_map");
  EXPECT_EQ(refused(R"({"weight_map": {"a": "gone"}})"),
            "FM1601 FileError: SafetensorsFile: gone: cannot be opened (No such file or directory)");
  EXPECT_EQ(refused(R"({"weight_map": {"a": "model-00001-of-00003.safetensors"}})"),
            "FM1603 FileError: SafetensorsFile: bad.index.json: tensor 'a' is not in model-00001-of-00003.safetensors");
  EXPECT_EQ(refused(R"({"weight_map": {"layer.0": "model-00001-of-00003.safetensors", "layer.0": "b"}})"),
            "FM1603 FileError: SafetensorsFile: bad.index.json: tensor 'layer.0' occurs twice");
  EXPECT_EQ(refused(R"({"weight_map": )"),
            "FM1603 FileError: SafetensorsFile: bad.index.json: is not valid JSON at byte 16");
}

TEST_F(Safetensors, HostileHeadersAreRefused) {
  const auto refused = [](const std::string& file) {
    write("a.safetensors", file);
    return refusal();
  };
  const auto of_header = [&](const std::string& header, std::size_t bytes = 8) {
    return refused(file_of(header, bytes));
  };
  const auto of_tensor = [&](const std::string& rest) { return of_header(R"({"a":{"dtype":"F32",)" + rest + "}"); };
  EXPECT_EQ(refused(""), "is too short to be a safetensors file");
  EXPECT_EQ(refused("1234567"), "is too short to be a safetensors file");
  EXPECT_EQ(refused(file_of("{}", 0, 99)), "ends within its header");
  EXPECT_EQ(refused(file_of("{}", 0, ~0ull)), "has a header of 18446744073709551615 bytes, more than 100000000");
  EXPECT_EQ(of_header("[]"), "has a header that is not an object");
  EXPECT_EQ(of_header(" {}"), "has a header that is not an object");
  EXPECT_EQ(of_header("{", 0), "has a header that is not valid JSON at byte 2");
  EXPECT_EQ(of_header(R"({"a":1})"), "tensor 'a' is not an object");
  EXPECT_EQ(of_header(R"({"a":[[[[]]]]})"), "tensor 'a' is not an object");
  EXPECT_EQ(of_header(R"({"a":{}})"), "tensor 'a' requires a dtype, a shape and two data offsets");
  EXPECT_EQ(of_header(R"({"__metadata__":{"a":1}})"), "has metadata 'a' that is not a string");
  EXPECT_EQ(of_header(R"({"__metadata__":{"a":"1","a":"2"}})"), "has metadata 'a' twice");
  EXPECT_EQ(of_tensor(R"("shape":[2],"data_offsets":[0,8],"x":1})"), "tensor 'a' has an unknown field 'x'");
  EXPECT_EQ(of_tensor(R"("shape":[2],"data_offsets":[0,8]},"a":{}})"), "tensor 'a' occurs twice");
  EXPECT_EQ(of_tensor(R"("shape":[2],"shape":[2],"data_offsets":[0,8]})"), "tensor 'a' has two lists 'shape'");
  EXPECT_EQ(of_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "tensor 'a' has two dtypes");
  EXPECT_EQ(of_tensor(R"("shape":[-2],"data_offsets":[0,8]})"), "tensor 'a' has a size that is not a natural number");
  EXPECT_EQ(of_tensor(R"("shape":[[2]],"data_offsets":[0,8]})"), "tensor 'a' has a size that is not a natural number");
  EXPECT_EQ(of_tensor(R"("shape":[2.0],"data_offsets":[0,8]})"), "tensor 'a' has a size that is not a natural number");
  EXPECT_EQ(of_tensor(R"("shape":2,"data_offsets":[0,8]})"), "tensor 'a' has no valid shape");
  EXPECT_EQ(of_tensor(R"("shape":[2],"data_offsets":[0,8,9]})"),
            "tensor 'a' requires a dtype, a shape and two data offsets");
  EXPECT_EQ(of_tensor(R"("shape":[2],"data_offsets":[4,12]})"), "tensor 'a' is outside the file");
  EXPECT_EQ(of_tensor(R"("shape":[2],"data_offsets":[8,0]})"), "tensor 'a' is outside the file");
  EXPECT_EQ(of_tensor(R"("shape":[3],"data_offsets":[0,8]})"), "tensor 'a' has 8 bytes, not 12");
  EXPECT_EQ(of_tensor(R"("shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
            "tensor 'a' has a size that overflows 64 bits");
  EXPECT_EQ(of_tensor(R"("shape":[18446744073709551615,0],"data_offsets":[0,0]})"),
            "tensor 'a' has a size that overflows 64 bits");
  EXPECT_EQ(of_tensor(R"("shape":[99999999999999999999],"data_offsets":[0,0]})"),
            "tensor 'a' has a size that is not a natural number");
  EXPECT_EQ(of_tensor(R"("shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})"),
            "tensor 'a' has more than 16 axes");
  EXPECT_EQ(of_tensor(R"("shape":[1],"data_offsets":[0,4]})"), "has 8 bytes of elements, not 4");
  EXPECT_EQ(of_tensor(R"("shape":[1],"data_offsets":[4,8]})"), "tensor 'a' leaves a gap before it");
  EXPECT_EQ(of_tensor(R"("shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})"),
            "tensor 'b' overlaps another tensor");
  EXPECT_EQ(of_header(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})"),
            "tensor 'a' has an unknown dtype 'F99'");
  // Nesting costs no stack, and a long name is cut.
  EXPECT_EQ(of_header(R"({"a":{"shape":)" + std::string(100000, '[')),
            "tensor 'a' has a size that is not a natural number");
  EXPECT_EQ(of_header("{\"" + std::string(10000, 'n') + "\":1}"),
            "tensor '" + std::string(80, 'n') + "' is not an object");
}

TEST_F(Safetensors, EveryCutOfAFileIsRefused) {
  save_safetensors("whole", {{"a", ones({3})}, {"b", ones({2, 2}, DType::i64)}}, {{"k", "v"}});
  const std::string whole = contents("whole");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write("a.safetensors", std::string_view(whole).substr(0, size));
    EXPECT_THROW(load_safetensors("a.safetensors"), FileError) << size;
  }
  for (std::size_t i = 0; i < whole.size() - 44; ++i) {  // a bit of the header: an error, or tensors of the file
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    write("a.safetensors", changed);
    try {
      for (const auto& [name, x] : load_safetensors("a.safetensors")) EXPECT_LE(x.element_count(), 44) << i;
    } catch (const Error&) {}
  }
}

TEST_F(Safetensors, ForeignDtypesAreUnsupportedByThemselves) {
  write("a.safetensors", file_of(R"({"a":{"dtype":"F6_E2M3","shape":[8],"data_offsets":[0,6]},)"
                                 R"("b":{"dtype":"U8","shape":[1],"data_offsets":[6,7]}})",
                                 7));
  const SafetensorsFile file("a.safetensors");
  EXPECT_EQ(file.tensor("b").item<int>(), 1);
  EXPECT_EQ(test::headline<UnsupportedError>([&] { file.tensor("a"); }),
            "FM2003 UnsupportedError: SafetensorsFile: a.safetensors: tensor 'a' has elements of type F6_E2M3");
}

TEST_F(Safetensors, WhatIsNoFileIsAnError) {
  EXPECT_EQ(test::headline<FileError>([] { load_safetensors("gone"); }),
            "FM1601 FileError: load_safetensors: gone: cannot be opened (No such file or directory)");
  std::filesystem::create_directory("folder");
  EXPECT_EQ(test::headline<FileError>([] { load_safetensors("folder"); }),
            "FM1601 FileError: load_safetensors: folder: is a directory, not a regular file");
  ASSERT_EQ(::mkfifo("pipe", 0600), 0);
  EXPECT_EQ(test::headline<FileError>([] { load_safetensors("pipe"); }),
            "FM1601 FileError: load_safetensors: pipe: is a named pipe, not a regular file");
  EXPECT_EQ(test::headline<FileError>([] { save_safetensors("gone/a", {}); }),
            "FM1602 FileError: save_safetensors: gone/a: cannot be written (No such file or directory)");
}

TEST_F(Safetensors, AFailedWriteLeavesTheEarlierFile) {
  save_safetensors("a.safetensors", {{"x", ones({4})}});
  const std::string before = contents("a.safetensors");
  // A value that cannot be computed, and a disk that is full.
  const Tensor bad = take(ones({2}), tensor({5}));
  EXPECT_THROW(save_safetensors("a.safetensors", {{"x", bad}}), IndexError);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{1 << 12, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = test::headline<FileError>([] {
    save_safetensors("a.safetensors", {{"x", ones({1 << 16})}});
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(text, "FM1602 FileError: save_safetensors: a.safetensors: cannot be written (File too large)");
  EXPECT_EQ(contents("a.safetensors"), before);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(".")) ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(Safetensors, LoadingReadsTheHeaderAlone) {
  constexpr std::int64_t kElements = std::int64_t{1} << 26;  // 256 MiB
  // A file without written pages, of zeros.
  const std::string header = R"({"w":{"dtype":"F32","shape":[67108864],"data_offsets":[0,268435456]}}   )";
  ASSERT_EQ(header.size() % 8, 0u);
  write("a.safetensors", file_of(header, 0));
  std::filesystem::resize_file("a.safetensors", 8 + header.size() + 4 * kElements);
  const auto resident = [] {
    std::ifstream status("/proc/self/statm");
    std::size_t total = 0, pages = 0;
    status >> total >> pages;
    return pages * 4096;
  };
  const std::size_t before = resident();
  const NamedTensors all = load_safetensors("a.safetensors");
  EXPECT_LT(resident(), before + (std::size_t{16} << 20));
  EXPECT_EQ(all.at("w")[kElements - 1].item<float>(), 0);
}

}  // namespace
}  // namespace fermata
