// CONTRIBUTING.md says how many files name one thing of each kind, for example one quantisation type or one subcommand:
// that many are touched to add another. This test counts them. When a count falls, lower the number there and here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

#include "tests/house/tree.h"

namespace foresay::house {
namespace {

using ::testing::ElementsAre;

struct Kind {
    std::string row;       // the first cell of its row in CONTRIBUTING.md
    std::string example;   // what stands in the row's last cell, before the number
    std::string pattern;   // of lower case; a file that contains it, in any case, knows the example
    std::size_t most = 0;  // the fewest files so far: raise it only with a reason, which stands beside it
};

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> table = {
        {"a model architecture", "qwen2", R"(qwen2(?!\.))", 5},  // qwen2.5-coder-7b is a shape
        {"a quantisation type", "q5_k", R"(\bq5_k\b)", 19},
        {"a type of GGUF files without kernels of its own", "iq3_s", R"(\biq3_s\b)", 2},
        {"a format of quantised safetensors", "gptq_format", R"(\bgptq_format\b)", 3},
        {"a type of keys or values in the KV cache", "KvQ6", R"(\bkvq6\b|enum class kvtype)", 3},
        {"an op", "mlp_out", R"(\bmlp_?out)", 47},  // the last one: forwards over hosts note it
        {"a built-in sampler", "min_p", R"(\bmin_?p\b)", 8},
        {"a sampler plugin", "wordlist", R"(\bwordlist)", 7},
        {"a drafter", "ngram", R"((suffix|ngram)_?drafter|"ngram")", 5},
        {"a config key", "chat.keep_sessions", R"(keep_?sessions)", 4},
        {"an option", "--simple-io", R"(simple[-_]?io)", 5},
        {"a subcommand", "tokenize", R"((<|class )tokenize\b)", 2},
        {"a command of the conversation loop", "/view", R"(/view\b|\{"view")", 1},
        {"a third-party library", "pcre2", R"(pcre2)", 6},
    };
    return table;
}

// Sources, build files and scripts; tests, examples, documents and configurations are not counted.
std::vector<std::string> files_that_know(const std::string& pattern, const std::vector<File>& files) {
    const std::regex wanted(pattern, std::regex::optimize);
    std::vector<std::string> known;
    for (const File& file : files) {
        const bool counted = is_source(file.path) || file.path.ends_with("CMakeLists.txt") ||
                             file.path.ends_with(".cmake") || file.path == "run";
        if (!counted || file.path.starts_with("tests/") || file.path.starts_with("examples/")) continue;
        std::istringstream stream(file.text);
        for (std::string line; std::getline(stream, line);) {
            std::transform(line.begin(), line.end(), line.begin(), [](unsigned char c) { return std::tolower(c); });
            if (!std::regex_search(line, wanted)) continue;
            known.push_back(file.path);
            break;
        }
    }
    return known;
}

// The last cell of the table's row, without the blanks around it; empty when there is no such row.
std::string last_cell(const std::string& page, const std::string& row) {
    std::istringstream stream(page);
    for (std::string line; std::getline(stream, line);) {
        if (!line.starts_with("| " + row + " |") || !line.ends_with(" |")) continue;
        const std::size_t bar = line.rfind('|', line.size() - 2);
        return line.substr(bar + 2, line.size() - bar - 4);
    }
    return "";
}

std::string text_of(const std::string& path) {
    for (const File& file : project_files()) {
        if (file.path == path) return file.text;
    }
    return "";
}

TEST(Touches, AreAsContributingSays) {
    const std::string page = text_of("CONTRIBUTING.md");
    for (const Kind& kind : kinds()) {
        const std::vector<std::string> files = files_that_know(kind.pattern, project_files());
        std::string list;
        for (const std::string& file : files) list += "\n    " + file;
        EXPECT_EQ(last_cell(page, kind.row), "`" + kind.example + "`: " + std::to_string(files.size()))
            << "the row \"" << kind.row << "\" of CONTRIBUTING.md. More files: find a way with fewer. Fewer: lower it. "
            << "These know " << kind.example << ':' << list;
        EXPECT_EQ(files.size(), kind.most) << kind.example << ": more files know it than ever, or it is time to lower "
                                           << "the number in this test:" << list;
    }
}

TEST(TouchesRules, CountFilesOnceAndLeaveTestsOut) {
    const std::vector<File> files = {{"core/a.cpp", "Q5_K and q5_k"}, {"core/b.cpp", "q5_k_m"},
                                     {"tests/a.cpp", "q5_k"},         {"README.md", "q5_k"},
                                     {"core/CMakeLists.txt", "q5_k"}, {"configs/a.toml", "q5_k"}};
    EXPECT_THAT(files_that_know(kinds()[1].pattern, files), ElementsAre("core/a.cpp", "core/CMakeLists.txt"));
    EXPECT_EQ(files_that_know(kinds()[0].pattern, {{"core/a.cpp", "qwen2.5-coder"}}).size(), 0u);
    EXPECT_EQ(files_that_know(kinds()[0].pattern, {{"core/a.cpp", "kQwen2 = 1"}}).size(), 1u);
}

TEST(TouchesRules, ReadTheLastCellOfARow) {
    EXPECT_EQ(last_cell("| an op | a | b |\n| an | c |\n", "an op"), "b");
    EXPECT_EQ(last_cell("| an op | a | b |\n", "op"), "");
}

}  // namespace
}  // namespace foresay::house
