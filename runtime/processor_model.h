// Which processor this is: what was measured on one holds for all of its model that are used in the same way.
#pragma once

#include <string>

namespace fermata {

/// The same text on every processor of a model with the same features, under the same FERMATA_CPU.
std::string processor_model();

}  // namespace fermata
