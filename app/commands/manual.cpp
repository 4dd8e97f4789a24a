// foresay manual: prints the manual page, generated from the declarations of the commands. Hidden: only
// the installation runs it.
#include "app/command_line/command.h"
#include "app/command_line/description.h"
#include "app/output.h"

namespace foresay::app {

namespace {

class Manual : public Command {
public:
    void declare(OptionParser&) override {}
    int run() override {
        print(manual_page());
        return 0;
    }
};

const RegisterCommand<Manual> kManual("manual", "print the manual page, for man", CommandGroup::hidden);

}  // namespace

}  // namespace foresay::app
