// Commands for saved conversations.
#include <filesystem>
#include <string>
#include <vector>

#include "app/journal/store.h"
#include "app/output.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "base/error.h"

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

void save(Repl& repl, const std::string& arguments) {
    Workspace& workspace = repl.workspace();
    if (arguments.empty()) {
        workspace.save();
        const std::string file = workspace.file().string();
        if (!file.empty()) return say(dim("Saved after every turn in " + file + ".") + "\n");
        throw Error(workspace.saving() ? "there is nothing to save yet"
                                       : "this conversation is not saved; /save NAME saves it");
    }
    if (repl.conversation().tree().nodes().empty()) throw Error("there is nothing to save yet");
    const std::filesystem::path path = session_path(one_name(arguments, "/save"));
    workspace.save_copy(path);
    say(dim("Saved as " + path.string() + ".") + "\n");
}

void load(Repl& repl, const std::string& arguments) {
    if (arguments.empty()) {
        std::string out;
        for (const SessionFile& file : list_sessions()) out += utc_time(file.modified_s) + "  " + file.name + "\n";
        return say(out.empty() ? "No sessions are saved yet.\n" : out);
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
    {"save", "[NAME]", "save a copy of the conversation under a name",
     "At a terminal, the conversation is saved after every turn anyway; without NAME, shows where. A NAME with a slash "
     "is a path.",
     save, complete_session},
    {"load", "[NAME]", "continue a saved session; without a name, list them",
     "The session brings its settings with it, and is saved to the same file from then on. The conversation you leave "
     "stays as it was saved.",
     load, complete_session},
};

}  // namespace

CommandTopic saving_commands() { return {"Saved conversations", kCommands}; }

}  // namespace foresay::app
