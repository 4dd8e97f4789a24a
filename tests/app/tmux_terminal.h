// tests/app/tmux_terminal.h: the program in a real terminal, driven through tmux.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace foresay::testing {

// What a shell command prints.
std::string shell(const std::string& command);

// One terminal for each test, with a home of its own; skipped where tmux is not installed.
class TmuxTerminal : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;

    // Starts `foresay chat ARGUMENTS`, and ends what was started before; "status N" appears below it when it ends.
    void start(const std::string& arguments, const std::string& environment = "", int columns = 100, int rows = 50);
    void stop();
    // Keys as tmux names them; text is one quoted argument.
    void type(const std::string& keys);
    // Any bytes, as if they were keys.
    void type_bytes(const std::string& bytes);
    // Pastes as a terminal does it, bracketed where the program asked for that.
    void paste(const std::string& text);
    void resize(int columns, int rows);
    std::string screen();           // what is visible
    std::string screen_and_past();  // with what has scrolled away
    std::string colours();          // what is visible, with escape sequences
    // Returns once the screen matches, and fails the test after a minute. Put all that is expected into one `wanted`:
    // when a part of it appears, the rest need not be there yet.
    void expect_screen(const ::testing::Matcher<const std::string&>& wanted);
    // Waits until `text` is on the screen at least `times` times.
    void wait_for(const std::string& text, int times = 1);
    // Waits for `count` statistics lines and the prompt after the last: the next key is no longer typed ahead.
    void wait_for_answers(int count);
    // Sends a signal ("TERM") to the program.
    void signal(const std::string& name);
    std::string modes();  // of the terminal, as `stty -a` prints them
    // The folder that is $XDG_STATE_HOME.
    std::string state() const { return state_; }

private:
    std::string capture(const std::string& options);
    std::string tmux_, state_;
};

}  // namespace foresay::testing
