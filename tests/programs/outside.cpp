// Programs that meet what is outside: files, the disk cache, threads, memory of others, texts.
#include <fermata/distributed.h>
#include <fermata/export.h>
#include <fermata/trace.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <vector>

#include "dispatch/backend.h"
#include "runtime/disk_cache.h"
#include "tests/programs/sources.h"

#ifdef FERMATA_TEST_WITH_RUN
#include <fermata/program.h>
#endif

namespace fermata::programs {
namespace {

Tensor numbers(const IntegerList& sizes, std::uint64_t seed) {
  Generator from(seed);
  return uniform(sizes, -1, 1, DType::f32, from);
}

/// Makes machine code come from a folder of its own, and plans and kernels be compiled at once.
class CacheFolder {
 public:
  explicit CacheFolder(const std::string& folder)
      : folder_(DiskCache::instance().set_directory(folder)), policy_(set_compile_policy(CompilePolicy::immediate)) {}
  ~CacheFolder() {
    set_compile_policy(policy_);
    DiskCache::instance().set_directory(folder_);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

 private:
  const std::string folder_;
  const CompilePolicy policy_;
};

}  // namespace

void array_files(Results& results, const std::string& folder) {
  const Tensor x = numbers({5, 7}, 41), y = arange(12).reshape(3, 4);
  save_npy(folder + "/x.npy", x);
  save_npz(folder + "/both.npz", {{"x", x}, {"y", y}});
  save_npz(folder + "/packed.npz", {{"x", x}, {"y", y}}, true);
  save_csv(folder + "/x.csv", x);
  results.add(load_npy(folder + "/x.npy"));
  results.add(map_npy(folder + "/x.npy") * 2);
  results.add(load_csv(folder + "/x.csv"));
  for (const char* const name : {"/both.npz", "/packed.npz"})
    for (const auto& [key, tensor] : load_npz(folder + name)) results.add(tensor);
}

void model_files(Results& results, const std::string& folder) {
  const NamedTensors model{{"a", numbers({16, 16}, 42)}, {"b", numbers({33}, 43)}, {"c", arange(5)}};
  save_safetensors(folder + "/model.safetensors", model, {{"format", "pt"}});
  for (const auto& [name, tensor] : load_safetensors(folder + "/model.safetensors")) results.add(tensor + 1);
  const std::string index = save_safetensors_sharded(folder + "/parts.safetensors", model, 600);
  const SafetensorsFile file(index);
  for (const std::string& name : file.names()) results.add(file.tensor(name));
}

/// Text and constants of a trace, which are files of their own.
void trace_files(Results& results, const std::string& folder) {
  const Tensor x = numbers({3, 5}, 53), weight = numbers({5, 2}, 54);
  const Trace traced = trace([&](const Tensor& a) { return tanh(matmul(a, weight)); }, x);
  save_trace(traced, folder + "/traced.txt");
  results.add(run_trace(traced, std::vector<Tensor>{x})[0]);
  results.add(load_npy(folder + "/traced.0.npy"));
}

/// The errors of libfermata_run have another type.
void exported_programs(Results& results, const std::string& folder) {
  if (!backend(BackendKey::cpu)->can_compile(nullptr)) return;
  const Tensor weight = numbers({6, 4}, 57);
  const std::string path = folder + "/program.fermata";
  export_program(
      path, {.dynamic = {{.input = 0, .axis = 0}}},
      [&](const Tensor& x) { return std::pair(tanh(matmul(x, weight)), sum(x * 2, 1)); }, numbers({3, 6}, 58));
#ifdef FERMATA_TEST_WITH_RUN
  try {
    run::Program program(path);
    for (const std::int64_t rows : {3, 5}) {
      std::vector<float> x = numbers({rows, 6}, 59).to_vector<float>();
      const run::Results got = program.run({run::tensor(x.data(), {rows, 6})});
      for (std::int64_t i = 0; i < rows * 4; ++i) results.add(got.data<float>(0)[i]);
      for (std::int64_t i = 0; i < rows; ++i) results.add(got.data<float>(1)[i]);
    }
  } catch (const run::Error& error) {
    constexpr int kNoMemory = 3001;
    if (error.code == kNoMemory) throw OutOfMemoryError(error.code, error.what());
    throw FileError(error.code, error.what());
  }
#endif
}

/// Collectives of a world of this process alone, and a checkpoint of it.
void world_of_one(Results& results, const std::string& folder) {
  const Tensor x = numbers({4, 3}, 60);
  results.add(distributed::all_reduce(x * 2));
  for (const Tensor& t : distributed::all_reduce(std::vector<Tensor>{x, x + 1})) results.add(t);
  results.add(distributed::all_gather(x, 1));
  results.add(distributed::reduce_scatter(x));
  results.add(distributed::broadcast(x + 2));
  results.add(grad([](const Tensor& a) { return sum(distributed::all_reduce(a * a)); })(x));
  const std::string index = folder + "/world.safetensors.index.json";
  save_safetensors(index, {{"x", x}, {"y", arange(4)}});
  for (const auto& [name, tensor] : load_safetensors(index)) results.add(tensor);
}

void disk_cache(Results& results, const std::string& folder) {
  const CacheFolder cache(folder + "/kernels");
  const Tensor x = numbers({64, 64}, 44);
  for (int run = 0; run < 2; ++run) {
    clear_compile_caches();
    results.add(sum(tanh(x) * x, 1));
  }
}

void threads(Results& results, const std::string&) {
  constexpr std::size_t kThreads = 3;
  const Tensor shared = exp(numbers({32, 32}, 45));
  const Mode mode = fermata::mode();
  std::vector<Results> own(kThreads);
  std::vector<std::exception_ptr> failures(kThreads);
  {
    std::vector<std::jthread> running;
    for (std::size_t i = 0; i < kThreads; ++i)
      running.emplace_back([&, i] {
        try {
          const ModeGuard guard(mode);
          const Tensor x = numbers({32, 32}, 46 + i);
          own[i].add(sum(matmul(x, shared), 0));
          own[i].add(grad([&](const Tensor& a) { return sum(sin(a) * shared); })(x));
        } catch (...) { failures[i] = std::current_exception(); }
      });
  }
  for (const std::exception_ptr& failure : failures)
    if (failure != nullptr) std::rethrow_exception(failure);
  for (const Results& part : own) results.add(part);
}

void exchange(Results& results, const std::string&) {
  const Tensor x = numbers({6, 4}, 50);
  results.add(from_dlpack(to_dlpack(x * 2)));
  const Tensor adopted = adopt(std::vector<float>{1, 2, 3, 4}, {2, 2});
  results.add(exp(adopted));
  const HostView<const float> view(x);
  for (const float value : view.span()) results.add(value);
}

/// Where there is a device: FERMATA_CUDA_EXECUTOR=host makes one.
void device_work(Results& results, const std::string&) {
  if (!cuda_available()) return;
  const Tensor x = numbers({8, 16}, 52).cuda();
  results.add(sum(exp(x) * x, 1).cpu());
  results.add((x.T() + 1).copy().cpu());
}

void texts(Results& results, const std::string&) {
  const Tensor x = numbers({6, 4}, 51), y = softmax(exp(x) + 1, 1);
  for (const std::string& text : {dump_ir(y), to_string(x)}) results.add(static_cast<double>(text.size()));
  results.add(explain(y).empty() ? 0 : 1);
}

}  // namespace fermata::programs
