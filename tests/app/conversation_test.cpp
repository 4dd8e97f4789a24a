// A conversation with the bundled pair: what follows a state does not depend on how the state was reached.
#include "app/conversation/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "app/conversation/filled_hole.h"
#include "base/error.h"
#include "core/weights/gguf.h"
#include "samplers/plugin_stage.h"
#include "samplers/sdk/sampler.hpp"
#include "tests/speculative/support.h"

namespace foresay::app {
namespace {

using Tokens = std::vector<std::int32_t>;

const Conversation::Show kNobody = [](const speculative::TokenEvent&) {};

core::ContextOptions options() {
    core::ContextOptions options = test::context_options();
    options.branches = 8;
    return options;
}

// With the draft model, so that the compared texts were generated with speculation of changing lengths.
speculative::Generator generator() {
    return test::make_generator(test::temperature_chain(0.8),
                                test::model_drafter(test::bundled(test::fast_backend(), "draft")), test::fixed(3),
                                options());
}

speculative::Generator plain_generator() {
    return test::make_generator(test::temperature_chain(0.8), test::sources(nullptr), test::off(), options());
}

Conversation::Limits limits(std::int32_t tokens = 20, std::uint64_t seed = 11) {
    return {.max_tokens = tokens, .seed = seed};
}

// The answer to a document that a new generator gives.
Tokens generated_afresh(const Document& prompt, std::uint64_t seed, std::uint64_t branch, std::int32_t tokens) {
    speculative::Generator fresh = plain_generator();
    fresh.switch_to(prompt.tokens, prompt.generated);
    speculative::GenerateRequest request;
    request.max_tokens = tokens;
    request.seed = seed;
    request.branch = branch;
    return fresh.generate(request).tokens;
}

class ConversationTest : public ::testing::Test {
protected:
    speculative::Generator generator_ = generator();
    Conversation conversation_{generator_, test::tokenizer(), {}};

    // Every turn of the tree, generated again.
    void expect_all_turns_reproducible() {
        const TurnTree& tree = conversation_.tree();
        for (const TurnTree::Node& node : tree.nodes()) {
            Document prompt = tree.document(node.parent);
            prompt.add_prompt(node.turn);
            const auto count = static_cast<std::int32_t>(node.turn.answer.size());
            if (count == 0) continue;
            EXPECT_EQ(generated_afresh(prompt, node.turn.seed, node.turn.branch, count), node.turn.answer);
        }
    }
};

// Where nothing else drafts: what is generated again is drafted from the answer before.
TEST(ConversationPrediction, WhatIsGeneratedAgainIsDraftedFromTheLastAnswer) {
    speculative::Generator generator =
        test::make_generator(test::temperature_chain(0.0), test::sources(nullptr), test::fixed(7), options());
    Conversation conversation(generator, test::tokenizer(), {});
    const auto few_rounds = [](const speculative::GenerateResult& result) {
        ASSERT_EQ(result.speculation.sources.size(), 1u);
        EXPECT_EQ(result.speculation.sources[0].name, "prediction");
        EXPECT_LT(4 * result.speculation.rounds, std::ssize(result.tokens));
    };
    const Conversation::Answer first = conversation.answer("def fib(n):\n", limits(40), kNobody);
    EXPECT_EQ(first.result.speculation.drafted, 0);
    const std::string text = conversation.answer_text(conversation.last());
    few_rounds(conversation.retry(std::nullopt, limits(40), kNobody).result);
    for (const Conversation::Answer& answer : conversation.answers(std::nullopt, 2, limits(40), {})) {
        few_rounds(answer.result);
        EXPECT_EQ(answer.result.tokens, first.result.tokens);
    }
    const std::string beginning = text.substr(0, text.find('\n') + 1);
    few_rounds(conversation.edit(beginning, limits(24), kNobody).result);
}

TEST_F(ConversationTest, RetriesUndoesAndGoesOn) {
    conversation_.answer("def fib(n):\n", limits(), kNobody);
    const Tokens first = conversation_.last().answer;
    conversation_.retry(std::nullopt, limits(), kNobody);
    EXPECT_EQ(conversation_.last().branch, 1u);
    EXPECT_NE(conversation_.last().answer, first);
    conversation_.retry(std::nullopt, limits(), kNobody);
    EXPECT_EQ(conversation_.last().branch, 2u);
    conversation_.retry(5, limits(), kNobody);
    EXPECT_EQ(conversation_.last().seed, 5u);
    EXPECT_EQ(conversation_.last().branch, 0u);
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.last().branch, 2u);
    ASSERT_TRUE(conversation_.undo());
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.last().answer, first);
    // The number of a branch that was undone is not used again.
    conversation_.retry(std::nullopt, limits(), kNobody);
    EXPECT_EQ(conversation_.last().branch, 3u);
    conversation_.answer("\nprint(fib(", limits(), kNobody);
    EXPECT_EQ(conversation_.turns().size(), 2u);
    expect_all_turns_reproducible();
}

