#include "app/repl/editor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "app/files.h"
#include "app/output.h"
#include "app/terminal.h"
#include "base/error.h"

namespace foresay::app {

namespace {

// A private temporary file, removed by the destructor.
class Scratch {
public:
    explicit Scratch(const std::string& text) {
        std::error_code ignored;
        path_ = (std::filesystem::temp_directory_path(ignored) / "foresay-XXXXXX.txt").string();
        const int descriptor = ::mkostemps(path_.data(), 4, O_CLOEXEC);  // mode 0600
        if (descriptor < 0) {
            throw Error("cannot create a file for the editor in " +
                        std::filesystem::path(path_).parent_path().string() + ": " + std::strerror(errno));
        }
        const bool written = ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
        ::close(descriptor);
        if (!written) {
            ::unlink(path_.c_str());
            throw Error("cannot write the file for the editor, " + path_);
        }
    }
    ~Scratch() { ::unlink(path_.c_str()); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

std::string editor() {
    for (const char* name : {"VISUAL", "EDITOR"}) {
        const char* value = std::getenv(name);
        if (value && *value) return value;
    }
    return "vi";
}

// Runs the editor through the shell, because $VISUAL and $EDITOR may contain arguments. Returns waitpid()'s status.
int run(const std::string& command, const std::string& path) {
    const pid_t child = ::fork();
    if (child < 0) throw Error(std::string("cannot start the editor: ") + std::strerror(errno));
    if (child == 0) {
        for (const int signal : {SIGINT, SIGPIPE, SIGTERM, SIGHUP, SIGXFSZ}) std::signal(signal, SIG_DFL);
        ::execl("/bin/sh", "sh", "-c", (command + " \"$1\"").c_str(), "sh", path.c_str(), nullptr);
        ::_exit(127);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

}  // namespace

std::string edit_externally(const std::string& text) {
    if (!stdin_is_terminal() || !stdout_is_terminal()) {
        throw Error("an editor needs a terminal; write the text as the command's argument instead");
    }
    const Scratch scratch(text);
    const std::string command = editor();
    int status = 0;
    {
        const TerminalLoan loan;
        struct sigaction ignore {
        }, before{};
        ignore.sa_handler = SIG_IGN;  // Ctrl-C belongs to the editor
        ::sigaction(SIGINT, &ignore, &before);
        try {
            status = run(command, scratch.path());
        } catch (...) {
            ::sigaction(SIGINT, &before, nullptr);
            throw;
        }
        ::sigaction(SIGINT, &before, nullptr);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw Error("the editor '" + command + "' failed; set VISUAL or EDITOR to one that works");
    }
    std::string edited = read_file(scratch.path(), "the edited text");
    // Editors add a newline at the end of the file.
    if (edited.ends_with('\n') && !text.ends_with('\n')) edited.pop_back();
    return edited;
}

}  // namespace foresay::app
