// foresay session: saved conversations.
#include <algorithm>
#include <string>

#include "app/commands/commands.h"
#include "app/conversation/replay.h"
#include "app/conversation/workspace.h"
#include "app/interrupt.h"
#include "app/journal/store.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

std::string padded(const std::string& text, std::size_t width) {
    return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

std::string count(std::size_t number, const std::string& what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

// The first line of what was said first, shortened.
std::string topic(const SavedSession& session) {
    if (session.tree.nodes().empty()) return "";
    std::string text = printable(session.tree.nodes().front().turn.said);
    text = text.substr(0, text.find('\n'));
    constexpr std::size_t kMost = 48;
    if (text.size() <= kMost) return text;
    std::size_t end = kMost;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;  // no half characters
    return text.substr(0, end) + "...";
}

}  // namespace

int run_session_list(const Options&) {
    const std::vector<SessionFile> files = list_sessions();
    if (files.empty()) {
        say("No conversations are saved yet; `foresay chat` saves those that are held at a terminal.\n");
        return 0;
    }
    for (const SessionFile& file : files) {
        std::string line = padded(file.name, 22) + utc_time(file.modified_s) + "  ";
        try {
            const SavedSession session = read_session(file.path);
            line += padded(count(session.tree.nodes().size(), "turn"), 10) + topic(session);
        } catch (const Error& problem) {
            line += printable(problem.what());
        }
        print(line + "\n");
    }
    return 0;
}

int run_session_show(const Options& options) {
    const SavedSession session = read_session(existing_session(options.name));
    const core::Tokenizer tokenizer = core::Tokenizer::open(session.engines.back().model);
    const auto& state = session.tree.state();
    for (std::size_t i = 0; i < state.heads.size(); ++i) {
        if (state.heads.size() > 1) {
            print("==== branch " + std::to_string(i) + (i == state.current ? " (the present one)" : "") + "\n");
        }
        for (const Turn* turn : session.tree.line(state.heads[i])) {
            print(printable("> " + turn->said) + "\n");
            print(printable(tokenizer.decode(turn->given) + tokenizer.decode(turn->answer)) + "\n");
        }
    }
    return 0;
}

int run_session_replay(const Options& given) {
    const std::filesystem::path path = existing_session(given.name);
    const SavedSession saved = read_session(path);
    Options options = given;
    options.session_layer = session_layer(path, saved);
    SessionNeeds needs;
    needs.branches = kCachedBranches;
    Session session(options, needs);
    std::size_t same = 0, differing = 0, skipped = 0;
    const bool whole = replay(session, saved, interrupted(), [&](const ReplayedTurn& turn) {
        std::string line = "turn " + std::to_string(turn.turn) + ": ";
        switch (turn.outcome) {
            case ReplayedTurn::Outcome::same:
                ++same;
                line += count(turn.tokens, "token") + ", the same";
                break;
            case ReplayedTurn::Outcome::differs:
                ++differing;
                line += "differs from token " + std::to_string(turn.first_difference) + " of " +
                        std::to_string(turn.tokens) + " on";
                break;
            case ReplayedTurn::Outcome::skipped:
                ++skipped;
                line += "left out";
                break;
        }
        print(line + (turn.note.empty() ? "" : "; " + turn.note) + "\n");
    });
    if (!whole) return kCancelled;
    print(count(same + differing + skipped, "turn") + ": " + std::to_string(same) + " the same, " +
          std::to_string(differing) + " different, " + std::to_string(skipped) + " left out\n");
    if (differing > 0) throw Error(path.string() + ": " + count(differing, "turn") + " could not be drawn again");
    return 0;
}

int run_session_delete(const Options& options) {
    for (const std::string& name : options.paths) {
        delete_session(name);
        print("deleted " + name + "\n");
    }
    return 0;
}

}  // namespace foresay::app
