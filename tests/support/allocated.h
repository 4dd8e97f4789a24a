// tests/support/allocated.h: how often and for how much memory the program asks operator new, so that a test can say
// that a step or a header alone allocates nothing, and that loading needs little more than it keeps. allocated.cpp
// replaces the operators of the program that it is linked into.
//
// Threads:  any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foresay::test {

// Calls so far.
std::int64_t allocations();

// Bytes so far, those given back included.
std::size_t allocated_bytes();

template <class Action>
std::size_t bytes_allocated_by(Action action) {
    const std::size_t before = allocated_bytes();
    action();
    return allocated_bytes() - before;
}

// The most bytes that were in use at once while `action` ran, in addition to those in use before it.
std::size_t most_bytes_in_use();
void forget_most_bytes();
std::size_t bytes_in_use();
template <class Action>
std::size_t most_bytes_used_by(Action action) {
    const std::size_t before = bytes_in_use();
    forget_most_bytes();
    action();
    const std::size_t most = most_bytes_in_use();
    return most > before ? most - before : 0;
}

}  // namespace foresay::test
