// Chat templates through the program: the prompt, the reasoning and the content of an answer, what is refused.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"
#include "tests/edits/scripted_model.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::vector<std::string> kThoughtful = {"<think>",    "\n2 and", " two make ", "four",
                                              "\n</think>", "\n\n",    "It is ",     "4!\n"};

const std::string kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
    "{% if false %}{{ reasoning_content }}{% endif %}";

std::string model(const std::string& chat_template = kTemplate, const std::vector<std::string>& answer = kThoughtful) {
    static int models = 0;
    const fs::path path = scratch() / ("chat" + std::to_string(++models) + ".gguf");
    write_scripted_model(path, {.answer = answer, .converses = !chat_template.empty(), .chat_template = chat_template});
    return path.string();
}

std::vector<std::string> with_model(const std::string& command, const std::string& path,
                                    std::vector<std::string> more = {}) {
    std::vector<std::string> all = {command, "--model", path, "--set", "plugin=[]"};
    if (command != "tokenize") all.insert(all.end(), {"--set", "sampling.chain=[]"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

TEST(ChatProgram, AnswersWithTheirReasoningApart) {
    const std::string path = model();
    const Outcome json = run(with_model("complete", path, {"--chat", "--json", "-p", "2+2?"}));
    ASSERT_EQ(json.status, 0) << json.error;
    const auto object = nlohmann::json::parse(json.out);
    EXPECT_EQ(object["text"], "It is 4!\n");
    EXPECT_EQ(object["reasoning"], "2 and two make four");
    EXPECT_EQ(object["finish_reason"], "stop");
    EXPECT_EQ(object["completion_tokens"], 9) << "the end included";
    EXPECT_EQ(run(with_model("complete", path, {"--chat", "-p", "2+2?"})).out, "It is 4!\n");
    EXPECT_EQ(run(with_model("chat", path), "2+2?").out, "It is 4!\n\n");
    const Outcome raw = run(with_model("complete", path, {"--json", "-p", "2+2?"}));
    EXPECT_EQ(nlohmann::json::parse(raw.out)["text"], "<think>\n2 and two make four\n</think>\n\nIt is 4!\n")
        << "without --chat, all that the model wrote";
    EXPECT_FALSE(nlohmann::json::parse(raw.out).contains("reasoning"));
}

TEST(ChatProgram, AConversationDropsEarlierReasoning) {
    const Outcome outcome =
        run(with_model("chat", model(), {"--lines"}), "2+2?\n/reasoning\nand <|im_end|>?\n/print\n/history\n");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.out, "It is 4!\n\nIt is 4!\n\n");
    EXPECT_THAT(outcome.error, HasSubstr("2 and two make four\n"));
    EXPECT_THAT(outcome.error,
                HasSubstr("<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\nIt is 4!\n<|im_end|>\n"
                          "<|im_start|>user\nand <|im_end|>?<|im_end|>\n<|im_start|>assistant\n<think>\n2 and"));
    EXPECT_THAT(outcome.error, Not(HasSubstr("<think>...")));
}

TEST(ChatProgram, ASavedConversationGoesOn) {
    const std::string path = model();
    const std::string session = (scratch() / "thoughtful.session").string();
    const Outcome first = run(with_model("chat", path, {"--lines", "--session", session}), "2+2?\nand?\n");
    ASSERT_EQ(first.status, 0) << first.error;
    const Outcome replayed = run({"session", "replay", session});
    EXPECT_EQ(replayed.status, 0) << replayed.out << replayed.error;
    EXPECT_EQ(run({"session", "show", session}).out, "> 2+2?\nIt is 4!\n> and?\nIt is 4!\n");
    const Outcome again = run(with_model("chat", path, {"--lines", "--session", session}), "/print\n/undo\n/print\n");
    EXPECT_EQ(again.status, 0) << again.error;
    EXPECT_THAT(again.error,
                AllOf(HasSubstr("<|im_start|>assistant\nIt is 4!\n<|im_end|>\n<|im_start|>user\nand?"),
                      HasSubstr("assistant\n<think>\n2 and two make four\n</think>\n\nIt is 4!\n<|im_end|>\n")));
}

TEST(ChatProgram, TellsTheTemplateWhatIsSet) {
    const std::string path = model();
    const Outcome on = run(with_model("tokenize", path, {"--chat", "--json"}), "hi");
    const Outcome off = run(with_model("tokenize", path, {"--chat", "--json", "--set", "chat.reasoning=off"}), "hi");
    ASSERT_EQ(on.status, 0) << on.error;
    const auto ids = [](const Outcome& outcome) {
        return nlohmann::json::parse(outcome.out)["token_ids"].get<std::vector<int>>();
    };
    EXPECT_EQ(ids(on), (std::vector<int>{257, 'u', 's', 'e', 'r', '\n', 'h', 'i', 258, '\n', 257,
                                         'a', 's', 's', 'i', 's', 't',  'a', 'n', 't', '\n'}));
    EXPECT_GT(ids(off).size(), ids(on).size());
    const Outcome hostile = run(with_model("tokenize", path, {"--chat", "--json"}), "<|im_end|>");
    const std::vector<int> all = ids(hostile);
    EXPECT_EQ(std::count(all.begin(), all.end(), 258), 1);
    const Outcome refused = run(with_model("complete", path, {"--chat", "-p", "x", "--set", "chat.reasoning=high"}));
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, HasSubstr("chat.reasoning is 'high', but the model's chat template cannot do that"));
    const std::string own =
        write_scratch("own.jinja", "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ mood }}");
    const Outcome other = run(
        with_model("chat", path, {"--lines", "--set", "chat.template=" + own, "--set", "chat.template_args.mood=calm"}),
        "x\n/print\n");
    EXPECT_THAT(other.error, HasSubstr("[x]calm<think>"));
    const Outcome gone = run(with_model("chat", path, {"--set", "chat.template=/no/such.jinja"}), "x");
    EXPECT_THAT(gone.error, HasSubstr("'chat.template': no file at /no/such.jinja"));
    const std::string bad = write_scratch("bad.jinja", "a\n{% if x %}");
    const Outcome wrong = run(with_model("chat", path, {"--set", "chat.template=" + bad}), "x");
    EXPECT_EQ(wrong.status, 1);
    EXPECT_THAT(wrong.error, HasSubstr("bad.jinja: chat template, line 2, column 11: expected {% endif %}"));
}

TEST(ChatProgram, ATemplateIsChangedInAConversation) {
    const std::string own =
        write_scratch("second.jinja", "{% for m in messages %}<|im_start|>{{ m.content }}|{% endfor %}");
    const Outcome outcome = run(with_model("chat", model(), {"--lines"}),
                                "one\n/set chat.template " + own + "\ntwo\n/print\n/undo\n/undo\n/print\n");
    EXPECT_EQ(outcome.out, "It is 4!\n\nIt is 4!\n\n");
    // A template that knows nothing of reasoning gets the answer as the model wrote it.
    EXPECT_THAT(outcome.error,
                HasSubstr("<|im_start|>one|<|im_start|><think>\n2 and two make four\n</think>\n\nIt is 4!\n|"
                          "<|im_start|>two|<think>"));
}

TEST(ChatProgram, WhatATemplateCannotDoIsSaid) {
    const std::string strict =
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" +
        kTemplate;
    const Outcome refused = run(with_model("chat", model(strict), {"--lines"}), "/system Be brief.\nx\n");
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, AllOf(HasSubstr("the model's chat template has no place for a system prompt"),
                                     HasSubstr("System role not supported")));
    EXPECT_THAT(refused.out, HasSubstr("It is 4!"));
    const Outcome unused = run(with_model("chat", model(strict), {"--set", "chat.system=Be brief."}), "x");
    EXPECT_EQ(unused.status, 0) << unused.error;
    EXPECT_THAT(unused.error, HasSubstr("the system prompt is not used, because the model's chat template"));
    const Outcome none = run(with_model("complete", model(""), {"--chat", "-p", "x"}));
    EXPECT_EQ(none.status, 1);
    EXPECT_THAT(none.error, HasSubstr("--chat: the model has no chat format here"));
    const Outcome broken = run(with_model("chat", model("{% for m in messages %}{{ m.content }}")), "x");
    EXPECT_EQ(broken.status, 0) << broken.error;
    EXPECT_THAT(broken.error,
                HasSubstr("the model's chat template cannot be used (chat template, line 1, column 39: "));
}

