// See random_program.h.
#include "bench/peers/random_program.h"

#include <map>
#include <sstream>
#include <stdexcept>

namespace bench {
namespace {

namespace fm = fermata;
using fm::Tensor;

struct Step {
  std::string op, name;
  std::vector<std::string> operands;
};

class Interpreter {
 public:
  Interpreter(std::map<std::string, Tensor> values) : values_(std::move(values)) {}
  void play(const Step& step) { values_[step.name] = value(step); }
  const Tensor& operator[](const std::string& name) const { return values_.at(name); }

 private:
  Tensor value(const Step& s) const {
    const auto x = [&] { return tensor(s, 0); };
    if (s.op == "abs") return fm::abs(x());
    if (s.op == "square") return fm::square(x());
    if (s.op == "sqrt") return fm::sqrt(x());
    if (s.op == "exp") return fm::exp(x());
    if (s.op == "tanh") return fm::tanh(x());
    if (s.op == "sigmoid") return fm::sigmoid(x());
    if (s.op == "add") return binary(s, [](const auto& a, const auto& b) { return fm::add(a, b); });
    if (s.op == "subtract") return binary(s, [](const auto& a, const auto& b) { return fm::subtract(a, b); });
    if (s.op == "multiply") return binary(s, [](const auto& a, const auto& b) { return fm::multiply(a, b); });
    if (s.op == "maximum") return binary(s, [](const auto& a, const auto& b) { return fm::maximum(a, b); });
    if (s.op == "minimum") return binary(s, [](const auto& a, const auto& b) { return fm::minimum(a, b); });
    if (s.op == "sum") return fm::sum(x(), axis(s), true);
    if (s.op == "mean") return fm::mean(x(), axis(s), true);
    if (s.op == "max") return fm::max(x(), axis(s), true);
    if (s.op == "cumsum") return fm::cumulative_sum(x(), axis(s));
    if (s.op == "sort") return fm::sort(x(), axis(s));
    if (s.op == "spectrum") return fm::abs(fm::fft::rfft(x()));
    if (s.op == "float") return x().astype(fm::DType::f32);
    if (s.op == "take") return fm::take(x(), tensor(s, 1), 0);
    if (s.op == "scatter") {
      fm::Shape sizes = x().shape();
      sizes[0] = std::stoll(s.operands.at(2));
      return fm::index_add(fm::zeros(sizes), tensor(s, 1), x(), 0);
    }
    if (s.op == "transpose") return x().mT();
    if (s.op == "depthwise") return fm::conv2d(x(), tensor(s, 1), {}, 1, 1, 1, x().size(1));
    if (s.op == "matmul") return fm::matmul(tensor(s, 0), tensor(s, 1));
    throw std::invalid_argument("no such op: " + s.op);
  }
  const Tensor& tensor(const Step& s, std::size_t i) const { return values_.at(s.operands.at(i)); }
  static std::int64_t axis(const Step& s) { return std::stoll(s.operands.at(1)); }
  template <class F> Tensor binary(const Step& s, F f) const {
    const auto second = values_.find(s.operands.at(1));
    if (second == values_.end()) return f(tensor(s, 0), fm::Operand(std::stod(s.operands[1])));
    return f(tensor(s, 0), fm::Operand(second->second));
  }

  std::map<std::string, Tensor> values_;
};

Tensor looked_at(const Tensor& x, const std::string& how) {
  if (how == "transposed") return x.mT();
  if (how == "alternate") return x.slice(-1, 0, x.size(-1), 2);
  return x;
}

}  // namespace

Case random_program(const std::string& name, std::istream& text, const std::string& folder) {
  std::vector<Step> inputs, steps;
  std::vector<std::string> outputs;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    Step step;
    words >> step.op >> step.name;
    for (std::string word; words >> word;) step.operands.push_back(word);
    if (step.op == "input")
      inputs.push_back(step);
    else if (step.op == "output")
      outputs.push_back(step.name);
    else
      steps.push_back(step);
  }
  return {name,
          [inputs, folder] {
            Tensors loaded;
            for (const Step& s : inputs)
              loaded.push_back(looked_at(fm::load_npy(folder + "/" + s.operands.at(0)), s.operands.at(1)));
            return loaded;
          },
          [=] {
            return Program([=](const Tensors& given) {
              std::map<std::string, Tensor> values;
              for (std::size_t i = 0; i < inputs.size(); ++i) values[inputs[i].name] = given[i];
              Interpreter interpreter(std::move(values));
              for (const Step& s : steps) interpreter.play(s);
              Tensors results;
              for (const std::string& o : outputs) results.push_back(interpreter[o]);
              return results;
            });
          }};
}

}  // namespace bench
