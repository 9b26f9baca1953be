// Random numbers: counter-based, so the numbers of a call depend on the seed, on how many were drawn before, and on
// nothing else. Eager and compiled code, and any number of threads, draw the same.
#pragma once

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

/// Where random numbers come from: a key, and how many numbers have been taken. A call takes its numbers when it is
/// made and not when it is computed, so the order of syncs changes nothing. A generator belongs to one thread.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : key_(seed) {}
  std::uint64_t key() const { return key_; }
  std::uint64_t offset() const { return offset_; }
  /// Takes the next `count` numbers, rounded up to a multiple of 4, and gives the offset of the first.
  std::uint64_t reserve(std::int64_t count);
  /// Starts again from a seed, or goes to an offset.
  void seed(std::uint64_t seed) { key_ = seed, offset_ = 0; }
  void set_offset(std::uint64_t offset) { offset_ = offset; }

 private:
  std::uint64_t key_;
  std::uint64_t offset_ = 0;
};

/// This thread's generator. Threads start with different keys, in the order in which they first draw: the first one
/// with 0, the others with keys far from the seeds that people choose.
Generator& default_generator();
/// Seeds this thread's generator.
void manual_seed(std::uint64_t seed);

// Errors: ShapeError as in fermata/creation.h; DTypeError where `dtype` is not floating (an integer dtype for randint).

/// Uniform in [low, high); where the numbers are coarse, rounding may give high itself.
Tensor uniform(const IntegerList& sizes, double low = 0, double high = 1, DType dtype = DType::f32,
               Generator& from = default_generator(), Location where = Location::current());
/// Normally distributed.
Tensor normal(const IntegerList& sizes, double mean = 0, double deviation = 1, DType dtype = DType::f32,
              Generator& from = default_generator(), Location where = Location::current());
/// Uniform in [0, 1), never 1 in any dtype; standard normal.
Tensor rand(const IntegerList& sizes, DType dtype = DType::f32, Location where = Location::current());
Tensor randn(const IntegerList& sizes, DType dtype = DType::f32, Location where = Location::current());
/// Standard normal numbers between two bounds.
///
/// Errors   ValueError FM1342 if low is not below high.
Tensor truncated_normal(double low, double high, const IntegerList& sizes, DType dtype = DType::f32,
                        Generator& from = default_generator(), Location where = Location::current());
/// With density rate * exp(-rate * x).
Tensor exponential(const IntegerList& sizes, double rate = 1, DType dtype = DType::f32,
                   Generator& from = default_generator(), Location where = Location::current());
/// i64: one position along an axis for each of the others, with probabilities softmax(logits).
Tensor categorical(const Tensor& logits, std::int64_t axis = -1, Generator& from = default_generator(),
                   Location where = Location::current());
/// Integers in [low, high): their probabilities differ by less than (high - low) / 2^64.
///
/// Errors   ValueError if low is not below high.
Tensor randint(std::int64_t low, std::int64_t high, const IntegerList& sizes, DType dtype = DType::i64,
               Generator& from = default_generator(), Location where = Location::current());
/// bool: true with the probabilities given, one draw for each.
Tensor bernoulli(const Tensor& probability, Generator& from = default_generator(),
                 Location where = Location::current());
Tensor bernoulli(double probability, const IntegerList& sizes, Generator& from = default_generator(),
                 Location where = Location::current());
/// i64: 0 to count - 1 in random order.
Tensor permutation(std::int64_t count, Generator& from = default_generator(), Location where = Location::current());
/// x with the slices along an axis in random order.
Tensor shuffle(const Tensor& x, std::int64_t axis = 0, Generator& from = default_generator(),
               Location where = Location::current());
/// `count` slices of x along axis 0, each again and again or once, equally likely or with probabilities in proportion
/// to those given.
///
/// Errors   ValueError FM1341 for more slices than there are, each once; ShapeError FM1032 unless `probabilities` has
/// one for
///          each slice.
Tensor choice(const Tensor& x, std::int64_t count, bool replace = true, const Tensor& probabilities = {},
              Generator& from = default_generator(), Location where = Location::current());

}  // namespace fermata
