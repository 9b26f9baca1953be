// Tests of runtime/node_visits: a node that was noted is found until it is forgotten, whatever else was noted.
#include "runtime/node_visits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace fermata {
namespace {

/// Only addresses count; nothing is read there.
const Node* node_at(std::uintptr_t address) { return reinterpret_cast<const Node*>(address); }

TEST(NodeVisits, WhatWasNotedIsFound) {
  NodeVisits visits;
  EXPECT_FALSE(visits.may_have(node_at(1 << 20)));
  constexpr std::uintptr_t kBegin = 1 << 20, kEnd = 1 << 23, kStep = 4096;
  for (std::uintptr_t at = kBegin; at < kEnd; at += kStep) {
    visits.note(node_at(at));
    EXPECT_TRUE(visits.may_have(node_at(at)));
  }
  for (std::uintptr_t at = kBegin; at < kEnd; at += kStep) EXPECT_TRUE(visits.may_have(node_at(at)));
}

TEST(NodeVisits, MostOtherPlacesAreNotFound) {
  NodeVisits visits;
  for (std::uintptr_t i = 0; i < 16; ++i) visits.note(node_at((1 << 30) + i * sizeof(Node)));
  int found = 0;
  for (std::uintptr_t i = 1; i <= 512; ++i) found += visits.may_have(node_at((1 << 30) + i * (1 << 15)));
  EXPECT_LE(found, 16);
}

TEST(NodeVisits, FewAreKeptAndManyForgotten) {
  NodeVisits visits;
  visits.note(node_at(1 << 20));
  visits.forget_if_many();
  EXPECT_TRUE(visits.may_have(node_at(1 << 20)));
  visits.note_all();
  EXPECT_TRUE(visits.may_have(node_at(7 << 20)));
  visits.forget_if_many();
  EXPECT_FALSE(visits.may_have(node_at(1 << 20)));
  visits.note(node_at(1 << 20));  // it was the last one before, too
  EXPECT_TRUE(visits.may_have(node_at(1 << 20)));
}

TEST(NodeVisits, AnotherThreadSeesAVisitOrTheThreadSeesWhatWasWritten) {
  for (int round = 0; round < 2000; ++round) {
    NodeVisits visits;
    std::atomic<int> published{0}, ready{0};
    bool sees_visit = false, sees_published = false;
    std::thread other([&] {
      ++ready;
      while (ready != 2) std::this_thread::yield();
      published = 1;
      sees_visit = visits.may_have(node_at(1 << 20));
    });
    ++ready;
    while (ready != 2) std::this_thread::yield();
    visits.note(node_at(1 << 20));
    sees_published = published != 0;
    other.join();
    EXPECT_TRUE(sees_visit || sees_published);
  }
}

}  // namespace
}  // namespace fermata
