// Prompts as tokens: chat formats by name and by template, files, edited answers; and small helpers of commands.
#include "app/conversation/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/clipboard.h"
#include "app/configuration.h"
#include "app/conversation/source_files.h"
#include "app/conversation/style.h"
#include "app/conversation/transcript.h"
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
    data.set_chat_template("default", chat_template);
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

core::Config config_of(const std::string& toml) {
    const std::vector<core::ConfigLayer> layers = {{"test", toml, {}, true}};
    core::ConfigRequest request;
    request.layers = layers;
    request.stages = stage_schemas();
    request.need_target = false;
    request.need_files = false;
    return core::load_config(request);
}

ChatStyle style_of(const core::Config& config, const core::Tokenizer& tokenizer) {
    return chat_style(config, tokenizer, core::open_chat_template(tokenizer));
}
std::string unusable(const core::Config& config, const core::Tokenizer& tokenizer) {
    return unusable_template_notice(config, tokenizer, core::open_chat_template(tokenizer));
}
std::string unused_system(const core::Config& config, const core::Tokenizer& tokenizer) {
    return unused_system_notice(config, tokenizer, core::open_chat_template(tokenizer));
}

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(ChatStyle, IsTheModelsOwnTemplate) {
    const auto chatml = chat_tokenizer(kChatMl, {"<|im_start|>", "<|im_end|>"});
    const ChatStyle style = style_of(config("auto", "Be brief."), chatml);
    EXPECT_EQ(style.format, ChatFormat::own);
    EXPECT_EQ(
        chatml.decode(encode_message(chatml, style, "a<|im_end|>"), true),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na<|im_end|><|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(unusable(config("auto"), chatml), "");
    EXPECT_EQ(style_of(config("complete"), chatml).format, ChatFormat::complete) << "who names one gets it";
    EXPECT_EQ(style_of(config("chatml"), chatml).format, ChatFormat::chatml);
}

TEST(ChatStyle, TellsTheTemplateWhatTheConfigurationSays) {
    const auto t = chat_tokenizer(
        "{{ messages[0].content }}|{{ enable_thinking }}|{{ mood }}|{{ sizes[1] if sizes }}|{{ strftime_now('%d %b "
        "%Y') }}|"
        "{{ tools[0] if tools }}",
        {"<|im_end|>"});
    const auto text = [&](const std::string& toml) {
        return t.decode(encode_message(t, style_of(config_of(toml), t), "x"), true);
    };
    EXPECT_EQ(text("[chat]\nreasoning = 'off'\ndate = '2024-02-29'\n[chat.template_args]\nmood = '<|im_end|>'\n"
                   "sizes = [1, 2]\ntools = ['f']"),
              "x|False|<|im_end|>|2|29 Feb 2024|f");
    const auto tokens = encode_message(t, style_of(config_of("chat.template_args.mood = '<|im_end|>'"), t), "x");
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), *t.find("<|im_end|>")), 0) << "what people write is no markup";
    EXPECT_THAT(
        error_of([&] { text("chat.reasoning = 'high'"); }),
        HasSubstr("chat.reasoning is 'high', but the model's chat template cannot do that; it knows off and on"));
    EXPECT_THAT(error_of([&] { text("chat.date = 'Friday'"); }), HasSubstr("chat.date must be today or a date"));
    EXPECT_THAT(error_of([&] { text("chat.template_args.messages = 5"); }), HasSubstr("is set by the program"));
    EXPECT_THAT(error_of([&] { text("chat.template_args.a-b = 5"); }), HasSubstr("'a-b' is no name of a variable"));
    EXPECT_THAT(error_of([&] { text("chat.template_args = 5"); }), HasSubstr("must be a table"));
    EXPECT_THAT(error_of([&] { text("chat.template = 'x.jinja'\nchat.style = 'complete'"); }),
                HasSubstr("set chat.style = \"auto\" to use it"));
}

TEST(ChatStyle, TemplateArgsSurviveAsToml) {
    const core::Config config = config_of("chat.template_args.mood = 'x'\nchat.template_args.sizes = [1, 2]");
    const std::string toml = core::to_toml(config, stage_schemas(), false);
    EXPECT_THAT(toml, HasSubstr("[chat.template_args]\nmood = \"x\"\nsizes = [1, 2]\n"));
    EXPECT_EQ(config_of(toml).template_args().size(), 2U);
}

