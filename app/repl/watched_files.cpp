#include "app/repl/watched_files.h"

#include <algorithm>
#include <functional>

#include "app/conversation/source_files.h"
#include "app/output.h"
#include "app/repl/repl.h"
#include "base/error.h"
#include "core/text/bounded_encode.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

std::uint64_t hash(const std::string& text) { return std::hash<std::string>{}(text); }

std::int64_t attach_text(Repl& repl, const fs::path& path, std::string text) {
    Conversation& conversation = repl.conversation();
    const std::int64_t before = conversation.file_tokens();
    const std::int64_t left = repl.engine().context_length() - conversation.tokens() - before;
    const auto refuse = [&](const std::string& tokens) {
        // Files that wait to be sent can be more than a context that has become shorter.
        throw Error(path.string() + " has " + tokens + " tokens, and the context has room for " +
                    std::to_string(std::max<std::int64_t>(left, 0)) +
                    "; attach a smaller file, use /clear, or start with a larger --context");
    };
    // A large file is refused before all of it becomes tokens.
    const std::int64_t least = core::count_tokens_of_part(conversation.tokenizer(), text,
                                                          {.add_special = false, .parse_special = false}, left);
    if (least > left) refuse("at least " + std::to_string(std::max<std::int64_t>(least, 1)));
    conversation.attach({path.string(), std::move(text)});
    const std::int64_t all = conversation.file_tokens();
    if (all - before < left) return all - before;
    conversation.undo();
    refuse(std::to_string(all - before));
    return 0;
}

}  // namespace

std::int64_t attach_file(Repl& repl, const fs::path& path) { return attach_text(repl, path, read_text_file(path)); }

bool WatchedFiles::add(const fs::path& path) {
    if (std::find(files_.begin(), files_.end(), path) != files_.end()) return false;
    files_.push_back(path);
    return true;
}

void WatchedFiles::remove(const fs::path& path) {
    if (std::erase(files_, path) == 0) throw Error(path.string() + " is not watched; /watch lists the files that are");
}

const std::uint64_t* WatchedFiles::held(const Conversation& conversation, const std::string& path) const {
    const TurnTree& tree = conversation.tree();
    for (int node = tree.head(); node != TurnTree::kRoot; node = tree.parent(node)) {
        const auto turn = by_turn_.find(static_cast<std::size_t>(node));
        if (turn == by_turn_.end() || turn->second.said != hash(tree.turn(node).said)) continue;
        const auto version = turn->second.versions.find(path);
        if (version != turn->second.versions.end()) return &version->second;
    }
    return nullptr;
}

void WatchedFiles::attach_changed(Repl& repl) {
    attached_.clear();
    for (const fs::path& path : files_) {
        const std::string name = path.string();
        std::string text;
        try {
            text = read_text_file(path);
        } catch (const Error& problem) {
            complain(std::string(problem.what()) + "; the text that the context has of it stays");
            continue;
        }
        const std::uint64_t version = hash(text);
        const std::uint64_t* const before = held(repl.conversation(), name);
        if (before && *before == version) continue;
        const std::int64_t tokens = attach_text(repl, path, std::move(text));
        attached_[name] = version;
        say(dim(printable(name) + (before ? " has changed and is read again: " : " is read: ") +
                std::to_string(tokens) + " tokens.") +
            "\n");
    }
}

void WatchedFiles::sent(const Conversation& conversation, std::size_t first) {
    if (attached_.empty()) return;
    const auto& nodes = conversation.tree().nodes();
    for (std::size_t node = first; node < nodes.size(); ++node) {
        by_turn_[node] = {hash(nodes[node].turn.said), attached_};
    }
    attached_.clear();
}

}  // namespace foresay::app
