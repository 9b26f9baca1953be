// See sampling.h.
#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpt {

std::int64_t sample(const std::vector<float>& logits, const Sampling& how, std::mt19937_64& random) {
  const auto likeliest = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (how.temperature <= 0) return likeliest;
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (how.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(how.top_k)));
  std::vector<double> weight;
  for (const std::size_t i : order)
    weight.push_back(
        std::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[order[0]])) / how.temperature));
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  while (count < weight.size() && (count == 0 || kept < how.top_p * all)) kept += weight[count++];
  // 53 bits, so that every standard library gives the same result.
  double at = static_cast<double>(random() >> 11) * 0x1p-53 * kept;
  for (std::size_t i = 0; i < count; ++i)
    if ((at -= weight[i]) < 0) return static_cast<std::int64_t>(order[i]);
  return static_cast<std::int64_t>(order[count - 1]);
}

}  // namespace gpt
