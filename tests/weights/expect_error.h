// tests/weights/expect_error.h: expects an Error whose sentence contains a text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace foresay::core::testing {

template <class Action>
void expect_error(Action action, const std::string& part) {
    try {
        action();
        ADD_FAILURE() << "no error; expected one with: " << part;
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
    }
}

}  // namespace foresay::core::testing
