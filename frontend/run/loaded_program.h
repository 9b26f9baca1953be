// A program from a file, ready to run: what libfermata_run is.
//
// The file is mapped, and constants are read where they lie, so that processes that run the same file share them. Any
// number of threads may run a program at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "frontend/run/program_file.h"
#include "frontend/run/record_table.h"
#include "runtime/bound_plan.h"

namespace fermata {

/// Elements of a dense tensor in row-major order.
struct DenseView {
  void* data = nullptr;  // of an output: null where the run is to make a buffer
  DType dtype = DType::f32;
  std::span<const std::int64_t> sizes;
};
struct DenseResult {
  void* data;
  TensorType type;
  StoragePtr owner;  // null where the caller has given a buffer
};

class LoadedProgram {
 public:
  /// FileError FM1601 where the file cannot be read, FM2202 where it is no program of this version, FM2201 where it is
  /// damaged; UnsupportedError FM2203 where there is no code for this processor, FM2204 for ops without a kernel here.
  static std::unique_ptr<LoadedProgram> load(const std::string& path);
  /// The same from memory, which has to be aligned to 64 bytes and stay.
  static std::unique_ptr<LoadedProgram> load_bytes(std::string_view bytes, const std::string& name);
  ~LoadedProgram();
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  const ProgramFile& file() const { return file_; }
  const std::string& target() const { return target_; }
  /// Bytes of machine code that is loaded, for reports.
  std::size_t code_bytes() const;
  /// FM2201 unless all constants have their checksums: reads the whole file.
  void verify() const;
  /// The random numbers that follow.
  void seed(std::uint64_t key) { key_ = key, next_draw_ = 0; }

  /// Runs on inputs in the order of file().inputs. `outputs` are in the order of file().outputs; there may be none, and
  /// then all get a buffer. ValueError FM2210 for inputs or outputs of other types than the program's, and the errors
  /// of the calls that it makes.
  std::vector<DenseResult> run(std::span<const DenseView> inputs, std::span<const DenseView> outputs = {});

 private:
  class Mapping;
  struct Runner;
  LoadedProgram(std::string_view bytes, std::string path, std::unique_ptr<Mapping> mapping);
  void choose_target();
  void load_kernels();
  void take_constants();
  void read_symbols(Runner& runner, std::span<const DenseView> inputs) const;
  void check_inputs(const Runner& runner, std::span<const DenseView> inputs) const;
  std::unique_ptr<Runner> take_runner();

  std::unique_ptr<Mapping> mapping_;
  std::string_view bytes_;
  const std::string path_;
  ProgramFile file_;
  std::string target_;
  std::uint32_t target_number_ = 0;
  std::vector<StoragePtr> constants_;
  std::atomic<std::uint64_t> key_{0}, next_draw_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Runner>> idle_;
};

}  // namespace fermata