TEST_F(ConversationTest, ClearingCanBeUndone) {
    conversation_.answer("import os\n", limits(), kNobody);
    const Document before = conversation_.document();
    conversation_.clear();
    EXPECT_TRUE(conversation_.empty());
    conversation_.answer("class A:\n", limits(), kNobody);
    ASSERT_TRUE(conversation_.undo());
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.document().tokens, before.tokens);
    ASSERT_TRUE(conversation_.undo());
    EXPECT_FALSE(conversation_.undo());
}

TEST_F(ConversationTest, AnswersSideBySideAreWhatRetryDraws) {
    const auto answers = conversation_.answers("def add(a, b):\n", 4, limits(), {});
    ASSERT_EQ(answers.size(), 4u);
    EXPECT_EQ(conversation_.branch_count(), 4u);
    EXPECT_EQ(conversation_.current_branch(), 0u);
    speculative::Generator other = plain_generator();
    Conversation retried(other, test::tokenizer(), {});
    retried.answer("def add(a, b):\n", limits(), kNobody);
    for (std::size_t i = 0; i < 4; ++i) {
        if (i > 0) retried.retry(std::nullopt, limits(), kNobody);
        EXPECT_EQ(answers[i].branch, i);
        EXPECT_EQ(conversation_.branch(answers[i].line).back()->answer, retried.last().answer);
    }
    // More of them take the next branches.
    const auto more = conversation_.answers(std::nullopt, 2, limits(), {});
    EXPECT_EQ(more[0].branch, 4u);
    EXPECT_EQ(more[1].branch, 5u);
    EXPECT_EQ(conversation_.current_branch(), more[0].line);
    expect_all_turns_reproducible();
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.branch_count(), 4u);
}

TEST_F(ConversationTest, TooManyBranchesAreRefusedBeforeAnythingIsGenerated) {
    conversation_.answer("import re\n", limits(2), kNobody);
    while (conversation_.branch_count() + 1 < TurnTree::kMaxBranches) conversation_.new_branch(1);
    std::size_t generated = 0;
    const auto count = [&](std::size_t, const speculative::TokenEvent&) { ++generated; };
    EXPECT_THROW(conversation_.answers("x = 1\n", 3, limits(2), count), Error);
    EXPECT_THROW(conversation_.answers(std::nullopt, 2, limits(2), count), Error);
    EXPECT_EQ(generated, 0u);
    // The first answer to a new message needs no branch of its own, so two fit.
    EXPECT_EQ(conversation_.answers("x = 1\n", 2, limits(2), count).size(), 2u);
    EXPECT_EQ(conversation_.branch_count(), TurnTree::kMaxBranches);
    EXPECT_THROW(conversation_.new_branch(0), Error);
}

// Fails at an odd branch, from the fourth token of the answer on.
struct FailsOnOddBranches {
    static constexpr foresay::Info info{"failing", "1", "Fails.", "Apache-2.0"};
    FailsOnOddBranches(foresay::detail::NoParameters, foresay::Host) {}
    void process(const foresay::Context& context, foresay::Candidates&) const {
        if (context.branch() % 2 == 1 && context.index() >= context.answer() + 3) throw std::runtime_error("odd");
    }
};

