// Text that is far too long for a context is refused before all of it becomes tokens.
#include "core/text/bounded_encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/text/normalizer.h"
#include "core/text/splitter.h"
#include "core/text/unicode.h"
#include "core/text/utf8.h"
#include "support.h"

namespace foresay::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LeastTokens, IsNeverMoreThanThereAre) {
    const Tokenizer tokenizer = bundled();
    const std::string python = read_file(source_path("tests/golden/jinja/make.py"));
    const std::string blanks(10'000, ' ');
    for (const std::string_view text :
         {std::string_view(python), std::string_view(blanks), std::string_view("\xff\xfe")}) {
        const auto exact = static_cast<std::int64_t>(tokenizer.encode(text, kPlain).size());
        EXPECT_LE(tokenizer.least_tokens(text.size()), exact);
        EXPECT_GE(tokenizer.least_tokens(text.size()), 1);
        EXPECT_EQ(count_tokens(tokenizer, text, kPlain, exact), exact);
        EXPECT_GT(count_tokens(tokenizer, text, kPlain, exact - 1), exact - 1);
        EXPECT_LE(count_tokens(tokenizer, text, kPlain, exact / 2), exact);
        // A part that has few tokens too many may fit after all.
        EXPECT_LE(count_tokens_of_part(tokenizer, text, kPlain, exact - 1), exact - 1);
        if (exact > 100) {
            EXPECT_GT(count_tokens_of_part(tokenizer, text, kPlain, exact - 20), exact - 20);
        }
    }
    EXPECT_EQ(tokenizer.least_tokens(0), 0);
}

TEST(LeastTokens, IsUnknownWhereATokenMaySwallowAnyNumberOfBytes) {
    TokenizerData data = small_data({{"a", "b"}});
    EXPECT_EQ(Tokenizer(data).least_tokens(10), 5);
    const std::int32_t special = add_token(data, "<s>", TokenType::control);
    EXPECT_EQ(Tokenizer(data).least_tokens(10), 4);
    data.added_rules.push_back({.id = special, .left_strip = true});
    EXPECT_EQ(Tokenizer(data).least_tokens(10), 0);
    // A byte without a token vanishes unless there is an unknown token.
    TokenizerData holes = small_data();
    holes.tokens[7] = "";
    EXPECT_EQ(Tokenizer(holes).least_tokens(10), 0);
    holes.special.unknown = 8;
    EXPECT_EQ(Tokenizer(holes).least_tokens(10), 10);
}

TEST(Encode, StopsWhenItHasEnough) {
    const Tokenizer tokenizer = bundled();
    const std::string text = read_file(source_path("tests/golden/jinja/make.py"));
    const std::vector<std::int32_t> all = tokenizer.encode(text);
    for (const std::size_t enough : {std::size_t{0}, std::size_t{10}, all.size() - 1}) {
        const std::vector<std::int32_t> some = tokenizer.encode(text, {.enough = enough});
        ASSERT_GT(some.size(), enough);
        ASSERT_LE(some.size(), all.size());
        EXPECT_LE(some.size(), enough + 20) << "a piece of this text has few tokens";
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << "a beginning of the tokens";
    }
    EXPECT_EQ(tokenizer.encode(text, {.enough = all.size()}), all);
    // What was there before does not count.
    std::vector<std::int32_t> ids(5000, 7);
    tokenizer.encode_append("x = 1", {.enough = 100}, ids);
    EXPECT_EQ(ids.size(), 5000 + tokenizer.encode("x = 1").size());
}

// 60 MB took half a minute when all of it became tokens; the test's own time limit is what would fail here.
TEST(EncodeWithin, RefusesWithBothNumbers) {
    const Tokenizer tokenizer = bundled();
    EXPECT_EQ(encode_within(tokenizer, "x = 1", {}, 2048, "the prompt"), tokenizer.encode("x = 1"));
    for (const char c : {' ', 'a', '\n', '\xff'}) {
        const std::string text(60'000'000, c);
        const std::string error = error_of([&] { encode_within(tokenizer, text, {}, 2048, "the prompt"); });
        EXPECT_THAT(error, AllOf(HasSubstr("the prompt has at least "),
                                 HasSubstr(" tokens, but the context has 2048 positions; shorten it")));
        EXPECT_GT(tokenizer.least_tokens(text.size()), 2048);
    }
    std::string words;
    while (words.size() < 200'000) words += "for i in range(10): print(i)\n";
    EXPECT_THAT(error_of([&] { encode_within(tokenizer, words, {}, 2048, "the prompt"); }), HasSubstr("at least"));
}

void expect_bounds_hold(const Tokenizer& tokenizer, const std::string& text, EncodeOptions options) {
    const std::vector<std::int32_t> all = tokenizer.encode(text, options);
    const auto exact = static_cast<std::int64_t>(all.size());
    EXPECT_LE(tokenizer.least_tokens(text.size()), exact);
    EXPECT_EQ(encode_within(tokenizer, text, options, exact, "it"), all);
    for (const std::int64_t most : {std::int64_t{0}, std::int64_t{1}, exact / 7, exact / 2, exact - 1, exact}) {
        if (most < 0) continue;
        const std::int64_t count = count_tokens(tokenizer, text, options, most);
        EXPECT_LE(count, exact) << most;
        if (most < exact) {
            EXPECT_GT(count, most);
        } else {
            EXPECT_EQ(count, exact);
        }
    }
}

// Every part of tokenizer.json, byte-level and literal, BPE and Unigram, with every text and with many of each.
TEST(LeastTokens, NeverRefuseWhatFitsWithAnyKindOfTokenizer) {
    const auto golden = nlohmann::json::parse(read_file(source_path("tests/golden/tokenizers/cases.json")));
    std::size_t bounded = 0, unbounded = 0;
    for (const auto& each : golden["cases"]) {
        SCOPED_TRACE(each["name"].get<std::string>());
        auto document = each["parts"];
        document["model"] = golden["models"][each["model"].get<std::string>()];
        const Tokenizer tokenizer = Tokenizer::from_json(document.dump(), "t.json");
        (tokenizer.least_tokens(1 << 20) > 0 ? bounded : unbounded) += 1;
        std::string together;
        for (const auto& entry : golden["texts"]) {
            const auto text = entry.get<std::string>();
            std::string many;
            while (many.size() < 700 && !text.empty()) many += text;
            for (const std::string& one : {text, many}) {
                expect_bounds_hold(tokenizer, one, {});
                expect_bounds_hold(tokenizer, one, kPlain);
            }
            together += text;
        }
        expect_bounds_hold(tokenizer, together, {});
    }
    EXPECT_GT(bounded, 10u);
    EXPECT_GT(unbounded, 10u);
}

// U+2581, a, b, c, ab, the unknown token, and with `bytes` a token for each byte.
TokenizerData literal_data(TokenModel model, bool bytes) {
    TokenizerData data;
    data.source = "literal";
    data.spelling = Spelling::literal;
    data.model = model;
    data.fuse_unknown = true;
    for (const char* token : {"\u2581", "a", "b", "c", "ab"}) add_token(data, token, TokenType::normal);
    data.merges = {{"a", "b"}};
    data.special.unknown = add_token(data, "<unk>", TokenType::unknown);
    for (int byte = 0; byte < 256 && bytes; ++byte) {
        constexpr std::string_view kDigits = "0123456789ABCDEF";
        add_token(data, std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", TokenType::byte);
    }
    data.scores.assign(data.tokens.size(), -1.0);
    return data;
}

TEST(LeastTokens, CountOnlyBytesThatNoTokenCanSwallow) {
    for (const TokenModel model : {TokenModel::bpe, TokenModel::unigram}) {
        const Tokenizer whole(literal_data(model, true)), holes(literal_data(model, false));
        EXPECT_EQ(whole.least_tokens(60), 10) << "the text of a byte's token is the longest, six bytes";
        EXPECT_EQ(holes.least_tokens(60), 0);
        // A million characters without a token are one unknown token, which fits.
        std::string strange;
        for (int i = 0; i < 1'000'000; ++i) strange += "\u00e9";
        EXPECT_EQ(encode_within(holes, strange, kPlain, 1, "it").size(), 1u);
        EXPECT_EQ(encode_within(holes, "a" + strange + "a", kPlain, 3, "it").size(), 3u);
        EXPECT_THAT(error_of([&] { encode_within(holes, strange + "abab", kPlain, 2, "it"); }), HasSubstr("3 tokens"));
        expect_bounds_hold(whole, strange.substr(0, 1000), kPlain);
        // Known characters are counted, wherever they are.
        const std::string letters(60'000'000, 'a');
        for (const Tokenizer* tokenizer : {&whole, &holes}) {
            EXPECT_EQ(count_tokens(*tokenizer, letters, kPlain, 100) > 100, true);
            EXPECT_THAT(error_of([&] { encode_within(*tokenizer, letters, {}, 2048, "it"); }), HasSubstr("at least"));
        }
    }
    // The Hugging Face library finds the text of the unknown token, and makes one of a run of them.
    std::string unknown;
    for (int i = 0; i < 1000; ++i) unknown += "<unk>";
    TokenizerData data = literal_data(TokenModel::unigram, false);
    for (const char* token : {"<", "u", "n", "k", ">"}) add_token(data, token, TokenType::normal);
    data.unknown_in_text = false;
    data.scores.assign(data.tokens.size(), -1.0);
    EXPECT_EQ(encode_within(Tokenizer(data), unknown, kPlain, 1, "it").size(), 1u);
}

TEST(LeastTokens, FollowWhatTheNormalizerAndTheSplitterRemove) {
    const auto least = [](const NormalizeStep& step) {
        TokenizerData data = literal_data(TokenModel::bpe, true);
        data.normalizer = {step};
        return Tokenizer(data).least_tokens(600);
    };
    using Kind = NormalizeStep::Kind;
    EXPECT_EQ(least({.kind = Kind::prepend, .pattern = {}, .content = "\u2581"}), 100);
    EXPECT_EQ(least({.kind = Kind::replace, .pattern = " ", .content = "\u2581"}), 100);
    EXPECT_EQ(least({.kind = Kind::replace, .pattern = "....", .content = "."}), 25);
    EXPECT_EQ(least({.kind = Kind::replace, .pattern = "....", .content = "..."}), 50);
    EXPECT_EQ(least({.kind = Kind::replace, .pattern = " ", .content = ""}), 0);
    EXPECT_EQ(least({.kind = Kind::strip, .pattern = {}, .content = {}}), 0);
    EXPECT_EQ(least({.kind = Kind::replace_regex, .pattern = " +", .content = " "}), 0);
    TokenizerData data = literal_data(TokenModel::bpe, true);
    data.pretokenizer.steps = {{.regex = " "}};
    EXPECT_EQ(Tokenizer(data).least_tokens(600), 100);
    data.pretokenizer.steps[0].behavior = SplitBehavior::removed;
    EXPECT_EQ(Tokenizer(data).least_tokens(600), 0);
    EXPECT_EQ(encode_within(Tokenizer(data), std::string(10'000, ' ') + "a", kPlain, 1, "it").size(), 1u);
}

// The longest text that becomes each character, made of the longest character that becomes each of its parts.
TEST(LeastTokens, NormalFormsShrinkATextNoMoreThanTheyAreTakenFor) {
    const auto normalized = [](const std::string& text, NormalForm form) {
        std::string out;
        append_normalized(text, form, out);
        return out;
    };
    for (const NormalForm form : {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc, NormalForm::nfkd}) {
        const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
        const NormalForm parts = compatible ? NormalForm::nfkd : NormalForm::nfd;
        const std::size_t most = Normalizer({{.form = form, .pattern = {}, .content = {}}}, "t").most_shrinking();
        std::map<std::string, std::string> longest;
        const auto character = [](char32_t code) {
            std::string out;
            append_utf8(code, out);
            return out;
        };
        for (char32_t code = 1; code < 0x110000; ++code) {
            const std::string source = character(code);
            const std::string part = normalized(source, parts);
            if (next_utf8(part).length_bytes != part.size()) continue;
            std::string& best = longest[part];
            if (best.size() < source.size()) best = source;
        }
        double worst = 0;
        for (char32_t code = 1; code < 0x110000; ++code) {
            const std::string all = normalized(character(code), parts);
            std::string source;
            for (std::string_view rest = all; !rest.empty();) {
                const std::string_view part = rest.substr(0, next_utf8(rest).length_bytes);
                source += longest.at(std::string(part));
                rest.remove_prefix(part.size());
            }
            const std::size_t length = normalized(source, form).size();
            ASSERT_LE(source.size(), most * length) << static_cast<std::uint32_t>(code);
            worst = std::max(worst, static_cast<double>(source.size()) / static_cast<double>(length));
        }
        EXPECT_GE(worst, 3) << "K, from the sign of Kelvin";
    }
}

TEST(Splitting, StopsWhenThePieceIsEnough) {
    const std::string text = "the-final--count- 1234567 -x";
    const auto pieces_of = [&](const SplitStep& step, std::size_t most) {
        struct Context {
            std::size_t most;
            std::vector<std::string> pieces;
        } context{most, {}};
        Splitter({"", {step}}, "test")
            .split(
                text, TextPlace::start,
                [](void* opaque, std::string_view piece) {
                    auto& [enough, pieces] = *static_cast<Context*>(opaque);
                    pieces.emplace_back(piece);
                    return pieces.size() < enough;
                },
                &context);
        return context.pieces;
    };
    std::vector<SplitStep> steps;
    for (const SplitBehavior behavior :
         {SplitBehavior::isolated, SplitBehavior::removed, SplitBehavior::merged_with_previous,
          SplitBehavior::merged_with_next, SplitBehavior::contiguous})
        steps.push_back({.regex = "-", .behavior = behavior});
    steps.push_back({.regex = "\\d+", .match = SplitStep::Match::thousands});
    steps.push_back({.regex = "\\d+", .match = SplitStep::Match::cuts_only});
    steps.push_back({.match = SplitStep::Match::metaspace, .mark = "\u2581", .cut_at_mark = true});
    for (const SplitStep& step : steps) {
        const std::vector<std::string> all = pieces_of(step, text.size() + 1);
        ASSERT_GT(all.size(), 2u);
        for (std::size_t most = 1; most <= all.size(); ++most) {
            const auto end = all.begin() + static_cast<std::ptrdiff_t>(most);
            EXPECT_EQ(pieces_of(step, most), std::vector<std::string>(all.begin(), end));
        }
    }
}

}  // namespace
}  // namespace foresay::core
