// Scalar programs: the computation on one element, as a flat list of typed primitives in SSA form.
//
// The formula of an op (ir/ops/*.def) is a C++ template over a value type V. Instantiated with Sym<T> it records a
// scalar program; instantiated with a SIMD type it is the eager kernel. Backends lower primitives (prims.def) and never
// see an op. Sym below lists the interface required of V; ir/scalar_math.h builds the elementary functions from it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ir/dtype.h"

namespace fermata {

enum class Prim : std::uint8_t {
#define FERMATA_PRIM(name, operands, text) name,
#include "ir/prims.def"
};
std::string_view name(Prim p);
unsigned operand_count(Prim p);

using ValueId = std::uint32_t;
inline constexpr ValueId kNoValue = ~0u;

struct Instr {
  Prim prim;
  DType type;               // of the result
  std::uint16_t index = 0;  // of the access, scalar, reduction or parameter
  ValueId a = kNoValue, b = kNoValue, c = kNoValue;
  std::uint64_t bits = 0;  // constant value, the component of a reduction, or kRare or kGeneral of a select
  bool operator==(const Instr&) const = default;
};

/// Of a select: nearly always, no element of a vector chooses c. Code may compute what only c needs where one does.
inline constexpr std::uint64_t kRare = 1;
/// The same where c is right for all elements: code that is to be short has it alone (ir/short_form.h).
inline constexpr std::uint64_t kGeneral = 2;

/// Instructions in order; an operand always precedes its use. Equal instructions are shared as they are added.
class ScalarProgram {
 public:
  ValueId add(const Instr& instr);  // returns an equal earlier instruction if there is one
  ValueId constant(DType type, std::uint64_t bits) { return add({.prim = Prim::constant, .type = type, .bits = bits}); }
  /// Copies `other` into this program with its `parameter` k replaced by operands[k]; returns the new ids of its
  /// results.
  std::vector<ValueId> inline_program(const ScalarProgram& other, const std::vector<ValueId>& operands,
                                      const std::vector<ValueId>& results);
  const Instr& operator[](ValueId id) const { return instrs_[id]; }
  std::size_t size() const { return instrs_.size(); }
  const std::vector<Instr>& instrs() const { return instrs_; }
  bool operator==(const ScalarProgram&) const = default;

 private:
  std::vector<Instr> instrs_;
};

/// A program with parameters and results. The recorded form of a formula.
struct Formula {
  ScalarProgram program;
  std::vector<DType> parameters;
  std::vector<ValueId> results;
};

/// The program into which this thread records Sym values, for the lifetime of this object.
class Recorder {
 public:
  explicit Recorder(ScalarProgram& program) : program_(program), outer_(current_) { current_ = this; }
  ~Recorder() { current_ = outer_; }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  static ScalarProgram& program() { return current_->program_; }

