// Commands that go back: another answer, undo, a new conversation.
#include <charconv>
#include <string>
#include <vector>

#include "app/output.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
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
        repl.show_answer([&](const Repl::Show& show) { return repl.conversation().retry(seed, repl.limits(), show); });
    };
    if (arguments.empty()) return again(std::nullopt);
    std::uint64_t seed = 0;
    const char* end = arguments.data() + arguments.size();
    const auto [stop, error] = std::from_chars(arguments.data(), end, seed);
    if (error != std::errc() || stop != end)
        throw Error("the seed of /retry must be a number, not '" + arguments + "'");
    again(seed);
}

void undo(Repl& repl, const std::string& arguments) {
    const std::vector<std::string> words = split_words(arguments);
    if (words.size() > 1) throw Error("write /undo or /undo FILE");
    if (!words.empty()) return say(dim(repl.writes().take_back(repl.writes().last_of(words[0]))) + "\n");
    if (FileWrites::Write* const write = repl.writes().newest(repl)) {
        return say(dim(repl.writes().take_back(*write)) + "\n");
    }
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
    {"undo", "[FILE]", "undo the last answer, /retry, /clear or write to a file",
     "Undoes what came last. While attached files are waiting to be sent, each /undo removes the last of them. A write "
     "by /write, /patch or /fim --apply is undone as long as nothing else was done since; /undo FILE undoes the last "
     "write of FILE at any time. A file that has changed since it was written stays as it is.",
     undo, complete_files},
    {"clear", "", "start a new conversation", "/undo brings the old one back.", clear},
};

}  // namespace

CommandTopic conversation_commands() { return {"Conversation", kCommands}; }

}  // namespace foresay::app
