// Completion scripts for bash, zsh and fish, from the description of the command line.
#include <algorithm>
#include <functional>

#include "app/command_line/description.h"
#include "app/configuration.h"
#include "base/error.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

std::string joined(const std::vector<std::string>& words, const std::string& between = " ") {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
    return out;
}

// Every key that --set can name.
std::vector<std::string> keys() {
    std::vector<std::string> all;
    for (const core::KeySpec& spec : core::core_schema()) all.push_back(spec.key);
    for (const core::StageSchema& stage : stage_schemas()) {
        for (const core::KeySpec& spec : stage.parameters) all.push_back("sampling." + stage.name + "." + spec.key);
    }
    return all;
}

std::string first_word(const std::string& name) { return name.substr(0, name.find(' ')); }
std::string second_word(const std::string& name) {
    return name.find(' ') == std::string::npos ? "" : name.substr(name.find(' ') + 1);
}

std::vector<std::string> children(const std::vector<CommandDescription>& commands, const std::string& parent) {
    std::vector<std::string> out;
    for (const CommandDescription& command : commands) {
        if (first_word(command.name) == parent && !second_word(command.name).empty())
            out.push_back(second_word(command.name));
    }
    return out;
}

std::vector<std::string> first_words(const std::vector<CommandDescription>& commands) {
    std::vector<std::string> out;
    for (const CommandDescription& command : commands) {
        const std::string word = first_word(command.name);
        if (!word.empty() && std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
    }
    return out;
}

// ------------------------------------------------------------------------------------------------------------- bash

std::string bash_offer(const OptionDescription& option) {
    switch (option.hint) {
        case ValueHint::file:
            return "_foresay_files";
        case ValueHint::config_file:
            return "_foresay_files toml";
        case ValueHint::config_setting:
            return "_foresay_keys";
        case ValueHint::words:
            return "_foresay_words '" + joined(option.words) + "'";
        case ValueHint::none:
            break;
    }
    return ":";
}

constexpr const char* kBashHead = R"(# bash completion for foresay; made by: foresay completion bash
_foresay_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current"); }
_foresay_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$current"; compgen -f ${1:+-X "!*.$1"} -- "$current")
}
_foresay_keys() {
    compopt -o nospace 2>/dev/null
    _foresay_words "$_foresay_all_keys"
}
)";

std::string bash() {
    const auto commands = command_line();
    std::vector<std::string> settings = keys();
    for (std::string& key : settings) key += "=";
    std::string out = kBashHead;
    out += "_foresay_all_keys='" + joined(settings) + "'\n";
    out +=
        "_foresay() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command= i\n"
        "    COMPREPLY=()\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        case \"$command:${COMP_WORDS[i]}\" in\n";
    std::vector<std::string> patterns;
    for (const std::string& word : first_words(commands)) patterns.push_back(":" + word);
    out += "            " + joined(patterns, " | ") + ") command=${COMP_WORDS[i]} ;;\n";
    patterns.clear();
    for (const CommandDescription& command : commands) {
        const std::string child = second_word(command.name);
        if (!child.empty()) patterns.push_back(first_word(command.name) + ":" + child);
    }
    out += "            " + joined(patterns, " | ") + ") command+=\" ${COMP_WORDS[i]}\" ;;\n        esac\n    done\n";
    out += "    case \"$command:$previous\" in\n";
    for (const CommandDescription& command : commands) {
        for (const OptionDescription& option : command.options) {
            if (option.names.empty() || option.value.empty()) continue;
            patterns.clear();
            for (const std::string& name : option.names) patterns.push_back("'" + command.name + ":" + name + "'");
            out += "        " + joined(patterns, " | ") + ") " + bash_offer(option) + "; return ;;\n";
        }
    }
    out += "    esac\n    case \"$command:$current\" in\n";
    for (const CommandDescription& command : commands) {
        std::vector<std::string> names;
        for (const OptionDescription& option : command.options) {
            names.insert(names.end(), option.names.begin(), option.names.end());
        }
        out += "        '" + command.name + ":'-*) _foresay_words '" + joined(names) + "' ;;\n";
        for (const OptionDescription& option : command.options) {
            if (option.names.empty()) out += "        '" + command.name + ":'*) " + bash_offer(option) + " ;;\n";
        }
    }
    out += "        :*) _foresay_words '" + joined(first_words(commands)) + "' ;;\n";
    for (const std::string& parent : first_words(commands)) {
        const auto below = children(commands, parent);
        if (!below.empty()) out += "        " + parent + ":*) _foresay_words '" + joined(below) + "' ;;\n";
    }
    return out + "    esac\n}\ncomplete -F _foresay foresay\n";
}

// -------------------------------------------------------------------------------------------------------------- zsh

// `text` inside single quotes, with what _arguments gives a meaning escaped.
std::string zsh_text(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '\'') {
            out += "'\\''";
        } else {
            if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
            out += c;
        }
    }
    return out;
}

