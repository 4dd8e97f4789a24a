// Commands for saved conversations.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/journal/store.h"
#include "app/output.h"
#include "app/pager.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "base/error.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace {

std::string one_name(const std::string& arguments, const std::string& command) {
    const std::vector<std::string> words = split_words(arguments);
    if (words.size() > 1) {
        std::string name = words.front();
        for (std::size_t i = 1; i < words.size(); ++i) name += "-" + words[i];
        throw Error("a session's name has no blanks; write " + command + " " + name);
    }
    if (words.empty()) throw Error("write " + command + " NAME");
    return words.front();
}

constexpr std::string_view kPages = "--pages";

// What follows --pages; nullopt: it does not begin so.
std::optional<std::string> after_pages(const std::string& arguments) {
    std::vector<std::string> words = split_words(arguments);
    if (words.empty() || words.front() != kPages) return std::nullopt;
    const std::size_t name = arguments.find_first_not_of(" \t", arguments.find(kPages) + kPages.size());
    return name == std::string::npos ? std::string() : arguments.substr(name);
}

void save_pages(Repl& repl, const std::filesystem::path& path) {
    const speculative::SavedPages saved = repl.workspace().save_pages(path);
    say(dim("The keys and values of " + std::to_string(saved.tokens) + " tokens (" +
            speculative::format_bytes(saved.bytes) + ") are in " + pages_of_session(path).string() +
            "; /load need not evaluate them again.") +
        "\n");
}

void save_as(Repl& repl, const std::string& name, Replace replace, bool pages) {
    if (repl.conversation().tree().nodes().empty()) throw Error("there is nothing to save yet");
    const std::filesystem::path path = session_path(name);
    try {
        repl.workspace().save_copy(path, replace);
    } catch (const SessionExists& problem) {
        throw Error(std::string(problem.what()) + ", or replace it with /save! " + name);
    }
    say(dim("Saved as " + path.string() + ".") + "\n");
    if (pages) save_pages(repl, path);
}

void save(Repl& repl, const std::string& arguments) {
    Workspace& workspace = repl.workspace();
    const std::optional<std::string> pages = after_pages(arguments);
    const std::string name = pages.value_or(arguments);
    if (name.empty()) {
        workspace.save();
        const std::string file = workspace.file().string();
        if (!file.empty()) {
            say(dim("Saved after every turn in " + file + ".") + "\n");
            if (pages) save_pages(repl, file);
            return;
        }
        throw Error(workspace.saving() ? "there is nothing to save yet"
                                       : "this conversation is not saved; /save NAME saves it");
    }
    save_as(repl, one_name(name, "/save"), Replace::earlier_copy, pages.has_value());
}

void save_anyway(Repl& repl, const std::string& arguments) {
    const std::optional<std::string> pages = after_pages(arguments);
    save_as(repl, one_name(pages.value_or(arguments), "/save!"), Replace::any_session, pages.has_value());
}

void load(Repl& repl, const std::string& arguments) {
    if (arguments.empty()) {
        std::string out;
        for (const SessionFile& file : list_sessions()) out += utc_time(file.modified_s) + "  " + file.name + "\n";
        return page_message(out.empty() ? "No sessions are saved yet.\n" : out);
    }
    const std::filesystem::path path = existing_session(one_name(arguments, "/load"));
    const SavedSession saved = read_session(path);
    repl.workspace().save();
    for (const std::string& note : repl.workspace().resume(path, saved, true)) repl.note(note);
    Conversation& conversation = repl.conversation();
    const std::size_t turns = conversation.turns().size();
    say(dim("Continuing " + path.stem().string() + ": " + std::to_string(turns) +
            (turns == 1 ? " answer, " : " answers, ") + std::to_string(conversation.tokens()) + " tokens.") +
        "\n");
    show_place(repl);
}

Candidates complete_session(const CompletionRequest& request) {
    if (!request.before.empty()) return {};
    if (request.word.find('/') != std::string::npos) return complete_files(request);
    Candidates names;
    try {
        for (const SessionFile& file : list_sessions()) names.push_back(file.name);
    } catch (const Error&) {
        return {};
    }
    return names;
}

constexpr ReplCommand kCommands[] = {
    {"save", "[--pages] [NAME]", "save a copy of the conversation under a name",
     "At a terminal, the conversation is saved after every turn anyway; without NAME, shows where. A NAME with a slash "
     "is a path. An earlier copy of this conversation is brought up to date; another conversation is not replaced. "
     "--pages also writes the keys and values of the current branch, to NAME.session.pages, so that /load need not "
     "evaluate it again.",
     save, complete_session},
    {"save!", "[--pages] NAME", "the same, and replace another conversation of that name",
     "The session that is replaced is lost. One that is open in a foresay is never replaced.", save_anyway,
     complete_session},
    {"load", "[NAME]", "continue a saved session; without a name, list them",
     "The session brings its settings with it, and is saved to the same file from then on. The conversation you leave "
     "stays as it was saved. Keys and values that /save --pages has written beside it are used if they are this "
     "model's.",
     load, complete_session},
};

}  // namespace

CommandTopic saving_commands() { return {"Saved conversations", kCommands}; }

}  // namespace foresay::app
