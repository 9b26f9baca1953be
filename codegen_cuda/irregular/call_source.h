// Kernels of irregular ops: source that depends on dtypes and ranks only, put together with the arguments of one call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor_view.h"

namespace fermata::gpu {

/// Text under way, and the arguments it names. The same structure gives the same text, so it is compiled once.
class CallSource {
 public:
  explicit CallSource(std::string_view prefix) : prefix_(prefix) {}

  /// An i64 argument; what it is called in the text.
  std::string number(std::int64_t value);
  /// A pointer to elements of a type.
  std::string pointer(std::string_view type, const void* address);
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  void add(std::string_view text) { text_ += text; }
  /// Declares i64 `name`: the offset, in elements, of the element with this row-major number over axes [begin, end).
  void offset(const std::string& name, const std::string& number_of, const TensorView& view, unsigned begin,
              unsigned end);
  /// Opens a loop over [0, count) by all threads of the grid.
  void for_each(const std::string& variable, std::int64_t count);

  /// Compiles, if need be, and starts it with threads for `count` items.
  void launch(std::int64_t count, unsigned shared_bytes = 0) const;
  /// The same with a number of thread blocks.
  void launch_blocks(std::int64_t blocks, unsigned threads, unsigned shared_bytes) const;

 private:
  std::string prefix_, text_;
  std::vector<std::uint64_t> slots_;
  unsigned names_ = 0;
  unsigned open_loops_ = 0;
};

/// Copies elements from one view to another of the same sizes and dtype, at any strides.
void copy_elements(const TensorView& from, const TensorView& to);

/// A buffer for the length of a call.
class Workspace {
 public:
  explicit Workspace(std::int64_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const;

 private:
  void* block_;
};

/// The buffers that a call is about.
void use_operands(const CallArgs& args);

}  // namespace fermata::gpu