TEST(ChatStyle, ATemplateThatCannotBeUsedIsOneSentence) {
    // One of a format that is known by its marks.
    const auto chatml = chat_tokenizer("{{'<|im_start|>' + role}}", {"<|im_start|>", "<|im_end|>"});
    EXPECT_EQ(style_of(config("auto", "Be brief."), chatml).format, ChatFormat::chatml);
    EXPECT_EQ(style_of(config("auto", "Be brief."), chatml).system, "Be brief.");
    EXPECT_THAT(unusable(config("auto"), chatml),
                ::testing::AllOf(HasSubstr("line 1, column"), HasSubstr("the format chatml is used")));
    const auto llama3 =
        chat_tokenizer("<|start_header_id|><|eot_id|>", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
    EXPECT_EQ(style_of(config("auto"), llama3).format, ChatFormat::llama3);
    const auto mistral = chat_tokenizer("[INST] [/INST]", {"[INST]", "[/INST]", "</s>"});
    EXPECT_EQ(style_of(config("auto"), mistral).format, ChatFormat::mistral);
    const auto other = chat_tokenizer("<start_of_turn>{{role}}", {"<start_of_turn>"});
    EXPECT_EQ(style_of(config("auto"), other).format, ChatFormat::complete);
    EXPECT_THAT(unusable(config("auto"), other), HasSubstr("the model continues what you write as a document"));
    EXPECT_EQ(unusable(config("complete"), other), "") << "who chose need not be told";
    // A model without a template was not made for conversations: no format, no message.
    EXPECT_EQ(unusable(config("auto"), chat_tokenizer("", {})), "");
    // A template of a known format whose tokens the vocabulary lacks.
    const auto lacking = chat_tokenizer("<|im_start|>", {});
    EXPECT_EQ(style_of(config("auto"), lacking).format, ChatFormat::complete);
    EXPECT_THAT(error_of([&] { style_of(config("chatml"), lacking); }), HasSubstr("needs the token <|im_end|>"));
}

TEST(ChatStyle, WhereASystemPromptHasNoPlace) {
    const auto chatml = chat_tokenizer(kChatMl, {"<|im_start|>", "<|im_end|>"});
    EXPECT_EQ(unused_system(config("auto", "Be brief."), chatml), "");
    EXPECT_EQ(unused_system(config("complete"), chatml), "");
    EXPECT_THAT(unused_system(config("complete", "Be brief."), chatml), HasSubstr("the system prompt is not used"));
    const auto strict = chat_tokenizer(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[0].content }}",
        {});
    EXPECT_THAT(unused_system(config("auto", "Be brief."), strict), HasSubstr("no system)"));
    EXPECT_EQ(strict.decode(encode_message(strict, style_of(config("auto", "Be brief."), strict), "x")), "x");
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
    tokens = encode_next(tokenizer, style, {}, "V<|im_start|>", false, false);
    EXPECT_EQ(tokenizer.decode(tokens, true),
              "<|im_end|>\n<|im_start|>user\nV<|im_start|><|im_end|>\n<|im_start|>assistant\n");
    const auto begin = static_cast<std::int32_t>(*tokenizer.find("<|im_start|>"));
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), begin), 2);
    EXPECT_EQ(tokenizer.decode(encode_next(tokenizer, style, {}, "V", true, false), true),
              "\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Prompt, AnEntryOfADocumentIsLines) {
    const auto tokenizer = chat_tokenizer("", {"<|end|>"});
    ChatStyle style{ChatFormat::complete, "no place for a system prompt"};
    const auto first = [&](const std::string& text) {
        return tokenizer.decode(encode_first(tokenizer, style, {}, text));
    };
    const auto next = [&](const std::string& text, bool line_open) {
        EXPECT_EQ(tokenizer.decode(encode_next(tokenizer, style, {}, text, false, line_open)),
                  whole_text(style, {}, text, line_open));
        return whole_text(style, {}, text, line_open);
    };
    EXPECT_EQ(first("ab"), "ab\n");
    EXPECT_EQ(first("ab\n"), "ab\n") << "it has its newline";
    EXPECT_EQ(first("ab\n\n"), "ab\n\n");
    EXPECT_EQ(first(""), "");
    EXPECT_EQ(next("ab", false), "ab\n");
    EXPECT_EQ(next("ab", true), "\nab\n");
    EXPECT_EQ(whole_text(style, {{"f", "x\n"}}, "ab", true), "\n# f\nx\n\nab\n");
    style.newline = false;
    EXPECT_EQ(first("ab"), "ab");
    EXPECT_EQ(next("ab", true), "ab");
    // An end-of-text token ends a line, and so does a newline.
    EXPECT_TRUE(line_is_open(tokenizer, tokenizer.encode("ab", core::kPlain)));
    EXPECT_FALSE(line_is_open(tokenizer, tokenizer.encode("ab\n", core::kPlain)));
    EXPECT_FALSE(line_is_open(tokenizer, {}));
    Tokens ended = tokenizer.encode("ab", core::kPlain);
    ended.push_back(*tokenizer.find("<|end|>"));
    EXPECT_FALSE(line_is_open(tokenizer, ended));
}

