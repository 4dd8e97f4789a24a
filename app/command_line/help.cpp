// Formats --help from the same descriptions as the manual page and the completions.
#include <algorithm>

#include "app/command_line/description.h"

namespace foresay::app {

namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kWidestLeft = 26;  // longer names get a line of their own
constexpr std::string_view kIndent = "  ";

struct Row {
    std::string left, right;
};

std::string spaces(std::size_t count) { return std::string(count, ' '); }

// `text` in lines that end before kColumns; all but the first begin at column `indent`.
std::string wrapped(const std::string& text, std::size_t indent) {
    std::string out;
    std::size_t column = indent;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        const std::size_t length = end - at;
        if (column > indent && column + 1 + length > kColumns) {
            out += "\n" + spaces(indent);
            column = indent;
        } else if (column > indent) {
            out += ' ';
            ++column;
        }
        out += text.substr(at, length);
        column += length;
        at = end + 1;
    }
    return out;
}

std::string section(const std::string& title, const std::vector<Row>& rows) {
    if (rows.empty()) return "";
    std::size_t widest = 0;
    for (const Row& row : rows) {
        if (row.left.size() <= kWidestLeft) widest = std::max(widest, row.left.size());
    }
    const std::size_t indent = kIndent.size() + widest + 2;
    std::string out = "\n" + title + ":\n";
    for (const Row& row : rows) {
        out += std::string(kIndent) + row.left;
        const std::size_t end = kIndent.size() + row.left.size();
        out += end + 2 > indent ? "\n" + spaces(indent) : spaces(indent - end);
        out += wrapped(row.right, indent) + "\n";
    }
    return out;
}

std::string argument_name(const OptionDescription& argument) {
    const std::string name = argument.value + (argument.repeatable ? "..." : "");
    return argument.required ? name : "[" + name + "]";
}

// Long names line up, with or without a short one before them.
std::string left_of(const OptionDescription& option) {
    if (option.names.empty()) return argument_name(option);
    std::string out = option.names.front().starts_with("--") ? "    " : "";
    for (const std::string& name : option.names) out += (&name == option.names.data() ? "" : ", ") + name;
    return out + (option.value.empty() ? "" : " " + option.value);
}

std::string capitalized(std::string text) {
    if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
}

}  // namespace

std::string command_help(const CommandDescription& command) {
    std::vector<Row> arguments, options, common;
    std::string usage = "foresay " + command.name + " [OPTIONS]";
    for (const OptionDescription& option : command.options) {
        if (option.names.empty()) {
            usage += " " + (command.usage.empty() ? argument_name(option) : command.usage);
            arguments.push_back({left_of(option), option.doc});
        } else {
            (option.shared ? common : options).push_back({left_of(option), option.doc});
        }
    }
    std::string out = wrapped(capitalized(command.doc) + ".", 0) + "\n\nUsage: " + usage + "\n";
    out += section("Arguments", arguments) + section("Options", options) + section("Common options", common);
    if (!command.details.empty()) out += "\n" + command.details;
    return out;
}

std::string command_list_help(const std::string& name, const std::string& doc,
                              const std::vector<CommandHeading>& headings,
                              const std::vector<OptionDescription>& options) {
    std::string out = wrapped(capitalized(doc) + ".", 0) + "\n\nUsage: " + name + " COMMAND [OPTIONS]\n";
    for (const CommandHeading& heading : headings) {
        std::vector<Row> rows;
        for (const auto& [command, text] : heading.commands) rows.push_back({command, text});
        out += section(heading.title, rows);
    }
    std::vector<Row> rows;
    for (const OptionDescription& option : options) rows.push_back({left_of(option), option.doc});
    return out + section("Options", rows) + "\nSee " + name + " COMMAND --help for the options of a command.\n";
}

}  // namespace foresay::app
