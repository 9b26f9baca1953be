// The object loader: what it takes, and that no damage to an object does more than raise an error.
#include "codegen_cpu/loader.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "codegen_cpu/jit/plugin.h"
#include "codegen_cpu/jit_compiler.h"
#include "ir/error.h"
#include "runtime/bounds_check.h"
#include "runtime/disk_cache.h"
#include "tests/codegen_cpu/kernel_case.h"

namespace fermata {
namespace {

/// An object with code and constants: x + 1 over f32.
Kernel increment() {
  Kernel kernel;
  kernel.accesses = {{.dtype = DType::f32, .axes = 1, .unit_stride = true},
                     {.dtype = DType::f32, .axes = 1, .unit_stride = true}};
  const ValueId x = kernel.program.add({.prim = Prim::input, .type = DType::f32});
  const ValueId one = kernel.program.constant(DType::f32, constant_bits(1.0f));
  kernel.stores = {{1, kernel.program.add({.prim = Prim::add, .type = DType::f32, .a = x, .b = one})}};
  return kernel;
}

class LoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
    const bool checked = set_bounds_checks(false);  // an object of ordinary code
    object_ = JitCompiler::instance().object_for(increment());
    set_bounds_checks(checked);
  }
  /// Why an object is refused, or "" if it is loaded.
  static std::string refusal(const std::string& object) {
    try {
      executable_from_object(object);
    } catch (const ObjectError& error) { return error.what(); }
    return "";
  }
  template <class T> T& at(std::string& object, std::size_t offset) {
    return *reinterpret_cast<T*>(object.data() + offset);
  }
  /// Applies a change to each section header of a kind.
  template <class F> std::string with_sections(std::uint32_t type, F&& change) {
    std::string object = object_;
    const auto header = at<Elf64_Ehdr>(object, 0);
    for (unsigned i = 0; i < header.e_shnum; ++i) {
      auto& section = at<Elf64_Shdr>(object, header.e_shoff + i * sizeof(Elf64_Shdr));
      if (section.sh_type == type) change(section, object);
    }
    return object;
  }
  std::string object_;
};

TEST_F(LoaderTest, RunsAnObject) {
  const auto executable = executable_from_object(object_);
  test::Random random(3);
  test::KernelCase expected(increment(), {1000}, random), actual = expected;
  interpret(increment(), expected.launch());
  executable->launch(actual.launch());
  EXPECT_EQ(expected.difference(actual), "");
  EXPECT_GE(executable->code_bytes(), 4096u);
  EXPECT_LE(executable->code_bytes(), 16384u);
}

TEST_F(LoaderTest, NamesWhatIsMissing) {
  const auto object = LoadedObject::load(object_);
  EXPECT_NE(object->code(jit::kEntrySymbol), nullptr);
  EXPECT_NE(object->data(jit::kInfoSymbol, sizeof(jit::ObjectInfo)), nullptr);
  const auto message = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const ObjectError& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(message([&] { object->code("nothing"); }), "object: it has no function nothing");
  EXPECT_EQ(message([&] { object->code(jit::kInfoSymbol); }), "object: it has no function fermata_kernel_info");
  EXPECT_EQ(message([&] { object->data(jit::kEntrySymbol, 8); }),
            "object: it has no constant fermata_kernel of 8 bytes");
  EXPECT_EQ(
      message([&] { object->data(jit::kInfoSymbol, sizeof(jit::ObjectInfo) + 1); }),
      "object: it has no constant fermata_kernel_info of " + std::to_string(sizeof(jit::ObjectInfo) + 1) + " bytes");
}

TEST_F(LoaderTest, RefusesOtherFiles) {
  EXPECT_EQ(refusal(""), "object: the header is outside the object");
  EXPECT_EQ(refusal(std::string(100, 'x')), "object: not a 64-bit ELF file");
  std::string changed = object_;
  at<Elf64_Ehdr>(changed, 0).e_machine = EM_AARCH64;
  EXPECT_EQ(refusal(changed), "object: not a relocatable x86-64 object");
  changed = object_;
  at<Elf64_Ehdr>(changed, 0).e_shoff = ~0ull - 100;
  EXPECT_EQ(refusal(changed), "object: the section table is outside the object");
}

