// Counter-based random numbers: the numbers of a call depend only on the seed and on how many were drawn before. Eager
// and compiled code draw the same numbers, with any number of threads.
#pragma once

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

/// A random number generator: a key and a counter. A call reserves its numbers when it is made, not when it is
/// computed, so the order of syncs does not matter. A generator belongs to one thread.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : key_(seed) {}
  std::uint64_t key() const { return key_; }
  std::uint64_t offset() const { return offset_; }
  /// Reserves the next `count` numbers, rounded up to a multiple of 4, and returns the offset of the first.
  std::uint64_t reserve(std::int64_t count);
  /// Restarts from a seed, or sets the offset.
  void seed(std::uint64_t seed) { key_ = seed, offset_ = 0; }
  void set_offset(std::uint64_t offset) { offset_ = offset; }

 private:
  std::uint64_t key_;
  std::uint64_t offset_ = 0;
};

/// This thread's generator. Threads get different keys in the order in which they first draw: the first thread gets 0,
/// the others keys far from typical seeds.
Generator& default_generator();
/// Seeds this thread's generator.
void manual_seed(std::uint64_t seed);

// Errors: ShapeError as in fermata/creation.h; DTypeError if `dtype` is not floating (for randint: not an integer
// dtype).

/// Uniform in [low, high); in narrow dtypes, rounding may give `high` itself.
Tensor uniform(const IntegerList& sizes, double low = 0, double high = 1, DType dtype = DType::f32,
               Generator& from = default_generator(), Location where = Location::current());
/// Normal distribution.
Tensor normal(const IntegerList& sizes, double mean = 0, double deviation = 1, DType dtype = DType::f32,
              Generator& from = default_generator(), Location where = Location::current());
/// rand: uniform in [0, 1), never 1 in any dtype. randn: standard normal.
Tensor rand(const IntegerList& sizes, DType dtype = DType::f32, Location where = Location::current());
Tensor randn(const IntegerList& sizes, DType dtype = DType::f32, Location where = Location::current());
/// Standard normal distribution truncated to [low, high].
///
/// Errors   ValueError FM1342 unless low < high.
Tensor truncated_normal(double low, double high, const IntegerList& sizes, DType dtype = DType::f32,
                        Generator& from = default_generator(), Location where = Location::current());
/// Exponential distribution, with density rate * exp(-rate * x).
Tensor exponential(const IntegerList& sizes, double rate = 1, DType dtype = DType::f32,
                   Generator& from = default_generator(), Location where = Location::current());
/// i64: samples an index along an axis with probabilities softmax(logits), for each position of the other axes.
Tensor categorical(const Tensor& logits, std::int64_t axis = -1, Generator& from = default_generator(),
                   Location where = Location::current());
/// Uniform integers in [low, high); probabilities differ by less than (high - low) / 2^64.
///
/// Errors   ValueError unless low < high.
Tensor randint(std::int64_t low, std::int64_t high, const IntegerList& sizes, DType dtype = DType::i64,
               Generator& from = default_generator(), Location where = Location::current());
/// bool: true with the given probability, one draw per element.
Tensor bernoulli(const Tensor& probability, Generator& from = default_generator(),
                 Location where = Location::current());
Tensor bernoulli(double probability, const IntegerList& sizes, Generator& from = default_generator(),
                 Location where = Location::current());
/// i64: 0 to count - 1 in random order.
Tensor permutation(std::int64_t count, Generator& from = default_generator(), Location where = Location::current());
/// x with the slices along an axis in random order.
Tensor shuffle(const Tensor& x, std::int64_t axis = 0, Generator& from = default_generator(),
               Location where = Location::current());
/// Samples `count` slices of x along axis 0, with or without replacement, uniformly or in proportion to
/// `probabilities`.
///
/// Errors   ValueError FM1341 for more slices than x has without replacement; ShapeError FM1032 unless `probabilities`
///          has one per slice.
Tensor choice(const Tensor& x, std::int64_t count, bool replace = true, const Tensor& probabilities = {},
              Generator& from = default_generator(), Location where = Location::current());

}  // namespace fermata
