// See libraries.h.
#include "codegen_cuda/api/libraries.h"

#include <dlfcn.h>

#include <string_view>

#include "codegen_cuda/host/executor.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "runtime/environment.h"

namespace fermata::gpu {
namespace {

struct Loaded {
  void* handle = nullptr;
  std::string file, found_at, failure_reason;

  explicit Loaded(const std::vector<std::string>& candidates) {
    for (const std::string& each : candidates) {
      handle = dlopen(each.c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (handle != nullptr) {
        file = each, failure_reason.clear();
        return;
      }
      if (failure_reason.empty())
        failure_reason = dlerror();  // of the name that the system knows
      else
        static_cast<void>(dlerror());
    }
  }
  bool whole() const { return handle != nullptr && failure_reason.empty(); }
  void find(const char* symbol, void** function) {
    if (handle == nullptr || !failure_reason.empty()) return;
    *function = dlsym(handle, symbol);
    if (*function == nullptr) failure_reason = file + " has no " + symbol;
    Dl_info info;
    if (*function != nullptr && dladdr(*function, &info) != 0 && info.dli_fname != nullptr) found_at = info.dli_fname;
  }
};

/// A library of the toolkit: as the system finds it, and where toolkits are by custom.
std::vector<std::string> toolkit_library(const std::string& name) {
  std::vector<std::string> candidates;
  for (const char* const version : {".13", ".12"}) candidates.push_back(name + version);
  std::vector<std::string> folders;
  for (const char* const variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* const value = environment_variable(variable); value != nullptr && *value != '\0')
      folders.emplace_back(value);
  folders.emplace_back("/usr/local/cuda");
  for (const std::string& folder : folders)
    for (const char* const version : {".13", ".12", ""}) candidates.push_back(folder + "/lib64/" + name + version);
  return candidates;
}

struct Driver {
  Loaded library{{"libcuda.so.1"}};
  DriverFunctions functions;
  Driver() {
#define FERMATA_DRIVER(name, symbol, parameters) library.find(symbol, reinterpret_cast<void**>(&functions.name));
#include "codegen_cuda/api/functions.def"
  }
};
struct Compiler {
  Loaded library{toolkit_library("libnvrtc.so")};
  CompilerFunctions functions;
  Compiler() {
#define FERMATA_COMPILER(name, symbol, parameters) library.find(symbol, reinterpret_cast<void**>(&functions.name));
#include "codegen_cuda/api/functions.def"
  }
};
struct Matmul {
  Loaded library{toolkit_library("libcublasLt.so")};
  MatmulFunctions functions;
  Matmul() {
#define FERMATA_MATMUL(name, symbol, parameters) library.find(symbol, reinterpret_cast<void**>(&functions.name));
#include "codegen_cuda/api/functions.def"
  }
};
struct Nccl {
  Loaded library{{"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"}};
  NcclFunctions functions;
  Nccl() {
#define FERMATA_NCCL(name, symbol, parameters) library.find(symbol, reinterpret_cast<void**>(&functions.name));
#include "codegen_cuda/api/functions.def"
  }
};

template <class T> T& loaded() {
  static T* const library = new T;  // outlives static destructors, which may free device memory
  return *library;
}
template <class T> auto* functions_of(std::string* failure_reason) {
  T& l = loaded<T>();
  if (failure_reason != nullptr) *failure_reason = l.library.whole() ? std::string() : l.library.failure_reason;
  return l.library.whole() ? &l.functions : nullptr;
}

}  // namespace

bool on_host_executor() {
  static const bool chosen = [] {
    const char* const value = environment_variable("FERMATA_CUDA_EXECUTOR");
    return value != nullptr && std::string_view(value) == "host";
  }();
  return chosen;
}

const DriverFunctions* driver_library(std::string* failure_reason) {
  if (on_host_executor()) return &host_driver();
  return functions_of<Driver>(failure_reason);
}
const CompilerFunctions* compiler_library(std::string* failure_reason) {
  if (on_host_executor()) return &host_compiler();
  return functions_of<Compiler>(failure_reason);
}
const CompilerFunctions* nvrtc_library(std::string* failure_reason) { return functions_of<Compiler>(failure_reason); }
const MatmulFunctions* matmul_library(std::string* failure_reason) {
  if (DryRun::current() != nullptr) return nullptr;  // it may be missing where the program runs
  if (on_host_executor()) return &host_matmul();
  return functions_of<Matmul>(failure_reason);
}
const NcclFunctions* nccl_library(std::string* failure_reason) {
  if (on_host_executor()) return &host_nccl();
  return functions_of<Nccl>(failure_reason);
}

std::string driver_file() { return on_host_executor() ? "the host executor" : loaded<Driver>().library.found_at; }
std::string compiler_file() { return on_host_executor() ? "the host executor" : loaded<Compiler>().library.found_at; }
std::string matmul_file() { return on_host_executor() ? "the host executor" : loaded<Matmul>().library.found_at; }
std::string nccl_file() { return on_host_executor() ? "the host executor" : loaded<Nccl>().library.found_at; }

}  // namespace fermata::gpu
