// foresay chat: the conversation loop on a session.
#include <filesystem>

#include "app/commands/commands.h"
#include "app/conversation/style.h"
#include "app/interrupt.h"
#include "app/journal/store.h"
#include "app/output.h"
#include "app/repl/repl.h"
#include "app/session.h"
#include "base/error.h"

namespace foresay::app {

namespace {

// What is to go on, and where it is to be saved.
struct Start {
    std::filesystem::path path;  // empty: a new file, if any
    std::optional<SavedSession> saved;
};

Start find_start(const Options& options) {
    Start start;
    if (options.continue_last) {
        const std::vector<SessionFile> files = list_sessions();
        if (files.empty()) throw Error("there is no saved session to continue; start one with `foresay chat`");
        start.path = files.front().path;
    } else if (!options.session.empty()) {
        start.path = session_path(options.session);
        std::error_code ignored;
        if (!std::filesystem::exists(start.path, ignored)) return start;
    } else {
        return start;
    }
    start.saved = read_session(start.path);
    return start;
}

// Where one left off.
void show_end(Repl& repl, const std::filesystem::path& path) {
    Conversation& conversation = repl.conversation();
    const std::size_t turns = conversation.turns().size();
    say(dim("Continuing " + path.stem().string() + ": " + std::to_string(turns) +
            (turns == 1 ? " answer, " : " answers, ") + std::to_string(conversation.tokens()) + " tokens.") +
        "\n");
    if (conversation.empty()) return;
    const Turn& turn = conversation.last();
    say(printable("> " + turn.said + "\n" + conversation.answer_text(turn)) + "\n");
}

void begin(Repl& repl, const Start& start) {
    Workspace& workspace = repl.workspace();
    if (start.saved) {
        for (const std::string& note : workspace.resume(start.path, *start.saved, false)) complain(note);
        if (repl.interactive()) show_end(repl, start.path);
        return;
    }
    const bool named = !start.path.empty();
    if (!named && (!repl.interactive() || !repl.session().config().chat_save)) return;
    try {
        if (!named) sessions_folder();
        workspace.start_saving(start.path);
        prune_sessions(static_cast<std::size_t>(repl.session().config().chat_keep_sessions));
    } catch (const Error& problem) {
        if (named) throw;
        complain(std::string("this conversation is not saved: ") + problem.what());
    }
}

}  // namespace

int run_chat(const Options& given) {
    Options options = given;
    const Start start = find_start(options);
    if (start.saved) options.session_layer = session_layer(start.path, *start.saved);
    SessionNeeds needs;
    needs.branches = kCachedBranches;
    needs.meter = true;  // for /profile; costs two looks at a clock for each stage
    Session session(options, needs);
    if (interrupted()) return kCancelled;
    Repl repl(session, {.simple_io = options.simple_io});
    const std::string notice = unknown_format_notice(session.config(), session.tokenizer());
    if (!notice.empty()) complain(notice);
    repl.banner();
    begin(repl, start);
    const int status = repl.run();
    if (repl.interactive() && !repl.workspace().file().empty()) {
        say(dim("Saved; foresay chat --session " + repl.workspace().file().stem().string() + " goes on with it.") +
            "\n");
    }
    return status;
}

}  // namespace foresay::app
