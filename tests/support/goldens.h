// tests/support/goldens.h: further goldens, which are too large for the repository: tiny models of many families and
// vectors of tokenizers. FORESAY_GOLDENS names their folder; `tests/golden` holds those that every machine has.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace foresay::test {

// Empty when FORESAY_GOLDENS is not set, or names no folder.
inline std::filesystem::path goldens_folder() {
    const char* folder = std::getenv("FORESAY_GOLDENS");
    std::error_code error;
    if (folder == nullptr || !std::filesystem::is_directory(folder, error)) return {};
    return folder;
}

}  // namespace foresay::test

// First in a test that reads them. ./run test counts the tests that were skipped for this reason.
#define FORESAY_SKIP_WITHOUT_GOLDENS() \
    if (foresay::test::goldens_folder().empty()) GTEST_SKIP() << "FORESAY_GOLDENS names no folder"