// Each on its branch with what it has; one that did not fail is current. Where all fail, nothing changes.
TEST(ConversationFailure, AnAnswerThatFailsLeavesTheOthers) {
    samplers::StageSpec failing = test::stage("failing");
    failing.factory =
        samplers::make_plugin_factory(&foresay::detail::Adapter<FailsOnOddBranches>::sampler, nullptr, "test");
    speculative::Generator generator =
        test::make_generator(test::make_chain({failing, test::stage("temperature", {{"value", 0.8}})}),
                             test::sources(nullptr), test::off(), options());
    Conversation conversation(generator, test::tokenizer(), {});
    const auto answers = conversation.answers("def add(a, b):\n", 3, limits(), {});
    ASSERT_EQ(answers.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
        const Turn& turn = *conversation.branch(answers[i].line).back();
        EXPECT_EQ(turn.answer.size(), i == 1 ? 3u : 20u);
        EXPECT_EQ(answers[i].result.error.empty(), i != 1);
        EXPECT_EQ(turn.finish, i == 1 ? Turn::Finish::cancelled : Turn::Finish::length);
    }
    EXPECT_EQ(conversation.current_branch(), answers[0].line);
    const auto more = conversation.answers(std::nullopt, 2, limits(), {});  // branches 3 and 4
    EXPECT_EQ(conversation.current_branch(), more[1].line);
    const TurnTree::State before = conversation.tree().state();
    EXPECT_THROW(conversation.answers(std::nullopt, 1, limits(), {}), Error);  // 5
    EXPECT_EQ(conversation.tree().state(), before);
}

// Ctrl-C during several answers keeps those that have begun, and no empty branches.
TEST_F(ConversationTest, CancelledAnswersSideBySideLeaveNoEmptyBranches) {
    std::atomic<bool> cancel = false;
    Conversation::Limits limited = limits();
    limited.cancel = &cancel;
    const auto stop_at_first = [&](std::size_t, const speculative::TokenEvent&) { cancel = true; };
    const auto begun = conversation_.answers("import os\n", 6, limited, stop_at_first);
    ASSERT_FALSE(begun.empty());
    EXPECT_EQ(conversation_.branch_count(), begun.size());
    for (std::size_t i = 0; i < conversation_.branch_count(); ++i)
        EXPECT_FALSE(conversation_.branch(i).back()->answer.empty());
    // Cancelled before the first token: a new message stays, as with answer(); otherwise nothing changes.
    const TurnTree::State before = conversation_.tree().state();
    EXPECT_TRUE(conversation_.answers(std::nullopt, 6, limited, {}).empty());
    EXPECT_EQ(conversation_.tree().state(), before);
    const auto message = conversation_.answers("x = 1\n", 6, limited, {});
    ASSERT_EQ(message.size(), 1u);
    EXPECT_EQ(message[0].branch, 0u);
    EXPECT_EQ(conversation_.branch_count(), begun.size());
    EXPECT_TRUE(conversation_.last().said.ends_with("x = 1\n"));
    EXPECT_TRUE(conversation_.last().answer.empty());
    // The numbers of the branches that were dropped are free.
    cancel = false;
    EXPECT_EQ(conversation_.answers(std::nullopt, 2, limits(2), {}).front().branch, 1u);
    expect_all_turns_reproducible();
}

TEST_F(ConversationTest, MoreIsWhatALongerLimitGives) {
    conversation_.answer("def fib(n):\n", limits(20), kNobody);
    const Tokens whole = conversation_.last().answer;
    ASSERT_EQ(whole.size(), 20u);
    conversation_.undo();
    conversation_.answer("def fib(n):\n", limits(6), kNobody);
    conversation_.more(limits(5), kNobody);
    conversation_.more(limits(9), kNobody);
    Tokens pieces = conversation_.last().given;
    pieces.insert(pieces.end(), conversation_.last().answer.begin(), conversation_.last().answer.end());
    EXPECT_EQ(pieces, whole);
    EXPECT_EQ(conversation_.turns().size(), 1u);
    EXPECT_EQ(conversation_.last().given_sampled, std::vector<std::uint8_t>(11, 1));
    expect_all_turns_reproducible();
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.last().answer.size(), 5u);
}

TEST_F(ConversationTest, EntriesBeginOnALineOfTheirOwn) {
    conversation_.answer("def area(r):", limits(5), kNobody);
    EXPECT_EQ(conversation_.last().said, "def area(r):\n");
    ASSERT_TRUE(conversation_.line_open());
    const std::string before = test::tokenizer().decode(conversation_.document().tokens);
    EXPECT_EQ(before.substr(before.rfind('\n') + 1), conversation_.open_line());
    conversation_.answer("x = 1", limits(1), kNobody);
    EXPECT_EQ(conversation_.last().said, "\nx = 1\n");
    EXPECT_TRUE(test::tokenizer().decode(conversation_.document().tokens).starts_with(before + "\nx = 1\n"));
    // As it is, where that was chosen.
    conversation_.set_style({.newline = false});
    conversation_.answer("y", limits(1), kNobody);
    EXPECT_EQ(conversation_.last().said, "y");
    // In a chat format there is no line to continue.
    conversation_.set_style({.format = core::ChatFormat::chatml});
    EXPECT_FALSE(conversation_.line_open());
}

