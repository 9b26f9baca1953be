// Programs that meet what is outside: files, the disk cache, threads, memory of others, texts.
#include <unistd.h>

#include <exception>
#include <thread>
#include <vector>

#include "runtime/disk_cache.h"
#include "tests/programs/sources.h"

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
