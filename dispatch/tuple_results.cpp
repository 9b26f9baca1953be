// See tuple_results.h.
#include "dispatch/tuple_results.h"

namespace fermata {

std::vector<Tensor> written_tensors(const Schema* schema, const Stack& arguments) {
  std::vector<Tensor> written;
  for (std::size_t i = 0; schema != nullptr && i < schema->arguments.size() && i < arguments.size(); ++i)
    if (schema->arguments[i].alias.write && arguments[i].is<Tensor>() && arguments[i].as<Tensor>().defined())
      written.push_back(arguments[i].as<Tensor>());
  return written;
}

std::vector<std::size_t> new_results(const Schema& schema) {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < schema.results.size(); ++i)
    if (!schema.results[i].alias.write) numbers.push_back(i);
  return numbers;
}

}  // namespace fermata
