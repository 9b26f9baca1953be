// What the functions of control flow share: when they are plain C++, how they go below a level of vmap, and how the
// functions that they are given are differentiated.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "dispatch/operator.h"
#include "fermata/tensor_tree.h"
#include "frontend/transforms/autograd/custom_backward.h"
#include "frontend/transforms/autograd/function_tape.h"
#include "frontend/transforms/trace/lowered_function.h"

namespace fermata::control {

/// In eager mode, and while a program is traced, a loop is a loop.
bool is_plain();
/// A draw that names the streams of a call. The same in both modes, and one for all of a batch.
Tensor draw_seed(Location where);
/// f(arguments) in run number `run`.
std::vector<Tensor> run_directly(const TensorFunction& f, std::span<const Tensor> arguments, const Tensor& seed,
                                 std::uint64_t run);

unsigned current_depth();
std::vector<TensorType> types_of(std::span<const Tensor> tensors);
BackendKey backend_of(std::span<const Tensor> tensors);
Tensor zeros_of(const TensorType& type, const Tensor& like, Location where);
/// ShapeError with what differs; `first` and `second` name the two lists.
void require_same_types(int code, std::string_view headline, std::string_view first, std::span<const TensorType> a,
                        std::string_view second, std::span<const TensorType> b, Location where);
/// A predicate as a bool of no axes; ValueError FM1764.
Tensor one_bool(std::string_view function, const Tensor& predicate, Location where);

/// One evaluation of a function on samples of its arguments that leaves nothing behind but what it tells.
struct Probe {
  std::vector<TensorType> results;
  bool depends_on_arguments = false;  // some sample has a history at this level
  std::vector<GradEdge> others;       // histories of what the function mentions
  std::vector<TensorType> other_types;
};
Probe probe(const TensorFunction& f, std::span<const Tensor> samples, Location where);
/// The others of two functions, each once.
void merge_captures(Probe& into, const Probe& more);

/// From a tape and gradients of its results those of the floating arguments and then of the others, none undefined.
using Pull = std::function<std::vector<Tensor>(const FunctionTape&, std::span<const Tensor>)>;
Pull make_pull(std::vector<TensorType> arguments, const Probe& probed, Location where);
/// Makes a call of a backward pass at the level that the call it differentiates was recorded at. Where the gradients
/// are batched further in, as in jacrev, they are given with those batches as axes, and the pull wraps them. `stacked`
/// says which gradients, and results, have the axis of a scan in front.
using PulledCall = std::function<std::vector<Tensor>(std::span<const Tensor> gradients, const Pull& pull)>;
std::vector<Tensor> at_recorded_level(const SavedFrame& recorded, std::vector<Tensor> gradients, const Pull& pull,
                                      const std::vector<bool>& stacked, const std::vector<bool>& stacked_results,
                                      const PulledCall& call);

/// [A, B, ...] as [B, A, ...].
Tensor swap_leading_axes(const Tensor& t);
/// Results of the level, without a history there.
std::vector<Tensor> detach_at_this_level(std::span<const Tensor> tensors);
/// Gradients where none arrived: zeros. Those of results that are not floating are left out.
std::vector<Tensor> floating_gradients(std::span<const Tensor> gradients, std::span<const TensorType> results,
                                       const Tensor& like, Location where);

}  // namespace fermata::control
