// app/repl/keyboard.h: the keys that were typed, in their order, whoever reads them from the terminal.
//
// While an answer is generated, its view (live_view.cpp) reads the keys and shows them; what it read comes back here
// and is what the line editor reads next.
//
// Threads:  one caller at a time. Signals: SIGWINCH and SIGCONT are caught from the constructor on.
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
        end,          // there will be none
        interrupted,  // Ctrl-C
        resized,      // the terminal has another size, or the program was continued: draw again
    };
    // Waits. `pause` is called once when nothing was typed for `kPause`.
    Event next(char& byte, const std::function<void()>& pause = {});
    // A byte that is there already, or follows within `kBurst`.
    bool next_of_burst(char& byte);

    // Bytes that come before whatever the terminal has.
    void type_ahead(std::string_view bytes) { ahead_ += bytes; }
    std::string_view ahead() const { return std::string_view(ahead_).substr(taken_); }
    // Turns Enter keys among the keys typed ahead into line breaks: what was meant as an entry becomes text to look at.
    void hold_ahead();

    // Whether the terminal has changed since it was last asked: another size, or a shell had it meanwhile.
    static bool take_change();

    static constexpr std::chrono::milliseconds kPause{120};
    static constexpr std::chrono::milliseconds kBurst{500};

private:
    enum class Wait : std::uint8_t { typed, nothing, end, interrupted, resized };
    bool take(char& byte);
    // Waits for bytes and keeps them; timeout_ms below 0: as long as it takes.
    Wait wait(int timeout_ms);

    std::string ahead_;
    std::size_t taken_ = 0;
};

}  // namespace foresay::app
