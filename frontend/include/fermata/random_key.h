// Random numbers with explicit keys: functions of their arguments, like any other.
//
// A key is a u64 tensor, so it can be an argument of a compiled function, the state of a loop, or batched by vmap. The
// same key gives the same numbers: split_key() makes new ones. A key of no axes gives one stream; one with axes gives a
// stream for each element, whose axes come first in the result. Numbers are words of Philox 4x32-10 (Salmon et al., SC
// 2011), the same in both modes, on every device and for any number of threads. docs/random.md has examples.
#pragma once

#include <cstdint>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

class Generator;

/// The key of a seed.
Tensor random_key(std::uint64_t seed, Location where = Location::current());
/// The key that a generator gives next: takes four numbers of it.
Tensor next_key(Generator& from, Location where = Location::current());
/// `count` keys, along a new last axis, which share nothing with the key nor with each other.
Tensor split_key(const Tensor& key, std::int64_t count = 2, Location where = Location::current());
/// The key with an integer mixed into it: of a step, of a worker.
Tensor fold_in(const Tensor& key, const Operand& data);

// Errors of all: DTypeError FM1170 for a key that is not u64; those of fermata/random.h.

/// u64: 64 random bits each.
Tensor random_bits(const Tensor& key, const IntegerList& sizes, Location where = Location::current());
Tensor uniform(const Tensor& key, const IntegerList& sizes, double low = 0, double high = 1, DType dtype = DType::f32,
               Location where = Location::current());
Tensor normal(const Tensor& key, const IntegerList& sizes, double mean = 0, double deviation = 1,
              DType dtype = DType::f32, Location where = Location::current());
/// Standard normal numbers between two bounds, by the inverse distribution function.
Tensor truncated_normal(const Tensor& key, double low, double high, const IntegerList& sizes, DType dtype = DType::f32,
                        Location where = Location::current());
/// Integers in [low, high), by the high half of a product with 64 bits: their probabilities differ by less than
/// (high - low) / 2^64.
Tensor randint(const Tensor& key, std::int64_t low, std::int64_t high, const IntegerList& sizes,
               DType dtype = DType::i64, Location where = Location::current());
/// bool: true with the probabilities given, which have the shape of the result; the key has no axes.
Tensor bernoulli(const Tensor& key, const Tensor& probability, Location where = Location::current());
/// With density rate * exp(-rate * x).
Tensor exponential(const Tensor& key, const IntegerList& sizes, double rate = 1, DType dtype = DType::f32,
                   Location where = Location::current());
/// With distribution function exp(-exp(-x)).
Tensor gumbel(const Tensor& key, const IntegerList& sizes, DType dtype = DType::f32,
              Location where = Location::current());
/// i64: one position along an axis for each of the others, with probabilities softmax(logits) (Gumbel, 1954: the
/// largest of logits plus Gumbel noise).
Tensor categorical(const Tensor& key, const Tensor& logits, std::int64_t axis = -1,
                   Location where = Location::current());
/// i64: 0 to count - 1 in random order, by sorting as many random words.
Tensor permutation(const Tensor& key, std::int64_t count, Location where = Location::current());
/// x with the slices along an axis in random order.
Tensor shuffle(const Tensor& key, const Tensor& x, std::int64_t axis = 0, Location where = Location::current());
/// `count` slices of x along axis 0: see fermata/random.h. Without replacement and with probabilities by the largest of
/// their logarithms plus Gumbel noise.
Tensor choice(const Tensor& key, const Tensor& x, std::int64_t count, bool replace = true,
              const Tensor& probabilities = {}, Location where = Location::current());

}  // namespace fermata