ChatStyle style_of(const std::string& source) {
    ChatStyle style{.format = core::ChatFormat::own};
    style.chat = std::make_shared<const core::ChatTemplate>(source, test::tokenizer());
    style.markup = style.chat->markup();
    return style;
}

const std::string kPlainTemplate =
    "{% for m in messages %}{{ '# ' + m.role + '\n' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}# assistant\n{% endif %}";

TEST_F(ConversationTest, AChatTemplateWritesTheDocument) {
    conversation_.set_style(style_of(kPlainTemplate));
    conversation_.answer("def add(a, b):", limits(), kNobody);
    const Document first = conversation_.document();
    const std::string answer = conversation_.answer_text(conversation_.last());
    conversation_.answer("more", limits(), kNobody);
    EXPECT_FALSE(conversation_.last().kept) << "nothing before it has changed";
    const std::string text = test::tokenizer().decode(conversation_.document().tokens);
    EXPECT_TRUE(text.starts_with("# user\ndef add(a, b):\n# assistant\n" + answer + "\n# user\nmore\n# assistant\n"))
        << text;
    expect_all_turns_reproducible();
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.document().tokens, first.tokens);
    // What is known before the message is complete.
    const Document upcoming = conversation_.upcoming("mor");
    EXPECT_GE(upcoming.tokens.size(), first.tokens.size());
    EXPECT_GT(conversation_.file_tokens() + 1, 0);
    conversation_.attach({"f.py", "x = 1"});
    EXPECT_GT(conversation_.file_tokens(), 3);
}

TEST_F(ConversationTest, AChatTemplateMayWriteEarlierTurnsAnew) {
    conversation_.set_style(style_of("x = 1\n{{ '#' * messages|length }}\n" + kPlainTemplate));
    for (const char* text : {"def add(a, b):", "more", "and more"}) conversation_.answer(text, limits(10), kNobody);
    const Turn& turn = conversation_.last();
    ASSERT_TRUE(turn.kept);
    EXPECT_GT(*turn.kept, 0) << "the beginning stays in the cache";
    const std::string text = test::tokenizer().decode(conversation_.document().tokens);
    EXPECT_TRUE(text.starts_with("x = 1\n#####\n# user\ndef add(a, b):\n# assistant\n")) << text;
    EXPECT_EQ(text.find("# user\nand more"), text.rfind("# user\nand more"));
    expect_all_turns_reproducible();
    conversation_.retry(std::nullopt, limits(10), kNobody);
    EXPECT_EQ(conversation_.last().kept, turn.kept);
    ASSERT_TRUE(conversation_.undo());
    ASSERT_TRUE(conversation_.undo());
    EXPECT_TRUE(test::tokenizer().decode(conversation_.document().tokens).starts_with("x = 1\n###\n"));
    // And it is saved.
    Conversation other(generator_, test::tokenizer(), conversation_.style());
    TurnTree tree;
    for (TurnTree::Change& change : conversation_.take_unsaved()) tree.apply(std::move(change));
    other.restore(std::move(tree));
    EXPECT_EQ(other.document().tokens, conversation_.document().tokens);
}

