// Random numbers with explicit keys: pure functions of their arguments.
//
// A key is a u64 tensor, so it can be an argument of a compiled function, the state of a loop, or batched by vmap. The
// same key gives the same numbers; split_key() derives new keys. A 0-d key gives one stream; a key with axes gives one
// stream per element, and its axes come first in the result. Numbers are words of Philox 4x32-10 (Salmon et al., SC
// 2011), the same in both modes, on every device and for any number of threads. docs/random.md has examples.
#pragma once

#include <cstdint>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

class Generator;

/// Makes a key from a seed.
Tensor random_key(std::uint64_t seed, Location where = Location::current());
/// Draws a key from a generator; reserves four of its numbers.
Tensor next_key(Generator& from, Location where = Location::current());
/// Derives `count` independent keys, along a new last axis.
Tensor split_key(const Tensor& key, std::int64_t count = 2, Location where = Location::current());
/// Mixes an integer into a key, such as the number of a step or worker.
Tensor fold_in(const Tensor& key, const Operand& data);

// Errors of all: DTypeError FM1170 for a key that is not u64; those of fermata/random.h.

/// u64: 64 random bits each.
Tensor random_bits(const Tensor& key, const IntegerList& sizes, Location where = Location::current());
Tensor uniform(const Tensor& key, const IntegerList& sizes, double low = 0, double high = 1, DType dtype = DType::f32,
               Location where = Location::current());
Tensor normal(const Tensor& key, const IntegerList& sizes, double mean = 0, double deviation = 1,
              DType dtype = DType::f32, Location where = Location::current());
/// Standard normal distribution truncated to [low, high], by the inverse distribution function.
Tensor truncated_normal(const Tensor& key, double low, double high, const IntegerList& sizes, DType dtype = DType::f32,
                        Location where = Location::current());
/// Uniform integers in [low, high), by the high half of a 64-bit product; probabilities differ by less than (high -
/// low) / 2^64.
Tensor randint(const Tensor& key, std::int64_t low, std::int64_t high, const IntegerList& sizes,
               DType dtype = DType::i64, Location where = Location::current());
/// bool: true with the given probabilities, which have the shape of the result; the key is 0-d.
Tensor bernoulli(const Tensor& key, const Tensor& probability, Location where = Location::current());
/// Exponential distribution, with density rate * exp(-rate * x).
Tensor exponential(const Tensor& key, const IntegerList& sizes, double rate = 1, DType dtype = DType::f32,
                   Location where = Location::current());
/// Gumbel distribution, with distribution function exp(-exp(-x)).
Tensor gumbel(const Tensor& key, const IntegerList& sizes, DType dtype = DType::f32,
              Location where = Location::current());
/// i64: samples an index along an axis with probabilities softmax(logits), for each position of the other axes (Gumbel,
/// 1954: the argmax of logits plus Gumbel noise).
Tensor categorical(const Tensor& key, const Tensor& logits, std::int64_t axis = -1,
                   Location where = Location::current());
/// i64: 0 to count - 1 in random order, by sorting `count` random words.
Tensor permutation(const Tensor& key, std::int64_t count, Location where = Location::current());
/// x with the slices along an axis in random order.
Tensor shuffle(const Tensor& key, const Tensor& x, std::int64_t axis = 0, Location where = Location::current());
/// Samples `count` slices of x along axis 0, see fermata/random.h. Without replacement and with probabilities, takes
/// the largest of log(probabilities) plus Gumbel noise.
Tensor choice(const Tensor& key, const Tensor& x, std::int64_t count, bool replace = true,
              const Tensor& probabilities = {}, Location where = Location::current());

}  // namespace fermata
