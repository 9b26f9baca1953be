// Files that other programs have written.
#include <fermata/fermata.h>
#include <fermata/modules.h>
#include <fermata/training_file.h>

#include <functional>

#include "ir/error.h"
#include "tests/fuzz/targets/target.h"

namespace fermata::testing {
namespace {

void npy(std::string_view input) {
  const MemoryFile file(input);
  const auto outcome_of = [](const std::function<Tensor()>& read) -> std::string {
    try {
      return to_string(read());
    } catch (const InternalError&) { throw; } catch (const Error& error) {
      return std::to_string(error.code());
    }
  };
  const std::string read = outcome_of([&] { return load_npy(file.path()); });
  require(read == outcome_of([&] { return map_npy(file.path()); }), "a file that is mapped holds something else");
}
const AddFuzzTarget add_npy("npy", &npy, kReaderGrowth);

void npz(std::string_view input) {
  const MemoryFile file(input);
  for (const auto& [name, array] : load_npz(file.path())) copy(array).sync();
}
const AddFuzzTarget add_npz("npz", &npz, kInflatedGrowth);

/// The separator, the number of lines to skip and the dtype come first.
void csv(std::string_view input) {
  ByteReader head(input);
  const auto separator = static_cast<char>(head.byte());
  const std::int64_t skipped = head.byte() % 4;
  const auto dtype = static_cast<DType>(head.byte() % kDTypeCount);
  const MemoryFile file(head.rest());
  load_csv(file.path(), dtype, {.separator = separator, .skip_lines = skipped});
}
const AddFuzzTarget add_csv("csv", &csv, kReaderGrowth);

void safetensors(std::string_view input) {
  const MemoryFile bytes(input);
  const SafetensorsFile file(bytes.path());
  for (const std::string& name : file.names()) {
    try {
      copy(file.tensor(name)).sync();
    } catch (const UnsupportedError&) {}  // dtypes of other engines
  }
}
const AddFuzzTarget add_safetensors("safetensors", &safetensors, kReaderGrowth);

/// What cannot be read changes nothing.
void training(std::string_view input) {
  nn::Linear model(3, 2);
  optim::SGD optimizer(model, {.momentum = 0.5});
  const std::string before = to_string(model.weight);
  const MemoryFile file(input);
  try {
    load_training(file.path(), model, optimizer);
  } catch (const InternalError&) { throw; } catch (const Error&) {
    require(to_string(model.weight) == before, "a file that cannot be read changes a model");
    throw;
  }
}
const AddFuzzTarget add_training("training", &training, kReaderGrowth);

}  // namespace
}  // namespace fermata::testing
