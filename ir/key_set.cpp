// See key_set.h. Capture is on from the start: code is lazy unless a thread says otherwise.
#include "ir/key_set.h"

namespace fermata {

constinit thread_local ThreadKeys thread_keys{kDefaultKeys, {}};

}  // namespace fermata
