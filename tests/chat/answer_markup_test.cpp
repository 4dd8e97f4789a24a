// Reasoning and content of answers, token by token.
#include "core/chat/answer_markup.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/chat/styles.h"

namespace foresay::core {
namespace {

Tokenizer of_style(const std::string& name) {
    for (const test::Style& style : test::styles())
        if (style.name == name) return Tokenizer(test::style_data(style));
    throw Error("no style " + name);
}

// The parts as "r:reasoning" and "c:content", joined where they are neighbours of one kind.
std::string parsed(const Tokenizer& tokenizer, const AnswerMarkup& markup, const std::string& prompt,
                   const std::string& answer, bool as_text = false) {
    AnswerParser parser(markup, tokenizer, tokenizer.encode(prompt, kParse));
    std::vector<AnswerPart> parts;
    for (const std::int32_t id : tokenizer.encode(answer, as_text ? kPlain : kParse)) {
        std::vector<AnswerPart> more;
        parser.push(id, more);
        for (const AnswerPart& part : more) EXPECT_FALSE(part.text.empty());
        parts.insert(parts.end(), more.begin(), more.end());
    }
    parser.finish(parts);
    std::string out;
    bool reasoning = false;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i == 0 || parts[i].reasoning != reasoning)
            out += std::string(i > 0 ? "|" : "") + (parts[i].reasoning ? "r:" : "c:");
        reasoning = parts[i].reasoning;
        out += parts[i].text;
    }
    return out;
}

const std::string kChatPrompt = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n";

TEST(AnswerMarkup, IsDetectedFromTheTemplate) {
    const Tokenizer chatml = of_style("chatml"), harmony = of_style("harmony"), llama = of_style("llama3");
    EXPECT_EQ(detect_answer_markup(chatml.chat_template(), chatml).open, "<think>");
    EXPECT_EQ(detect_answer_markup(harmony.chat_template(), harmony).kind, AnswerMarkup::Kind::harmony);
    EXPECT_TRUE(detect_answer_markup(harmony.chat_template(), llama).none()) << "a vocabulary without channels";
    EXPECT_TRUE(detect_answer_markup(llama.chat_template(), llama).none());
    EXPECT_EQ(detect_answer_markup("{{ '[THINK]' }}{{ '[/THINK]' }}", llama).close, "[/THINK]");
}

TEST(AnswerMarkup, TellsReasoningFromContent) {
    const Tokenizer t = of_style("chatml");
    const AnswerMarkup think{AnswerMarkup::Kind::tags, "<think>", "</think>"};
    EXPECT_EQ(parsed(t, think, kChatPrompt, "<think>\nhm\n\nso\n</think>\n\nIt is 4.\n"), "r:hm\n\nso|c:It is 4.\n");
    EXPECT_EQ(parsed(t, think, kChatPrompt, "\n<think>\n\n</think>\n\nhello"), "c:hello");
    EXPECT_EQ(parsed(t, think, kChatPrompt, "hello"), "c:hello");
    EXPECT_EQ(parsed(t, think, kChatPrompt, " \n hello"), "c: \n hello") << "white space before content is content";
    EXPECT_EQ(parsed(t, think, kChatPrompt + "<think>\n", "hm</think>hello"), "r:hm|c:hello") << "opened by the prompt";
    EXPECT_EQ(parsed(t, think, kChatPrompt + "<think>\n\n</think>\n\n", "hello"), "c:hello") << "and closed";
    EXPECT_EQ(parsed(t, think, kChatPrompt, "<think>\nhm"), "r:hm") << "cut off";
    EXPECT_EQ(parsed(t, think, kChatPrompt, "hello <think>x</think>"), "c:hello <think>x</think>")
        << "a tag inside an answer is text";
    EXPECT_EQ(parsed(t, think, kChatPrompt, "<think>a</think>b</think>c"), "r:a|c:b</think>c");
    EXPECT_EQ(parsed(t, think, kChatPrompt, ""), "");
}

TEST(AnswerMarkup, MarksThatAreNoTokensAreTextAndNeverShownInHalf) {
    const Tokenizer t = of_style("llama3");  // has no token <think>
    const AnswerMarkup think{AnswerMarkup::Kind::tags, "<think>", "</think>"};
    const std::string answer = "<think>\n a < b </thin </think>\n\nSo <think> is a tag";
    EXPECT_EQ(parsed(t, think, "x", answer), "r: a < b </thin|c:So <think> is a tag");
    AnswerParser parser(think, t, {});
    std::string reasoning, content;
    for (const std::int32_t id : t.encode(answer, kPlain)) {  // byte by byte
        std::vector<AnswerPart> parts;
        parser.push(id, parts);
        for (const AnswerPart& part : parts) (part.reasoning ? reasoning : content) += part.text;
        EXPECT_TRUE(std::string(" a < b </thin").starts_with(reasoning)) << reasoning;
        EXPECT_TRUE(std::string("So <think> is a tag").starts_with(content)) << content;
    }
    EXPECT_EQ(parsed(t, think, "x", "<thi"), "c:<thi") << "what is no mark after all";
    EXPECT_EQ(parsed(t, think, "x", "<thinking>a"), "c:<thinking>a");
}

