// Has the system tell of every fork of this process.
#include <pthread.h>

#include "ir/fork_stages.h"

namespace fermata {
namespace {

[[maybe_unused]] const int is_told =
    pthread_atfork([] { before_fork(); }, [] { after_fork(false); }, [] { after_fork(true); });

}  // namespace
}  // namespace fermata
