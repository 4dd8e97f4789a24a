// Commands that give the model context: files, text around a hole to fill, a system prompt.
#include <filesystem>
#include <string>
#include <vector>

#include "app/conversation/source_files.h"
#include "app/output.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "base/error.h"
#include "core/text/bounded_encode.h"

namespace foresay::app {

namespace {

constexpr std::string_view kHole = "<FILL>";
constexpr std::int64_t kSeam = 16;  // tokens by which a text may shrink among others; a bound

// Attaches a file and returns how many tokens it adds. Throws, and leaves it out, if it does not fit the context.
std::int64_t attach(Repl& repl, const std::filesystem::path& path) {
    Conversation& conversation = repl.conversation();
    const std::int64_t before = conversation.file_tokens();
    const std::int64_t left = repl.engine().context_length() - conversation.tokens() - before;
    const auto refuse = [&](const std::string& tokens) {
        throw Error(path.string() + " has " + tokens + " tokens, and the context has room for " + std::to_string(left) +
                    "; attach a smaller file, use /clear, or start with a larger --context");
    };
    std::string text = read_text_file(path);
    // A large file is refused before all of it becomes tokens.
    const std::int64_t least = core::count_tokens(conversation.tokenizer(), text,
                                                  {.add_special = false, .parse_special = false}, left + kSeam);
    if (least > left + kSeam) refuse("at least " + std::to_string(least - kSeam));
    conversation.attach({path.string(), std::move(text)});
    const std::int64_t all = conversation.file_tokens();
    if (all - before < left) return all - before;
    conversation.undo();
    refuse(std::to_string(all - before));
    return 0;
}

void say_total(Repl& repl) {
    Conversation& conversation = repl.conversation();
    const std::size_t count = conversation.files().size();
    say(dim(std::to_string(count) + (count == 1 ? " file, " : " files, ") + std::to_string(conversation.file_tokens()) +
            " tokens, will be sent before your next message; /undo removes the last one.") +
        "\n");
}

void file(Repl& repl, const std::string& arguments) {
    const std::vector<std::string> words = split_words(arguments);
    for (const std::string& word : words) {
        const std::filesystem::path path = user_path(word);
        const std::int64_t tokens = attach(repl, path);
        say(padded(printable(path.string()), 40) + std::to_string(tokens) + " tokens\n");
    }
    if (words.empty()) {
        for (const Attachment& attached : repl.conversation().files()) say(printable(attached.name) + "\n");
    }
    if (repl.conversation().files().empty()) throw Error("no files are attached; /file PATH attaches one");
    say_total(repl);
}

void directory(Repl& repl, const std::string& arguments) {
    const std::vector<std::string> words = split_words(arguments);
    if (words.empty() || words.size() > 2) throw Error("write /dir FOLDER or /dir FOLDER SUFFIX");
    FolderFiles found = find_text_files(user_path(words[0]));
    const std::string suffix = words.size() > 1 ? words[1] : "";
    std::erase_if(found.files, [&](const auto& path) { return !path.string().ends_with(suffix); });
    if (found.files.empty())
        throw Error(words[0] + " contains no text files" + (suffix.empty() ? "" : " whose names end in " + suffix));
    std::size_t attached = 0;
    try {
        for (const std::filesystem::path& path : found.files) {
            const std::int64_t tokens = attach(repl, path);
            ++attached;
            say(padded(printable(path.string()), 40) + std::to_string(tokens) + " tokens\n");
        }
    } catch (...) {
        // All files or none: with half a folder attached, the user would think that the model sees all of it.
        for (; attached > 0; --attached) repl.conversation().undo();
        throw;
    }
    if (found.left_out > 0) {
        say(dim(std::to_string(found.left_out) + " skipped: not text, or larger than 256 KiB.") + "\n");
    }
    say_total(repl);
}

void fill(Repl& repl, const std::string& arguments) {
    if (arguments.empty())
        throw Error("write /fim FILE:LINE[:COLUMN], or text with " + std::string(kHole) + " where the hole is");
    std::string prefix, suffix;
    if (const std::size_t hole = arguments.find(kHole); hole != std::string::npos) {
        prefix = arguments.substr(0, hole);
        suffix = arguments.substr(hole + kHole.size());
    } else {
        const std::vector<std::string> words = split_words(arguments);
        const FilePlace place = parse_place(words.size() == 1 ? words[0] : arguments);
        const std::string text = read_text_file(user_path(place.file));
        const std::size_t at = offset_of(text, place);
        prefix = text.substr(0, at);
        suffix = text.substr(at);
    }
    repl.show_answer(
        [&](const Repl::Show& show) { return repl.conversation().fill(prefix, suffix, repl.limits(), show); });
    if (repl.conversation().branch_count() > 1) {
        say(dim("The result is on its own branch (" + std::to_string(repl.conversation().current_branch()) +
                "); /undo goes back.") +
            "\n");
    }
}

void system(Repl& repl, const std::string& arguments) {
    Configuration next = repl.engine().configuration();
    if (arguments.empty()) {
        const std::string& text = next.config().chat_system;
        return say(text.empty() ? dim("No system prompt.") + "\n" : printable(text) + "\n");
    }
    next.set_text("chat.system = " + core::to_toml(core::ConfigValue(arguments == "none" ? "" : arguments)), "/system");
    repl.configure(next);
    if (!repl.conversation().empty()) {
        say(dim(std::string("The next conversation starts ") + (arguments == "none" ? "without one" : "with it") +
                "; /clear starts one.") +
            "\n");
    }
}

Candidates complete_folder(const CompletionRequest& request) {
    Candidates candidates = complete_files(request);
    std::erase_if(candidates, [](const std::string& name) { return !name.ends_with('/'); });
    return candidates;
}

constexpr ReplCommand kCommands[] = {
    {"file", "[PATH...]", "attach files before your next message, and show their token counts",
     "The content is taken as plain text: what looks like a special token stays text. Without PATH, lists the attached "
     "files.",
     file, complete_files},
    {"dir", "FOLDER [SUFFIX]", "attach every text file below a folder before your next message",
     "Skips hidden files, links, files that are not text and files larger than 256 KiB. With SUFFIX, attaches only "
     "files whose names end in it: /dir src .py",
     directory, complete_folder},
    {"fim", "FILE:LINE[:COLUMN] | TEXT",
     "fill in the middle: generate the text that is missing at a place in a file or in TEXT",
     "Without COLUMN, the place is the end of the line. In TEXT, <FILL> marks the place: /fim def f(x):<FILL>    "
     "return y. The result is on its own branch, where /retry, /n and /top work as usual.",
     fill, complete_files},
    {"system", "[TEXT|none]", "show or set the system prompt of new conversations",
     "The same as /set chat.system. A new prompt takes effect when the next conversation starts.", system},
};

}  // namespace

CommandTopic context_commands() { return {"Context", kCommands}; }

}  // namespace foresay::app
