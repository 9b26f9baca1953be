// Files that are cut, changed and made up: loading one ends in an error and never in a crash.
#include <fermata/program.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "fermata/control_flow.h"
#include "fermata/export.h"
#include "fermata/fermata.h"
#include "frontend/run/program_file.h"
#include "tests/run/program_folder.h"

namespace fermata {
namespace {

class DamagedProgram : public ProgramFolder {
 protected:
  /// A program that has all that a file may have: constants, symbols, draws, calls, epilogues, functions.
  DamagedProgram() {
    const Tensor w = randn({6, 4}), table = randn({9, 2});
    const auto f = [&](const Tensor& x, const Tensor& at) {
      const Tensor y = softmax(matmul(x, w) + 1.0, -1) * mean(x);
      const auto [last, all] = scan(
          [](const Tensor& carry, const Tensor& row) {
            const Tensor next = cond(
                sum(row) > 0, [](const Tensor& a) { return a * 2; }, [](const Tensor& a) { return a + uniform({6}); },
                carry + row);
            return std::pair(next, sum(next));
          },
          full({6}, 1.0), x);
      return std::array{y + uniform({4}), take(table, at, 0), reshape(y, {x.size(0) * 4}), sort(x, -1), last, all};
    };
    export_program(path(), {.dynamic = {{"input0", 0, "rows"}}}, f, randn({3, 6}), tensor({1, 2}));
    std::ifstream file(path(), std::ios::binary);
    whole_.assign(std::istreambuf_iterator<char>(file), {});
  }
  /// The number of the error that loading such a file gives; 0 if there is none.
  int load(const std::string& bytes) const {
    std::ofstream(path("damaged.fermata"), std::ios::binary) << bytes;
    fermata_program* program = nullptr;
    const int code = fermata_program_load(path("damaged.fermata").c_str(), &program);
    fermata_program_free(program);
    return code;
  }
  /// The file with another description, and checksums that fit.
  std::string with_description(const std::string& description) const {
    const FilePart old = decode_head(whole_, "").cpu;
    std::string bytes = whole_.substr(0, old.offset) + description;
    bytes.resize((bytes.size() + kPartAlignment - 1) / kPartAlignment * kPartAlignment, '\0');
    bytes.replace(
        0, kHeadBytes,
        encode_head({.cpu = {old.offset, description.size(), checksum_of(description)}, .cuda = {}}, bytes.size()));
    return bytes;
  }
  std::string description() const {
    const FilePart part = decode_head(whole_, "").cpu;
    return whole_.substr(part.offset, part.bytes);
  }

  std::string whole_;
};

TEST_F(DamagedProgram, FilesThatAreCutAreRefused) {
  ASSERT_EQ(load(whole_), 0);
  EXPECT_EQ(load(""), 2202);
  EXPECT_EQ(load("FERMATA"), 2202);
  EXPECT_EQ(load(std::string(4096, 'x')), 2202);
  EXPECT_EQ(load(whole_ + std::string(64, '\0')), 2201);
  for (std::size_t size = kHeadBytes; size < whole_.size(); size += 1009) EXPECT_EQ(load(whole_.substr(0, size)), 2201);
  EXPECT_STREQ(fermata_last_error(),
               ("FM2201 FileError: " + path("damaged.fermata") + " is damaged: it has " +
                std::to_string((whole_.size() - kHeadBytes - 1) / 1009 * 1009 + kHeadBytes) +
                " bytes and should have " + std::to_string(whole_.size()) + "\n  hint copy or export it again")
                   .c_str());
  fermata_program* program = nullptr;
  EXPECT_EQ(fermata_program_load(path("nothing.fermata").c_str(), &program), 1601);
  const char* const text = fermata_last_error();
  EXPECT_EQ(fermata_program_load("/", &program), 1601);
  EXPECT_STREQ(text, "FM1601 FileError: / is not a regular file");  // at the same place
  EXPECT_EQ(text, fermata_last_error());
  EXPECT_EQ(fermata_program_load("/dev/zero", &program), 1601);
  EXPECT_STREQ(text, "FM1601 FileError: /dev/zero is not a regular file");
}

TEST_F(DamagedProgram, OtherVersionsAreRefused) {
  std::string bytes = whole_;
  bytes[8] = static_cast<char>(kFileVersion + 1);
  EXPECT_EQ(load(bytes), 2202);
  EXPECT_STREQ(fermata_last_error(),
               ("FM2202 FileError: " + path("damaged.fermata") + " has version " + std::to_string(kFileVersion + 1) +
                " of the format; this library reads version " + std::to_string(kFileVersion) +
                "\n  hint export it again with the version of this library")
                   .c_str());
}

TEST_F(DamagedProgram, EveryChangeIsFound) {
  std::mt19937_64 random(7);
  const ProgramFile program = decode_program(description(), "");
  ASSERT_FALSE(program.constants.empty());
  const auto is_in = [](const FilePart& part, std::size_t at) {
    return at >= part.offset && at - part.offset < part.bytes;
  };
  for (int i = 0; i < 300; ++i) {
    const std::size_t at = random() % whole_.size();
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    const int code = load(bytes);
    const bool is_constant = std::ranges::any_of(program.constants, [&](const FilePart& c) { return is_in(c, at); });
    bool is_code = is_in(decode_head(whole_, "").cpu, at) || at < 80;
    for (const ProgramKernel& k : program.kernels)
      for (const ProgramObject& o : k.objects) is_code = is_code || is_in(o.code, at);
    if (is_code) { EXPECT_TRUE(code == 2201 || code == 2202) << at; }
    if (!is_constant) continue;
    ASSERT_EQ(code, 0) << at;  // constants are read when they are used
    EXPECT_THROW(run::Program(path("damaged.fermata")).verify(), run::Error);
  }
}

TEST_F(DamagedProgram, TextsEndWithTheFile) {
  // The bytes of the count do not belong to what is counted.
  for (const std::string bytes : {"\x02x", "\x01", "\x05made"}) {
    try {
      decode_program(bytes, "model.fermata");
      ADD_FAILURE() << bytes;
    } catch (const FileError& error) {
      EXPECT_STREQ(error.what(),
                   "FM2201 FileError: model.fermata is damaged: a list or a string is longer than the file\n"
                   "  hint copy or export it again");
    }
  }
}

TEST_F(DamagedProgram, DescriptionsThatAreMadeUpDoNoHarm) {
  const char* const count = std::getenv("FERMATA_FUZZ_COUNT");
  const int changes = count == nullptr ? 1000 : std::atoi(count);
  std::mt19937_64 random(11);
  const std::string good = description();
  int refused = 0;
  for (int i = 0; i < changes; ++i) {
    std::string bytes = good;
    for (std::uint64_t k = 0; k <= random() % 3; ++k) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes[at] = static_cast<char>(bytes[at] + (random() % 2 == 0 ? 1 : -1)); break;
        case 2: bytes.erase(at, random() % 4 + 1); break;
        default: bytes.insert(at, 1, static_cast<char>(random() % 4)); break;
      }
    }
    refused += load(with_description(bytes)) != 0;
  }
  EXPECT_GT(refused, changes / 2);
}

}  // namespace
}  // namespace fermata
