// Commands for alternative answers: several at once, branches of the conversation, and editing the last answer.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "app/output.h"
#include "app/pager.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::size_t kMostAnswers = 16;

std::string counted(std::size_t number, const std::string& what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

std::string branch_line(Conversation& conversation, std::size_t index) {
    const std::vector<const Turn*> turns = conversation.branch(index);
    std::string line = (index == conversation.current_branch() ? "* " : "  ") + padded(std::to_string(index), 4) +
                       padded(counted(turns.size(), "answer"), 12);
    if (turns.empty()) return line + "empty";
    const Turn& last = *turns.back();
    line += "seed " + std::to_string(last.seed) + ", branch " + std::to_string(last.branch) + "  ";
    return line + excerpt(conversation.answer_text(last), 48);
}

void branch(Repl& repl, const std::string& arguments) {
    Conversation& conversation = repl.conversation();
    const std::vector<std::string> words = split_words(arguments);
    if (words.empty()) {
        std::string out;
        for (std::size_t i = 0; i < conversation.branch_count(); ++i) out += branch_line(conversation, i) + "\n";
        return page_message(out);
    }
    if (words[0] == "new") {
        const std::size_t turns = conversation.turns().size();
        const std::size_t begin =
            words.size() > 1 ? whole_number(words[1], "the number of answers to keep", 0, turns) : turns;
        conversation.new_branch(begin);
    } else {
        conversation.switch_branch(whole_number(words[0], "a branch", 0, conversation.branch_count() - 1));
    }
    say(branch_line(conversation, conversation.current_branch()) + "\n");
    show_place(repl);
}

Candidates complete_branch(const CompletionRequest& request) {
    Candidates candidates;
    if (!request.before.empty()) return candidates;
    candidates.emplace_back("new");
    const std::size_t count = request.repl.conversation().branch_count();
    for (std::size_t i = 0; i < count; ++i) candidates.push_back(std::to_string(i));
    return candidates;
}

void several(Repl& repl, const std::string& arguments) {
    Conversation& conversation = repl.conversation();
    const std::size_t blank = std::min(arguments.find_first_of(" \n"), arguments.size());
    const std::size_t count = whole_number(arguments.substr(0, blank), "the number of answers", 1, kMostAnswers);
    std::optional<std::string> text;
    if (blank < arguments.size()) text = arguments.substr(arguments.find_first_not_of(" \n", blank));
    if (!text && conversation.empty()) throw Error("there is nothing to answer yet; write /n K TEXT");
    // The first answer is shown as it is generated, the others once all are finished.
    const std::string before = repl.text_before(text);
    std::vector<Conversation::Answer> answers;
    bool cancelled = false;
    const auto generate = [&](const Repl::Show& show) {
        answers = conversation.answers(text, count, repl.limits(), [&](std::size_t index, const auto& event) {
            if (index == 0) show(event);
        });
        if (answers.empty()) throw Error("cancelled before the first token; the conversation is as it was");
        cancelled = answers.size() < count || std::any_of(answers.begin(), answers.end(), [](const auto& answer) {
                        return answer.result.finish == speculative::FinishReason::cancelled;
                    });
        if (cancelled) {
            repl.replace_statistics("Cancelled; " + std::to_string(answers.size()) + " of " + std::to_string(count) +
                                    " answers had begun and are kept; /branch lists them.");
        }
        return answers.front();
    };
    if (text) {
        repl.send(*text, [&] { repl.show_answer(generate, before); });
    } else {
        repl.show_answer(generate, before);
    }
    const auto say_failure = [&repl](const Conversation::Answer& answer) {
        if (!answer.result.error.empty()) repl.fail(answer.result.error);
    };
    say_failure(answers.front());
    for (std::size_t i = 1; i < answers.size() && !cancelled; ++i) {
        say(dim("-- /branch " + std::to_string(answers[i].line) + ": seed " + std::to_string(answers[i].seed) +
                ", branch " + std::to_string(answers[i].branch)) +
            "\n");
        repl.show_answer(
            [&](const Repl::Show& show) {
                show({.token = -1, .text = answers[i].result.text});
                return answers[i];
            },
            before);
        say_failure(answers[i]);
    }
    if (cancelled) return;
    const auto current = std::ranges::find(answers, conversation.current_branch(), &Conversation::Answer::line);
    say(dim(std::string(current == answers.begin() ? "The first one" : "The first that did not fail") +
            " is current (/branch " + std::to_string(current->line) + ": seed " + std::to_string(current->seed) +
            ", branch " + std::to_string(current->branch) + ").") +
        "\n");
}

void edit(Repl& repl, const std::string& arguments) {
    Conversation& conversation = repl.conversation();
    if (conversation.empty()) throw Error("there is no answer to edit");
    std::string text = arguments;
    if (text.size() > 1 && text.starts_with('"') && text.ends_with('"')) text = text.substr(1, text.size() - 2);
    if (text.empty()) {
        if (!repl.interactive()) throw Error("write the new text after /edit; an editor needs a terminal");
        text = repl.edited_text(conversation.answer_text(conversation.last()));
    }
    const std::string before = repl.text_before();
    repl.show_answer([&](const Repl::Show& show) { return conversation.edit(text, repl.limits(), show); }, before,
                     text);
}

constexpr ReplCommand kCommands[] = {
    {"n", "K [TEXT]", "generate K answers side by side, each on its own branch",
     "They answer TEXT or, without it, the last message again. All are generated together, on branches of one KV "
     "cache. Each is the answer that its seed and branch give alone: `foresay complete --seed S --branch B` reproduces "
     "it. The first becomes the current branch; /branch lists them. Ctrl-C keeps the answers that have begun. Where a "
     "sampler fails, that answer alone ends, on its branch and with a sentence; the others go on.",
     several},
    {"branch", "[N|new [ANSWERS]]", "list the conversation's branches, switch to one, or start one",
     "Without an argument, lists the branches and marks the current one. `new` starts a branch here, or after the "
     "first ANSWERS answers of this branch (/history numbers them), and leaves the old one as it is. /undo goes back "
     "to where you were.",
     branch, complete_branch},
    {"edit", "[TEXT]", "change the last answer, and continue from it",
     "Without TEXT, the answer opens in your editor ($VISUAL or $EDITOR). The unchanged beginning keeps its tokens, "
     "and the model continues after your text. Put TEXT in double quotes if it begins or ends with spaces. /undo "
     "brings the old answer back.",
     edit},
};

}  // namespace

CommandTopic branch_commands() { return {"Branches", kCommands}; }

}  // namespace foresay::app
