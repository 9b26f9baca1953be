// See device_code.h.
#include "frontend/export/device_code.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/run/record_table.h"
#include "frontend/run/shipped_function.h"
#include "ir/error.h"
#include "runtime/backend_memory.h"
#include "runtime/bound_plan.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Sizes from which kernels go other ways: rows and lanes that are short, blocks of scans, devices that are filled.
constexpr std::int64_t kTurns[] = {1, 2, 33, 513, 5000};
/// Sources in an image: more compile faster together, and fewer are translated together where an image is PTX.
constexpr std::size_t kTogether = 8;

std::int64_t in_range(const ProgramSymbol& s, std::int64_t size) {
  const std::int64_t least = (s.least + s.multiple_of - 1) / s.multiple_of, most = s.most / s.multiple_of;
  return std::clamp((size + s.multiple_of - 1) / s.multiple_of, least, std::max(least, most)) * s.multiple_of;
}

std::vector<std::vector<std::int64_t>> sizes_to_try(const ExportSamples& samples) {
  std::vector<std::vector<std::int64_t>> all = samples.sizes();
  const std::vector<std::int64_t> first = all[0];
  const std::vector<ProgramSymbol>& symbols = samples.symbols();
  if (symbols.empty()) return all;
  for (const std::int64_t size : kTurns) {
    std::vector<std::int64_t> together;
    for (std::size_t s = 0; s < symbols.size(); ++s) {
      together.push_back(in_range(symbols[s], size));
      all.push_back(first);
      all.back()[s] = together.back();
    }
    all.push_back(std::move(together));
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

class DryRunner {
 public:
  explicit DryRunner(const ProgramFile& program) : program_(program), records_(program, program, kName) {}

  void run(const std::vector<std::int64_t>& symbols) {
    records_.set(symbols);
    BoundPlan bound;
    bound.bind(*program_.plan, records_.nodes());
    std::vector<StoragePtr> held;
    std::vector<LeafBuffer> leaves;
    std::vector<void*> outputs;
    for (const std::uint32_t record : program_.plan->leaf_records)
      leaves.push_back({buffer(records_.nodes()[record]->type(), held)});
    for (const std::uint32_t record : program_.plan->output_records)
      outputs.push_back(buffer(records_.nodes()[record]->type(), held));
    bound.run(*program_.plan, leaves, outputs);
    for (const ShippedFunction* const f : records_.functions()) run(*f);
  }

 private:
  /// Branches that conditions have not taken, and bodies of loops of no steps.
  void run(const ShippedFunction& f) {
    std::vector<StoragePtr> held;
    std::vector<TensorView> arguments;
    std::vector<Shape> strides;
    std::vector<void*> results;
    strides.reserve(f.arguments().size());
    for (const TensorType& t : f.arguments()) {
      strides.push_back(dense_strides(t.shape));
      arguments.push_back(
          {buffer(t, held), t.dtype, static_cast<std::uint8_t>(t.shape.rank()), t.shape.data(), strides.back().data()});
    }
    for (const TensorType& t : f.results()) results.push_back(buffer(t, held));
    f.run(arguments, results, 0);
    for (const ShippedFunction* const inner : f.functions()) run(*inner);
  }
  void* buffer(const TensorType& type, std::vector<StoragePtr>& held) const {
    const auto bytes = static_cast<std::size_t>(element_count(type.shape)) * byte_size(type.dtype);
    held.emplace_back(allocate_on(program_.plan->backend, std::max<std::size_t>(bytes, 1)));
    return held.back()->data;
  }

  static inline const std::string& kName = *new std::string("an exported program");
  const ProgramFile& program_;
  RecordTable records_;
};

}  // namespace

void add_device_sources(const DeviceCompiler& compiler, const ExportSamples& samples, const ProgramFile& program,
                        DeviceSources& sources) {
  DryRunner runner(program);
  const auto tries = sizes_to_try(samples);
  for (int kind = 0; kind < compiler.kinds(); ++kind)
    compiler.rehearse(kind, !samples.symbols().empty(), sources, [&] {
      for (const std::vector<std::int64_t>& sizes : tries) {
        try {
          runner.run(sizes);
        } catch (const Error& error) {
          if (error.code() >= 9000) throw;
        }  // the function does not take such sizes
      }
    });
}

std::vector<DeviceImage> device_images(const DeviceCompiler& compiler, const DeviceSources& sources,
                                       const std::vector<std::string>& targets, Location where) {
  using Source = std::pair<std::string, DeviceSource>;
  std::vector<Source> sorted(sources.begin(), sources.end());
  std::ranges::stable_sort(sorted, {}, [](const Source& s) { return s.second.effort; });
  std::vector<std::pair<std::size_t, std::span<const Source>>> parts;
  for (std::size_t t = 0; t < targets.size(); ++t)
    for (std::size_t at = 0; at < sorted.size();) {
      std::size_t end = at + 1;
      while (end < sorted.size() && end - at < kTogether && sorted[end].second.effort == sorted[at].second.effort)
        ++end;
      parts.emplace_back(t, std::span(sorted).subspan(at, end - at));
      at = end;
    }
  std::vector<DeviceImage> images(parts.size());
  constexpr double kNanoseconds = 1e8;
  parallel_for(0, std::ssize(parts), kNanoseconds, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const auto& [target, part] = parts[i];
      images[i] = {target, {}, compiler.compile(part, targets[target])};
      for (const Source& s : part) images[i].functions.push_back(s.first);
    }
  });
  for (const DeviceImage& image : images)
    if (image.code.empty())
      throw UnsupportedError(2224, format_error(2224, "UnsupportedError",
                                                fmt::format("export_program: {} does not support {}", compiler.name(),
                                                            targets[image.target]),
                                                {}, where));
  return images;
}

}  // namespace fermata
