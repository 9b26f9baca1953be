// `fermata cache`: the size of the machine code cache on disk from process to process.
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "frontend/cli/commands.h"
#include "frontend/cli/program_file.h"
#include "frontend/cli/progress.h"
#include "passes/pipeline.h"
#include "runtime/disk_cache.h"

namespace fermata::cli {
namespace {

std::string size_of(std::uint64_t bytes) {
  return bytes < 10'000       ? fmt::format("{} bytes", bytes)
         : bytes < 10'000'000 ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 0x1p10)
                              : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20);
}

std::string age_of(std::int64_t seconds) {
  constexpr std::int64_t kHour = 3600, kDay = 24 * kHour;
  return seconds < 2 * kHour  ? "now"
         : seconds < 2 * kDay ? fmt::format("{} hours", seconds / kHour)
                              : fmt::format("{} days", seconds / kDay);
}

/// The folder; if there is none, empty, after printing a line.
bool has_folder() {
  if (!DiskCache::instance().directory().empty()) return true;
  fmt::print("The disk cache is off: FERMATA_CACHE_DIR is empty, or there is no home folder.\n");
  return false;
}

void list() {
  if (!has_folder()) return;
  for (const DiskCache::Entry& e : DiskCache::instance().entries())
    fmt::print("{:<40} {:>12} {:>10}  {}\n", e.file, size_of(e.bytes), age_of(e.unused.count()), e.label);
}

void size() {
  if (!has_folder()) return;
  std::uint64_t bytes = 0;
  const auto entries = DiskCache::instance().entries();
  for (const DiskCache::Entry& e : entries) bytes += e.bytes;
  fmt::print("{} kernels, {}, in {}\n", entries.size(), size_of(bytes), DiskCache::instance().directory());
}

void clear() {
  if (!has_folder()) return;
  const std::size_t removed = DiskCache::instance().clear();
  fmt::print("{} files removed from {}\n", removed, DiskCache::instance().directory());
}

/// Compiles programs as a first sync would; kernels that are there already are left as they are.
void warm(const std::vector<std::string>& files) {
  if (!has_folder()) return;
  Progress progress("warming the cache", files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string& file = files[i];
    progress.step(i, file);
    const std::uint64_t before = DiskCache::instance().counts().stores;
    const std::size_t steps = step_count(read_program(file), BackendKey::cpu);
    fmt::print("{}: steps {}, new kernels {}\n", file, steps, DiskCache::instance().counts().stores - before);
  }
}

}  // namespace

void add_cache(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("cache", "Show, fill or clear the disk cache of machine code");
  command->require_subcommand(1);
  command
      ->add_subcommand("list",
                       "List every kernel, most recently used first: file, size, time since last use, description")
      ->callback(list);
  command->add_subcommand("size", "Show the number of kernels and their size")->callback(size);
  command->add_subcommand("clear", "Remove all kernels")->callback(clear);
  CLI::App* const warming =
      command->add_subcommand("warm", "Compile programs ahead of time, so that later syncs load their kernels");
  const auto files = std::make_shared<std::vector<std::string>>();
  warming->add_option("file", *files, "Programs in the format of dump_ir()")->required();
  warming->callback([files] { warm(*files); });
}

}  // namespace fermata::cli
