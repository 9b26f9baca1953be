// Trains a small classifier on the handwritten digits, in the mode of the thread.
//
// The code is the same for both modes: it runs op by op, or is recorded and run as compiled kernels.
#pragma once

#include <fermata/fermata.h>
#include <fermata/mesh.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace digits {

struct Data {
  fermata::Tensor train_images, train_labels;  // f32[N, 64] in [0, 1], i64[N]
  fermata::Tensor test_images, test_labels;    // a fifth of all images, the same in every run
};
/// The path of digits.csv: in the source tree of the build, or in the share folder of the installation.
std::string find_data();
/// FileError if the file cannot be read or has another format.
Data load_data(const std::string& path);

struct Settings {
  int epochs = 30;
  std::int64_t batch = 64;
  double learning_rate = 2e-3;
  std::uint64_t seed = 1;  // of the initial weights and the order of the images
  /// Batches are divided along its axis "data", hidden layers along "model"; null for one process.
  const fermata::Mesh* mesh = nullptr;
};

/// 64 inputs, hidden layers of 128 and 64 with gelu, 10 outputs; and the moments of Adam.
class Classifier {
 public:
  explicit Classifier(std::uint64_t seed);
  fermata::Tensor logits(const fermata::Tensor& images) const;
  /// One step of Adam on a batch; returns the loss before the step.
  fermata::Tensor step(const fermata::Tensor& images, const fermata::Tensor& labels, double learning_rate);
  /// Divides the hidden layers, and what the optimizer keeps of them, along an axis of a mesh.
  void divide(const fermata::Mesh& mesh, const char* axis);
  /// All tensors that a step changes.
  std::vector<fermata::Tensor> state() const;
  double accuracy(const fermata::Tensor& images, const fermata::Tensor& labels) const;

 private:
  struct Parameter {
    fermata::Tensor value, mean, square;  // of the gradients: the moments
  };
  void add_layer(std::int64_t inputs, std::int64_t outputs, fermata::Generator& generator);
  std::vector<Parameter> parameters_;  // weight and bias of each layer
  int steps_ = 0;
};

struct Result {
  std::vector<double> losses;  // of every step
  double accuracy = 0;         // on the test images
  double us_per_step = 0;      // the median after the first epoch
  double seconds = 0;          // all steps together
};
/// `progress` is called after every epoch with its number, from 1, the mean loss of its steps and the test accuracy.
Result train(const Data& data, const Settings& settings,
             const std::function<void(int epoch, double loss, double accuracy)>& progress);

}  // namespace digits
