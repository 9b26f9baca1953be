// Checkpoints of training runs: model, optimizer state, random number generator, and progress.
//
//   fm::save_training("run.safetensors", net, adam, {.step = step, .data = batches.position()});
//   const fm::TrainingState at = fm::load_training("run.safetensors", net, adam);
//
// A resumed run continues bit for bit as if it had not stopped, in both modes. The file is a safetensors file, written
// atomically, so a run that is killed while saving still has its previous file. Optimizer options are not saved; the
// program sets them again from the step. A path that ends in ".json" is an index with one file per process
// (fermata/safetensors.h).
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
/// An Optimizer, or LBFGS: has its state as tensors.
template <class T>
concept HasState = requires(const T& optimizer) {
  { optimizer.state() } -> std::same_as<std::vector<Tensor>>;
};
}  // namespace optim

/// The contents of a file besides the model, the optimizer and the thread's default generator.
struct TrainingState {
  std::int64_t step = 0;
  DataPosition data = {};
  NamedTensors tensors = {};  // any other tensors of the program
  Metadata notes = {};
};

namespace detail {
void save_training(const std::string& path, const NamedTensors& model, const std::vector<Tensor>& optimizer,
                   const TrainingState& state, Location where);
TrainingState load_training(const std::string& path, const nn::detail::Parts& model,
                            const std::vector<Tensor>& optimizer, Location where);
}  // namespace detail

/// Saves a run.
///
/// Errors   FileError FM1602, which leaves an existing file of that name unchanged; DTypeError for dtypes that
///          safetensors lacks.
template <class M, optim::HasState O> void save_training(const std::string& path, const M& model, const O& optimizer,
                                                         const TrainingState& state = {},
                                                         Location where = Location::current()) {
  detail::save_training(path, nn::state_dict(model), optimizer.state(), state, where);
}

/// Restores the elements of the model and the optimizer in place, and this thread's default generator. The model and
/// the optimizer must be constructed as for the saved run.
///
/// Errors   FileError FM1601, FM1603; ValueError FM1380 and FM1384 if the file belongs to another model or optimizer;
///          nothing is changed then.
template <class M, optim::HasState O>
TrainingState load_training(const std::string& path, M& model, O& optimizer, Location where = Location::current()) {
  return detail::load_training(path, nn::detail::parts_of(model), optimizer.state(), where);
}

}  // namespace fermata
