// How many processors this process may keep busy.
#pragma once

#include <string>

namespace fermata {

/// Those of its affinity mask, but no more than its control groups have time for (a container that is limited to two
/// processors sees all of the machine's). At least 1.
int allowed_processors();

/// What control groups leave a process, in processors; infinite where they set no limit. The file is that of its groups
/// (/proc/self/cgroup), the folder where groups are mounted.
double processors_of_groups(const std::string& file, const std::string& folder);

}  // namespace fermata
