// Text that is far too long for a context is refused before all of it becomes tokens.
#include "core/text/bounded_encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace foresay::core
