// foresay repl-reference: docs/repl.md, from the table of the commands of chat.
#include "app/commands/commands.h"
#include "app/output.h"
#include "app/repl/command.h"

namespace foresay::app {

int run_repl_reference(const Options&) {
    print(commands_markdown());
    return 0;
}

}  // namespace foresay::app
