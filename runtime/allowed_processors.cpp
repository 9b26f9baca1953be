// See allowed_processors.h. The limits of control groups are described in the Linux kernel's documentation,
// admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (cpu.cfs_quota_us); either version may be in use.
#include "runtime/allowed_processors.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <thread>

namespace fermata {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// Of a folder of version 2: "max 100000", or how many microseconds of so many.
double limit_of_version_2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}
/// Of version 1: -1 is no limit.
double limit_of_version_1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}

/// The least of a group and those that it is in. Inside of a container the root may be its own group.
double least_limit(double (*limit_of)(const std::string&), const std::string& root, std::string path) {
  double least = limit_of(root);
  for (; path.size() > 1; path.resize(path.rfind('/'))) least = std::min(least, limit_of(root + path));
  return least;
}

}  // namespace

double processors_of_groups(const std::string& file, const std::string& folder) {
  double least = kNoLimit;
  std::ifstream groups(file);
  for (std::string line; std::getline(groups, line);) {  // "number:controllers:path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      least = std::min(least, least_limit(&limit_of_version_2, folder, path));
    else if (controllers == "cpu" || controllers.starts_with("cpu,") || controllers.ends_with(",cpu"))
      least = std::min(least, least_limit(&limit_of_version_1, folder + "/cpu", path));
  }
  return least;
}

int allowed_processors() {
  static const double of_groups = processors_of_groups("/proc/self/cgroup", "/sys/fs/cgroup");
  const double of_mask = std::max(1u, std::thread::hardware_concurrency());  // respects the affinity mask
  return static_cast<int>(std::max(1.0, std::min(of_mask, std::ceil(of_groups))));
}

}  // namespace fermata
