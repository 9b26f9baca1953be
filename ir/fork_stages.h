// The stages of a fork (ir/fork.h), called by the handlers in runtime/fork.cpp.
#pragma once

namespace fermata {

void before_fork();
void after_fork(bool in_child);

}  // namespace fermata
