// Which processor this is: what was measured on one holds for all of its model that are used in the same way.
#pragma once

#include <string>
#include <string_view>

namespace fermata {

/// The same text on every processor of a model with the same features, under the same FERMATA_CPU.
std::string processor_model();

/// Whether FERMATA_CPU lets code use the instructions of "avx2", "avx512" or "amx": they are at or below the set that
/// it names. All may be used where it names none.
bool permits_instructions(std::string_view set);

}  // namespace fermata
