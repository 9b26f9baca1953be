// Programs that train: the step of the digits example, modules in a compiled function, runs that are saved.
#include <fermata/data_loader.h>
#include <fermata/modules.h>
#include <fermata/training_file.h>

#include <tuple>

#include "digits/training.h"
#include "tests/programs/sources.h"

namespace fermata::programs {
namespace {

struct Net {
  nn::Linear in{6, 16};
  nn::BatchNorm norm{16};
  nn::Dropout drop{0.1};
  nn::Linear out{16, 3};
  Tensor forward(const Tensor& x) const { return out(drop(relu(norm(in(x))))); }
};

std::tuple<Tensor, Tensor> examples(std::int64_t count) {
  Generator from(7);
  const Tensor x = normal({count, 6}, 0, 1, DType::f32, from);
  return {x, argmax(x.slice(1, 0, 3), 1)};
}

/// A step as a compiled function, which refers to the net and its optimizer.
auto compiled_step(const Net& net, optim::AdamW& adam) {
  return compile([&](const Tensor& x, const Tensor& labels) {
    adam.zero_grad();
    const Tensor loss = cross_entropy(net.forward(x), labels);
    loss.backward();
    adam.step();
    return loss.detach();
  });
}

}  // namespace

void digits_step(Results& results, const std::string&) {
  digits::Classifier classifier(1);
  Generator from(3);
  const Tensor images = uniform({32, 64}, 0, 1, DType::f32, from), labels = randint(0, 10, {32}, DType::i64, from);
  for (int step = 0; step < 3; ++step) {
    const Tensor loss = classifier.step(images, labels, 2e-3);
    std::vector<Tensor> changed = classifier.state();
    changed.push_back(loss);
    sync(changed);
    results.add(loss);
  }
  for (const Tensor& t : classifier.state()) results.add(sum(t));
}

void compiled_training(Results& results, const std::string&) {
  manual_seed(3);
  Net net;
  optim::AdamW adam(net, {.learning_rate = 1e-2});
  auto step = compiled_step(net, adam);
  const auto [x, labels] = examples(24);
  for (int i = 0; i < 4; ++i) results.add(step(x, labels));
  for (const auto& [name, tensor] : nn::state_dict(net)) results.add(tensor);
}

void data_loading(Results& results, const std::string&) {
  manual_seed(4);
  Net net;
  optim::SGD sgd(net, {.learning_rate = 1e-2, .momentum = 0.9});
  DataLoader batches(TensorDataset(examples(24)), {.batch_size = 8, .shuffle = true});
  for (const auto& [x, labels] : batches) {
    sgd.zero_grad();
    const Tensor loss = cross_entropy(net.forward(x), labels);
    loss.backward();
    sgd.step();
    results.add(loss.detach());
  }
}

void training_files(Results& results, const std::string& folder) {
  const std::string path = folder + "/run.safetensors";
  const auto [x, labels] = examples(16);
  {
    manual_seed(5);
    Net net;
    optim::AdamW adam(net, {.learning_rate = 1e-2});
    auto step = compiled_step(net, adam);
    for (int i = 0; i < 2; ++i) results.add(step(x, labels));
    save_training(path, net, adam, {.step = 2});
    results.add(step(x, labels));
  }
  manual_seed(6);
  Net net;
  optim::AdamW adam(net, {.learning_rate = 1e-2});
  const TrainingState at = load_training(path, net, adam);
  auto step = compiled_step(net, adam);
  results.add(static_cast<double>(at.step));
  results.add(step(x, labels));
}

}  // namespace fermata::programs