TEST_F(ConversationTest, ReasoningIsNotPartOfAnAnswer) {
    // The prompt opens the reasoning, and the first line break ends it.
    ChatStyle style = style_of(
        "{% for m in messages %}# {{ m.role }}\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}# think:{% "
        "endif %}"
        "{% if false %}{{ m.reasoning_content }}{% endif %}");
    style.markup = {core::AnswerMarkup::Kind::tags, "think:", "\n"};
    conversation_.set_style(style);
    Conversation::Limits with = limits(40);
    std::string reasoning, content;
    with.reasoning = [&](std::string_view text) { reasoning += text; };
    const auto show = [&](const speculative::TokenEvent& event) { content += event.text; };
    const Conversation::Answer answer = conversation_.answer("def add(a, b):", with, show);
    const std::string raw = test::tokenizer().decode(conversation_.last().answer);
    ASSERT_NE(raw.find('\n'), std::string::npos) << raw;
    ASSERT_FALSE(reasoning.empty()) << raw;
    EXPECT_TRUE(raw.starts_with(reasoning));
    EXPECT_TRUE(raw.ends_with(content));
    EXPECT_EQ(answer.result.text, content);
    EXPECT_EQ(answer.reasoning, reasoning);
    EXPECT_EQ(conversation_.answer_text(conversation_.last()), content);
    EXPECT_EQ(conversation_.reasoning_text(conversation_.last()), reasoning);
    // The next prompt has the content alone.
    conversation_.answer("more", limits(5), kNobody);
    ASSERT_TRUE(conversation_.last().kept);
    const std::string text = test::tokenizer().decode(conversation_.document().tokens);
    EXPECT_TRUE(text.starts_with("# user\ndef add(a, b):\n# assistant\n" + content + "\n# user\nmore\n# think:"))
        << text;
    ASSERT_TRUE(conversation_.undo());
    // An edited answer keeps its reasoning, and side by side it is told apart, too.
    conversation_.edit("    return", limits(5), kNobody);
    EXPECT_EQ(conversation_.reasoning_text(conversation_.last()), reasoning);
    EXPECT_TRUE(conversation_.answer_text(conversation_.last()).starts_with("    return"));
    const auto answers = conversation_.answers("again", 2, limits(40), {});
    for (const Conversation::Answer& one : answers) {
        const Turn& turn = *conversation_.branch(one.line).back();
        EXPECT_EQ(one.result.text, conversation_.answer_text(turn));
        EXPECT_EQ(one.reasoning, conversation_.reasoning_text(turn));
    }
    expect_all_turns_reproducible();
}

TEST_F(ConversationTest, BranchesGoTheirOwnWays) {
    conversation_.answer("import re\n", limits(), kNobody);
    conversation_.answer("\ndef parse(text):\n", limits(), kNobody);
    const Document first = conversation_.document();
    conversation_.new_branch(1);
    EXPECT_EQ(conversation_.current_branch(), 1u);
    EXPECT_EQ(conversation_.turns().size(), 1u);
    conversation_.answer("\nclass Parser:\n", limits(), kNobody);
    const Document second = conversation_.document();
    conversation_.switch_branch(0);
    EXPECT_EQ(conversation_.document().tokens, first.tokens);
    conversation_.answer("\n", limits(), kNobody);
    conversation_.switch_branch(1);
    EXPECT_EQ(conversation_.document().tokens, second.tokens);
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.current_branch(), 0u);
    EXPECT_EQ(conversation_.turns().size(), 3u);
    expect_all_turns_reproducible();
}

TEST_F(ConversationTest, AnEditedAnswerGoesOnBehindTheNewText) {
    conversation_.answer("def mean(values):\n", limits(), kNobody);
    const Tokens old = conversation_.last().answer;
    const std::string text = conversation_.answer_text(conversation_.last());
    const std::string edited = text.substr(0, text.size() / 2) + " + total";
    conversation_.edit(edited, limits(), kNobody);
    const Turn& turn = conversation_.last();
    EXPECT_EQ(test::tokenizer().decode(turn.given), edited);
    EXPECT_GT(turn.given_sampled.front(), 0) << "the beginning was sampled, and stays marked so";
    EXPECT_EQ(turn.given_sampled.back(), 0) << "the end was written";
    EXPECT_TRUE(conversation_.answer_text(turn).starts_with(edited));
    EXPECT_FALSE(turn.answer.empty());
    // Editing again and retrying build on that.
    conversation_.edit(conversation_.answer_text(turn) + "\n    return", limits(), kNobody);
    conversation_.retry(std::nullopt, limits(), kNobody);
    EXPECT_EQ(conversation_.last().branch, 1u);
    expect_all_turns_reproducible();
    ASSERT_TRUE(conversation_.undo());
    ASSERT_TRUE(conversation_.undo());
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.last().answer, old);
}