std::string zsh_action(const OptionDescription& option) {
    switch (option.hint) {
        case ValueHint::file:
            return "_files";
        case ValueHint::config_file:
            return "_files -g \"*.toml(-.)\"";
        case ValueHint::config_setting:
            return "compadd -S \"=\" -- $_foresay_all_keys";
        case ValueHint::words:
            return "(" + joined(option.words) + ")";
        case ValueHint::none:
            break;
    }
    return " ";
}

std::string zsh_option(const OptionDescription& option) {
    const std::string value = option.value.empty() ? "" : ":" + zsh_text(option.value) + ":" + zsh_action(option);
    if (option.names.empty()) return " \\\n            '*" + value + "'";
    std::string out;
    for (const std::string& name : option.names) {
        const std::string once = option.repeatable ? "*" : "(" + joined(option.names) + ")";
        out += " \\\n            '" + once + name + "[" + zsh_text(option.doc) + "]" + value + "'";
    }
    return out;
}

std::string zsh() {
    const auto commands = command_line();
    std::string out =
        "#compdef foresay\n# zsh completion for foresay; made by: foresay completion zsh\n"
        "typeset -ga _foresay_all_keys\n_foresay_all_keys=(" +
        joined(keys()) + ")\n_foresay() {\n    local command=${words[2]} child=\n    case $command in\n";
    for (const std::string& parent : first_words(commands)) {
        const auto below = children(commands, parent);
        if (below.empty()) continue;
        out += "        " + parent + ")\n            if ((CURRENT == 3)); then\n                compadd -- " +
               joined(below) + "\n                return\n            fi\n            child=${words[3]} ;;\n";
    }
    out += "    esac\n    if ((CURRENT == 2)); then\n        local -a known\n        known=(\n";
    for (const std::string& word : first_words(commands)) {
        std::string doc;
        for (const CommandDescription& command : commands) {
            if (first_word(command.name) == word) doc = command.parent_doc.empty() ? command.doc : command.parent_doc;
        }
        out += "            '" + word + ":" + zsh_text(doc) + "'\n";
    }
    out +=
        "        )\n        _describe command known\n        return\n    fi\n"
        "    shift words\n    ((CURRENT--))\n    if [[ -n $child ]]; then\n        shift words\n        ((CURRENT--))\n"
        "    fi\n    case \"$command${child:+ $child}\" in\n";
    for (const CommandDescription& command : commands) {
        if (command.name.empty()) continue;
        out += "        '" + command.name + "')\n            _arguments";
        for (const OptionDescription& option : command.options) out += zsh_option(option);
        out += " ;;\n";
    }
    // Found on fpath, this file is the first call's body; sourced, it says whose completion it is.
    return out +
           "    esac\n}\nif [[ ${funcstack[1]} == _foresay ]]; then\n    _foresay \"$@\"\nelse\n"
           "    compdef _foresay foresay\nfi\n";
}

// ------------------------------------------------------------------------------------------------------------- fish

std::string fish_text(const std::string& text) {
    std::string out;
    for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return "'" + out + "'";
}

std::string fish_values(const OptionDescription& option) {
    switch (option.hint) {
        case ValueHint::file:
        case ValueHint::config_file:
            return " -r -F";
        case ValueHint::config_setting:
            return " -x -a \"$__foresay_all_keys\"";
        case ValueHint::words:
            return " -x -a " + fish_text(joined(option.words));
        case ValueHint::none:
            break;
    }
    return option.value.empty() ? "" : " -x";
}

std::string fish() {
    const auto commands = command_line();
    std::vector<std::string> settings = keys();
    for (std::string& key : settings) key += "=";
    std::string out = "# fish completion for foresay; made by: foresay completion fish\n";
    out += "set -g __foresay_all_keys " + joined(settings) + "\n";
    out += "complete -c foresay -f\n";
    for (const CommandDescription& command : commands) {
        const std::string word = first_word(command.name), child = second_word(command.name);
        if (word.empty()) continue;
        const std::string doc = " -d " + fish_text(command.doc);
        std::string seen = "__fish_seen_subcommand_from " + word;
        if (child.empty()) {
            out += "complete -c foresay -n __fish_use_subcommand -a " + word + doc + "\n";
        } else {
            const auto below = children(commands, word);
            if (child == below.front())
                out += "complete -c foresay -n __fish_use_subcommand -a " + word + " -d " +
                       fish_text(command.parent_doc) + "\n";
            out += "complete -c foresay -n " +
                   fish_text(seen + "; and not __fish_seen_subcommand_from " + joined(below)) + " -a " + child + doc +
                   "\n";
            seen += "; and __fish_seen_subcommand_from " + child;
        }
        for (const OptionDescription& option : command.options) {
            out += "complete -c foresay -n " + fish_text(seen);
            for (const std::string& name : option.names) {
                out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            }
            out += fish_values(option) + " -d " + fish_text(option.doc) + "\n";
        }
    }
    return out;
}

}  // namespace

std::vector<std::string> completion_shells() { return {"bash", "zsh", "fish"}; }

std::string completion_script(std::string_view shell) {
    if (shell == "bash") return bash();
    if (shell == "zsh") return zsh();
    if (shell == "fish") return fish();
    throw UsageError("there is no completion for '" + std::string(shell) + "'" +
                     core::suggestion(shell, completion_shells()));
}

}  // namespace foresay::app
