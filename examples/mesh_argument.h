// The arguments --mesh data=2,model=2 and --simulate of the examples that run on several processes.
#pragma once

#include <fermata/fermata.h>
#include <fermata/mesh.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

struct MeshArgument {
  std::vector<fermata::MeshAxis> axes;
  bool is_simulated = false;  // the processes are threads of this one
  int processes() const {
    std::int64_t n = 1;
    for (const fermata::MeshAxis& axis : axes) n *= axis.size;
    return static_cast<int>(n);
  }
};

/// Removes a flag from the arguments of a program; returns whether it was present.
inline bool take_flag(int& argc, char** argv, std::string_view flag) {
  char** const end = std::remove(argv + 1, argv + argc, flag);
  const bool found = end != argv + argc;
  argc = static_cast<int>(end - argv);
  return found;
}

/// Removes --mesh and --simulate from the arguments of a program. Without --mesh all processes are along "data".
inline MeshArgument take_mesh(int& argc, char** argv) {
  MeshArgument found;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--simulate") {
      found.is_simulated = true;
    } else if (argument == "--mesh" && i + 1 < argc) {
      std::string text = argv[++i];
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
        found.axes.push_back({text.substr(at, equals - at), std::atoll(text.c_str() + equals + 1)});
        at = end + 1;
      }
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  if (found.axes.empty()) found.axes = {{"data", fermata::distributed::world().size()}};
  return found;
}

/// Runs fn(mesh) on every process.
inline void on_mesh(const MeshArgument& argument, const std::function<void(const fermata::Mesh&)>& fn) {
  if (!argument.is_simulated) return fn(fermata::Mesh(argument.axes));
  const fermata::Mode mode = fermata::mode();
  fermata::distributed::simulate(argument.processes(), [&](int) {
    const fermata::ModeGuard same(mode);
    fn(fermata::Mesh(argument.axes));
  });
}

}  // namespace examples
