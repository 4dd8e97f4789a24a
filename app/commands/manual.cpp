// foresay manual: the manual page, made from the command line itself. The installation calls it; help does not name it.
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