 private:
  ScalarProgram& program_;
  Recorder* outer_;
  static thread_local Recorder* current_;
};

template <class T> std::uint64_t constant_bits(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

/// A recorded value with element type T (bool, an integer, float or double). The interface that formulas may use; the
/// SIMD type of codegen_cpu/eager offers the same:
///   V::Element, V::Rebind<U>, V::Mask (= Rebind<bool>), V(T) for a constant,
///   + - * / % and unary - (integers wrap, see prims.def), & | ^ ~ << >> (integers; & | ^ ! also for masks),
///   == != < <= > >= giving a mask,
///   select(mask, a, b), min, max, fma, sqrt, floor, ceil, trunc, rint, abs, mul_high,
///   convert<U>(v), bitcast<U>(v).
template <class T> class Sym {
 public:
  using Element = T;
  template <class U> using Rebind = Sym<U>;
  using Mask = Sym<bool>;

  Sym(T value) : id_(Recorder::program().constant(dtype_of<T>, constant_bits(value))) {}
  static Sym from_id(ValueId id) { return Sym(id, 0); }
  static Sym of(Prim p, ValueId a, ValueId b = kNoValue, ValueId c = kNoValue) {
    return from_id(Recorder::program().add({.prim = p, .type = dtype_of<T>, .a = a, .b = b, .c = c}));
  }
  ValueId id() const { return id_; }

  friend Sym operator+(Sym a, Sym b) { return of(Prim::add, a.id_, b.id_); }
  friend Sym operator-(Sym a, Sym b) { return of(Prim::sub, a.id_, b.id_); }
  friend Sym operator*(Sym a, Sym b) { return of(Prim::mul, a.id_, b.id_); }
  friend Sym operator/(Sym a, Sym b) { return of(Prim::div, a.id_, b.id_); }
  friend Sym operator%(Sym a, Sym b) { return of(Prim::rem, a.id_, b.id_); }
  friend Sym operator-(Sym a) { return of(Prim::neg, a.id_); }
  friend Sym operator&(Sym a, Sym b) { return of(Prim::bit_and, a.id_, b.id_); }
  friend Sym operator|(Sym a, Sym b) { return of(Prim::bit_or, a.id_, b.id_); }
  friend Sym operator^(Sym a, Sym b) { return of(Prim::bit_xor, a.id_, b.id_); }
  friend Sym operator~(Sym a) { return of(Prim::bit_not, a.id_); }
  friend Sym operator!(Sym a) requires std::is_same_v<T, bool> { return of(Prim::bit_not, a.id_); }
  friend Sym operator<<(Sym a, Sym b) { return of(Prim::shl, a.id_, b.id_); }
  friend Sym operator>>(Sym a, Sym b) { return of(Prim::shr, a.id_, b.id_); }
  friend Mask operator==(Sym a, Sym b) { return Mask::of(Prim::eq, a.id_, b.id_); }
  friend Mask operator!=(Sym a, Sym b) { return Mask::of(Prim::ne, a.id_, b.id_); }
  friend Mask operator<(Sym a, Sym b) { return Mask::of(Prim::lt, a.id_, b.id_); }
  friend Mask operator<=(Sym a, Sym b) { return Mask::of(Prim::le, a.id_, b.id_); }
  friend Mask operator>(Sym a, Sym b) { return Mask::of(Prim::lt, b.id_, a.id_); }
  friend Mask operator>=(Sym a, Sym b) { return Mask::of(Prim::le, b.id_, a.id_); }
  friend Sym select(Sym<bool> m, Sym a, Sym b) { return of(Prim::select, m.id(), a.id_, b.id_); }
  friend Sym select_usual(Sym<bool> usual, Sym a, Sym rare) {
    return from_id(Recorder::program().add(
        {.prim = Prim::select, .type = dtype_of<T>, .a = usual.id(), .b = a.id_, .c = rare.id_, .bits = kRare}));
  }
  friend Sym select_quick(Sym<bool> usual, Sym a, Sym general) {
    return from_id(Recorder::program().add(
        {.prim = Prim::select, .type = dtype_of<T>, .a = usual.id(), .b = a.id_, .c = general.id_, .bits = kGeneral}));
  }
  friend Sym min(Sym a, Sym b) { return of(Prim::min, a.id_, b.id_); }
  friend Sym max(Sym a, Sym b) { return of(Prim::max, a.id_, b.id_); }
  friend Sym fma(Sym a, Sym b, Sym c) { return of(Prim::fma, a.id_, b.id_, c.id_); }
  friend Sym sqrt(Sym a) { return of(Prim::sqrt, a.id_); }
  friend Sym floor(Sym a) { return of(Prim::floor, a.id_); }
  friend Sym ceil(Sym a) { return of(Prim::ceil, a.id_); }
  friend Sym trunc(Sym a) { return of(Prim::trunc, a.id_); }
  friend Sym rint(Sym a) { return of(Prim::rint, a.id_); }
  friend Sym abs(Sym a) { return of(Prim::abs, a.id_); }
  friend Sym mul_high(Sym a, Sym b) { return of(Prim::mul_high, a.id_, b.id_); }

 private:
  Sym(ValueId id, int) : id_(id) {}
  ValueId id_;
};

template <class U, class T> Sym<U> convert(Sym<T> a) {
  if constexpr (std::is_same_v<U, T>)
    return a;
  else
    return Sym<U>::of(Prim::convert, a.id());
}
template <class U, class T> Sym<U> bitcast(Sym<T> a) {
  static_assert(sizeof(U) == sizeof(T));
  return Sym<U>::of(Prim::bitcast, a.id());
}

}  // namespace fermata
