// Kernel descriptions as bytes: the key of the kernel cache and what crosses to the LLVM plugin.
//
// Every field is a LEB128 integer, operands as distances back from their use, between a version byte and a checksum of
// all before it. Reading checks every bound, so that damaged bytes end in an error and never in a bad kernel.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

#include "ir/error.h"
#include "ir/kernel.h"

namespace fermata {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::uint64_t kPrimCount = [] {
  std::uint64_t n = 0;
#define FERMATA_PRIM(name, operands, text) ++n;
#include "ir/prims.def"
  return n;
}();

/// What an access is, one bit each, and which half above them.
constexpr std::array kFlags{&Access::unit_stride, &Access::address_only, &Access::gathered, &Access::guarded};
constexpr std::uint64_t kHalves = 3;

class Writer {
 public:
  void number(std::uint64_t value) {
    char bytes[kLongestNumber];
    bytes_.append(bytes, put(value, bytes));
  }
  void program(const ScalarProgram& program) {
    number(program.size());
    constexpr std::size_t kNumbers = 7;
    for (ValueId i = 0; i < program.size(); ++i) {
      const Instr& instr = program[i];
      char bytes[kNumbers * kLongestNumber];
      char* end = put(static_cast<std::uint64_t>(instr.prim), bytes);
      end = put(static_cast<std::uint64_t>(instr.type), end);
      end = put(instr.index, end);
      for (const ValueId id : {instr.a, instr.b, instr.c}) end = put(id == kNoValue ? 0 : i - id, end);
      bytes_.append(bytes, put(instr.bits, end));
    }
  }
  template <class List, class F> void list(const List& list, F&& f) {
    number(list.size());
    for (const auto& item : list) f(item);
  }
  void dtypes(const std::vector<DType>& types) {
    list(types, [&](DType t) { number(static_cast<std::uint64_t>(t)); });
  }
  void values(const std::vector<ValueId>& ids) {
    list(ids, [&](ValueId id) { number(id); });
  }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  std::string finish() && {
    const std::uint64_t sum = XXH64(bytes_.data(), bytes_.size(), 0);
    for (unsigned i = 0; i < kChecksumBytes; ++i) bytes_.push_back(static_cast<char>(sum >> (8 * i)));
    return std::move(bytes_);
  }

 private:
  static constexpr std::size_t kLongestNumber = 10;  // of 64 bits
  /// Returns its end.
  static char* put(std::uint64_t value, char* to) {
    for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
    *to++ = static_cast<char>(value);
    return to;
  }
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) {
    if (bytes.size() < kChecksumBytes) damaged("too short");
    rest_ = bytes.substr(0, bytes.size() - kChecksumBytes);
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < kChecksumBytes; ++i)
      sum |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[rest_.size() + i])) << (8 * i);
    if (sum != XXH64(rest_.data(), rest_.size(), 0)) damaged("wrong checksum");
  }
  [[noreturn]] static void damaged(std::string_view what) {
    throw_internal("damaged kernel description: " + std::string(what));
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) damaged("ends early");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    damaged("number too long");
  }
  std::uint64_t below(std::uint64_t bound, std::string_view what) {
    const std::uint64_t value = number();
    if (value >= bound) damaged(what);
    return value;
  }
  /// Every item takes at least one byte, which bounds what a damaged count can allocate.
  template <class F> void list(F&& f) {
    const std::uint64_t count = below(rest_.size() + 1, "count");
    for (std::uint64_t i = 0; i < count; ++i) f();
  }
  DType dtype() { return static_cast<DType>(below(kDTypeCount, "dtype")); }
  std::uint16_t small() { return static_cast<std::uint16_t>(below(0x10000, "index")); }
  std::vector<DType> dtypes() {
    std::vector<DType> types;
    list([&] { types.push_back(dtype()); });
    return types;
  }
  std::vector<ValueId> values(const ScalarProgram& of) {
    std::vector<ValueId> ids;
    list([&] { ids.push_back(static_cast<ValueId>(below(of.size(), "value"))); });
    return ids;
  }
  ScalarProgram program() {
    ScalarProgram program;
    list([&] {
      Instr instr{.prim = static_cast<Prim>(below(kPrimCount, "primitive")), .type = dtype(), .index = small()};
      const std::size_t at = program.size();
      for (ValueId* id : {&instr.a, &instr.b, &instr.c})
        if (const std::uint64_t back = below(at + 1, "operand"); back != 0) *id = static_cast<ValueId>(at - back);
      instr.bits = number();
      if (program.add(instr) != at) damaged("repeated instruction");
    });
    return program;
  }
  void finish() const {
    if (!rest_.empty()) damaged("bytes left over");
  }

 private:
  std::string_view rest_;
};

