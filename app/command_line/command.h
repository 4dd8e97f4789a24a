// app/command_line/command.h: the interface of a command, and the list of all commands.
//
// A command is one file in app/commands/: a class with its options, its checks and its work, and a RegisterCommand that
// puts it on the list. Nothing else names it. The files are linked as objects, not from an archive
// (app/CMakeLists.txt), because a linker drops members of an archive that nothing refers to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace foresay::app {

class OptionParser;

class Command {
public:
    virtual ~Command() = default;
    // Declares the options and binds them to members, so the object must not move afterwards.
    virtual void declare(OptionParser& parser) = 0;
    // Called once, after parsing. Returns the exit status; main() reports exceptions.
    virtual int run() = 0;
};

// The headings of `foresay --help`, in order. Below each, commands are in alphabetical order.
enum class CommandGroup : std::uint8_t { generate, models, measure, other, hidden };

struct CommandEntry {
    std::string name;  // "complete", "config check"
    std::string doc;   // as help shows it
    CommandGroup group = CommandGroup::other;
    std::unique_ptr<Command> (*make)() = nullptr;  // null: a family, the first word of other commands
};

void register_command(CommandEntry entry);

// All commands, in the order of help. A family comes before its commands.
std::vector<CommandEntry> registered_commands();

// `const RegisterCommand<Tokenize> kTokenize("tokenize", "print the token ids of a text", CommandGroup::models);`
template <class C>
struct RegisterCommand {
    RegisterCommand(std::string name, std::string doc, CommandGroup group) {
        register_command({std::move(name), std::move(doc), group,
                          []() -> std::unique_ptr<Command> { return std::make_unique<C>(); }});
    }
};

// A family: the first word of two-word commands, such as "config".
struct RegisterCommandFamily {
    RegisterCommandFamily(std::string name, std::string doc, CommandGroup group) {
        register_command({std::move(name), std::move(doc), group, nullptr});
    }
};

}  // namespace foresay::app
