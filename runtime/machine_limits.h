// The measured limits of this machine, in the same process and with the same threads as the code compared with them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "ir/dtype.h"

namespace fermata::machine {

/// One way to copy a range. Pages are warm; both ranges are 64-byte aligned and `bytes` is a multiple of 4096.
struct Copy {
  std::string_view name;
  void (*run)(void* to, const void* from, std::size_t bytes);
};
/// memcpy, vector stores, non-temporal vector stores: those that this processor supports.
const std::vector<Copy>& copies();

/// Copies on the threads of the engine's pool.
void copy_on_threads(const Copy& copy, void* to, const void* from, std::size_t bytes);

/// Multiply-adds of one dtype from registers on one core, with enough independent chains to hide their latency, using
/// the fastest instruction of this processor that FERMATA_CPU permits (tiles, dot products of pairs and quadruples,
/// else f32 FMA).
struct Peak {
  std::string_view name;              // of the benchmark row
  std::string_view instructions;      // which these are
  double (*run)(std::size_t rounds);  // returns the number of operations
};
/// f32, bf16 accumulated in f32, and bytes accumulated in i32.
const std::vector<Peak>& peaks();

/// The limits of the processor with all threads of the pool, measured once per process in about a tenth of a second.
struct Limits {
  struct Rate {
    double bytes;             // of a working set
    double bytes_per_second;  // read and written
  };
  std::vector<Rate> copy;              // by growing working set
  double f32 = 0, bf16 = 0, int8 = 0;  // operations per second; a multiplication and an addition are two
  double bytes_per_second(double working_set) const;
  /// The minimum time of this work on this machine, in nanoseconds.
  double least_ns(double bytes, double operations, DType dtype) const;
};
const Limits& limits();

}  // namespace fermata::machine
