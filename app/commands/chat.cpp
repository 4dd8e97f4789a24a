// foresay chat: the conversation loop, with a new conversation or a saved session.
#include <filesystem>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/conversation/style.h"
#include "app/conversation/transcript.h"
#include "app/interrupt.h"
#include "app/journal/store.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "app/repl/repl.h"
#include "base/error.h"

namespace foresay::app {

namespace {

// The session to continue, if any, and the file to save to.
struct Start {
    std::filesystem::path path;  // empty: a new file, if any
    std::optional<SavedSession> saved;
};

Start find_start(bool continue_last, const std::string& name) {
    Start start;
    if (continue_last) {
        const std::vector<SessionFile> files = list_sessions();
        if (files.empty()) throw Error("there is no saved session to continue; start one with `foresay chat`");
        start.path = files.front().path;
    } else if (!name.empty()) {
        start.path = session_path(name);
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
    say(printable(transcript(conversation.tokenizer(), {&turn, 1})));
}

void begin(Repl& repl, const Start& start) {
    Workspace& workspace = repl.workspace();
    if (start.saved) {
        for (const std::string& note : workspace.resume(start.path, *start.saved, false)) repl.note(note);
        if (repl.interactive()) show_end(repl, start.path);
        return;
    }
    const bool named = !start.path.empty();
    if (!named && (!repl.interactive() || !repl.engine().config().chat_save)) return;
    try {
        if (!named) sessions_folder();
        workspace.start_saving(start.path);
        prune_sessions(static_cast<std::size_t>(repl.engine().config().chat_keep_sessions));
    } catch (const Error& problem) {
        if (named) throw;
        repl.note(std::string("this conversation is not saved: ") + problem.what());
    }
}

class Chat : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
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
        OpenedEngine engine(options_, needs);
        if (interrupted()) return kCancelled;
        Repl repl(engine, {.simple_io = simple_io_, .lines = lines_});
        const std::string unknown_format = unknown_format_notice(engine.config(), engine.tokenizer());
        const std::string unused_system = unused_system_notice(engine.config(), engine.tokenizer());
        for (const std::string& notice : {unknown_format, unused_system}) {
            if (!notice.empty()) repl.note(notice);
        }
        repl.banner();
        begin(repl, start);
        const int status = repl.run();
        if (repl.interactive() && !repl.workspace().file().empty()) {
            say(dim("Saved; continue with: foresay chat --session " + repl.workspace().file().stem().string()) + "\n");
        }
        return status;
    }

private:
    Options options_;
    std::string session_;
    bool simple_io_ = false, lines_ = false, continue_last_ = false, no_save_ = false;
};

const RegisterCommand<Chat> kChat("chat", "talk to a model, or let it continue what you write", CommandGroup::generate);

}  // namespace

}  // namespace foresay::app
