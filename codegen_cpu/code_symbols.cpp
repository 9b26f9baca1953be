// See code_symbols.h. Layouts are those of GDB's manual and of the Linux kernel's
// tools/perf/Documentation/jitdump-specification.txt.
#include "codegen_cpu/code_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <type_traits>

#include "ir/fork.h"
#include "runtime/environment.h"

// What GDB looks for: both names, the layouts, and a function that it can stop in.
extern "C" {

struct jit_code_entry {
  jit_code_entry* next_entry;
  jit_code_entry* prev_entry;
  const char* symfile_addr;
  std::uint64_t symfile_size;
};
struct jit_descriptor {
  std::uint32_t version;
  std::uint32_t action_flag;
  jit_code_entry* relevant_entry;
  jit_code_entry* first_entry;
};
jit_descriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};
[[gnu::noinline, gnu::used]] void __jit_debug_register_code() { asm volatile("" ::: "memory"); }

}  // extern "C"

namespace fermata {

struct CodeSymbol::DebuggerEntry {
  jit_code_entry entry{};
  std::string file;
};

namespace {

enum JitAction : std::uint32_t { kNothing, kRegister, kUnregister };

ForkSafeMutex& mutex() {
  static auto* const all = new ForkSafeMutex;
  return *all;
}

template <class T> void append(std::string& to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  to.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// An ELF file with one function, whose code lies elsewhere.
std::string file_with_symbol(std::string_view name, std::span<const std::byte> code) {
  constexpr std::string_view kNames("\0.text\0.symtab\0.strtab\0", 23);
  enum : std::uint32_t { kText = 1, kSymbols = 7, kStrings = 15 };  // places in kNames
  std::string strings(kNames);
  const auto name_at = static_cast<std::uint32_t>(strings.size());
  strings.append(name).push_back('\0');

  const Elf64_Sym none{};
  Elf64_Sym function{};
  function.st_name = name_at, function.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), function.st_shndx = 1;
  function.st_size = code.size();

  constexpr std::uint64_t kSymbolsAt = sizeof(Elf64_Ehdr), kStringsAt = kSymbolsAt + 2 * sizeof(Elf64_Sym);
  const std::uint64_t sections_at = (kStringsAt + strings.size() + 7) / 8 * 8;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB, header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL, header.e_machine = EM_X86_64, header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof(Elf64_Ehdr), header.e_shentsize = sizeof(Elf64_Shdr), header.e_shnum = 4;
  header.e_shoff = sections_at, header.e_shstrndx = 3;

  Elf64_Shdr text{}, symbols{}, names{};
  text.sh_name = kText, text.sh_type = SHT_NOBITS, text.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  text.sh_addr = reinterpret_cast<std::uintptr_t>(code.data()), text.sh_size = code.size(), text.sh_addralign = 1;
  symbols.sh_name = kSymbols, symbols.sh_type = SHT_SYMTAB, symbols.sh_offset = kSymbolsAt;
  symbols.sh_size = 2 * sizeof(Elf64_Sym), symbols.sh_link = 3, symbols.sh_info = 1;
  symbols.sh_entsize = sizeof(Elf64_Sym), symbols.sh_addralign = 8;
  names.sh_name = kStrings, names.sh_type = SHT_STRTAB, names.sh_offset = kStringsAt, names.sh_size = strings.size();
  names.sh_addralign = 1;

  std::string file;
  append(file, header), append(file, none), append(file, function);
  file += strings;
  file.resize(sections_at, '\0');
  append(file, Elf64_Shdr{}), append(file, text), append(file, symbols), append(file, names);
  return file;
}

bool wants(std::string_view what) {
  const char* const value = environment_variable("FERMATA_CODE_SYMBOLS");
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (rest.substr(0, comma) == what) return true;
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

/// A file of this process in /tmp, where the tools look for it. What is there under the name is of a process that has
/// ended; a link is not followed.
int new_file(const std::string& path) {
  static_cast<void>(unlink(path.c_str()));
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) std::fprintf(stderr, "fermata warning: cannot write %s\n", path.c_str());
  return file;
}

void write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

class PerfMap {
 public:
  void add(std::string_view name, std::span<const std::byte> code) const {
    if (file_ < 0) return;
    write_all(file_, fmt::format("{:x} {:x} {}\n", reinterpret_cast<std::uintptr_t>(code.data()), code.size(), name));
  }

