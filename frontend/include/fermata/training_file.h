// A training run as a file: the model, what its optimizer remembers, random numbers, and how far the run has come.
//
//   fm::save_training("run.safetensors", net, adam, {.step = step, .data = batches.position()});
//   const fm::TrainingState at = fm::load_training("run.safetensors", net, adam);
//
// A run that is resumed from the file goes on as if it had never stopped, to the bit, in both modes. The file is a
// safetensors file, written whole or not at all, so a run that is killed while it writes has its previous file. Options
// of optimizers are not part of it: the program sets them again, from the step. A path that ends in ".json" is an index
// with a file of each process (fermata/safetensors.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "fermata/data_loader.h"
#include "fermata/nn/module.h"
#include "fermata/optimizers.h"
#include "fermata/safetensors.h"

namespace fermata {

namespace optim {
/// An Optimizer, or LBFGS: what a step reads and writes besides parameters are tensors.
template <class T>
concept HasState = requires(const T& optimizer) {
  { optimizer.state() } -> std::same_as<std::vector<Tensor>>;
};
}  // namespace optim

/// What a file has beside model, optimizer and the default generator of the thread.
struct TrainingState {
  std::int64_t step = 0;
  DataPosition data = {};
  NamedTensors tensors = {};  // whatever else the program keeps
  Metadata notes = {};
};

namespace detail {
void save_training(const std::string& path, const NamedTensors& model, const std::vector<Tensor>& optimizer,
                   const TrainingState& state, Location where);
TrainingState load_training(const std::string& path, const nn::detail::Parts& model,
                            const std::vector<Tensor>& optimizer, Location where);
}  // namespace detail

/// Writes a run.
///
/// Errors   FileError FM1602, in which case an earlier file of that name is still there; DTypeError for dtypes that
///          safetensors has not.
template <class M, optim::HasState O> void save_training(const std::string& path, const M& model, const O& optimizer,
                                                         const TrainingState& state = {},
                                                         Location where = Location::current()) {
  detail::save_training(path, nn::state_dict(model), optimizer.state(), state, where);
}

/// Restores a run: elements of the model and of the optimizer in place, and the default generator of this thread. The
/// model and the optimizer are made as for the run that was saved.
///
/// Errors   FileError FM1601, FM1603; ValueError FM1380 and FM1384 where the file is that of another model or
/// optimizer.
///          Nothing has changed then.
template <class M, optim::HasState O>
TrainingState load_training(const std::string& path, M& model, O& optimizer, Location where = Location::current()) {
  return detail::load_training(path, nn::detail::parts_of(model), optimizer.state(), where);
}

}  // namespace fermata
