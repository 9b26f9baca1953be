// What this machine can do at best, in the same process and with the same threads as what is compared with it.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace bench {

/// One way to copy a range. Pages are warm; both ranges are 64-byte aligned and `bytes` is a multiple of 4096.
struct Copy {
  std::string_view name;
  void (*run)(void* to, const void* from, std::size_t bytes);
};
/// memcpy, vector stores, non-temporal vector stores: those that this processor has.
const std::vector<Copy>& copies();

/// Copies on so many threads of the engine's pool.
void copy_on_threads(const Copy& copy, void* to, const void* from, std::size_t bytes, int threads);

/// Multiply-adds of one dtype out of registers on one core, as many independent chains as hide their latency: the
/// fastest instruction that this processor has (tiles, dot products of pairs and quadruples, else f32 FMA).
struct Peak {
  std::string_view name;              // of the benchmark row
  double (*run)(std::size_t rounds);  // gives the number of operations done
};
/// f32, bf16 added up in f32, and bytes added up in i32.
const std::vector<Peak>& peaks();

}  // namespace bench