 private:
  int file_ = wants("perf") ? new_file(fmt::format("/tmp/perf-{}.map", getpid())) : -1;
};

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

class JitDump {
 public:
  JitDump() {
    if (file_ < 0) return;
    // perf learns of the file by this mapping.
    marker_ =
        mmap(nullptr, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_EXEC, MAP_PRIVATE, file_, 0);
    struct {
      std::uint32_t magic = 0x4A695444, version = 1, size = 40, machine = EM_X86_64, padding = 0;
      std::uint32_t process = static_cast<std::uint32_t>(getpid());
      std::uint64_t time = monotonic_ns(), flags = 0;
    } const header;
    static_assert(sizeof(header) == 40);
    write_all(file_, {reinterpret_cast<const char*>(&header), sizeof(header)});
  }
  void add(std::string_view name, std::span<const std::byte> code) {
    if (file_ < 0) return;
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(code.data());
    struct {
      std::uint32_t id, size;
      std::uint64_t time;
      std::uint32_t process, thread;
      std::uint64_t virtual_address, address, bytes, index;
    } const record{0,
                   static_cast<std::uint32_t>(56 + name.size() + 1 + code.size()),
                   monotonic_ns(),
                   static_cast<std::uint32_t>(getpid()),
                   static_cast<std::uint32_t>(syscall(SYS_gettid)),
                   address,
                   address,
                   code.size(),
                   ++count_};
    static_assert(sizeof(record) == 56);
    std::string bytes(reinterpret_cast<const char*>(&record), sizeof(record));
    bytes.append(name).push_back('\0');
    bytes.append(reinterpret_cast<const char*>(code.data()), code.size());
    write_all(file_, bytes);
  }

 private:
  int file_ = wants("jitdump") ? new_file(fmt::format("/tmp/jit-{}.dump", getpid())) : -1;
  void* marker_ = nullptr;
  std::uint64_t count_ = 0;
};

void tell_debugger(JitAction action, jit_code_entry& entry) {
  __jit_debug_descriptor.relevant_entry = &entry, __jit_debug_descriptor.action_flag = action;
  __jit_debug_register_code();
  __jit_debug_descriptor.relevant_entry = nullptr, __jit_debug_descriptor.action_flag = kNothing;
}

}  // namespace

CodeSymbol::CodeSymbol(std::string_view name, std::span<const std::byte> code)
    : entry_(std::make_unique<DebuggerEntry>()) {
  entry_->file = file_with_symbol(name, code);
  jit_code_entry& entry = entry_->entry;
  entry.symfile_addr = entry_->file.data(), entry.symfile_size = entry_->file.size();
  const std::lock_guard lock(mutex());
  entry.next_entry = __jit_debug_descriptor.first_entry;
  if (entry.next_entry != nullptr) entry.next_entry->prev_entry = &entry;
  __jit_debug_descriptor.first_entry = &entry;
  tell_debugger(kRegister, entry);
  static auto* const perf_map = new PerfMap;
  static auto* const jit_dump = new JitDump;
  perf_map->add(name, code), jit_dump->add(name, code);
}

CodeSymbol::~CodeSymbol() {
  const std::lock_guard lock(mutex());
  jit_code_entry& entry = entry_->entry;
  (entry.prev_entry != nullptr ? entry.prev_entry->next_entry : __jit_debug_descriptor.first_entry) = entry.next_entry;
  if (entry.next_entry != nullptr) entry.next_entry->prev_entry = entry.prev_entry;
  tell_debugger(kUnregister, entry);
}

}  // namespace fermata
