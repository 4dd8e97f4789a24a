#include "app/repl/completion.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "app/configuration.h"
#include "app/output.h"
#include "app/plugin_path.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostFiles = 2000;

// Where the last word of `text` begins: after the last blank outside quotes and without a backslash before it.
std::size_t last_word(std::string_view text) {
    std::size_t start = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\') {
            ++i;
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (!quoted && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n')) {
            start = i + 1;
        }
    }
    return start;
}

std::string escaped(const std::string& name) {
    std::string out;
    for (const char c : name) {
        if (c == ' ' || c == '\\' || c == '"') out += '\\';
        out += c;
    }
    return out;
}

fs::path expanded(const std::string& folder) {
    const char* home = std::getenv("HOME");
    if (folder.starts_with("~/") && home && *home) return fs::path(home) / folder.substr(2);
    return folder.empty() ? fs::path(".") : fs::path(folder);
}

Candidates values_of(const std::string& key) {
    const core::KeySpec* spec = engine::find_key(key);
    if (!spec) return {};
    if (spec->type == core::ValueType::boolean) return {"true", "false"};
    return spec->choices;
}

void keep_those_that_begin(Candidates& candidates, std::string_view word) {
    std::erase_if(candidates, [&](const std::string& one) { return !one.starts_with(word); });
    std::sort(candidates.begin(), candidates.end());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
}

}  // namespace

LineCompletion complete_line(Repl& repl, std::string_view line) {
    LineCompletion completion;
    if (!line.starts_with('/') || line.starts_with("//")) return completion;
    completion.start = last_word(line);
    if (completion.start == 0) {
        completion.start = 1;
        completion.candidates = complete_commands({repl, {}, {}});
        keep_those_that_begin(completion.candidates, line.substr(1));
        return completion;
    }
    const std::string_view head = line.substr(1, completion.start - 1);
    CompletionRequest request{repl, split_words(head), {}};
    const std::vector<std::string> word = split_words(line.substr(completion.start));
    if (!word.empty()) request.word = word.front();
    const ReplCommand* command = nullptr;
    try {
        command = &find_command(request.before.empty() ? "" : request.before.front());
        if (!command->complete) return completion;
        request.before.erase(request.before.begin());
        completion.candidates = command->complete(request);
    } catch (const Error&) {
        return completion;  // no such command, or its candidates cannot be read
    }
    keep_those_that_begin(completion.candidates, request.word);
    for (std::string& candidate : completion.candidates) candidate = escaped(candidate);
    return completion;
}

std::string common_beginning(const Candidates& candidates) {
    if (candidates.empty()) return {};
    std::string common = candidates.front();
    for (const std::string& one : candidates) {
        const auto differ = std::mismatch(common.begin(), common.end(), one.begin(), one.end()).first;
        common.erase(differ, common.end());
    }
    // Not in the middle of a character.
    while (!common.empty() && common.size() < candidates.front().size() &&
           (static_cast<unsigned char>(candidates.front()[common.size()]) & 0xc0) == 0x80) {
        common.pop_back();
    }
    return common;
}

std::string in_columns(const Candidates& candidates, std::size_t columns) {
    constexpr std::size_t kMost = 200;
    Candidates shown;
    std::size_t widest = 0;
    for (const std::string& candidate : candidates) {
        if (shown.size() == kMost) break;
        const std::size_t slash = candidate.find_last_of('/', candidate.size() < 2 ? 0 : candidate.size() - 2);
        shown.push_back(printable(slash == std::string::npos ? candidate : candidate.substr(slash + 1)));
        widest = std::max(widest, columns_of(shown.back()) + 2);
    }
    const std::size_t across = std::max<std::size_t>(1, columns / std::max<std::size_t>(widest, 1));
    const std::size_t down = (shown.size() + across - 1) / across;
    std::string out;
    for (std::size_t row = 0; row < down; ++row) {
        for (std::size_t i = row; i < shown.size(); i += down) {
            out += shown[i];
            if (i + down < shown.size()) out += std::string(widest - columns_of(shown[i]), ' ');
        }
        out += '\n';
    }
    if (shown.size() < candidates.size()) {
        out += "and " + std::to_string(candidates.size() - shown.size()) + " more\n";
    }
    return out;
}

Candidates complete_files(const CompletionRequest& request) {
    const auto slash = request.word.find_last_of('/');
    const std::string folder = slash == std::string::npos ? "" : request.word.substr(0, slash + 1);
    const std::string name = slash == std::string::npos ? request.word : request.word.substr(slash + 1);
    Candidates found;
    std::error_code problem;
    for (fs::directory_iterator entry(expanded(folder), problem), end; !problem && entry != end;
         entry.increment(problem)) {
        const std::string file = entry->path().filename().string();
        if (!file.starts_with(name) || (file.starts_with('.') && name.empty())) continue;
        std::error_code ignored;
        found.push_back(folder + file + (entry->is_directory(ignored) ? "/" : ""));
        if (found.size() == kMostFiles) break;
    }
    return found;
}

Candidates complete_keys(const CompletionRequest& request) {
    if (request.before.size() > 1) return {};
    if (!request.before.empty()) return values_of(request.before.front());
    Candidates keys;
    for (const core::KeySpec& key : core::core_schema()) keys.push_back(key.key);
    for (const core::StageSchema& stage : stage_schemas()) {
        for (const core::KeySpec& parameter : stage.parameters) {
            keys.push_back("sampling." + stage.name + "." + parameter.key);
        }
    }
    for (const core::PluginSpec& plugin : request.repl.engine().config().plugins) {
        for (const core::KeySpec& key : core::plugin_keys()) keys.push_back("plugin." + plugin.name + "." + key.key);
        for (const auto& [option, setting] : plugin.options) {
            keys.push_back("plugin." + plugin.name + ".options." + option);
        }
    }
    return keys;
}

Candidates complete_commands(const CompletionRequest& request) {
    Candidates names;
    if (!request.before.empty()) return names;
    for (const CommandTopic& topic : command_topics()) {
        for (const ReplCommand& command : topic.commands) names.emplace_back(command.name);
    }
    return names;
}

Candidates stage_names(Repl& repl) {
    Candidates names;
    for (const core::StageSchema& stage : stage_schemas()) names.push_back(stage.name);
    for (const core::PluginSpec& plugin : repl.engine().config().plugins) names.push_back(plugin.name);
    return names;
}

Candidates plugin_names() {
    Candidates names;
    for (const plugins::PluginFile& plugin : find_plugins()) names.push_back(plugin.name);
    return names;
}

}  // namespace foresay::app
