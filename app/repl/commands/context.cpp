// Commands that give the model context: files, text around a hole to fill, a system prompt.
#include <filesystem>
#include <string>
#include <vector>

#include "app/conversation/source_files.h"
#include "app/edits/file_text.h"
#include "app/edits/target_file.h"
#include "app/output.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"
#include "core/text/bounded_encode.h"

namespace foresay::app {

namespace {

constexpr std::string_view kHole = "<FILL>";

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
        const std::int64_t tokens = attach_file(repl, path);
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
            const std::int64_t tokens = attach_file(repl, path);
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

// Shows the text between `prefix` and `suffix` while it is generated.
Conversation::Answer generate_middle(Repl& repl, const std::string& prefix, const std::string& suffix) {
    Conversation& conversation = repl.conversation();
    if (repl.interactive() && !has_fill_tokens(conversation.tokenizer())) {
        say(dim("This model has no tokens for fill-in-the-middle: it continues the text before the hole.") + "\n");
    }
    Conversation::Answer answer;
    repl.show_answer(
        [&](const Repl::Show& show) {
            answer = conversation.fill(prefix, suffix, repl.limits(), show);
            return answer;
        },
        prefix);
    if (conversation.branch_count() > 1) {
        say(dim("The result is on its own branch (" + std::to_string(conversation.current_branch()) +
                "); /undo goes back.") +
            "\n");
    }
    return answer;
}

void fill(Repl& repl, const std::string& arguments) {
    if (arguments.empty())
        throw Error("write /fim FILE:LINE[:COLUMN], or text with " + std::string(kHole) + " where the hole is");
    if (const std::size_t hole = arguments.find(kHole); hole != std::string::npos) {
        generate_middle(repl, arguments.substr(0, hole), arguments.substr(hole + kHole.size()));
        return;
    }
    std::vector<std::string> words = split_words(arguments);
    WriteOptions options;
    bool apply = false;
    const bool optioned = std::erase_if(words, [&](const std::string& word) {
                              apply = apply || word == "--apply";
                              return word == "--apply" || take_write_option(word, options);
                          }) > 0;
    if (optioned && (!apply || words.size() != 1)) throw Error("write /fim FILE:LINE[:COLUMN] --apply");
    const FilePlace place = parse_place(words.size() == 1 ? words[0] : arguments);
    TargetFile target;
    if (apply) {
        require_consent(repl, "/fim --apply", options);
        target = read_target(place.file, {.outside = options.outside, .must_exist = true});
    }
    const FileText file(apply ? target.bytes : read_text_file(user_path(place.file)));
    const std::size_t at = offset_of(file.text(), place);
    const Conversation::Answer answer = generate_middle(repl, file.text().substr(0, at), file.text().substr(at));
    if (!apply) return;
    if (answer.result.finish == speculative::FinishReason::cancelled) {
        return say(dim("Cancelled; nothing was written.") + "\n");
    }
    if (answer.result.text.empty()) return say(dim("There is nothing to insert.") + "\n");
    if (answer.result.finish == speculative::FinishReason::length) {
        say(dim("The text was cut at the limit of tokens; /set chat.max_tokens raises it.") + "\n");
    }
    propose_write(repl, target, file.with_insertion(at, answer.result.text), options);
}

void system(Repl& repl, const std::string& arguments) {
    Configuration next = repl.engine().configuration();
    if (arguments.empty()) {
        const std::string& text = next.config().chat_system;
        return say(text.empty() ? dim("No system prompt.") + "\n" : printable(text) + "\n");
    }
    if (arguments != "none") refuse_system_prompt(repl);
    next.set_text("chat.system = " + core::to_toml(core::ConfigValue(arguments == "none" ? "" : arguments)), "/system");
    repl.configure(next);
    if (!repl.conversation().empty()) {
        say(dim(std::string("The next conversation starts ") + (arguments == "none" ? "without one" : "with it") +
                "; /clear starts one.") +
            "\n");
    }
}

Candidates complete_folder(const CompletionRequest& request) {
    if (!request.before.empty()) return {};
    Candidates candidates = complete_files(request);
    std::erase_if(candidates, [](const std::string& name) { return !name.ends_with('/'); });
    return candidates;
}

// A file is followed by a colon and a line.
Candidates complete_place(const CompletionRequest& request) {
    if (!request.before.empty()) return {};
    Candidates candidates = complete_files(request);
    for (std::string& name : candidates) {
        if (!name.ends_with('/')) name += ':';
    }
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
    {"fim", "FILE:LINE[:COLUMN] [--apply] | TEXT",
     "fill in the middle: generate the text that is missing at a place in a file or in TEXT",
     "Without COLUMN, the place is the end of the line. In TEXT, <FILL> marks the place: /fim def f(x):<FILL>    "
     "return y. The text ends where it would leave the block of the hole, or repeat what follows. With --apply, it is "
     "inserted into FILE, as /write would do it (--yes, --outside). The result is on its own branch, where /retry, /n "
     "and /top work as usual. `foresay complete --fim` does the same for editors and scripts.",
     fill, complete_place},
    {"system", "[TEXT|none]", "show or set the system prompt of new conversations",
     "The same as /set chat.system. A new prompt takes effect when the next conversation starts. The style complete "
     "has no place for one, because what you write is the document.",
     system},
};

}  // namespace

CommandTopic context_commands() { return {"Context", kCommands}; }

}  // namespace foresay::app