void check_indices(const Kernel& kernel) {
  const auto within = [](std::uint64_t index, std::size_t count) {
    if (index >= count) Reader::damaged("index out of range");
  };
  for (const Instr& instr : kernel.program.instrs()) {
    if (has_access(instr.prim) || instr.prim == Prim::position) within(instr.index, kernel.accesses.size());
    if (instr.prim == Prim::scalar) within(instr.index, kernel.scalars.size());
    if (instr.prim != Prim::reduced) continue;
    within(instr.index, kernel.reductions.size());
    within(instr.bits, kernel.reductions[instr.index].types.size());
  }
  for (const Reduction& reduction : kernel.reductions)
    for (const Instr& instr : reduction.combine.program.instrs())
      if (instr.prim == Prim::parameter) within(instr.index, reduction.combine.parameters.size());
}

}  // namespace

std::string serialize(const Kernel& kernel) {
  Writer out;
  out.reserve(256 + 12 * kernel.program.size());  // what programs take, more or less
  out.number(kVersion);
  out.number(kernel.rank);
  out.number(kernel.reduced);
  out.list(kernel.accesses, [&](const Access& access) {
    out.number(static_cast<std::uint64_t>(access.dtype));
    out.number(access.axes);
    std::uint64_t flags = static_cast<std::uint64_t>(access.half) << kFlags.size();
    for (std::size_t i = 0; i < kFlags.size(); ++i) flags |= static_cast<std::uint64_t>(access.*kFlags[i]) << i;
    out.number(flags);
  });
  out.dtypes(kernel.scalars);
  out.program(kernel.program);
  out.list(kernel.reductions, [&](const Reduction& reduction) {
    out.values(reduction.lifted);
    out.dtypes(reduction.types);
    out.list(reduction.identity, [&](std::uint64_t bits) { out.number(bits); });
    out.program(reduction.combine.program);
    out.dtypes(reduction.combine.parameters);
    out.values(reduction.combine.results);
  });
  out.list(kernel.stores, [&](const Store& store) {
    out.number(store.access);
    out.number(store.value);
  });
  return std::move(out).finish();
}

Kernel deserialize_kernel(std::string_view bytes) {
  Reader in(bytes);
  if (in.number() != kVersion) Reader::damaged("another version");
  Kernel kernel;
  kernel.rank = static_cast<std::uint8_t>(in.below(kMaxRank + 1, "rank"));
  if (kernel.rank == 0) Reader::damaged("rank");
  kernel.reduced = static_cast<std::uint16_t>(in.below(1u << kernel.rank, "reduced axes"));
  in.list([&] {
    Access access{.dtype = in.dtype(), .axes = static_cast<std::uint16_t>(in.below(1u << kernel.rank, "axes"))};
    const std::uint64_t flags = in.below(kHalves << kFlags.size(), "flags");
    for (std::size_t i = 0; i < kFlags.size(); ++i) access.*kFlags[i] = (flags >> i & 1) != 0;
    access.half = static_cast<Half>(flags >> kFlags.size());
    kernel.accesses.push_back(access);
  });
  kernel.scalars = in.dtypes();
  kernel.program = in.program();
  in.list([&] {
    Reduction reduction;
    reduction.lifted = in.values(kernel.program);
    reduction.types = in.dtypes();
    in.list([&] { reduction.identity.push_back(in.number()); });
    reduction.combine.program = in.program();
    reduction.combine.parameters = in.dtypes();
    reduction.combine.results = in.values(reduction.combine.program);
    kernel.reductions.push_back(std::move(reduction));
  });
  in.list([&] {
    const auto access = static_cast<std::uint16_t>(in.below(kernel.accesses.size(), "access"));
    kernel.stores.push_back({access, static_cast<ValueId>(in.below(kernel.program.size(), "stored value"))});
  });
  in.finish();
  check_indices(kernel);
  return kernel;
}

}  // namespace fermata