TEST_F(LoaderTest, RefusesBrokenSections) {
  EXPECT_EQ(refusal(with_sections(SHT_SYMTAB, [](auto& section, auto&) { section.sh_size -= 1; })),
            "object: the symbol table has a truncated last entry");
  EXPECT_EQ(refusal(with_sections(SHT_SYMTAB, [](auto& section, auto&) { section.sh_link = 999; })),
            "object: the symbol table has no string table");
  EXPECT_EQ(
      refusal(with_sections(SHT_PROGBITS, [](auto& section, auto&) { section.sh_flags |= SHF_WRITE | SHF_ALLOC; }))
          .substr(0, 15),
      "object: section");
  const auto relocation = [&](auto&& change) {
    return refusal(with_sections(
        SHT_RELA, [&](auto& section, auto& object) { change(at<Elf64_Rela>(object, section.sh_offset)); }));
  };
  EXPECT_EQ(relocation([](Elf64_Rela& entry) { entry.r_offset = ~0ull; }),
            "object: a relocation is outside its section");
  EXPECT_EQ(relocation([](Elf64_Rela& entry) { entry.r_addend = std::int64_t{1} << 40; }),
            "object: a relocation is out of range");
  EXPECT_EQ(relocation([](Elf64_Rela& entry) { entry.r_info = ELF64_R_INFO(9999, R_X86_64_PC32); }),
            "object: a relocation has no symbol");
  EXPECT_EQ(
      relocation([](Elf64_Rela& entry) { entry.r_info = ELF64_R_INFO(ELF64_R_SYM(entry.r_info), R_X86_64_GOTPCREL); }),
      "object: unsupported relocation type 9");
}

TEST_F(LoaderTest, RefusesSymbolsFromOutside) {
  const std::string changed = with_sections(SHT_RELA, [&](auto& section, auto& object) {
    const auto& entry = at<Elf64_Rela>(object, section.sh_offset);
    const auto& table =
        at<Elf64_Shdr>(object, at<Elf64_Ehdr>(object, 0).e_shoff + section.sh_link * sizeof(Elf64_Shdr));
    at<Elf64_Sym>(object, table.sh_offset + ELF64_R_SYM(entry.r_info) * sizeof(Elf64_Sym)).st_shndx = SHN_UNDEF;
  });
  const std::string message = refusal(changed);
  EXPECT_EQ(message.substr(0, 15), "object: symbol ");
  EXPECT_NE(message.find(" is not defined"), std::string::npos);
}

TEST_F(LoaderTest, RefusesAnotherVersion) {
  const std::string changed = with_sections(SHT_PROGBITS, [&](auto& section, auto& object) {
    if (section.sh_flags == SHF_ALLOC && section.sh_size == sizeof(jit::ObjectInfo))
      at<std::uint64_t>(object, section.sh_offset) = 77;
  });
  EXPECT_EQ(refusal(changed), "object: made by another version (77)");
}

/// Cut short or with any byte changed, an object is refused or loaded, but nothing else happens.
TEST_F(LoaderTest, SurvivesDamage) {
  for (std::size_t size = 0; size < object_.size(); ++size) EXPECT_NE(refusal(object_.substr(0, size)), "") << size;
  test::Random random(test::seed_or(5));
  unsigned refused = 0;
  for (std::size_t i = 0; i < object_.size(); ++i)
    for (int repetition = 0; repetition < 4; ++repetition) {
      std::string changed = object_;
      changed[i] = static_cast<char>(random.bits());
      refused += refusal(changed).empty() ? 0 : 1;
    }
  EXPECT_GT(refused, 300u);
}

TEST_F(LoaderTest, KeptObjectsServeUntilTheyAreOfNoUse) {
  DiskCache& disk = DiskCache::instance();
  const auto folder = std::filesystem::temp_directory_path() / ("fermata_loader_test." + std::to_string(getpid()));
  const std::string before = disk.set_directory(folder);
  const auto compile = [] { return JitCompiler::instance().compile(increment()); };
  const DiskCache::Counts start = disk.counts();
  compile();
  EXPECT_EQ(disk.counts().stores, start.stores + 1);
  float from[3] = {1, 2, 3}, to[3] = {};
  void* pointers[] = {from, to};
  const std::int64_t sizes[] = {3}, strides[] = {1, 1}, offsets[] = {0, 0};
  compile()->launch({pointers, sizes, strides, offsets, nullptr, 0, 1, 0, 3});
  EXPECT_EQ(to[2], 4.0f);
  EXPECT_EQ(disk.counts().hits, start.hits + 1);
  EXPECT_EQ(disk.counts().stores, start.stores + 1);
  disk.set_directory(before);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fermata
