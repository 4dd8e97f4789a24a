// foresay chat: the conversation loop on a session.
#include "app/commands/commands.h"
#include "app/repl/repl.h"
#include "app/session.h"

namespace foresay::app {

int run_chat(const Options& options) {
    Session session(options, SessionNeeds{});
    Repl repl(session, {.simple_io = options.simple_io});
    return repl.run();
}

}  // namespace foresay::app
