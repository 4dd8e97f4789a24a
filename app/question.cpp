#include "app/question.h"

#include <termios.h>
#include <unistd.h>

#include <cerrno>

#include "app/interrupt.h"
#include "app/output.h"
#include "app/terminal.h"

namespace foresay::app {

bool ask(const std::string& question) {
    const TerminalLoan loan;
    ::tcflush(STDIN_FILENO, TCIFLUSH);  // what was typed before the question is no answer to it
    say(question);
    std::string answer;
    for (char c = 0; c != '\n';) {
        const ssize_t got = read_unless_interrupted(STDIN_FILENO, &c, 1);
        if (got < 0 && errno == EINTR && !interrupted()) continue;
        if (got <= 0) {
            say("\n");
            return false;
        }
        if (answer.size() < 8) answer += c;
    }
    return answer == "y\n" || answer == "Y\n" || answer == "yes\n";
}

}  // namespace foresay::app
