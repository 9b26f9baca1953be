// See loader.h. Names and layouts are those of the System V ABI, AMD64 supplement, version 1.0.
#include "codegen_cpu/loader.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace fermata {
namespace {

constexpr std::uint64_t kLargestImage = std::uint64_t{64} << 20;

template <class... Args> [[noreturn]] void refuse(fmt::format_string<Args...> what, Args&&... args) {
  throw ObjectError("object: " + fmt::format(what, std::forward<Args>(args)...));
}

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// Bounds-checked reading of the object's bytes, which need not be aligned.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  std::string_view range(std::uint64_t offset, std::uint64_t size, const char* what) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) refuse("{} is outside the object", what);
    return bytes_.substr(offset, size);
  }
  template <class T> T read(std::uint64_t offset, const char* what) const {
    T value;
    std::memcpy(&value, range(offset, sizeof(T), what).data(), sizeof(T));
    return value;
  }
  template <class T> std::vector<T> table(std::uint64_t offset, std::uint64_t size, const char* what) const {
    if (size % sizeof(T) != 0) refuse("{} has a truncated last entry", what);
    const std::string_view raw = range(offset, size, what);
    std::vector<T> entries(size / sizeof(T));
    if (size > 0) std::memcpy(entries.data(), raw.data(), size);
    return entries;
  }

 private:
  std::string_view bytes_;
};

struct Symbol {
  const char* address;
  std::uint64_t room;  // to the end of its section
  bool is_code;
};

}  // namespace

struct LoadedObject::Image {
  char* base = nullptr;
  std::size_t size = 0;
  std::map<std::string, Symbol, std::less<>> symbols;
  ~Image() {
    if (base != nullptr) munmap(base, size);
  }
};

namespace {

class Loader {
 public:
  explicit Loader(std::string_view object) : bytes_(object) {}

  void read_headers() {
    const auto header = bytes_.read<Elf64_Ehdr>(0, "the header");
    const unsigned char expected[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
    if (!std::equal(std::begin(expected), std::end(expected), header.e_ident)) refuse("not a 64-bit ELF file");
    if (header.e_type != ET_REL || header.e_machine != EM_X86_64) refuse("not a relocatable x86-64 object");
    if (header.e_shentsize != sizeof(Elf64_Shdr)) refuse("section headers of {} bytes", header.e_shentsize);
    if (header.e_shnum >= SHN_LORESERVE) refuse("too many sections");
    sections_ = bytes_.table<Elf64_Shdr>(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr),
                                         "the section table");
  }

  /// Places sections: code first, then constants, which are in the same pages: most kernels take one, and every further
  /// protection and first touch of a page costs a microsecond.
  void place(std::uint64_t page) {
    place_.assign(sections_.size(), kNowhere);
    std::uint64_t end = 0;
    for (const bool executable : {true, false}) {
      for (std::size_t i = 0; i < sections_.size(); ++i) {
        const Elf64_Shdr& section = sections_[i];
        if ((section.sh_flags & SHF_ALLOC) == 0 || ((section.sh_flags & SHF_EXECINSTR) != 0) != executable) continue;
        check_placed(i, page);
        place_[i] = align_up(end, std::max<std::uint64_t>(section.sh_addralign, 1));
        end = place_[i] + section.sh_size;
        if (end > kLargestImage) refuse("more than {} bytes", kLargestImage);
      }
      if (end == 0) refuse("no code");
    }
    size_ = align_up(end, page);
  }

  void copy_to(char* base) {
    base_ = base;
    for (std::size_t i = 0; i < sections_.size(); ++i)
      if (place_[i] != kNowhere && sections_[i].sh_size > 0)
        std::memcpy(base + place_[i], bytes_.range(sections_[i].sh_offset, sections_[i].sh_size, "a section").data(),
                    sections_[i].sh_size);
  }

  void read_symbols() {
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      if (sections_[i].sh_type != SHT_SYMTAB) continue;
      if (symbol_table_ != 0) refuse("more than one symbol table");
      symbol_table_ = i;
      symbols_ = bytes_.table<Elf64_Sym>(sections_[i].sh_offset, sections_[i].sh_size, "the symbol table");
      if (sections_[i].sh_link >= sections_.size()) refuse("the symbol table has no string table");
      const Elf64_Shdr& names = sections_[sections_[i].sh_link];
      names_ = bytes_.range(names.sh_offset, names.sh_size, "the string table");
      if (names_.empty() || names_.back() != '\0') refuse("the string table is not terminated");
    }
  }

