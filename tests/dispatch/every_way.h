// One program in every way that it can run: the ways may differ in speed and in nothing else.
#pragma once

#include <fermata/fermata.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/engine/compile_policy.h"

namespace fermata {

using Numbers = std::vector<double>;
/// A program that makes or captures its inputs, and returns its results.
using TestProgram = std::function<std::vector<Tensor>()>;

inline Numbers numbers_of(const std::vector<Tensor>& tensors) {
  Numbers all;
  for (const Tensor& t : tensors) {
    const std::vector<double> each = astype(t, DType::f64).to_vector<double>();
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

/// A compile policy for a scope.
class PolicyGuard {
 public:
  explicit PolicyGuard(CompilePolicy policy) : saved_(set_compile_policy(policy)) {}
  ~PolicyGuard() { set_compile_policy(saved_); }
  PolicyGuard(const PolicyGuard&) = delete;
  PolicyGuard& operator=(const PolicyGuard&) = delete;

 private:
  CompilePolicy saved_;
};

/// Compiled functions run one call per op in a scope, where they can.
class CallsGuard {
 public:
  CallsGuard() { always_runs_calls = true; }
  ~CallsGuard() { always_runs_calls = false; }
  CallsGuard(const CallsGuard&) = delete;
  CallsGuard& operator=(const CallsGuard&) = delete;

 private:
  const PolicyGuard background_{CompilePolicy::background};
};

/// What the program gives in each way, by name.
inline std::vector<std::pair<std::string, Numbers>> in_every_way(const TestProgram& program) {
  std::vector<std::pair<std::string, Numbers>> results;
  const auto add = [&](std::string way, const std::function<Numbers()>& run) {
    results.emplace_back(std::move(way), run());
  };
  add("eager", [&] {
    const ModeGuard eager(Mode::eager);
    return numbers_of(program());
  });
  add("immediate", [&] {
    const PolicyGuard policy(CompilePolicy::immediate);
    return numbers_of(program());
  });
  add("never", [&] {
    const PolicyGuard policy(CompilePolicy::never);
    return numbers_of(program());
  });
  const PolicyGuard policy(CompilePolicy::second_sight);
  for (const char* sight : {"a sight", "another sight", "a third sight"})
    add(sight, [&] { return numbers_of(program()); });
  add("synced together", [&] {
    const std::vector<Tensor> tensors = program();
    sync(tensors);
    return numbers_of(tensors);
  });
  auto compiled = compile([&] { return program(); });
  for (const char* call : {"compile(fn)", "a replay", "another replay"})
    add(call, [&] { return numbers_of(compiled()); });
  const CallsGuard calls;
  auto called = compile([&] { return program(); });
  for (const char* call : {"compile(fn) by calls", "a replay by calls"})
    add(call, [&] { return numbers_of(called()); });
  return results;
}

}  // namespace fermata
