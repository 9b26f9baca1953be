// Collectives, and what they give by the tensors of all ranks in one process: the reference of these tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fermata/fermata.h"

namespace fermata::test {

using distributed::Reduction;

struct CollectiveCase {
  std::string name;
  std::function<Tensor(const Tensor& x)> call;
  /// The results of all ranks from the operands of all ranks.
  std::function<std::vector<Tensor>(const std::vector<Tensor>& xs)> simulate;
  bool takes_booleans = true, takes_integers = true, takes_complex = true;
};

inline constexpr DType kDTypes[] = {DType::boolean, DType::u8,  DType::u16, DType::u32, DType::u64,
                                    DType::i8,      DType::i16, DType::i32, DType::i64, DType::bf16,
                                    DType::f16,     DType::f32, DType::f64, DType::c64, DType::c128};

inline bool takes(const CollectiveCase& c, DType dtype) {
  if (dtype == DType::boolean) return c.takes_booleans;
  if (is_complex(dtype)) return c.takes_complex;
  return is_floating(dtype) || c.takes_integers;
}

/// All collectives of two axes that the size of the group divides.
inline std::vector<CollectiveCase> collective_cases(const distributed::Group& group) {
  using Tensors = std::vector<Tensor>;
  const std::int64_t size = group.size(), root = size - 1;
  std::vector<CollectiveCase> cases;
  const auto everywhere = [size](const Tensor& y) { return Tensors(static_cast<std::size_t>(size), y); };
  const auto at_root = [size, root](const Tensor& y) {
    Tensors all(static_cast<std::size_t>(size), zeros_like(y));
    all[static_cast<std::size_t>(root)] = y;
    return all;
  };
  const auto parts = [size](const Tensor& y, std::int64_t axis) {
    Tensors all;
    const std::int64_t part = y.size(axis) / size;
    for (std::int64_t r = 0; r < size; ++r) all.push_back(slice(y, axis, r * part, (r + 1) * part));
    return all;
  };
  const auto reduce_all = [](Reduction how, const Tensors& xs) {
    const DType t = xs[0].dtype();
    const bool narrow = t == DType::f16 || t == DType::bf16;
    Tensors wide;
    for (const Tensor& x : xs) wide.push_back(narrow ? astype(x, DType::f32) : x);
    const Tensor all = stack(wide, 0);
    switch (how) {
      case Reduction::sum: return astype(sum(all, {0}), t);
      case Reduction::mean: return astype(sum(all, {0}) / static_cast<double>(xs.size()), t);
      case Reduction::max: return astype(max(all, {0}), t);
      case Reduction::min: return astype(min(all, {0}), t);
      case Reduction::prod: break;
    }
    return astype(prod(all, {0}), t);
  };
  for (const Reduction how : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min, Reduction::prod}) {
    const std::string of = std::string(" ") + std::string(name(how));
    const bool is_extreme = how == Reduction::max || how == Reduction::min;
    const auto add = [&](std::string what, auto call, auto simulate) {
      cases.push_back({what + of, call, simulate, is_extreme, how != Reduction::mean, !is_extreme});
    };
    add(
        "all_reduce", [=](const Tensor& x) { return distributed::all_reduce(x, how, group); },
        [=](const Tensors& xs) { return everywhere(reduce_all(how, xs)); });
    add(
        "reduce", [=](const Tensor& x) { return distributed::reduce(x, root, how, group); },
        [=](const Tensors& xs) { return at_root(reduce_all(how, xs)); });
    for (const std::int64_t axis : {0, 1})
      add(
          "reduce_scatter axis " + std::to_string(axis),
          [=](const Tensor& x) { return distributed::reduce_scatter(x, axis, how, group); },
          [=](const Tensors& xs) { return parts(reduce_all(how, xs), axis); });
  }
  const auto add = [&](std::string what, auto call, auto simulate) { cases.push_back({what, call, simulate}); };
  for (const std::int64_t axis : {0, 1}) {
    const std::string along = " axis " + std::to_string(axis);
    add(
        "all_gather" + along, [=](const Tensor& x) { return distributed::all_gather(x, axis, group); },
        [=](const Tensors& xs) { return everywhere(concat(xs, axis)); });
    add(
        "gather" + along, [=](const Tensor& x) { return distributed::gather(x, root, axis, group); },
        [=](const Tensors& xs) { return at_root(concat(xs, axis)); });
    add(
        "scatter" + along, [=](const Tensor& x) { return distributed::scatter(x, root, axis, group); },
        [=](const Tensors& xs) { return parts(xs[static_cast<std::size_t>(root)], axis); });
    for (const std::int64_t to : {0, 1})
      add(
          "all_to_all" + along + " to " + std::to_string(to),
          [=](const Tensor& x) { return distributed::all_to_all(x, axis, to, group); },
          [=](const Tensors& xs) {
            std::vector<Tensors> pieces;
            for (const Tensor& x : xs) pieces.push_back(parts(x, axis));
            Tensors all;
            for (std::size_t r = 0; r < xs.size(); ++r) {
              Tensors mine;
              for (const Tensors& of_rank : pieces) mine.push_back(of_rank[r]);
              all.push_back(concat(mine, to));
            }
            return all;
          });
  }
  add(
      "broadcast", [=](const Tensor& x) { return distributed::broadcast(x, root, group); },
      [=](const Tensors& xs) { return everywhere(xs[static_cast<std::size_t>(root)]); });
  for (const bool ring : {false, true})
    add(
        ring ? "ring" : "shift", [=](const Tensor& x) { return distributed::shift(x, 1, ring, group); },
        [=](const Tensors& xs) {
          Tensors all;
          for (std::size_t r = 0; r < xs.size(); ++r)
            all.push_back(r > 0 ? xs[r - 1] : ring ? xs.back() : zeros_like(xs[0]));
          return all;
        });
  return cases;
}

/// The operand of a rank: whole numbers that every dtype holds, and of which no order of sums or products matters.
inline Tensor operand_of_rank(std::int64_t rank, const Shape& shape, DType dtype, std::int64_t seed = 0) {
  const ModeGuard eager(Mode::eager);
  const Tensor i = reshape(arange(element_count(shape)), shape);
  if (dtype == DType::boolean) return (i + rank + seed) % 3 == 0;
  const Tensor x = (i * 7 + rank * 5 + seed * 3) % 4;
  const bool has_signs = dtype != DType::u8 && dtype != DType::u16 && dtype != DType::u32 && dtype != DType::u64;
  return astype(has_signs ? x - 1 : x, dtype);
}

inline std::vector<Tensor> operands_of_ranks(std::int64_t size, const Shape& shape, DType dtype,
                                             std::int64_t seed = 0) {
  std::vector<Tensor> all;
  for (std::int64_t r = 0; r < size; ++r) all.push_back(operand_of_rank(r, shape, dtype, seed));
  return all;
}

/// Equal elements, dtype and shape.
inline bool is_same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (element_count(a.shape()) == 0 || all(a == b).item<bool>());
}

}  // namespace fermata::test