TEST_F(ConversationTest, FillsAHoleWithTheModelsTokens) {
    conversation_.answer("import os\n", limits(), kNobody);
    conversation_.fill("def add(a, b):\n", "    return total\n", limits(), kNobody);
    const Tokens& input = conversation_.last().input;
    const core::SpecialTokens& special = test::tokenizer().special();
    EXPECT_EQ(special.fim_prefix, 2);
    EXPECT_EQ(special.fim_middle, 3);
    EXPECT_EQ(special.fim_suffix, 4);
    for (const std::int32_t token : {2, 3, 4}) EXPECT_TRUE(ends_middle(test::tokenizer(), token));
    EXPECT_FALSE(ends_middle(test::tokenizer(), 5));
    EXPECT_FALSE(ends_middle(test::tokenizer(), -1));
    EXPECT_EQ(input.front(), special.bos);
    EXPECT_EQ(input[1], special.fim_prefix);
    EXPECT_EQ(input.back(), special.fim_middle);
    EXPECT_EQ(std::count(input.begin(), input.end(), special.fim_suffix), 1);
    EXPECT_EQ(test::tokenizer().decode(input), "def add(a, b):\n    return total\n");
    EXPECT_EQ(conversation_.branch_count(), 2u);
    conversation_.retry(std::nullopt, limits(), kNobody);
    expect_all_turns_reproducible();
    ASSERT_TRUE(conversation_.undo());
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.branch_count(), 1u);
    EXPECT_EQ(conversation_.turns().size(), 1u);
}

TEST_F(ConversationTest, AFilledHoleEndsAlikeWithAndWithoutSpeculation) {
    const std::string before = "def total(values):\n    result = 0\n    for value in values:\n";
    const std::string after = "\n    return result\n";
    speculative::Generator other = plain_generator();
    Conversation plain(other, test::tokenizer(), {});
    int cut = 0;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        std::string shown;
        const auto show = [&](const speculative::TokenEvent& event) { shown += event.text; };
        const auto answer = conversation_.fill(before, after, limits(60, seed), show);
        plain.fill(before, after, limits(60, seed), kNobody);
        EXPECT_EQ(shown, answer.result.text);
        EXPECT_EQ(plain.last().answer, conversation_.last().answer);
        // The turn keeps the tokens that the text begins in, and no more.
        const std::string kept = conversation_.answer_text(conversation_.last());
        EXPECT_TRUE(kept.starts_with(answer.result.text));
        EXPECT_LT(kept.size(), answer.result.text.size() + 12);
        EXPECT_THAT(answer.result.text, ::testing::Not(::testing::HasSubstr("\n    return result\n")));
        const auto sampled = answer.result.tokens.size();
        cut += conversation_.last().answer.size() < sampled && answer.result.finish == speculative::FinishReason::stop;
    }
    EXPECT_GT(cut, 0) << "some text went beyond the hole";
    expect_all_turns_reproducible();
}

// The order spm: the model continues the prefix, and writes the blank that the prefix ends with.
TEST_F(ConversationTest, AHoleCanBeFilledAfterItsPrefix) {
    conversation_.set_style({.fim_order = FimOrder::spm});
    const core::SpecialTokens& special = test::tokenizer().special();
    int with_blank = 0;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        std::string shown;
        const auto show = [&](const speculative::TokenEvent& event) { shown += event.text; };
        const auto answer = conversation_.fill("def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n", limits(), show);
        const Turn& turn = conversation_.last();
        EXPECT_EQ(turn.input[0], special.bos);
        EXPECT_EQ(turn.input[1], special.fim_prefix);
        EXPECT_EQ(turn.input[2], special.fim_suffix);
        EXPECT_EQ(test::tokenizer().decode(turn.input), "\n\nprint(add(1, 2))\ndef add(a, b):\n    return");
        const std::optional<Surroundings> hole = filled_hole(test::tokenizer(), turn);
        ASSERT_TRUE(hole);
        EXPECT_EQ(hole->prefix, "def add(a, b):\n    return ");
        EXPECT_TRUE(hole->blank_left_out);
        const std::string kept = conversation_.answer_text(turn);
        with_blank += kept.starts_with(' ');
        EXPECT_FALSE(answer.result.text.starts_with(' ')) << answer.result.text;
        EXPECT_EQ(shown, answer.result.text);
        EXPECT_THAT(kept, ::testing::HasSubstr(answer.result.text));
        const auto again = conversation_.retry(std::nullopt, limits(), kNobody);
        EXPECT_FALSE(again.result.text.starts_with(' ')) << again.result.text;
    }
    EXPECT_GT(with_blank, 0) << "or this tests nothing";
    expect_all_turns_reproducible();
}

