// foresay completion: prints a completion script, generated from the declarations of the commands.
#include "app/command_line/command.h"
#include "app/command_line/description.h"
#include "app/command_line/parser.h"
#include "app/output.h"

namespace foresay::app {

namespace {

class Completion : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument(shell_,
                        {.value = "SHELL", .doc = "bash, zsh or fish", .words = completion_shells(), .required = true});
    }
    int run() override {
        print(completion_script(shell_));
        return 0;
    }

private:
    std::string shell_;
};

const RegisterCommand<Completion> kCompletion("completion", "print a shell completion script", CommandGroup::other);

}  // namespace

}  // namespace foresay::app
