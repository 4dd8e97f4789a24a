// The rules of the house (CONTRIBUTING.md), kept by a test. Each rule is also shown a file that breaks it.
#include <gtest/gtest.h>

#include <string>

#include "tests/house/tree.h"

namespace foresay::house {
namespace {

template <typename Filter>
void expect_kept(Complaints (*rule)(const File&), Filter applies) {
    int files = 0;
    for (const File& file : project_files()) {
        if (!applies(file.path)) continue;
        ++files;
        for (const std::string& complaint : rule(file)) ADD_FAILURE() << complaint;
    }
    EXPECT_GT(files, 0) << "the rule saw no file";
}

bool is_document(const std::string& path) { return path.ends_with(".md"); }
bool is_anything(const std::string&) { return true; }

TEST(House, IncludesFollowTheDag) { expect_kept(check_rooms, is_source); }
TEST(House, IncludesFollowTheDagThroughOtherHeaders) {
    for (const std::string& complaint : check_reach(project_files())) ADD_FAILURE() << complaint;
}
TEST(House, ThirdPartyHeadersStayInTheirRooms) { expect_kept(check_third_party, is_source); }
TEST(House, PrivateHeadersStayPrivate) { expect_kept(check_private_headers, is_header); }
TEST(House, HeadersOpenWithTheirPurpose) { expect_kept(check_header_opening, is_header); }
TEST(House, FilesAreShort) { expect_kept(check_length, is_anything); }
TEST(House, NoMachinesAndNoNotesForLater) { expect_kept(check_words, is_anything); }
TEST(House, LinksLeadSomewhere) { expect_kept(check_links, is_document); }

TEST(HouseRules, FindAnIncludeAgainstTheDag) {
    EXPECT_EQ(check_rooms({"kernels/a.h", "#include \"core/models/model.h\"\n"}).size(), 1u);
    EXPECT_EQ(check_rooms({"samplers/a.h", "#include \"kernels/ops.h\"\n"}).size(), 1u);
    EXPECT_EQ(check_rooms({"samplers/a.h", "#include \"kernels/sampling.h\"\n"}).size(), 0u);
    EXPECT_EQ(check_rooms({"core/a.cpp", "  #  include \"speculative/drafter.h\"\n"}).size(), 1u);
    EXPECT_EQ(check_rooms({"core/a.cpp", "#include \"kernels/ops.h\"\n#include <vector>\n"}).size(), 0u);
    EXPECT_EQ(check_rooms({"plugins/wordlist/a.cpp", "#include \"plugins/host/loader.h\"\n"}).size(), 1u);
    EXPECT_EQ(check_rooms({"plugins/wordlist/a.cpp", "#include \"words.h\"\n"}).size(), 0u);
    EXPECT_EQ(check_rooms({"hub/a.cpp", "#include \"core/weights/gguf.h\"\n"}).size(), 1u);
    EXPECT_EQ(check_rooms({"engine/a.cpp", "#include \"hub/pull.h\"\n"}).size(), 1u);
    EXPECT_EQ(check_rooms({"app/a.cpp", "#include \"hub/pull.h\"\n#include \"base/error.h\"\n"}).size(), 0u);
    EXPECT_EQ(check_rooms({"attic/a.cpp", "\n"}).size(), 1u);
}

TEST(HouseRules, FindAHeaderThatIsSeenThroughOthers) {
    const std::vector<File> files = {
        {"samplers/a.cpp", "#include \"samplers/a.h\"\n"},
        {"samplers/a.h", "\n#include \"kernels/sampling.h\"\n"},
        {"samplers/b.h", "#include \"kernels/sampling.h\"\n"},
        {"kernels/sampling.h", "#include \"kernels/math.h\"\n#include \"kernels/ops.h\"\n"},
        {"kernels/math.h", "#include \"kernels/sampling.h\"\n"},
        {"kernels/ops.h", "#include \"kernels/quant_type.h\"\n"},
        {"kernels/quant_type.h", ""},
    };
    const Complaints complaints = check_reach(files);
    ASSERT_EQ(complaints.size(), 1u);
    EXPECT_EQ(complaints[0],
              "samplers sees kernels/ops.h through kernels/sampling.h: "
              "samplers/a.h:2 -> kernels/sampling.h:2 -> kernels/ops.h (and from 2 more files)");
    EXPECT_EQ(check_reach({files.begin(), files.begin() + 3}).size(), 0u);
    // kernels/math.h is for samplers, and so for those who see samplers.
    EXPECT_EQ(check_reach({{"plugins/host/a.cpp", "#include \"samplers/a.h\"\n"},
                           {"samplers/a.h", "#include \"kernels/math.h\"\n"},
                           {"kernels/math.h", ""}})
                  .size(),
              0u);
}

TEST(HouseRules, FindAThirdPartyHeaderOutOfPlace) {
    EXPECT_EQ(check_third_party({"core/config/a.h", "#include <toml++/toml.h>\n"}).size(), 1u);
    EXPECT_EQ(check_third_party({"core/config/a.cpp", "#include <toml++/toml.h>\n"}).size(), 0u);
    EXPECT_EQ(check_third_party({"core/text/a.cpp", "#include <toml++/toml.h>\n"}).size(), 1u);
    EXPECT_EQ(check_third_party({"core/config/a.h", "//\n// Private to a.cpp.\n#include <toml++/toml.h>\n"}).size(),
              0u);
    EXPECT_EQ(check_private_headers({"base/error.h", "//\n// Private to a.cpp.\n"}).empty(), false);
    EXPECT_EQ(check_third_party({"kernels/a.cpp", "#include <spdlog/spdlog.h>\n"}).size(), 1u);
    EXPECT_EQ(check_third_party({"hub/a.cpp", "#include <curl/curl.h>\n"}).size(), 1u) << "opened at run time";
}

TEST(HouseRules, FindAHeaderWithoutPurposeOrGuard) {
    EXPECT_EQ(check_header_opening({"core/a.h", "#pragma once\n"}).size(), 1u);
    EXPECT_EQ(check_header_opening({"core/a.h", "// core/b.h: another.\n#pragma once\n"}).size(), 1u);
    EXPECT_EQ(check_header_opening({"core/a.h", "// core/a.h: purpose.\n"}).size(), 1u);
    EXPECT_EQ(check_header_opening({"core/a.h", "// core/a.h: purpose.\n#pragma once\n"}).size(), 0u);
}

TEST(HouseRules, FindALongFileAMachineAndADeadLink) {
    EXPECT_EQ(check_length({"core/a.cpp", std::string(801, '\n')}).size(), 1u);
    EXPECT_EQ(check_length({"docs/decisions/001-a.md", std::string(33, '\n')}).size(), 1u);
    EXPECT_EQ(check_length({"docs/decisions/001-a.md", std::string(32, '\n')}).size(), 0u);
    EXPECT_EQ(check_length({"core/a.cpp", "// generated from b\n" + std::string(801, '\n')}).size(), 0u);
    EXPECT_EQ(check_words({"core/a.cpp",
                           "\nopen(\"/ho"
                           "me/ann/model.gguf\")\n"})
                  .size(),
              1u);
    EXPECT_EQ(check_words({"core/a.cpp",
                           "// TO"
                           "DO: more\n"})
                  .size(),
              1u);
    EXPECT_EQ(check_links({"README.md", "[a](no/such/file.md) [b](https://example.org/) [c](run)\n"}).size(), 1u);
    EXPECT_EQ(check_links({"README.md", "[a](#here) [b](#the-q4_k-way)\n```\n# here\n```\n## The `Q4_K` way\n"}),
              Complaints{"README.md: no heading #here"});
    EXPECT_EQ(check_links({"docs/a.md", "[a](performance.md#decoding) [b](performance.md#no-such)\n"}),
              Complaints{"docs/a.md: no heading #no-such in performance.md"});
}

}  // namespace
}  // namespace foresay::house
