// What a process has used, for workers that are compared with other engines.
#pragma once

#include <time.h>

#include <cstdlib>
#include <fstream>
#include <string>

/// Of all threads of this process since it began, in ms: what else the machine does counts less than in the time of a
/// clock on the wall.
inline double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}
/// The most memory that was resident, in MiB. What getrusage() says counts the process that started this one.
inline double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  return 0;
}
