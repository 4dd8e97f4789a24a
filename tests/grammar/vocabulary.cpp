#include "tests/grammar/vocabulary.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace foresay::grammar {

std::shared_ptr<const Vocabulary> make_vocabulary(const std::vector<std::string>& texts) {
    std::vector<TokenText> tokens;
    for (int b = 0; b < 256; ++b) tokens.push_back({TokenText::Kind::text, std::string(1, static_cast<char>(b))});
    for (const std::string& text : texts) tokens.push_back({TokenText::Kind::text, text});
    tokens.push_back({TokenText::Kind::text, "a"});
    tokens.push_back({TokenText::Kind::unused, "b"});
    tokens.push_back({TokenText::Kind::text, ""});
    tokens.push_back({TokenText::Kind::text, std::string(300, 'x')});
    tokens.push_back({TokenText::Kind::special, "<|tool|>"});
    tokens.push_back({TokenText::Kind::end, "<|end|>"});
    return std::make_shared<const Vocabulary>(static_cast<std::int32_t>(tokens.size()),
                                              [&](std::int32_t id) { return tokens[static_cast<std::size_t>(id)]; });
}

std::shared_ptr<const Vocabulary> rich_vocabulary() {
    static const std::shared_ptr<const Vocabulary> vocabulary = [] {
        const std::string text =
            "{\"name\": \"Ren\xC3\xA9 \xE2\x82\xAC 5\", \"tags\":[\"a\\n\", \"\\u00e9\\\\\"],\n  \"size\": "
            "-12.5e+10,\"on\":true, "
            "\"off\":false,\"none\":null}, \"\xF0\x9F\x98\x80\" : [1, 2,3]}}]\r\n\t 2024-02-29T23:59:59Z aaaa bbbb "
            "abab cc 00 10 999 if (x == y) return; <|tool|> (a+b)*c - 7/2 = $1,000.00 the quick brown fox jumps over";
        std::set<std::string> texts;
        for (std::size_t size = 2; size <= 9; ++size) {
            for (std::size_t i = 0; i + size <= text.size(); ++i) texts.insert(text.substr(i, size));
        }
        for (std::size_t n = 10; n <= 40; n += 3) texts.insert(std::string(n, 'a'));
        return make_vocabulary({texts.begin(), texts.end()});
    }();
    return vocabulary;
}

std::shared_ptr<const Grammar> compile(Language language, std::string text, const Options& options) {
    return Grammar::compile(rich_vocabulary(), {language, std::move(text)}, options);
}

bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
    State state = Grammar::begin(grammar);
    return (text.empty() || state.accept(text)) && state.may_end();
}

std::string refusal(Language language, std::string text, const Options& options) {
    try {
        compile(language, std::move(text), options);
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

namespace {

// What a mask must be, from the definition, one byte after the other.
bool walk(const State& state, const TokenText& token) {
    if (token.kind == TokenText::Kind::end) return state.may_end();
    if (token.kind != TokenText::Kind::text || token.bytes.empty()) return false;
    State copy = state;
    return std::all_of(token.bytes.begin(), token.bytes.end(),
                       [&](char c) { return copy.accept(std::string_view(&c, 1)); });
}

}  // namespace

void expect_masks(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
    State state = Grammar::begin(grammar);
    const Vocabulary& vocabulary = grammar->vocabulary();
    std::vector<std::uint32_t> words(vocabulary.words() + 1, 0xFFFFFFFF);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(vocabulary.size()));
    std::vector<std::uint8_t> allowed(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    for (std::size_t place = 0;; ++place) {
        for (int round = 0; round < 2; ++round) {  // the second mask may be a kept one
            state.mask(words);
            state.test(ids, allowed);
            for (const std::int32_t id : ids) {
                const bool masked = (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0;
                const bool right = walk(state, vocabulary.token(id));
                if (vocabulary.token(id).kind == TokenText::Kind::special) continue;
                ASSERT_EQ(masked, right) << "'" << vocabulary.token(id).bytes << "' after '" << text.substr(0, place)
                                         << "'";
                ASSERT_EQ(allowed[static_cast<std::size_t>(id)] != 0, right) << vocabulary.token(id).bytes;
            }
            ASSERT_EQ(words.back(), 0u) << "words past the vocabulary must be cleared";
        }
        if (place == text.size()) break;
        ASSERT_TRUE(state.accept(text.substr(place, 1))) << "after '" << text.substr(0, place) << "'";
    }
}

}  // namespace foresay::grammar
