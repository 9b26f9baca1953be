// The kernels that a plan launches on a device, and their images: found by running the plan as on a device, without
// one, for many sizes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dispatch/device_compiler.h"
#include "frontend/export/samples.h"
#include "frontend/run/program_file.h"

namespace fermata {

/// What plans are compiled under for a device that may not be there. Adds what that wants compiled.
template <class F>
void with_stand_in(const DeviceCompiler& compiler, const ExportSamples& samples, DeviceSources& sources, F&& compile) {
  compiler.rehearse(0, !samples.symbols().empty(), sources, compile);
}

/// Adds all kernels that runs of a program may launch: for the sizes of the samples, and for the least and largest ones
/// where other kernels may be chosen.
void add_device_sources(const DeviceCompiler& compiler, const ExportSamples& samples, const ProgramFile& program,
                        DeviceSources& sources);

/// An image of a target, with the functions that it has.
struct DeviceImage {
  std::size_t target;
  std::vector<std::string> functions;
  std::string code;
};
/// Of all sources for all targets, compiled side by side. UnsupportedError FM2224 where the compiler makes none for a
/// target.
std::vector<DeviceImage> device_images(const DeviceCompiler& compiler, const DeviceSources& sources,
                                       const std::vector<std::string>& targets, Location where);

}  // namespace fermata
