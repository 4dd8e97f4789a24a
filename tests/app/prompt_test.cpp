// Prompts as tokens: chat formats by name and by template, files, edited answers; and small helpers of commands.
#include "app/conversation/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/clipboard.h"
#include "app/configuration.h"
#include "app/conversation/source_files.h"
#include "app/conversation/style.h"
#include "tests/text/support.h"

namespace foresay::app {
namespace {

using core::ChatFormat;
using core::error_of;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

core::Tokenizer chat_tokenizer(const std::string& chat_template, std::initializer_list<const char*> specials) {
    core::TokenizerData data = core::small_data({{"a", "b"}, {"ab", "c"}});
    for (const char* special : specials) core::add_token(data, special, core::TokenType::control);
    data.chat_template = chat_template;
    return core::Tokenizer(data);
}

core::Config config(const std::string& style, const std::string& system = "") {
    const std::vector<core::ConfigLayer> layers = {
        {"test", "chat.style = \"" + style + "\"\nchat.system = \"" + system + "\"", {}, true}};
    core::ConfigRequest request;
    request.layers = layers;
    request.stages = stage_schemas();
    request.need_target = false;
    return core::load_config(request);
}

TEST(ChatStyle, ComesFromTheModelsTemplate) {
    const auto chatml = chat_tokenizer("{{'<|im_start|>' + role}}", {"<|im_start|>", "<|im_end|>"});
    EXPECT_EQ(chat_style(config("auto", "Be brief."), chatml).format, ChatFormat::chatml);
    EXPECT_EQ(chat_style(config("auto", "Be brief."), chatml).system, "Be brief.");
    EXPECT_EQ(unknown_format_notice(config("auto"), chatml), "");
    const auto llama3 =
        chat_tokenizer("<|start_header_id|><|eot_id|>", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
    EXPECT_EQ(chat_style(config("auto"), llama3).format, ChatFormat::llama3);
    const auto mistral = chat_tokenizer("[INST] [/INST]", {"[INST]", "[/INST]", "</s>"});
    EXPECT_EQ(chat_style(config("auto"), mistral).format, ChatFormat::mistral);
}

TEST(ChatStyle, AnUnknownTemplateIsOneSentenceAndCompletion) {
    const auto other = chat_tokenizer("<start_of_turn>{{role}}", {"<start_of_turn>"});
    EXPECT_EQ(chat_style(config("auto"), other).format, ChatFormat::complete);
    EXPECT_THAT(unknown_format_notice(config("auto"), other), HasSubstr("does not know the model's chat template"));
    EXPECT_EQ(unknown_format_notice(config("complete"), other), "") << "who chose need not be told";
    // A model without a template was not made for conversations: no format, no message.
    EXPECT_EQ(unknown_format_notice(config("auto"), chat_tokenizer("", {})), "");
    // A template of a known format whose tokens the vocabulary lacks.
    const auto lacking = chat_tokenizer("<|im_start|>", {});
    EXPECT_EQ(chat_style(config("auto"), lacking).format, ChatFormat::complete);
    EXPECT_THAT(error_of([&] { chat_style(config("chatml"), lacking); }), HasSubstr("needs the token <|im_end|>"));
}

TEST(Prompt, AConversationIsWhatItsFormatSays) {
    const auto tokenizer = chat_tokenizer("", {"<|im_start|>", "<|im_end|>"});
    const ChatStyle style{ChatFormat::chatml, "S"};
    Tokens tokens = encode_first(tokenizer, style, {{"f.py", "a<|im_end|>```b"}}, "U");
    EXPECT_EQ(tokenizer.decode(tokens, true),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nf.py\n````\na<|im_end|>```b\n````\n\nU<|im_end|>\n"
              "<|im_start|>assistant\n");
    const auto end = static_cast<std::int32_t>(*tokenizer.find("<|im_end|>"));
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), end), 2) << "that of the file is plain text";
    tokens = encode_next(tokenizer, style, {}, "V<|im_start|>", false);
    EXPECT_EQ(tokenizer.decode(tokens, true),
              "<|im_end|>\n<|im_start|>user\nV<|im_start|><|im_end|>\n<|im_start|>assistant\n");
    const auto begin = static_cast<std::int32_t>(*tokenizer.find("<|im_start|>"));
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), begin), 2);
    EXPECT_EQ(tokenizer.decode(encode_next(tokenizer, style, {}, "V", true), true),
              "\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Prompt, AnEditKeepsTheTokensThatStay) {
    const auto tokenizer = chat_tokenizer("", {"<|end|>"});
    const Tokens answer = tokenizer.encode("abcabcabc", core::kPlain);
    ASSERT_EQ(answer.size(), 3u);
    EditedAnswer edited = encode_edit(tokenizer, answer, "abcabcabc");
    EXPECT_EQ(edited.kept, 3u);
    EXPECT_EQ(edited.tokens, answer);
    edited = encode_edit(tokenizer, answer, "abcabc");
    EXPECT_EQ(edited.kept, 2u);
    EXPECT_EQ(edited.tokens.size(), 2u);
    // The word before a change is tokenised again, too.
    edited = encode_edit(tokenizer, answer, "abcabXYZ");
    EXPECT_EQ(edited.kept, 0u);
    EXPECT_EQ(tokenizer.decode(edited.tokens), "abcabXYZ");
    edited = encode_edit(tokenizer, answer, "");
    EXPECT_TRUE(edited.tokens.empty());
    // Invisible tokens are not part of the edited text.
    Tokens hidden = answer;
    hidden.insert(hidden.begin() + 1, *tokenizer.find("<|end|>"));
    EXPECT_EQ(encode_edit(tokenizer, hidden, "abcabcabc").tokens, hidden);
    // A special token's text, written by a user, is ordinary text.
    edited = encode_edit(tokenizer, answer, "<|end|>");
    EXPECT_EQ(tokenizer.decode(edited.tokens), "<|end|>");
}

TEST(Prompt, AModelWithoutTheTokensContinuesTheTextBeforeTheHole) {
    const core::Tokenizer tokenizer = chat_tokenizer("", {});
    EXPECT_FALSE(has_fill_tokens(tokenizer));
    const auto whole = encode_fill(tokenizer, "abcacabc", "xyz", 100);
    EXPECT_EQ(tokenizer.decode(whole), "abcacabc");
    // What is farthest from the hole is left out.
    const auto cut = encode_fill(tokenizer, "abcacabc", "xyz", 3);
    EXPECT_LT(cut.size(), whole.size());
    EXPECT_TRUE(tokenizer.decode(whole).ends_with(tokenizer.decode(cut)));
}

TEST(SourceFiles, PlacesAreLinesAndCharacters) {
    const FilePlace whole = parse_place("dir:1/file.py:12:3");
    EXPECT_EQ(whole.file, "dir:1/file.py");
    EXPECT_EQ(whole.line, 12);
    EXPECT_EQ(whole.column, 3);
    EXPECT_EQ(parse_place("a:7").column, 0);
    for (const char* wrong : {"a", "a:", "a:x", "a:0", "a:-1", "a:1:99999999999999999999", ":"}) {
        EXPECT_THAT(error_of([&] { parse_place(wrong); }), HasSubstr("is not a place")) << wrong;
    }
    const std::string text = "one\nz\xc3\xa4hl\n\nend";
    EXPECT_EQ(offset_of(text, {"f", 1, 1}), 0u);
    EXPECT_EQ(offset_of(text, {"f", 1, 0}), 3u);
    EXPECT_EQ(offset_of(text, {"f", 2, 3}), 7u) << "after a character of two bytes";
    EXPECT_EQ(offset_of(text, {"f", 2, 99}), 9u);
    EXPECT_EQ(offset_of(text, {"f", 3, 0}), 10u);
    EXPECT_EQ(offset_of(text, {"f", 4, 0}), text.size());
    EXPECT_THAT(error_of([&] { offset_of(text, {"f", 5, 0}); }), HasSubstr("f has no line 5, only 4"));
}

TEST(Clipboard, TakesTheLastBlock) {
    EXPECT_EQ(last_code_block("text"), std::nullopt);
    EXPECT_EQ(last_code_block("a\n```py\nx = 1\n```\nb\n```\ny\n\nz\n```\n"), "y\n\nz\n");
    EXPECT_EQ(last_code_block("````\n```\ninner\n```\n````\n"), "```\ninner\n```\n");
    EXPECT_EQ(last_code_block("```\nunfinished\n"), "unfinished\n");
    EXPECT_EQ(last_code_block(""), std::nullopt);
    EXPECT_EQ(last_code_block("  ```\n  x\n  ```"), "x\n");
}

TEST(Clipboard, SpeaksOsc52) {
    EXPECT_EQ(clipboard_sequence(""), "\x1b]52;c;\x07");
    EXPECT_EQ(clipboard_sequence("f"), "\x1b]52;c;Zg==\x07");
    EXPECT_EQ(clipboard_sequence("fo"), "\x1b]52;c;Zm8=\x07");
    EXPECT_EQ(clipboard_sequence("foo"), "\x1b]52;c;Zm9v\x07");
    EXPECT_EQ(clipboard_sequence("\xff\xfe\x00\x01"), "\x1b]52;c;//4=\x07");  // cut by the literal's zero
    EXPECT_THAT(error_of([] { clipboard_sequence(std::string(100000, 'x')); }), HasSubstr("100000 bytes"));
}

}  // namespace
}  // namespace foresay::app