TEST(EncodeFill, CanBeReadBackInEitherOrder) {
    const core::Tokenizer& tokenizer = test::tokenizer();
    for (const FimOrder order : {FimOrder::psm, FimOrder::spm}) {
        for (const std::string prefix : {"", " ", "x", "def f(x):\n    return "}) {
            for (const std::string suffix : {"", "\nprint(f(1))\n"}) {
                std::string before, after;
                ASSERT_TRUE(decode_fill(tokenizer, encode_fill(tokenizer, prefix, suffix, 100, order), before, after));
                if (leaves_out_blank(tokenizer, prefix, order)) before += ' ';
                EXPECT_EQ(before, prefix);
                EXPECT_EQ(after, suffix);
            }
        }
    }
    EXPECT_TRUE(leaves_out_blank(tokenizer, "return ", FimOrder::spm));
    EXPECT_FALSE(leaves_out_blank(tokenizer, "return ", FimOrder::psm)) << "the suffix follows";
}

TEST(EncodeFill, LeavesOutWhatIsFarthestFromTheHole) {
    std::string prefix, suffix;
    for (int i = 0; i < 200; ++i) prefix += "a" + std::to_string(i) + " = 1\n";
    for (int i = 0; i < 200; ++i) suffix += "b" + std::to_string(i) + " = 2\n";
    const Tokens tokens = encode_fill(test::tokenizer(), prefix, suffix, 100, FimOrder::psm);
    EXPECT_LE(tokens.size(), 101u);  // BOS does not count
    const std::string text = test::tokenizer().decode(tokens);
    EXPECT_THAT(text, ::testing::HasSubstr("a199 = 1\n"));
    EXPECT_THAT(text, ::testing::HasSubstr("b0 = 2\n"));
    EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("a0 = 1\n")));
    EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("b199 = 2\n")));
    // A short text before the hole leaves its room to the text after it.
    EXPECT_THAT(test::tokenizer().decode(encode_fill(test::tokenizer(), "x = ", suffix, 100, FimOrder::psm)),
                ::testing::HasSubstr("b10 = 2\n"));
}

TEST_F(ConversationTest, FilesArePlainTextAndGoInFront) {
    const std::string name(test::tokenizer().text(test::tokenizer().special().eos));
    conversation_.attach({"a.py", "x = '" + name + "'\n"});
    const std::int64_t cost = conversation_.file_tokens();
    conversation_.attach({"b.py", "y = 2\n"});
    EXPECT_GT(conversation_.file_tokens(), cost);
    ASSERT_TRUE(conversation_.undo());
    EXPECT_EQ(conversation_.file_tokens(), cost);
    conversation_.answer("print(x)\n", limits(), kNobody);
    const Turn& turn = conversation_.last();
    EXPECT_EQ(std::count(turn.input.begin(), turn.input.end(), test::tokenizer().special().eos), 0);
    EXPECT_EQ(turn.said, "# a.py\nx = '" + name + "'\n\nprint(x)\n");
    EXPECT_EQ(static_cast<std::int64_t>(turn.input.size()),
              cost + static_cast<std::int64_t>(test::tokenizer().encode("print(x)\n").size()));
    EXPECT_TRUE(conversation_.files().empty());
}

TEST_F(ConversationTest, WhatDoesNotFitChangesNothing) {
    conversation_.answer("import os\n", limits(), kNobody);
    const Document before = conversation_.document();
    std::string longer;
    for (int i = 0; i < 600; ++i) longer += "name" + std::to_string(i) + " ";
    EXPECT_THROW(conversation_.answer(longer, limits(), kNobody), Error);
    EXPECT_THROW(conversation_.edit(longer, limits(), kNobody), Error);
    EXPECT_EQ(conversation_.document().tokens, before.tokens);
    conversation_.answer("import re\n", limits(), kNobody);
    expect_all_turns_reproducible();
}

