// The stages of a fork (ir/fork.h), for whoever is told of one by the system: runtime/fork.cpp.
#pragma once

namespace fermata {

void before_fork();
void after_fork(bool in_child);

}  // namespace fermata
