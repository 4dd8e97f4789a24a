// Lines edited with libedit.
#include "app/repl/line_reader.h"

#ifdef FORESAY_HAVE_LIBEDIT

#include <fcntl.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "app/files.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

constexpr int kHistoryEntries = 1000;

volatile std::sig_atomic_t resized = 0;
void on_resize(int) { resized = 1; }

// One byte from the terminal. Returns 1, 0 at the end, -1 when Ctrl-C interrupted; libedit's own reader would go on.
int read_byte(EditLine* edit, char* out) {
    for (;;) {
        const ssize_t got = ::read(STDIN_FILENO, out, 1);
        if (got >= 0) return static_cast<int>(got);
        if (errno != EINTR || interrupted()) return -1;
        if (resized) {
            resized = 0;
            el_resize(edit);
        }
    }
}

// Bytes become characters by the locale; libedit's own conversion is tied to its own reader.
int read_character(EditLine* edit, wchar_t* out) {
    std::mbstate_t state{};
    for (;;) {
        char byte = 0;
        const int got = read_byte(edit, &byte);
        if (got <= 0) return got;
        const std::size_t length = std::mbrtowc(out, &byte, 1, &state);
        if (length == static_cast<std::size_t>(-2)) continue;  // more bytes needed
        if (length == static_cast<std::size_t>(-1)) {
            state = {};
            continue;  // no character: dropped
        }
        if (length == 0) *out = L'\0';
        return 1;
    }
}

char* prompt_of(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return static_cast<std::string*>(data)->data();
}

class EditingReader : public LineReader {
public:
    EditingReader() {
        // Editing needs to know how wide characters are; text is UTF-8 whatever the locale says otherwise.
        if (!std::setlocale(LC_CTYPE, "") || std::strstr(std::setlocale(LC_CTYPE, nullptr), "UTF-8") == nullptr) {
            std::setlocale(LC_CTYPE, "C.UTF-8");
        }
        history_ = history_init();
        edit_ = el_init("foresay", stdin, stdout, stderr);
        if (!history_ || !edit_) throw Error("cannot edit lines on this terminal; set TERM, or pipe the input in");
        HistEvent event;
        history(history_, &event, H_SETSIZE, kHistoryEntries);
        history(history_, &event, H_SETUNIQUE, 1);
        const std::filesystem::path folder = state_folder();
        if (!folder.empty()) {
            path_ = (folder / "history").string();
            history(history_, &event, H_LOAD, path_.c_str());
        }
        el_set(edit_, EL_EDITOR, "emacs");
        el_set(edit_, EL_SIGNAL, 0);
        el_set(edit_, EL_CLIENTDATA, &prompt_);
        el_set(edit_, EL_PROMPT, prompt_of);
        el_set(edit_, EL_HIST, history, history_);
        el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
        el_wset(edit_, EL_GETCFN, read_character);
        struct sigaction action {};
        action.sa_handler = on_resize;
        sigemptyset(&action.sa_mask);
        sigaction(SIGWINCH, &action, nullptr);
    }

    ~EditingReader() override {
        el_end(edit_);
        history_end(history_);
    }

    Line read(const std::string& prompt) override {
        prompt_ = prompt;
        int count = 0;
        const char* line = el_gets(edit_, &count);
        if (!line || count <= 0) {
            print("\n");
            if (interrupted()) {
                el_reset(edit_);
                return {LineEnd::interrupt, {}};
            }
            return {LineEnd::end, {}};
        }
        std::string text(line, static_cast<std::size_t>(count));
        while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
        if (!text.empty() && !text.starts_with(' ')) remember(text);
        return {LineEnd::line, std::move(text)};
    }

private:
    void remember(const std::string& text) {
        HistEvent event;
        history(history_, &event, H_ENTER, text.c_str());
        if (path_.empty()) return;
        // Written after each line, so that nothing is lost; what one types is nobody else's business.
        const int descriptor = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (descriptor < 0) return;
        ::fchmod(descriptor, 0600);
        if (std::FILE* file = ::fdopen(descriptor, "w")) {
            history(history_, &event, H_SAVE_FP, file);
            std::fclose(file);
        } else {
            ::close(descriptor);
        }
    }

    std::string prompt_;
    std::string path_;
    History* history_ = nullptr;
    EditLine* edit_ = nullptr;
};

}  // namespace

std::unique_ptr<LineReader> make_editing_reader() { return std::make_unique<EditingReader>(); }

}  // namespace foresay::app

#endif
