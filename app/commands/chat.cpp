// foresay chat: the conversation loop, with a new conversation or a saved session.
#include <filesystem>
#include <fstream>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/conversation/transcript.h"
#include "app/files.h"
#include "app/interrupt.h"
#include "app/journal/store.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "app/pager.h"
#include "app/plugin_settings.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"
#include "core/chat/style.h"

namespace foresay::app {

namespace {

// The session to continue, if any, and the file to save to.
struct Start {
    std::filesystem::path path;  // empty: a new file, if any
    std::optional<SavedSession> saved;
    std::string problem;  // why a named session cannot be saved; empty: it can
};

Start find_start(bool continue_last, const std::string& name) {
    Start start;
    if (continue_last) {
        std::vector<SessionFile> files = list_sessions();
        std::erase_if(files, [](const SessionFile& file) { return file.bytes == 0; });  // left by a power cut
        if (files.empty()) throw Error("there is no saved session to continue; start one with `foresay chat`");
        start.path = files.front().path;
    } else if (!name.empty()) {
        try {
            start.path = session_path(name);
        } catch (const CannotSave& problem) {
            start.problem = problem.what();
            return start;
        }
        std::error_code ignored;
        if (!std::filesystem::exists(start.path, ignored)) return start;
    } else {
        return start;
    }
    start.saved = read_session(start.path);
    return start;
}

// Shows the last turn of a session that is continued.
void show_end(Repl& repl, const std::filesystem::path& path) {
    Conversation& conversation = repl.conversation();
    const std::size_t turns = conversation.turns().size();
    say(dim("Continuing " + path.stem().string() + ": " + std::to_string(turns) +
            (turns == 1 ? " answer, " : " answers, ") + std::to_string(conversation.tokens()) + " tokens.") +
        "\n");
    if (conversation.empty()) return;
    const Turn* const turn = &conversation.last();
    if (stderr_is_terminal()) {
        // Line breaks where the document or the layout has them, and no others.
        const auto line = [](std::string text) { return text.ends_with('\n') ? text : text + "\n"; };
        say(line(printable("> " + turn->said)) + line(repl.shown_answer()));
    } else {
        say(printable(transcript(conversation.tokenizer(), {&turn, 1})));
    }
}

// Whether `text` has not been shown on this account before; remembers it. What was shown is in a file of the state
// folder, one line for each text. True every time if that cannot be written.
bool is_new(const std::string& text) {
    const std::filesystem::path folder = state_folder();
    if (folder.empty()) return true;
    const std::filesystem::path path = folder / "shown";
    const std::string entry = core::to_toml(core::ConfigValue(text));  // one line
    std::ifstream shown(path);
    for (std::string line; std::getline(shown, line);) {
        if (line == entry) return false;
    }
    std::ofstream(path, std::ios::app) << entry << '\n';
    return true;
}

// Says what the model can do, the first time that someone talks to it.
void introduce(Repl& repl) {
    const std::string& about = repl.engine().config().chat_about;
    if (repl.interactive() && !about.empty() && is_new(about)) {
        say(printable(wrapped(about, terminal_columns())));
    }
}

// Returns whether the conversation is saved as the user asked.
bool begin(Repl& repl, const Start& start) {
    Workspace& workspace = repl.workspace();
    if (start.saved) {
        for (const std::string& note : workspace.resume(start.path, *start.saved, false)) repl.note(note);
        if (repl.interactive()) show_end(repl, start.path);
        return workspace.saving();
    }
    const bool named = !start.path.empty();
    std::string problem = start.problem;
    if (!named && problem.empty()) {
        if (!repl.interactive() || !repl.engine().config().chat_save) return true;
        try {
            sessions_folder();
        } catch (const Error& error) {
            problem = error.what();
        }
    }
    if (problem.empty()) {
        workspace.start_saving(start.path);
    } else {
        repl.note("this conversation is not saved: " + problem);
    }
    return problem.empty();
}

class Chat : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        refuse_shape(parser, options_);
        parser.over_hosts(options_);
        add_config_argument(parser, options_);
        const auto take_max_tokens = [this](const std::string& value) {
            override_key(options_, "-n", "chat.max_tokens", value);
        };
        parser.integer_option(
            "-n", take_max_tokens,
            {.value = "N", .doc = "generate at most N tokens per answer; 0: to the end of the context"});
        add_sampling_options(parser, options_);
        parser.flag("--simple-io", simple_io_, "read plain lines, without editing or cursor movement");
        parser.flag("--lines", lines_,
                    "read piped input line by line, each line an entry or a command; without it, piped input is one "
                    "prompt");
        parser.flag("--continue,-c", continue_last_, "continue the most recent session");
        parser.option("--session", session_, {.value = "NAME", .doc = "continue the session NAME, or start it"});
        parser.exclude("--session", "--continue");
        parser.flag("--no-save", no_save_, "do not save the conversation");
        add_no_pager_flag(parser);
        parser.after_parsing([this] {
            if (no_save_) override_key(options_, "--no-save", "chat.save", "false");
        });
    }

    int run() override {
        const Start start = find_start(continue_last_, session_);
        if (start.saved) options_.session_layer = session_layer(start.path, *start.saved);
        EngineNeeds needs;
        needs.branches = kCachedBranches;
        needs.meter = true;  // for /profile; costs two clock reads per op
        Configuration configuration(options_);
        // A plugin that has crashed must not keep the user from a conversation. A script gets an error.
        if (start.saved || (stdin_is_terminal() && stdout_is_terminal())) {
            for (const std::string& note : leave_out_barred_plugins(configuration)) complain("foresay: " + note);
        }
        OpenedEngine engine(std::move(configuration), options_, needs);
        if (interrupted()) return kCancelled;
        Repl repl(engine, {.simple_io = simple_io_, .lines = lines_});
        const auto& chat = engine.chat_template();
        const std::string unusable = unusable_template_notice(engine.config(), engine.tokenizer(), chat);
        const std::string unused_system = unused_system_notice(engine.config(), engine.tokenizer(), chat);
        for (const std::string& notice : {unusable, unused_system}) {
            if (!notice.empty()) repl.note(notice);
        }
        repl.banner();
        introduce(repl);
        const bool saves = begin(repl, start);
        const int status = repl.run();
        if (repl.interactive() && !repl.workspace().file().empty()) {
            say(dim("Saved; continue with: foresay chat --session " + repl.workspace().file().stem().string()) + "\n");
        }
        // As with an entry that fails: a script must see it, a user has read the message.
        return status == 0 && !saves && !repl.interactive() ? 1 : status;
    }

private:
    Options options_;
    std::string session_;
    bool simple_io_ = false, lines_ = false, continue_last_ = false, no_save_ = false;
};

const RegisterCommand<Chat> kChat("chat", "talk to a model, or let it continue what you write", CommandGroup::generate);

}  // namespace

}  // namespace foresay::app
