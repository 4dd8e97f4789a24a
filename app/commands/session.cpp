// foresay session: lists, shows, replays and deletes saved conversations.
#include <filesystem>
#include <string>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/conversation/replay.h"
#include "app/conversation/transcript.h"
#include "app/conversation/workspace.h"
#include "app/interrupt.h"
#include "app/journal/store.h"
#include "app/options.h"
#include "app/output.h"
#include "app/pager.h"
#include "app/terminal.h"
#include "base/error.h"

namespace foresay::app {

namespace {

std::string count(std::size_t number, const std::string& what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

// The first line of the first message, shortened.
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

// Reads a session and says if its program ended in the middle of something.
SavedSession read_with_note(const std::filesystem::path& path) {
    SavedSession session = read_session(path);
    const std::string note = cut_off_note(session);
    // A program that has the session open may be writing that line.
    if (!note.empty() && !session_is_open(path)) complain(path.string() + ": " + note);
    return session;
}

class List : public Command {
public:
    void declare(OptionParser& parser) override { add_no_pager_flag(parser); }

    int run() override {
        const std::vector<SessionFile> files = list_sessions();
        if (files.empty()) {
            say("No sessions are saved yet; `foresay chat` at a terminal saves the conversation.\n");
            return 0;
        }
        std::string out;
        for (const SessionFile& file : files) {
            std::string line = padded(file.name, 22) + utc_time(file.modified_s) + "  ";
            try {
                const SavedSession session = read_session(file.path);
                line += padded(count(session.tree.nodes().size(), "turn"), 10) + topic(session);
            } catch (const Error& problem) {
                line += printable(problem.what());
            }
            out += line + "\n";
        }
        page(out);
        return 0;
    }
};

void add_session_argument(OptionParser& parser, std::string& name) {
    parser.argument(name, {.value = "SESSION", .doc = "name or path of a session", .required = true});
}

class Show : public Command {
public:
    void declare(OptionParser& parser) override {
        add_session_argument(parser, name_);
        add_no_pager_flag(parser);
    }

    int run() override {
        const SavedSession session = read_with_note(existing_session(name_));
        const core::Tokenizer tokenizer = core::Tokenizer::open(session.engines.back().model);
        const auto& state = session.tree.state();
        std::string out;
        for (std::size_t i = 0; i < state.heads.size(); ++i) {
            if (state.heads.size() > 1) {
                out += "==== branch " + std::to_string(i) + (i == state.current ? " (the current one)" : "") + "\n";
            }
            out += printable(transcript(tokenizer, session.tree.line(state.heads[i])));
        }
        page(out);
        return 0;
    }

private:
    std::string name_;
};

class Replay : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        add_session_argument(parser, name_);
    }

    int run() override {
        const std::filesystem::path path = existing_session(name_);
        const SavedSession saved = read_with_note(path);
        options_.session_layer = session_layer(path, saved);
        EngineNeeds needs;
        needs.branches = kCachedBranches;
        OpenedEngine engine(options_, needs);
        if (!replay(engine, saved, interrupted(), [&](const ReplayedTurn& turn) { report(turn); })) return kCancelled;
        print(count(same_ + differing_ + skipped_, "turn") + ": " + std::to_string(same_) + " the same, " +
              std::to_string(differing_) + " different, " + std::to_string(skipped_) + " skipped\n");
        if (differing_ > 0) {
            throw Error(path.string() + ": " + count(differing_, "turn") + " could not be reproduced");
        }
        return 0;
    }

private:
    void report(const ReplayedTurn& turn) {
        std::string line = "turn " + std::to_string(turn.turn) + ": ";
        switch (turn.outcome) {
            case ReplayedTurn::Outcome::same:
                ++same_;
                line += count(turn.tokens, "token") + ", the same";
                break;
            case ReplayedTurn::Outcome::differs:
                ++differing_;
                line += "differs from token " + std::to_string(turn.first_difference) + " of " +
                        std::to_string(turn.tokens) + " on";
                break;
            case ReplayedTurn::Outcome::skipped:
                ++skipped_;
                line += "skipped";
                break;
        }
        print(line + (turn.note.empty() ? "" : "; " + turn.note) + "\n");
    }

    Options options_;
    std::string name_;
    std::size_t same_ = 0, differing_ = 0, skipped_ = 0;
};

class Delete : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument_list(names_, {.value = "SESSION", .doc = "names of sessions", .required = true});
    }
    int run() override {
        for (const std::string& name : names_) {
            delete_session(name);
            print("deleted " + name + "\n");
        }
        return 0;
    }

private:
    std::vector<std::string> names_;
};

constexpr CommandGroup kGroup = CommandGroup::generate;
const RegisterCommandFamily kSession("session", "list, show, replay and delete saved conversations", kGroup);
const RegisterCommand<List> kList("session list", "list saved sessions, the most recent first", kGroup);
const RegisterCommand<Show> kShow("session show", "print the text of a session", kGroup);
const RegisterCommand<Replay> kReplay("session replay", "generate every answer of a session again, and compare",
                                      kGroup);
const RegisterCommand<Delete> kDelete("session delete", "delete sessions", kGroup);

}  // namespace

}  // namespace foresay::app
