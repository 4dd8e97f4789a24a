// tests/app/terminal_session.h: the program in a real terminal, driven through tmux.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace foresay::testing {

// What a shell command prints.
std::string shell(const std::string& command);

// One terminal for each test, with a home of its own; skipped where tmux is not installed.
class TerminalSession : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;

    // Starts `foresay chat ARGUMENTS`, and ends what was started before; "status N" appears behind it at its end.
    void start(const std::string& arguments, const std::string& environment = "", int columns = 100, int rows = 50);
    void stop();
    // Keys as tmux names them; text is one quoted argument.
    void type(const std::string& keys);
    // Pastes as a terminal does it, bracketed where the program asked for that.
    void paste(const std::string& text);
    void resize(int columns, int rows);
    std::string screen();           // what is visible
    std::string screen_and_past();  // with what has scrolled away
    std::string colours();          // what is visible, with escape sequences
    // The screen once it holds `text` so many times, or as it is after twenty seconds.
    std::string wait_for(const std::string& text, int times = 1);
    // The same where the screen must not hold it any more.
    std::string wait_until_gone(const std::string& text);
    // The folder that is $XDG_STATE_HOME.
    std::string state() const { return state_; }

private:
    std::string capture(const std::string& options);
    std::string tmux_, state_;
};

}  // namespace foresay::testing
