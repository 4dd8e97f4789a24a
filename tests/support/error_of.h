// tests/support/error_of.h: what a call says when it fails.
#pragma once

#include <string>

#include "base/error.h"

namespace foresay::test {

// The message of the Error that `call` throws.
template <class Call>
std::string error_of(Call&& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace foresay::test
