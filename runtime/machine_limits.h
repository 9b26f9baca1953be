// What this machine can do at best, in the same process and with the same threads as what is compared with it.
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
/// memcpy, vector stores, non-temporal vector stores: those that this processor has.
const std::vector<Copy>& copies();

/// Copies on the threads of the engine's pool.
void copy_on_threads(const Copy& copy, void* to, const void* from, std::size_t bytes);

/// Multiply-adds of one dtype out of registers on one core, as many independent chains as hide their latency: the
/// fastest instruction that this processor has (tiles, dot products of pairs and quadruples, else f32 FMA).
struct Peak {
  std::string_view name;              // of the benchmark row
  double (*run)(std::size_t rounds);  // gives the number of operations done
};
/// f32, bf16 added up in f32, and bytes added up in i32.
const std::vector<Peak>& peaks();

/// What the processor reaches with all threads of the pool, measured once per process in about a tenth of a second.
struct Limits {
  struct Rate {
    double bytes;             // of a working set
    double bytes_per_second;  // read and written
  };
  std::vector<Rate> copy;              // by growing working set
  double f32 = 0, bf16 = 0, int8 = 0;  // operations per second; a multiplication and an addition are two
  double bytes_per_second(double working_set) const;
  /// The least time that work takes here, in nanoseconds.
  double least_ns(double bytes, double operations, DType dtype) const;
};
const Limits& limits();

}  // namespace fermata::machine