// A conversation that is saved and restored continues as if nothing had happened.
TEST_F(ConversationTest, ASnapshotGoesOnTheSame) {
    conversation_.answer("def fib(n):\n", limits(), kNobody);
    conversation_.retry(std::nullopt, limits(), kNobody);
    conversation_.answers("\ndef main():\n", 2, limits(), {});
    conversation_.edit("    pass\n", limits(), kNobody);
    conversation_.undo();
    TurnTree tree;
    for (TurnTree::Change& change : conversation_.tree().snapshot()) tree.apply(std::move(change));
    speculative::Generator other = plain_generator();
    Conversation restored(other, test::tokenizer(), {});
    restored.restore(std::move(tree));
    EXPECT_EQ(restored.tree().state(), conversation_.tree().state());
    const auto go_on = [](Conversation& conversation) {
        conversation.retry(std::nullopt, limits(), kNobody);
        conversation.answer("\n# end\n", limits(), kNobody);
        Tokens all = conversation.document().tokens;
        while (conversation.undo()) {
            const Tokens now = conversation.document().tokens;
            all.insert(all.end(), now.begin(), now.end());
        }
        return all;
    };
    EXPECT_EQ(go_on(restored), go_on(conversation_));
}

TEST_F(ConversationTest, TokensOfAnotherModelAreRefused) {
    TurnTree tree;
    TurnTree::Change change;
    change.added.push_back({Turn{.said = "x", .input = {1 << 20}}, TurnTree::kRoot});
    change.state.heads = {0};
    tree.apply(change);
    EXPECT_THROW(conversation_.restore(tree), Error);
}

TEST_F(ConversationTest, AnotherVocabularySpellsTheSameText) {
    conversation_.answer("def fib(n):\n", limits(), kNobody);
    conversation_.answer("\nfib(3)\n", limits(), kNobody);
    const std::string answer = conversation_.answer_text(conversation_.last());
    const core::GgufFile file = core::GgufFile::open(FORESAY_UNPACKED_GOLDENS "/vocab/ggml-vocab-gpt-2.gguf");
    const core::Tokenizer other = core::Tokenizer::from_gguf(file);
    conversation_.rebind(generator_, other, {}, false);
    EXPECT_EQ(conversation_.answer_text(conversation_.last()), answer);
    EXPECT_EQ(other.decode(conversation_.last().input), conversation_.last().said) << "with the newlines it had";
    EXPECT_TRUE(conversation_.last().said.ends_with("\nfib(3)\n"));
    EXPECT_EQ(conversation_.turns().size(), 2u);
}

TEST_F(ConversationTest, LogitsOfTheLastAnswerAreThoseItWasDrawnFrom) {
    speculative::Generator greedy =
        test::make_generator(test::temperature_chain(0.0), test::sources(nullptr), test::off(), options());
    Conversation conversation(greedy, test::tokenizer(), {});
    conversation.answer("import os\n", limits(), kNobody);
    conversation.answer("def f():\n", limits(), kNobody);
    std::size_t seen = 0;
    conversation.visit_answer([&](std::size_t index, std::int32_t token, std::span<const float> logits) {
        EXPECT_EQ(index, seen++);
        EXPECT_EQ(std::max_element(logits.begin(), logits.begin() + test::tokenizer().vocab_size()) - logits.begin(),
                  token);
    });
    EXPECT_EQ(seen, conversation.last().answer.size());
}

TEST(TurnTree, RefusesChangesThatDoNotFit) {
    const auto change = [](int parent, std::vector<int> heads, std::size_t current, bool undo = false) {
        TurnTree::Change out;
        if (parent > -2) out.added.push_back({Turn{}, parent});
        out.state = {std::move(heads), current};
        out.undo = undo;
        return out;
    };
    TurnTree tree;
    EXPECT_THROW(tree.apply(change(0, {0}, 0)), Error);          // follows itself
    EXPECT_THROW(tree.apply(change(-1, {1}, 0)), Error);         // a branch into nowhere
    EXPECT_THROW(tree.apply(change(-1, {0}, 1)), Error);         // no such branch
    EXPECT_THROW(tree.apply(change(-1, {}, 0)), Error);          // no branch
    EXPECT_THROW(tree.apply(change(-2, {-1}, 0, true)), Error);  // nothing to undo
    EXPECT_THROW(tree.apply(change(-2, {-2}, 0)), Error);
    tree.apply(change(-1, {0}, 0));
    EXPECT_THROW(tree.apply(change(-2, {0}, 0, true)), Error);  // not the state before
    tree.apply(change(-2, {-1}, 0, true));
    EXPECT_EQ(tree.head(), TurnTree::kRoot);
    EXPECT_EQ(tree.nodes().size(), 1u);
}

}  // namespace
}  // namespace foresay::app
