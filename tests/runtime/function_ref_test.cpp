// What can be passed as a FunctionRef: objects that are called, functions, their addresses.
#include "runtime/function_ref.h"

#include <gtest/gtest.h>

namespace fermata {
namespace {

int twice(int x) { return 2 * x; }
template <class T> T thrice(T x) { return 3 * x; }
int of_four(FunctionRef<int(int)> function) { return function(4); }

TEST(FunctionRef, CallsFunctionsByNameAndByAddress) {
  EXPECT_EQ(of_four(twice), 8);
  EXPECT_EQ(of_four(&twice), 8);
  EXPECT_EQ(of_four(thrice<int>), 12);
}

TEST(FunctionRef, CallsTheObjectItselfNotACopy) {
  int calls = 0;
  auto counted = [&calls, own = 0](int x) mutable {
    calls = ++own;
    return x;
  };
  const FunctionRef<int(int)> reference = counted;
  EXPECT_EQ(reference(1) + of_four(counted) + of_four(reference), 9);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace fermata
