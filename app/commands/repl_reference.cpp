// foresay repl-reference: prints docs/repl.md, generated from the command table of chat. Hidden: only developers need
// it.
#include "app/command_line/command.h"
#include "app/output.h"
#include "app/repl/command.h"

namespace foresay::app {

namespace {

class ReplReference : public Command {
public:
    void declare(OptionParser&) override {}
    int run() override {
        print(commands_markdown());
        return 0;
    }
};

const RegisterCommand<ReplReference> kReplReference("repl-reference", "print the commands of chat as Markdown",
                                                    CommandGroup::hidden);

}  // namespace

}  // namespace foresay::app
