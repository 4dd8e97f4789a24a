// foresay help: what --help prints, for those who ask for it with a word.
#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/output.h"

namespace foresay::app {

namespace {

class Help : public Command {
public:
    void declare(OptionParser& parser) override {
        std::vector<std::string> names;
        for (const CommandEntry& entry : registered_commands()) {
            const bool first_word = entry.name.find(' ') == std::string::npos;
            if (first_word && entry.group != CommandGroup::hidden) names.push_back(entry.name);
        }
        parser.argument_list(words_, {.value = "COMMAND", .doc = "the command to explain", .words = names}, 0);
    }
    int run() override {
        print(help_of(words_));
        return 0;
    }

private:
    std::vector<std::string> words_;
};

const RegisterCommand<Help> kHelp("help", "explain the program or a command", CommandGroup::other);

}  // namespace

}  // namespace foresay::app
