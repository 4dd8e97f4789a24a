// Commands that go back: another answer, undo, a new conversation.
#include <charconv>
#include <string>
#include <vector>

#include "app/output.h"
#include "app/repl/commands/topics.h"
#include "app/repl/repl.h"
#include "base/error.h"

namespace foresay::app {

namespace {

void clear(Repl& repl, const std::string&) {
    repl.conversation().clear();
    if (repl.interactive()) say(dim("A new conversation. /undo brings the old one back.") + "\n");
}

void retry(Repl& repl, const std::string& arguments) {
    if (repl.conversation().empty()) throw Error("there is no answer to retry");
    const auto again = [&](std::optional<std::uint64_t> seed) {
        const std::string before = repl.text_before();
        repl.show_answer([&](const Repl::Show& show) { return repl.conversation().retry(seed, repl.limits(), show); },
                         before);
    };
    if (arguments.empty()) return again(std::nullopt);
    std::uint64_t seed = 0;
    const char* end = arguments.data() + arguments.size();
    const auto [stop, error] = std::from_chars(arguments.data(), end, seed);
    if (error != std::errc() || stop != end)
        throw Error("the seed of /retry must be a number, not '" + arguments + "'");
    again(seed);
}

void undo(Repl& repl, const std::string&) {
    const std::vector<Attachment> files = repl.conversation().files();
    if (!repl.conversation().undo()) throw Error("there is nothing to undo");
    if (!files.empty()) {
        return say(dim(printable(files.back().name) + " is no longer attached.") + "\n");
    }
    const std::size_t turns = repl.conversation().turns().size();
    say(dim("Back to " +
            (turns == 0 ? std::string("the start")
                        : "the state after " + std::to_string(turns) + (turns == 1 ? " answer" : " answers")) +
            ".") +
        "\n");
}

constexpr ReplCommand kCommands[] = {
    {"retry", "[SEED]", "generate the last answer again, from the next branch or another seed",
     "Without SEED, the answer is sampled from the next unused branch of the same seed; with SEED, from branch 0 of "
     "that seed. `foresay complete --seed S --branch B` reproduces either.",
     retry},
    {"undo", "", "undo the last answer, /retry or /clear",
     "While attached files are waiting to be sent, each /undo removes the last of them instead.", undo},
    {"clear", "", "start a new conversation", "/undo brings the old one back.", clear},
};

}  // namespace

CommandTopic conversation_commands() { return {"Conversation", kCommands}; }

}  // namespace foresay::app