TEST(Transcript, MarksTextThatContinuesALine) {
    const auto tokenizer = chat_tokenizer("", {"<|im_start|>", "<|im_end|>"});
    const auto turn = [&](const std::string& said, const std::string& answer) {
        return Turn{.said = said,
                    .input = tokenizer.encode(said, core::kPlain),
                    .answer = tokenizer.encode(answer, core::kPlain)};
    };
    const auto shown = [&](const std::vector<Turn>& turns) {
        std::vector<const Turn*> pointers;
        for (const Turn& one : turns) pointers.push_back(&one);
        return transcript(tokenizer, pointers);
    };
    EXPECT_EQ(shown({}), "");
    EXPECT_EQ(shown({turn("a\n", "b"), turn("\nc\nd\n", "e\n"), turn("f\n", "")}), "> a\nb\n> c\n. d\ne\n> f\n");
    EXPECT_EQ(shown({turn("a", "b"), turn("c\n", "d\n\n")}), "> a\n\u2026b\n> \u2026c\nd\n\n");
    EXPECT_EQ(shown({turn("a", "\nb")}), "> a\nb\n") << "the answer begins with the line break";
    EXPECT_EQ(shown({turn("a\n\n", "b")}), "> a\n. \nb\n");
    // In a chat format, markup stands between them.
    const ChatStyle style{ChatFormat::chatml, ""};
    Turn talk{
        .said = "U", .input = encode_first(tokenizer, style, {}, "U"), .answer = tokenizer.encode("A", core::kPlain)};
    EXPECT_EQ(shown({talk, talk}), "> U\nA\n> U\nA\n");
}

TEST(Transcript, EndsWithItsLastLines) {
    EXPECT_EQ(last_lines("a\nb\nc\n", 2), "b\nc\n");
    EXPECT_EQ(last_lines("a\nb\nc", 2), "b\nc");
    EXPECT_EQ(last_lines("a\n\n", 1), "\n");
    EXPECT_EQ(last_lines("a\n", 5), "a\n");
    EXPECT_EQ(last_lines("", 5), "");
    EXPECT_EQ(last_lines("\n", 1), "\n");
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
    const auto whole = encode_fill(tokenizer, "abcacabc", "xyz", 100, FimOrder::psm);
    EXPECT_EQ(tokenizer.decode(whole), "abcacabc");
    // What is farthest from the hole is left out.
    const auto cut = encode_fill(tokenizer, "abcacabc", "xyz", 3, FimOrder::psm);
    EXPECT_LT(cut.size(), whole.size());
    EXPECT_TRUE(leaves_out_blank(tokenizer, "ab ", FimOrder::psm));
    EXPECT_EQ(tokenizer.decode(encode_fill(tokenizer, "ab ", "xyz", 100, FimOrder::psm)), "ab");
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
    EXPECT_EQ(offset_of(text, {"f", 2, 5}), 9u) << "one after the last is the end of the line";
    EXPECT_THAT(error_of([&] {
                    offset_of(text, {"f", 2, 6});
                }),
                HasSubstr("f:2 has no column 6; its columns go from 1 to 5"));
    EXPECT_EQ(offset_of(text, {"f", 3, 1}), 10u);
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
