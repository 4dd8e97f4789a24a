// The list of commands. app/commands/ fills it before main() begins.
#include <algorithm>
#include <tuple>

#include "app/command_line/command.h"

namespace foresay::app {

namespace {

std::vector<CommandEntry>& entries() {
    static std::vector<CommandEntry> all;  // in a function, so that it exists when the first file registers
    return all;
}

}  // namespace

void register_command(CommandEntry entry) { entries().push_back(std::move(entry)); }

std::vector<CommandEntry> registered_commands() {
    std::vector<CommandEntry> all = entries();
    std::sort(all.begin(), all.end(), [](const CommandEntry& a, const CommandEntry& b) {
        return std::tie(a.group, a.name) < std::tie(b.group, b.name);
    });
    return all;
}

}  // namespace foresay::app