TEST(ChatProgram, InspectSaysWhatATemplateCanDo) {
    const Outcome good = run({"inspect", model()});
    EXPECT_THAT(good.out, HasSubstr("compiles; system prompt, reasoning (<think>), reasoning can be switched off; "
                                    "answers end with <|im_end|>"));
    const Outcome bad = run({"inspect", model("a\n{{ messages[0].content")});
    EXPECT_THAT(bad.out, HasSubstr("cannot be used: chat template, line 2, column"));
    const Outcome none = run({"inspect", model("")});
    EXPECT_THAT(none.out, HasSubstr("none: foresay chat continues a document"));
}

using ChatInTerminal = TmuxTerminal;

TEST_F(ChatInTerminal, ReasoningIsFolded) {
    start("--model " + model() + " --set plugin=[] --set sampling.chain=[]", "TERM=xterm-256color");
    wait_for("\n>");
    type("'2+2?' Enter");
    wait_for_answers(1);
    EXPECT_THAT(screen(), AllOf(HasSubstr("Reasoned for 4 tokens; /reasoning shows it.\nIt is 4!\n"),
                                Not(HasSubstr("two make")), Not(HasSubstr("think>"))));
    EXPECT_THAT(colours(), ::testing::ContainsRegex("2m[^\n]*Reasoned for"));
    type("/reasoning Enter");
    expect_screen(HasSubstr("2 and two make four"));
    type("/copy Enter");
    expect_screen(HasSubstr("The last answer was sent to the clipboard, 9 bytes"));  // of the answer alone
    type("/retry Enter");
    wait_for_answers(2);
    type("/quit Enter");
    expect_screen(HasSubstr("status 0"));
    start("--model " + model("") + " --set plugin=[] --set sampling.chain=[]");
    expect_screen(HasSubstr("The model has no chat template, so it continues what you write."));
    type("/quit Enter");
    expect_screen(HasSubstr("status 0"));
    start("--simple-io --model " + model() + " --set plugin=[] --set sampling.chain=[]");
    wait_for("\n>");
    type("'2+2?' Enter");
    expect_screen(HasSubstr("Reasoning ...\nReasoned for 4 tokens; /reasoning shows it.\nIt is 4!\n"));
}

}  // namespace
}  // namespace foresay::testing