TEST(AnswerMarkup, AWholeAnswerKeepsItsBytes) {
    const Tokenizer t = of_style("chatml");
    const AnswerMarkup think{AnswerMarkup::Kind::tags, "<think>", "</think>"};
    const std::vector<std::int32_t> answer = {*t.find("<think>"), 'a', 0xC3, *t.find("</think>"), 0xFF, 'b', 0xC3};
    const AnswerParts parts = split_answer(think, t, {}, answer);
    EXPECT_EQ(parts.reasoning, "a\xC3");
    EXPECT_EQ(parts.content, std::string("\xFF") + "b\xC3");
    std::string content;
    AnswerParser parser(think, t, {});
    std::vector<AnswerPart> shown;
    for (const std::int32_t id : answer) parser.push(id, shown);
    parser.finish(shown);
    for (const AnswerPart& part : shown)
        if (!part.reasoning) content += part.text;
    EXPECT_EQ(content, "\uFFFD" + std::string("b\uFFFD")) << "what is shown is whole characters";
}

TEST(AnswerMarkup, ATokenIsNotSpelled) {
    const Tokenizer t = of_style("harmony");
    const AnswerMarkup channels{AnswerMarkup::Kind::harmony, {}, {}};
    EXPECT_EQ(parsed(t, channels, "<|start|>assistant", "<|channel|>analysis<|message|>a", true),
              "c:<|channel|>analysis<|message|>a");
    const Tokenizer chatml = of_style("chatml");
    const AnswerMarkup think{AnswerMarkup::Kind::tags, "<think>", "</think>"};
    const std::int32_t open = *chatml.find("<think>");
    AnswerParser parser(think, chatml, {});
    std::vector<AnswerPart> parts;
    parser.push(open, parts);
    for (const char c : std::string("a</think>b")) parser.push(static_cast<unsigned char>(c), parts);
    parser.finish(parts);
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].text, "a</think>b");
    EXPECT_TRUE(parts[0].reasoning);
}

TEST(AnswerMarkup, Channels) {
    const Tokenizer t = of_style("harmony");
    const AnswerMarkup channels{AnswerMarkup::Kind::harmony, {}, {}};
    const std::string prompt = "<|start|>user<|message|>x<|end|><|start|>assistant";
    EXPECT_EQ(parsed(t, channels, prompt,
                     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>"),
              "r:hm|c:4");
    EXPECT_EQ(parsed(t, channels, prompt, "<|channel|>final<|message|>hello"), "c:hello");
    EXPECT_EQ(parsed(t, channels, prompt + "<|channel|>analysis<|message|>", "hm<|end|>"), "r:hm");
    EXPECT_EQ(parsed(t, channels, prompt,
                     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
                     "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
                     "<|channel|>final<|message|>4<|return|>"),
              "r:a\n\nb|c:I look.\n\n4");
    EXPECT_EQ(
        parsed(t, channels, prompt, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"),
        "c:<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}")
        << "a call is content, with its header";
    EXPECT_EQ(parsed(t, channels, prompt, " to=functions.f<|channel|>commentary<|message|>{}<|call|>"),
              "c: to=functions.f<|channel|>commentary<|message|>{}");
    EXPECT_EQ(parsed(t, channels, prompt, "hello\nhello"), "c:hello\nhello") << "a model that knows no channels";
    EXPECT_EQ(parsed(t, channels, prompt, "hello"), "c:hello");
    EXPECT_EQ(parsed(t, channels, prompt, std::string(1000, 'a')), "c:" + std::string(1000, 'a'));
    EXPECT_EQ(parsed(t, channels, prompt, "<|channel|>anal"), "") << "cut in the middle of a header";
}

TEST(AnswerMarkup, AnyTokensInAnyOrderLoseNoText) {
    for (const char* name : {"chatml", "harmony"}) {
        const Tokenizer t = of_style(name);
        const AnswerMarkup markup = detect_answer_markup(t.chat_template(), t);
        std::mt19937 random(7);
        for (int round = 0; round < 2000; ++round) {
            std::vector<std::int32_t> ids;
            for (int i = 0; i < 24; ++i) {
                const bool special = random() % 3 == 0;
                ids.push_back(special ? 262 + static_cast<std::int32_t>(random() % (t.vocab_size() - 262))
                                      : 'a' + static_cast<std::int32_t>(random() % 26));
            }
            AnswerParser parser(markup, t, t.encode(round % 2 == 0 ? kChatPrompt : "<|start|>assistant", kParse));
            std::vector<AnswerPart> parts;
            for (const std::int32_t id : ids) parser.push(id, parts);
            parser.finish(parts);
            std::string letters, expected;
            for (const AnswerPart& part : parts)
                for (const char c : part.text)
                    if (c >= 'a' && c <= 'z') letters += c;
            if (markup.kind == AnswerMarkup::Kind::harmony) continue;  // whose headers are no text
            for (const std::int32_t id : ids)
                if (!t.is_control(id))
                    for (const char c : t.bytes(id))
                        if (c >= 'a' && c <= 'z') expected += c;
            // A mark at the beginning, and the one that closes it, are not shown.
            EXPECT_LE(letters.size(), expected.size());
            EXPECT_GE(letters.size() + 10, expected.size());
        }
    }
}

}  // namespace
}  // namespace foresay::core
