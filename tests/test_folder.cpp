// See test_folder.h.
#include "tests/test_folder.h"

namespace fermata {

std::string test_folder() { return FERMATA_TEST_DIR; }

}  // namespace fermata
