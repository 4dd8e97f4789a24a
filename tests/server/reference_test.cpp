// docs/server-reference.md is what the table of fields says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "server/api/protocol.h"

namespace foresay::server {
namespace {

TEST(Reference, IsWhatTheTableOfFieldsSays) {
    const std::string path = FORESAY_SOURCE_DIR "/docs/server-reference.md";
    const std::string text = server_reference();
    if (std::getenv("FORESAY_RENEW_REFERENCE") != nullptr) std::ofstream(path, std::ios::binary) << text;
    std::ifstream file(path, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text)
        << "renew it: FORESAY_RENEW_REFERENCE=1 build/release/tests/server/calls_test --gtest_filter='Reference.*'";
}

void expect_sentences(const Shape& shape, const std::string& path) {
    visit_fields(shape, [&](const Field& field) {
        const std::string place = path + " " + std::string(field.name);
        EXPECT_TRUE(field.doc.ends_with('.')) << place << ": " << field.doc;
        if (field.shape != nullptr) expect_sentences(*field.shape, place);
    });
}

// Every field is described, and every path is.
TEST(Reference, NothingIsWithoutASentence) {
    for (const Route& route : all_routes()) {
        EXPECT_TRUE(route.doc.ends_with('.')) << route.path;
        if (route.body != nullptr) expect_sentences(*route.body, std::string(route.path));
    }
}

}  // namespace
}  // namespace foresay::server
