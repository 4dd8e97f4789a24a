// foresay completion, foresay manual: texts made from the command line itself.
#include "app/command_line/command_line.h"
#include "app/commands/commands.h"
#include "app/output.h"

namespace foresay::app {

int run_completion(const Options& options) {
    print(completion_script(options.name));
    return 0;
}

int run_manual(const Options&) {
    print(manual_page());
    return 0;
}

}  // namespace foresay::app