  void relocate() {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == SHT_REL) refuse("relocations without addends");
      if (section.sh_type != SHT_RELA) continue;
      if (section.sh_info >= sections_.size()) refuse("relocations for an invalid section");
      if (place_[section.sh_info] == kNowhere) continue;  // of debug information and the like
      if (section.sh_link != symbol_table_) refuse("relocations with another symbol table");
      for (const Elf64_Rela& entry : bytes_.table<Elf64_Rela>(section.sh_offset, section.sh_size, "a relocation table"))
        apply(entry, section.sh_info);
    }
  }

  std::map<std::string, Symbol, std::less<>> global_symbols() const {
    std::map<std::string, Symbol, std::less<>> found;
    for (const Elf64_Sym& symbol : symbols_) {
      if (ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL || symbol.st_shndx == SHN_UNDEF) continue;
      const std::uint64_t place = checked_place(symbol);
      const Elf64_Shdr& section = sections_[symbol.st_shndx];
      found.emplace(name(symbol),
                    Symbol{base_ + place, section.sh_size - symbol.st_value, (section.sh_flags & SHF_EXECINSTR) != 0});
    }
    return found;
  }

  std::uint64_t image_size() const { return size_; }

 private:
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  void check_placed(std::size_t i, std::uint64_t page) const {
    const Elf64_Shdr& section = sections_[i];
    if (section.sh_size > kLargestImage) refuse("section {} has {} bytes", i, section.sh_size);
    if ((section.sh_flags & (SHF_WRITE | SHF_TLS)) != 0 && section.sh_size > 0)
      refuse("section {} has writable data", i);
    if (section.sh_type == SHT_NOBITS && section.sh_size > 0) refuse("section {} has writable data", i);
    if (section.sh_addralign > page || (section.sh_addralign & (section.sh_addralign - 1)) != 0)
      refuse("section {} is aligned to {}", i, section.sh_addralign);
  }

  std::string name(const Elf64_Sym& symbol) const {
    if (symbol.st_name >= names_.size()) refuse("a symbol has no name");
    return names_.data() + symbol.st_name;
  }

  /// Where a symbol lies in the image.
  std::uint64_t checked_place(const Elf64_Sym& symbol) const {
    if (symbol.st_shndx == SHN_UNDEF) refuse("symbol {} is not defined", name(symbol));
    if (symbol.st_shndx >= sections_.size() || place_[symbol.st_shndx] == kNowhere)
      refuse("symbol {} is in a section that is not loaded", name(symbol));
    if (symbol.st_value > sections_[symbol.st_shndx].sh_size) refuse("symbol {} is outside its section", name(symbol));
    return place_[symbol.st_shndx] + symbol.st_value;
  }

  void apply(const Elf64_Rela& entry, std::size_t section) const {
    const std::uint64_t type = ELF64_R_TYPE(entry.r_info), width = type == R_X86_64_64 ? 8 : 4;
    const std::uint64_t size = sections_[section].sh_size;
    if (entry.r_offset > size || width > size - entry.r_offset) refuse("a relocation is outside its section");
    if (ELF64_R_SYM(entry.r_info) >= symbols_.size()) refuse("a relocation has no symbol");
    const std::uint64_t target = checked_place(symbols_[ELF64_R_SYM(entry.r_info)]);
    char* const at = base_ + place_[section] + entry.r_offset;
    switch (type) {
      case R_X86_64_64: {
        const std::uint64_t value =
            reinterpret_cast<std::uintptr_t>(base_) + target + static_cast<std::uint64_t>(entry.r_addend);
        std::memcpy(at, &value, sizeof(value));
        return;
      }
      case R_X86_64_PC32:
      case R_X86_64_PLT32: {
        if (entry.r_addend > std::numeric_limits<std::int32_t>::max() ||
            entry.r_addend < std::numeric_limits<std::int32_t>::min())
          refuse("a relocation is out of range");
        const std::int64_t distance = static_cast<std::int64_t>(target) + entry.r_addend -
                                      static_cast<std::int64_t>(place_[section] + entry.r_offset);
        const auto value = static_cast<std::int32_t>(distance);
        if (value != distance) refuse("a relocation is out of range");
        std::memcpy(at, &value, sizeof(value));
        return;
      }
      default: refuse("unsupported relocation type {}", type);
    }
  }

  Bytes bytes_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<std::uint64_t> place_;  // per section: its offset in the image, or kNowhere
  std::uint64_t size_ = 0;
  std::size_t symbol_table_ = 0;
  std::vector<Elf64_Sym> symbols_;
  std::string_view names_;
  char* base_ = nullptr;
};

}  // namespace

NoMemoryForObject::NoMemoryForObject(const std::string& what)
    : OutOfMemoryError(3001, format_error(3001, "OutOfMemoryError", what, {}, {})) {}

LoadedObject::LoadedObject(std::unique_ptr<Image> image) : image_(std::move(image)) {}
LoadedObject::~LoadedObject() = default;

std::shared_ptr<const LoadedObject> LoadedObject::load(std::string_view object) {
  Loader loader(object);
  loader.read_headers();
  loader.place(static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
  auto image = std::make_unique<Image>();
  image->size = loader.image_size();
  void* const memory = mmap(nullptr, image->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw NoMemoryForObject(fmt::format("cannot allocate memory for an object: {}", std::strerror(errno)));
  image->base = static_cast<char*>(memory);
  loader.copy_to(image->base);
  loader.read_symbols();
  loader.relocate();
  image->symbols = loader.global_symbols();
  if (mprotect(image->base, image->size, PROT_READ | PROT_EXEC) != 0)
    throw NoMemoryForObject(fmt::format("cannot protect memory: {}", std::strerror(errno)));
  return std::shared_ptr<const LoadedObject>(new LoadedObject(std::move(image)));
}

const void* LoadedObject::code(std::string_view symbol) const {
  const auto found = image_->symbols.find(symbol);
  if (found == image_->symbols.end() || !found->second.is_code || found->second.room == 0)
    refuse("it has no function {}", symbol);
  return found->second.address;
}

std::span<const std::byte> LoadedObject::code_from(std::string_view symbol) const {
  const auto* const begin = static_cast<const std::byte*>(code(symbol));
  return {begin, image_->symbols.find(symbol)->second.room};
}

const void* LoadedObject::data(std::string_view symbol, std::size_t bytes) const {
  const auto found = image_->symbols.find(symbol);
  if (found == image_->symbols.end() || found->second.is_code || found->second.room < bytes)
    refuse("it has no constant {} of {} bytes", symbol, bytes);
  return found->second.address;
}

std::size_t LoadedObject::mapped_bytes() const { return image_->size; }

}  // namespace fermata
