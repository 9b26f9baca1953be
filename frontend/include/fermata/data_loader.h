// Batches of a data set, in order or shuffled, prefetched on a background thread.
//
//   fm::DataLoader batches(fm::TensorDataset(std::tuple(images, labels)), {.batch_size = 64, .shuffle = true});
//   for (const auto& [x, y] : batches) step(x, y);
//
// A data set has `size()` and either `operator[](i)`, which returns one example as a tree of tensors (the loader stacks
// them), or `batch(positions)`, which returns a whole batch as a tree. A loop over the loader is one epoch. The order
// of an epoch depends only on the seed and the epoch number, and so do random numbers that the data set draws from the
// default generator. Exceptions of the data set are rethrown where the loop takes the batch. docs/modules.md has
// examples.
#pragma once

#include <any>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fermata/tensor_tree.h"
#include "runtime/tensor.h"

namespace fermata {

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool drop_last = false;     // drops a last batch that is not full
  std::int64_t prefetch = 2;  // batches made ahead of time; 0 makes them in the loop
  std::string progress = {};  // label of a progress line on the terminal; empty for none
};

/// The position of a loop, which a checkpoint saves.
struct DataPosition {
  std::int64_t epoch = 0, batch = 0;
  bool operator==(const DataPosition&) const = default;
};

/// A progress line on stderr: items done, rate, and time left. Prints nothing if stderr is not a terminal.
class Progress {
 public:
  Progress(std::string label, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::int64_t done);

 private:
  std::string label_;
  std::int64_t total_;
  bool on_terminal_;
  std::chrono::steady_clock::time_point start_, shown_;
};

namespace detail {

/// "train  30/100  12.5/s  5.6 s left".
std::string progress_line(const std::string& label, std::int64_t done, std::int64_t total, double seconds);

using MakeBatch = std::function<std::any(std::span<const std::int64_t> positions)>;
/// One loop over a data set. Prefetches batches in the mode of the thread that runs the loop.
class Epoch {
 public:
  Epoch(MakeBatch make, std::int64_t size, const DataLoaderOptions& options, DataPosition start);
  ~Epoch();
  /// Returns the next batch, or an empty std::any after the last one.
  std::any next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};
void check_loader(std::int64_t size, const DataLoaderOptions& options, Location where);
std::int64_t batch_count(std::int64_t size, const DataLoaderOptions& options);
Tensor stack_examples(const std::vector<Tensor>& examples);
Tensor take_rows(const Tensor& x, std::span<const std::int64_t> positions);
std::int64_t common_size(const std::vector<Tensor>& tensors, Location where);
void compute(const std::vector<Tensor>& tensors);

/// Stacks examples, which are trees of the same structure.
template <class T> T stacked_trees(const std::vector<T>& examples) {
  std::vector<std::vector<Tensor>> parts;
  for (const T& example : examples) parts.push_back(defined_tensors_in(example));
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < parts[0].size(); ++i) {
    std::vector<Tensor> column;
    for (const auto& part : parts) column.push_back(part.at(i));
    all.push_back(stack_examples(column));
  }
  return with_tensors(examples[0], std::move(all));
}
template <class D> auto make_batch(const D& data, std::span<const std::int64_t> positions) {
  if constexpr (requires { data.batch(positions); }) {
    return data.batch(positions);
  } else {
    std::vector<std::decay_t<decltype(data[std::int64_t{}])>> examples;
    for (const std::int64_t i : positions) examples.push_back(data[i]);
    return stacked_trees(examples);
  }
}

}  // namespace detail

/// A data set of tensors whose first axis indexes examples: one tensor, or a tree of them.
template <class T> class TensorDataset {
 public:
  /// Errors   ShapeError FM1085 unless all have the same number of rows.
  explicit TensorDataset(T tensors, Location where = Location::current())
      : tensors_(std::move(tensors)), size_(detail::common_size(defined_tensors_in(tensors_), where)) {}
  std::int64_t size() const { return size_; }
  T batch(std::span<const std::int64_t> positions) const {
    T rows = tensors_;
    each_tensor(rows, [&](Tensor& x) {
      if (x.defined()) x = detail::take_rows(x, positions);
    });
    return rows;
  }

 private:
  T tensors_;
  std::int64_t size_;
};

template <class D> class DataLoader {
 public:
  using Batch = decltype(detail::make_batch(std::declval<const D&>(), std::span<const std::int64_t>()));

  /// Errors   ValueError FM1377 for a batch size that is not positive or a negative prefetch count.
  explicit DataLoader(D data, DataLoaderOptions options = {}, Location where = Location::current())
      : data_(std::make_shared<const D>(std::move(data))), options_(std::move(options)) {
    detail::check_loader(static_cast<std::int64_t>(data_->size()), options_, where);
  }

  /// Batches per epoch.
  std::int64_t size() const { return detail::batch_count(static_cast<std::int64_t>(data_->size()), options_); }
  const D& data() const { return *data_; }

  /// The position of the next batch. Inside a loop, of the batch after the current one.
  DataPosition position() const { return position_; }
  /// Sets where the next loop starts.
  void seek(DataPosition position) { position_ = position; }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = const Batch*;
    using reference = const Batch&;
    explicit Iterator(DataLoader& loader) : loader_(&loader) {
      const auto data = loader.data_;
      const auto make = [data](std::span<const std::int64_t> positions) {
        Batch batch = detail::make_batch(*data, positions);
        detail::compute(defined_tensors_in(batch));
        return std::any(std::move(batch));
      };
      epoch_ = std::make_shared<detail::Epoch>(make, static_cast<std::int64_t>(data->size()), loader.options_,
                                               loader.position_);
      if (!loader.options_.progress.empty())
        progress_ = std::make_shared<Progress>(loader.options_.progress, loader.size());
      advance();
    }
    reference operator*() const { return *std::any_cast<Batch>(&batch_); }
    pointer operator->() const { return &**this; }
    Iterator& operator++() {
      if (progress_ != nullptr) progress_->show(loader_->position_.batch);
      advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !batch_.has_value(); }

   private:
    void advance() {
      batch_ = epoch_->next();
      DataPosition& at = loader_->position_;
      at = batch_.has_value() ? DataPosition{at.epoch, at.batch + 1} : DataPosition{at.epoch + 1, 0};
    }
    DataLoader* loader_;
    std::shared_ptr<detail::Epoch> epoch_;
    std::shared_ptr<Progress> progress_;
    std::any batch_;
  };
  /// Starts an epoch.
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<const D> data_;
  DataLoaderOptions options_;
  DataPosition position_;
};

}  // namespace fermata
