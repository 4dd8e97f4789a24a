// Commands that go back or on (another answer, more of one, undo, a new conversation), and that print the conversation.
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/output.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"

namespace foresay::app {

namespace {

void clear(Repl& repl, const std::string&) {
    repl.conversation().clear();
    if (repl.interactive()) say(dim("A new conversation. /undo brings the old one back.") + "\n");
}

// The seeds that a configuration can hold, so that `foresay complete --seed` reproduces each of them.
std::optional<std::uint64_t> parse_seed(const std::string& text) {
    if (text.empty()) return std::nullopt;
    std::int64_t seed = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, seed);
    if (error == std::errc() && stop == end && seed >= 0) return static_cast<std::uint64_t>(seed);
    throw Error("the seed must be a whole number from 0 to " +
                std::to_string(std::numeric_limits<std::int64_t>::max()) + ", not '" + text + "'");
}

void retry(Repl& repl, const std::string& arguments) {
    const std::optional<std::uint64_t> seed = parse_seed(arguments);
    if (const std::optional<std::string> text = repl.unanswered()) return repl.answer(*text, seed);
    if (repl.conversation().empty()) throw Error("there is no answer to retry");
    const std::string before = repl.text_before();
    repl.show_answer([&](const Repl::Show& show) { return repl.conversation().retry(seed, repl.limits(), show); },
                     before);
}

void more(Repl& repl, const std::string& arguments) {
    Conversation& conversation = repl.conversation();
    if (conversation.empty()) throw Error("there is no answer to continue");
    Conversation::Limits limits = repl.limits();
    if (!arguments.empty()) {
        const auto most = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
        limits.max_tokens = static_cast<std::int32_t>(whole_number(arguments, "the number of tokens", 1, most));
    }
    // At a terminal, other lines have followed the one that goes on, so it is shown again.
    const std::string answer = conversation.answer_text(conversation.last());
    const std::size_t line = answer.find_last_of('\n') + 1;
    const std::string before = repl.text_before() + answer.substr(0, line);
    repl.show_answer([&](const Repl::Show& show) { return conversation.more(limits, show); }, before,
                     repl.interactive() ? answer.substr(line) : "");
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
    show_place(repl);
}

std::string token_table(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    std::string out;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        out += padded(std::to_string(i), 6) + padded(std::to_string(ids[i]), 8) + quoted(tokenizer.bytes(ids[i])) +
               (tokenizer.is_control(ids[i]) ? "  special\n" : "\n");
    }
    return out;
}

// The text, with special tokens by their names.
std::string document_text(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    std::string out, text;
    const auto flush = [&] { out += printable(std::exchange(text, {})); };
    for (const std::int32_t id : ids) {
        if (!tokenizer.is_control(id)) {
            text += tokenizer.bytes(id);
            continue;
        }
        flush();
        out += dim(printable(tokenizer.bytes(id)));
    }
    flush();
    return out;
}

void print_document(Repl& repl, const std::string& arguments) {
    const bool as_tokens = arguments == "--tokens" || arguments == "tokens";
    if (!arguments.empty() && !as_tokens) throw Error("write /print or /print --tokens");
    const Conversation& conversation = repl.conversation();
    const std::vector<std::int32_t> ids = conversation.document().tokens;
    if (ids.empty()) throw Error("the conversation is empty");
    std::string out =
        as_tokens ? token_table(conversation.tokenizer(), ids) : document_text(conversation.tokenizer(), ids);
    std::string end = std::to_string(ids.size()) + (ids.size() == 1 ? " token" : " tokens");
    if (!as_tokens && conversation.line_open()) end += "; the last line is not finished, it has no newline";
    if (!out.ends_with('\n')) out += '\n';
    say(out + dim(end + ".") + "\n");
}

Candidates complete_print(const CompletionRequest& request) {
    if (!request.before.empty()) return {};
    return {"--tokens"};
}

void history(Repl& repl, const std::string& arguments) {
    constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
    constexpr std::size_t kNumber = 5, kLeast = 16;  // columns
    const Conversation& conversation = repl.conversation();
    const std::size_t wanted = arguments.empty() ? kMost : whole_number(arguments, "the number of entries", 1, kMost);
    const std::vector<const Turn*> turns = conversation.turns();
    if (turns.empty()) throw Error("the conversation is empty");
    const std::size_t half = std::max(kLeast, (terminal_columns() - std::min(terminal_columns(), kNumber + 10)) / 2);
    std::string out;
    for (std::size_t i = turns.size() - std::min(wanted, turns.size()); i < turns.size(); ++i) {
        out += padded(std::to_string(i + 1), kNumber) + padded("> " + excerpt(turns[i]->said, half), half + 7) +
               excerpt(conversation.answer_text(*turns[i]), half) + "\n";
    }
    say(out);
}

constexpr ReplCommand kCommands[] = {
    {"retry", "[SEED]", "generate the last answer again, from the next branch or another seed",
     "Without SEED, the answer is sampled from the next unused branch of the same seed; with SEED, from branch 0 of "
     "that seed. `foresay complete --seed S --branch B` reproduces either. After an entry that got no answer because "
     "of an error, that entry is sent again.",
     retry},
    {"more", "[N]", "continue the last answer where it stopped, for up to N tokens",
     "The text is the one that a larger limit (chat.max_tokens) would have given. An answer that the model ended "
     "itself has no continuation.",
     more},
    {"undo", "[FILE]", "undo the last answer, /retry, /clear or write to a file",
     "Undoes what came last. While attached files are waiting to be sent, each /undo removes the last of them. A write "
     "by /write, /patch or /fim --apply is undone as long as nothing else was done since; /undo FILE undoes the last "
     "write of FILE at any time. A file that has changed since it was written stays as it is.",
     undo, complete_files},
    {"clear", "", "start a new conversation", "/undo brings the old one back.", clear},
    {"print", "[--tokens]", "print the conversation as the model reads it",
     "Special tokens are shown by their names. With --tokens, prints one token per line: its position, its id and its "
     "text.",
     print_document, complete_print},
    {"history", "[N]", "list the entries and answers of this branch, or the last N of them",
     "The numbers are those that /branch new takes.", history},
};

}  // namespace

CommandTopic conversation_commands() { return {"Conversation", kCommands}; }

}  // namespace foresay::app
