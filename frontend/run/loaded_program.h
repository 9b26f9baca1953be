// A program from a file, ready to run: what libfermata_run is. Where it runs is up to who derives from it
// (cpu_program.h, cuda/cuda_program.h).
//
// The file is mapped, and constants are read where they lie, so that processes that run the same file share them. Any
// number of threads may run a program at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "frontend/run/program_file.h"
#include "frontend/run/record_table.h"
#include "runtime/backend_capabilities.h"
#include "runtime/bound_plan.h"

namespace fermata {

/// Elements of a dense tensor in row-major order.
struct DenseView {
  void* data = nullptr;  // of an output: null where the run is to make a buffer
  DType dtype = DType::f32;
  std::span<const std::int64_t> sizes;
};
struct DenseResult {
  /// Gives a buffer back by the code of the library that has made it: that of CUDA is one of its own.
  using Owner = std::unique_ptr<Storage, void (*)(Storage*)>;
  static Owner own(Storage* storage) {
    return {storage, [](Storage* s) { s->release(); }};
  }
  void* data;
  TensorType type;
  Owner owner;  // null where the caller has given a buffer
  /// To memory of the host, when the result is there.
  void (*copy)(const DenseResult& result, void* to) = [](const DenseResult& result, void* to) {
    std::memcpy(to, result.data, result.bytes());
  };
  std::size_t bytes() const { return static_cast<std::size_t>(element_count(type.shape)) * byte_size(type.dtype); }
};

/// A file in memory, shared with all who map it.
class MappedFile {
 public:
  /// FileError FM1601.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The bytes of a file, whatever owns them.
struct ProgramBytes {
  std::string_view bytes;
  std::string path;
  std::unique_ptr<MappedFile> mapping{};  // null where somebody else does
};

/// What runs the calls and kernels of a program.
struct ProgramBackend {
  BackendKey key;
  BackendCapabilities capabilities;
  bool (*has_kernel)(Op op, DType operand);
  const char* missing_hint;  // where a kernel is not there
};

class LoadedProgram {
 public:
  virtual ~LoadedProgram();
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  const ProgramFile& file() const { return file_; }
  const std::string& target() const { return target_; }
  /// Bytes of machine code that is loaded, for reports.
  std::size_t code_bytes() const;
  // What follows is virtual because a library of its own may have made the program.

  /// FM2201 unless all constants have their checksums: reads the whole file.
  virtual void verify() const;
  /// The random numbers that follow.
  virtual void seed(std::uint64_t key) { key_ = key, next_draw_ = 0; }

  /// Runs on inputs in the order of file().inputs. `outputs` are in the order of file().outputs; there may be none, and
  /// then all get a buffer: of the host, or, if they are to `stay`, of the device that the program runs on, which is
  /// not waited for then. ValueError FM2210 for inputs or outputs of other types than the program's, and the errors of
  /// the calls that it makes.
  virtual std::vector<DenseResult> run(std::span<const DenseView> inputs, std::span<const DenseView> outputs = {},
                                       bool stay = false);
  /// Until all that was run is done. Errors of it are thrown here.
  virtual void wait() {}
  /// Of CUDA: where runs go from now on; null for the library's own. False where there are no streams.
  virtual bool set_stream(void* /*stream*/) { return false; }

 protected:
  struct Runner;
  LoadedProgram(ProgramBytes file, const FilePart& description, const ProgramBackend& backend);
  /// Sets target_ and target_number_.
  void set_target(std::size_t number) {
    target_number_ = static_cast<std::uint32_t>(number), target_ = file_.targets[number];
  }
  /// Of all kernels, by number.
  void take_executables(const std::vector<std::shared_ptr<const Executable>>& executables);
  std::string_view part(const FilePart& part) const;  // with its checksum
  std::string_view constant(const FilePart& part) const;
  /// When all else is there: binds what has fixed sizes, so that errors of them are those of the file.
  void bind_fixed_sizes();
  /// Runs a plan that is bound, on and to what the caller gives, and fills in what `results` lack.
  virtual void run_bound(Runner& runner, std::span<const DenseView> inputs, std::span<const DenseView> outputs,
                         std::vector<DenseResult>& results, bool stay) = 0;

  const ProgramBytes source_;
  ProgramFile file_;
  std::string target_;
  std::uint32_t target_number_ = 0;
  std::vector<StoragePtr> constants_;

 private:
  void read_symbols(Runner& runner, std::span<const DenseView> inputs) const;
  void check_inputs(const Runner& runner, std::span<const DenseView> inputs) const;
  std::unique_ptr<Runner> take_runner();
  void give_back(std::unique_ptr<Runner> runner);

  std::atomic<std::uint64_t> key_{0}, next_draw_{0};
  std::atomic<Runner*> recent_{nullptr};  // one that is idle: runs of one thread at a time take no lock
  std::mutex mutex_;
  std::vector<std::unique_ptr<Runner>> idle_;  // the others
};

/// What one run works with; kept for the next one.
struct LoadedProgram::Runner {
  explicit Runner(const LoadedProgram& p)
      : records(p.file_, p.file_, p.source_.path), symbols(p.file_.symbols.size(), -1) {}
  RecordTable records;
  BoundPlan bound;
  std::vector<std::int64_t> symbols, wanted;
  bool is_bound = false;
  std::vector<LeafBuffer> leaves;
  std::vector<void*> buffers;
};

}  // namespace fermata
