// indent and budget: what may follow which text, computed by hand; and that programs are sound by Python's own
// tokenizer.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>

#include "plugins/host/plugin_host.h"
#include "samplers/chain.h"
#include "tests/plugins/support.h"

namespace foresay::plugins {
namespace {

// Texts in the order of their ids. The last ids are control tokens: the end of a text, <think> and </think>.
class Pieces : public samplers::Vocabulary {
public:
    explicit Pieces(std::vector<std::string> texts, bool controls = false)
        : texts_(std::move(texts)), controls_(controls) {}
    std::int32_t end() const { return static_cast<std::int32_t>(texts_.size()); }
    std::int32_t size() const override { return end() + 3; }
    std::string_view text(std::int32_t token) const override {
        return token < end() ? std::string_view(texts_[static_cast<std::size_t>(token)]) : std::string_view();
    }
    std::int32_t find(std::string_view text) const override {
        const auto at = std::find(texts_.begin(), texts_.end(), text);
        return at != texts_.end() ? static_cast<std::int32_t>(at - texts_.begin()) : -1;
    }
    bool ends_text(std::int32_t token) const override { return token == end(); }
    std::string_view control_text(std::int32_t token) const override {
        static constexpr std::string_view kNames[] = {"<end>", "<think>", "</think>"};
        return token == end() || (controls_ && token > end()) ? kNames[token - end()] : std::string_view();
    }
    std::int32_t find_control(std::string_view name) const override {
        for (std::int32_t id = end(); id < size(); ++id) {
            if (control_text(id) == name) return id;
        }
        return -1;
    }
    // The longest pieces, from the left.
    std::vector<std::int32_t> cut(std::string_view text) const {
        std::vector<std::int32_t> ids;
        for (std::size_t at = 0; at < text.size();) {
            std::int32_t best = -1;
            for (std::int32_t id = 0; id < end(); ++id) {
                const bool longer = best < 0 || this->text(id).size() > this->text(best).size();
                if (longer && text.substr(at).starts_with(this->text(id))) best = id;
            }
            EXPECT_GE(best, 0) << text.substr(at);
            ids.push_back(best);
            at += this->text(best).size();
        }
        return ids;
    }

private:
    std::vector<std::string> texts_;
    bool controls_;
};

samplers::ChainSpec only(const std::string& name, samplers::Parameters parameters) {
    return {{name, std::move(parameters), PluginHost({{FORESAY_PLUGIN_FOLDER}, {}}).load(name)}};
}

// Whether `token` may follow now: in a row where it alone stands out.
bool allows(samplers::Chain& chain, const Pieces& vocabulary, std::int32_t token) {
    std::vector<float> row(static_cast<std::size_t>(vocabulary.size()), 0.0f);
    row[static_cast<std::size_t>(token)] = 1000.0f;
    return chain.decide(row).token == token;
}

std::vector<std::string> bytes_and(std::vector<std::string> pieces) {
    for (int byte = 1; byte < 128; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    return pieces;
}

TEST(Indent, WhatMayFollow) {
    const Pieces vocabulary(bytes_and({"\n    ", "\n  x", "):\n", "\n        y", "\n\n\n"}));
    struct Case {
        const char* text;
        const char* next;  // null: the end
        bool allowed;
    };
    const Case cases[] = {
        // Indentation.
        {"x = 1\n", " ", false},
        {"x = 1\n", "y", true},
        {"if x:\n", "y", false},
        {"if x:\n", " ", true},
        {"if x:\n", "\n", true},
        {"if x:\n", "#", true},
        {"if x:\n", nullptr, false},
        {"if x:", nullptr, false},
        {"if x: # why", nullptr, false},
        {"if x: y", nullptr, true},
        {"if x: y\n", " ", false},
        {"if x:\n    y\n", "z", true},
        {"if x:\n    y\n  ", "z", false},
        {"if x:\n    y\n  ", " ", true},
        {"if x:\n    y\n    ", "z", true},
        {"if x:\n    y\n    ", " ", false},
        {"if x:\n    y", "\n  x", false},
        {"if x:\n    y", "\n        y", false},
        {"if x:\n    if y:", "\n        y", true},
        {"if x:\n    if y:\n        z\n", "):\n", false},
        {"if x:\n    y\n", "\t", false},
        {"if x:\n\ty\n", " ", false},
        {"if x:\n\ty\n", "\t", true},
        {"if x:\n    # y\n", "z", false},
        {"if x:\n    y\n\n\n", "z", true},
        {"x = [1,\n", " ", true},
        {"x = {1:\n", "2", true},
        {"x = 1 + \\\n", " ", true},
        {"x = 1 + \\\n", nullptr, false},
        {"x = 1\n", "\\", false},
        {"if x:\n    ", "\\", false},
        {"def f(x)", "\n    ", false},
        {"def f(x):", "\n    ", true},
        // Brackets.
        {"f(", ")", true},
        {"f(", "]", false},
        {"f", ")", false},
        {"f([{", "}", true},
        {"f([{", ")", false},
        {"f(", nullptr, false},
        {"f(", "):\n", true},
        {"f(x)", "):\n", false},
        {"f(')", ")", true},
        {"f # (", nullptr, true},
        {"f(x # )\n", ")", true},
        // Strings.
        {"'", "\n", false},
        {"'", nullptr, false},
        {"''", nullptr, true},
        {"'''", "\n", true},
        {"'''", nullptr, false},
        {"''''''", nullptr, true},
        {"'''it's\n", ")", true},
        {"'a\\'", "\n", false},
        {"'a\\", "\n", true},
        {"\"'\"", ")", false},
        {"x = ''", "\n    ", false},
        {"if '':", "\n    ", true},
        {"if x:\n    '''a\nb'''\n", "y", true},
        // A prompt that is wrong is taken as it is.
        {"  x\n", "y", true},
        {"f)\n", "y", true},
        {"'x\n", "y", true},
    };
    samplers::Chain chain(only("indent", {}), vocabulary);
    for (const Case& one : cases) {
        chain.begin(0, 0, vocabulary.cut(one.text));
        const std::int32_t next = one.next != nullptr ? vocabulary.find(one.next) : vocabulary.end();
        EXPECT_EQ(allows(chain, vocabulary, next), one.allowed)
            << one.text << " -> " << (one.next != nullptr ? one.next : "the end");
    }
}

TEST(Indent, ReadsOnlyThePythonOfAnAnswer) {
    const Pieces vocabulary(bytes_and({"```python\n"}));
    samplers::Chain chain(only("indent", {{"scope", std::string("fences")}}), vocabulary);
    const auto may = [&](const std::string& answer, const char* next) {
        std::vector<std::int32_t> tokens = vocabulary.cut("Write (a program:\n```python\nif x:\n");
        const std::vector<std::int32_t> more = vocabulary.cut(answer);
        tokens.insert(tokens.end(), more.begin(), more.end());
        chain.begin(0, 0, tokens, 0, more.size());
        return allows(chain, vocabulary, next != nullptr ? vocabulary.find(next) : vocabulary.end());
    };
    EXPECT_TRUE(may("It's ) so:\n", " "));
    EXPECT_TRUE(may("It's ) so:\n", nullptr));
    EXPECT_FALSE(may("So:\n```python\n", " "));
    EXPECT_FALSE(may("So:\n```python\nif x:\n", "y"));
    EXPECT_FALSE(may("So:\n```python\nif x:\n", "`"));
    EXPECT_TRUE(may("So:\n```python\nif x:\n  y\n", "`"));
    EXPECT_TRUE(may("So:\n```python\nif x:\n  y\n```\nAnd (\n", " "));
    EXPECT_TRUE(may("So:\n```c\nif (x)\n", " "));
    EXPECT_FALSE(may("```c\nif (x)\n```\n```python\nf", ")"));
}

// Random programs of pieces that Python's tokenizer reads.
TEST(Indent, ProgramsAreSoundForPython) {
    const Pieces vocabulary({"if x", "else",   ":",      "\n", "    ", "\t",   "(",       ")", "[",   "]",
                             "{",    "}",      "'",      "\"", "'''",  "\"\"", "# (it's", "x", "1",   " =",
                             "\\\n", "\n    ", ":\n   ", "  ", ",",    "])\n", "):",      " ", "\\'", "y\n"});
    samplers::Chain chain(only("indent", {}), vocabulary);
    std::string programs;
    int count = 0, deep = 0;
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
        std::mt19937 random(static_cast<std::uint32_t>(seed));
        std::string text;
        bool ended = false;
        chain.begin(seed, 0, {});
        for (int step = 0; step < 60 && !ended; ++step) {
            std::vector<float> row(static_cast<std::size_t>(vocabulary.size()));
            for (float& x : row) x = static_cast<float>(random() % 1000) * 0.01f;
            // No control tokens, and no backslash outside a string: that is another error.
            for (std::size_t id = static_cast<std::size_t>(vocabulary.end()); id < row.size(); ++id) row[id] = -100.0f;
            row[static_cast<std::size_t>(vocabulary.find("\\'"))] = -100.0f;
            if (step > 20) row[static_cast<std::size_t>(vocabulary.end())] = 50.0f;
            const samplers::Decision decision = chain.decide(row);
            ASSERT_EQ(decision.failure, nullptr) << decision.failure->message;
            ended = decision.token == vocabulary.end();
            if (ended) continue;
            text += vocabulary.text(decision.token);
            chain.accept(decision.token);
        }
        if (!ended) continue;
        ++count;
        deep += text.find("\n        ") != std::string::npos ? 1 : 0;
        programs += programs.empty() ? "[\"" : ",\"";
        for (const char byte : text) {
            if (byte == '\n' || byte == '\t') {
                programs += byte == '\n' ? "\\n" : "\\t";
            } else {
                programs += (byte == '"' || byte == '\\' ? "\\" : "") + std::string(1, byte);
            }
        }
        programs += '"';
    }
    programs += "]";
    EXPECT_GT(count, 100);
    EXPECT_GT(deep, 1);
    const OwnFolder folder;
    const std::filesystem::path file = folder.path() / "programs.json";
    write_file(file, programs);
    const std::string command =
        std::string("python3 '") + FORESAY_SOURCE_DIR + "/tests/plugins/python_blocks.py' '" + file.string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
}

// The texts that a chain writes from rows in which one piece is always the best.
std::string written(samplers::Chain& chain, const Pieces& vocabulary, std::string_view best, int tokens) {
    std::string text;
    for (int i = 0; i < tokens; ++i) {
        std::vector<float> row(static_cast<std::size_t>(vocabulary.size()), 0.0f);
        row[static_cast<std::size_t>(vocabulary.find(best))] = 9.0f;
        const samplers::Decision decision = chain.decide(row);
        EXPECT_EQ(decision.failure, nullptr);
        text += decision.token < vocabulary.end() ? vocabulary.text(decision.token)
                                                  : vocabulary.control_text(decision.token);
        chain.accept(decision.token);
    }
    return text;
}

TEST(Budget, EndsThinkingAfterItsTokens) {
    const Pieces texts(bytes_and({"so ", "</", "think>"})), controls(bytes_and({"so "}), true);
    const samplers::Parameters three = {{"tokens", std::int64_t{3}}};
    const auto stage = [](samplers::ChainSpec spec) {
        spec.push_back({"temperature", {{"value", 0.0}}});
        return spec;
    };
    for (const Pieces* vocabulary : {&texts, &controls}) {
        samplers::Chain chain(stage(only("budget", three)), *vocabulary);
        const bool control = vocabulary == &controls;
        std::vector<std::int32_t> open = vocabulary->cut("x ");
        const std::vector<std::int32_t> marker =
            control ? std::vector<std::int32_t>{vocabulary->find_control("<think>")} : vocabulary->cut("<think>");
        open.insert(open.end(), marker.begin(), marker.end());
        // The prompt has begun it.
        chain.begin(0, 0, open);
        EXPECT_EQ(written(chain, *vocabulary, "so ", 3), "so so so ");
        EXPECT_EQ(written(chain, *vocabulary, "so ", control ? 3 : 4), "</think>so so ");
        // The answer begins it, and again, with nothing left.
        chain.begin(0, 0, vocabulary->cut("x "));
        EXPECT_EQ(written(chain, *vocabulary, "so ", 5), "so so so so so ");
        for (const std::int32_t token : marker) chain.accept(token);
        EXPECT_EQ(written(chain, *vocabulary, "so ", control ? 5 : 6), "so so so </think>so ");
        for (const std::int32_t token : marker) chain.accept(token);
        EXPECT_EQ(written(chain, *vocabulary, "so ", control ? 2 : 3), "</think>so ");
        // Text that the answer is made to begin with counts.
        std::vector<std::int32_t> begun = open;
        begun.insert(begun.end(), 2, vocabulary->find("so "));
        chain.begin(0, 0, begun, 0, 2);
        EXPECT_EQ(written(chain, *vocabulary, "so ", control ? 3 : 4), "so </think>so ");
        // Thinking of the prompt that has ended, or goes on, is not the answer's.
        chain.begin(0, 0, begun);
        EXPECT_EQ(written(chain, *vocabulary, "so ", 3), "so so so ");
    }
}

TEST(Budget, WritesItsMessageFirst) {
    const Pieces vocabulary(bytes_and({"so ", "Done", "ne.", " en"}));
    samplers::Chain chain(only("budget", {{"tokens", std::int64_t{1}},
                                          {"begin", std::string("[")},
                                          {"end", std::string("]")},
                                          {"message", std::string("Done en")}}),
                          vocabulary);
    chain.begin(0, 0, vocabulary.cut("["));
    EXPECT_EQ(written(chain, vocabulary, "so ", 1), "so ");
    EXPECT_EQ(written(chain, vocabulary, "so ", 3), "Done en]");
    EXPECT_EQ(written(chain, vocabulary, "so ", 2), "so so ");
}

// Pieces with a tokenizer.
class CutPieces final : public Pieces {
public:
    using Pieces::Pieces;
    std::optional<std::vector<std::int32_t>> tokens(std::string_view text) const override { return cut(text); }
};

TEST(Budget, ForcesWhatItWrites) {
    const CutPieces vocabulary(bytes_and({"so ", "Done", "ne.", " en"}));
    samplers::Chain chain(only("budget", {{"tokens", std::int64_t{1}},
                                          {"begin", std::string("[")},
                                          {"end", std::string("]")},
                                          {"message", std::string("Done en")}}),
                          vocabulary);
    EXPECT_TRUE(chain.forces());
    const auto forced = [&] {
        samplers::DraftChain draft;
        draft.start(chain);
        std::vector<std::int32_t> tokens;
        draft.forced(tokens);
        std::string text;
        for (const std::int32_t token : tokens) text += vocabulary.text(token);
        return text;
    };
    chain.begin(0, 0, vocabulary.cut("["));
    EXPECT_EQ(forced(), "") << "a token is left";
    EXPECT_EQ(written(chain, vocabulary, "so ", 1), "so ");
    EXPECT_EQ(forced(), "Done en");
    EXPECT_EQ(written(chain, vocabulary, "so ", 1), "Done");
    EXPECT_EQ(forced(), " en");
    EXPECT_EQ(written(chain, vocabulary, "so ", 1), " en");
    EXPECT_EQ(forced(), "]");
    EXPECT_EQ(written(chain, vocabulary, "so ", 1), "]");
    EXPECT_EQ(forced(), "") << "it is over";
}

TEST(Budget, OptionsAreChecked) {
    const Pieces vocabulary({"a", "b", "<", "think", ">"});
    const auto message = [&](samplers::Parameters parameters) {
        return error_of([&] { samplers::Chain chain(only("budget", std::move(parameters)), vocabulary); });
    };
    EXPECT_EQ(message({}), "budget: the model has no tokens for 'end'");
    EXPECT_EQ(message({{"end", std::string()}}), "budget: 'end' is empty");
    EXPECT_EQ(message({{"end", std::string("b")}, {"message", std::string("ab>c")}}),
              "budget: the model has no tokens for 'message'");
    EXPECT_EQ(message({{"end", std::string("b")}, {"begin", std::string(2000, 'a')}}),
              "budget: 'begin' holds more than 1000 bytes");
    EXPECT_EQ(message({{"end", std::string("b")}, {"tokens", std::int64_t{-1}}}),
              "budget.tokens is -1; it must be at least 0");
    EXPECT_EQ(message({{"end", std::string("b")}}), "no error");
}

}  // namespace
}  // namespace foresay::plugins
