#include "app/repl/file_writes.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "app/conversation/source_files.h"
#include "app/edits/file_text.h"
#include "app/edits/line_diff.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "app/repl/repl.h"
#include "base/error.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

std::string counted(std::size_t number, const std::string& what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

// "3 lines added, 1 removed"
std::string change_text(const DiffSize& size) {
    if (size.removed == 0) return counted(size.added, "line") + " added";
    if (size.added == 0) return counted(size.removed, "line") + " removed";
    return counted(size.added, "line") + " added, " + std::to_string(size.removed) + " removed";
}

}  // namespace

bool take_write_option(const std::string& word, WriteOptions& options) {
    if (word == "--yes") {
        options.yes = true;
    } else if (word == "--outside") {
        options.outside = true;
    } else {
        return false;
    }
    return true;
}

FileWrites::Write* FileWrites::newest(Repl& repl) {
    if (writes_.empty()) return nullptr;
    Write& last = writes_.back();
    const Conversation& conversation = repl.conversation();
    const bool newest = last.changes == conversation.changes() && conversation.files().size() <= last.attached;
    return newest && !last.refused ? &last : nullptr;
}

FileWrites::Write& FileWrites::last_of(const std::string& name) {
    std::error_code problem;
    const fs::path path = fs::weakly_canonical(user_path(name), problem);
    const auto found = std::find_if(writes_.rbegin(), writes_.rend(), [&](const Write& write) {
        return write.before.path == path || write.before.name == name;
    });
    if (found == writes_.rend()) throw Error("no write of " + name + " can be undone in this conversation");
    return *found;
}

std::string FileWrites::take_back(Write& write) {
    write.refused = true;
    const std::string& name = write.before.name;
    TargetFile now = read_target(write.before.path.string(), {.outside = true});
    if (!now.exists) throw Error(name + " was deleted since it was written; nothing was undone");
    if (now.bytes != write.after) {
        throw Error(name + " has changed since it was written; nothing was undone" +
                    (write.backup.empty() ? "" : ". Its text from before is in " + write.backup.string()));
    }
    now.name = name;
    const bool existed = write.before.exists;
    if (existed) {
        replace_target(now, write.before.bytes);
    } else {
        remove_target(now);
    }
    const std::string done =
        existed ? name + " is as it was before the write." : name + " is deleted, because the write had created it.";
    writes_.erase(writes_.begin() + (&write - writes_.data()));
    return done;
}

void require_consent(Repl& repl, const std::string& command, const WriteOptions& options) {
    if (options.yes || (repl.interactive() && stderr_is_terminal())) return;  // the diff goes to standard error
    throw Error(command + " asks before it writes, which needs a terminal; add --yes to write without asking");
}

bool propose_write(Repl& repl, const TargetFile& file, const std::string& after, const WriteOptions& options) {
    const std::string name = printable(file.name);
    if (file.exists && after == file.bytes) {
        say(dim(name + " has this text already; nothing was written.") + "\n");
        return false;
    }
    const FileText old_text(file.bytes), new_text(after);
    const std::vector<LineEdit> edits = diff_lines(old_text.lines(), new_text.lines());
    const DiffSize size = size_of(edits);
    if (repl.interactive()) {
        say(shown_diff(old_text.lines(), edits, {.colours = colourful_errors()}));
        if (edits.empty()) say(dim("Only line ends or the encoding change.") + "\n");
    }
    if (!options.yes) {
        const std::string what = file.exists ? "Write " + name + " (" + change_text(size) + ")?"
                                             : "Create " + name + " (" + counted(size.added, "line") + ")?";
        if (!repl.confirm(what)) {
            say(dim("Nothing was written.") + "\n");
            return false;
        }
    }
    FileWrites::Write write{.before = file, .after = after};
    if (file.exists) write.backup = keep_backup(file);
    replace_target(file, after);
    write.changes = repl.conversation().changes();
    write.attached = repl.conversation().files().size();
    std::string done = file.exists ? "Wrote " + name + ": " + change_text(size) + "."
                                   : "Created " + name + ": " + counted(size.added, "line") + ".";
    if (file.exists) {
        done += write.backup.empty() ? " No backup was kept, because there is no state folder."
                                     : " The text from before is in " + printable(write.backup.string()) + ".";
    }
    repl.writes().add(std::move(write));
    say(dim(done + " /undo takes it back.") + "\n");
    return true;
}

bool ask_at_terminal(const std::string& question) {
    say(question);
    ::tcflush(STDIN_FILENO, TCIFLUSH);  // what was typed before the question is no answer to it
    for (;;) {
        char key = 0;
        const ssize_t got = read_unless_interrupted(STDIN_FILENO, &key, 1);
        if (got < 0 && errno == EINTR && !interrupted()) continue;
        const bool yes = got == 1 && (key == 'y' || key == 'Y');
        constexpr std::string_view kNo = "nNqQ\r\n\x1b\x04\x03";
        if (!yes && got == 1 && kNo.find(key) == kNo.npos) continue;
        ::tcflush(STDIN_FILENO, TCIFLUSH);  // the rest of an escape sequence
        say(yes ? "y\n" : "n\n");
        return yes;
    }
}

}  // namespace foresay::app
