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

/// The file of each input that has one, by number of its node: those given as "%0=x.npy" or "0=x.csv" (ValueError
/// FM1332 for other forms), then those that comments of the program name as save_trace() does, // %0 = "x.npy", beside
/// it.
std::map<ValueId, std::string> input_files(const std::string& program, const std::vector<std::string>& assignments);

/// One tensor per input: from its file, cast and reshaped as the program wants it, else made up. Made-up floats are
/// normal, integers small, positions in range; they depend on the seed and the number of the input only.
std::vector<Tensor> make_inputs(const Graph& graph, const std::map<ValueId, std::string>& files, std::uint64_t seed);

}  // namespace fermata::cli
