// Programs as files: the text form of a graph, and tensors to run it on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/tensor.h"

namespace fermata::cli {

/// The graph in a file. FileError if it cannot be read; ParseError, with the name of the file, if it is no graph.
Graph read_program(const std::string& path);

/// Files given as "%0=x.npy" or "0=x.csv", by number of the input's node. ValueError FM1332 for other forms.
std::map<ValueId, std::string> parse_input_files(const std::vector<std::string>& assignments);

/// One tensor per input: from its file, cast and reshaped as the program wants it, else made up. Made-up floats are
/// normal, integers small, positions in range; they depend on the seed and the number of the input only.
std::vector<Tensor> make_inputs(const Graph& graph, const std::map<ValueId, std::string>& files, std::uint64_t seed);

}  // namespace fermata::cli
