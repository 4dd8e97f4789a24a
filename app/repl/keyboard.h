// app/repl/keyboard.h: the typed keys, in order, for the line editor and the view of an answer.
//
// While an answer is generated, its view (live_view.cpp) reads the keys, shows them, and puts them back here with
// type_ahead(). The line editor reads those first.
//
// Threads:  one caller at a time. Signals: the constructor installs handlers for SIGWINCH and SIGCONT.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace foresay::app {

class Keyboard {
public:
    Keyboard();

    enum class Event : std::uint8_t {
        byte,         // a key, or a part of one
        end,          // end of input
        interrupted,  // Ctrl-C
        resized,      // the terminal has another size: redraw
        continued,    // after Ctrl-Z and fg: the cursor is on a new line, and a shell may have changed the terminal
    };
    // Waits for an event. Calls `pause` once if nothing is typed for `kPause`.
    Event next(char& byte, const std::function<void()>& pause = {});
    // A byte that is available already or arrives within `kBurst`; false if none does.
    bool next_of_burst(char& byte);

    // Adds bytes that were read elsewhere. They come before what the terminal still holds.
    void type_ahead(std::string_view bytes) { ahead_ += bytes; }
    std::string_view ahead() const { return std::string_view(ahead_).substr(taken_); }
    // Turns Enter keys among the keys typed ahead into line breaks, so that the user sees them before they are sent.
    void hold_ahead();

    // Whether the terminal was resized, or used by a shell, since the last call.
    static bool take_change();

    static constexpr std::chrono::milliseconds kPause{120};
    static constexpr std::chrono::milliseconds kBurst{500};

private:
    enum class Wait : std::uint8_t { typed, nothing, end, interrupted, resized, continued };
    bool take(char& byte);
    static Wait changed();  // why a wait was interrupted by a signal that was no Ctrl-C
    // Waits for bytes and keeps them in ahead_; a negative timeout_ms waits without limit.
    Wait wait(int timeout_ms);

    std::string ahead_;
    std::size_t taken_ = 0;
};

}  // namespace foresay::app
