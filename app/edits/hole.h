// app/edits/hole.h: where generated text stops to fill a hole and begins to repeat or leave what surrounds it.
//
// The text ends
//   - before the rest of the hole's line, or the next line of the suffix that is not blank, when it is generated again;
//   - before a bracket that closes one opened before the hole, if the rest of the line closes it;
//   - before a line that is indented less than the block of the hole.
// Lines inside """ or ''' are not looked at. Blank lines at the end that the suffix has, too, are left out.
//
// The result does not depend on how the text is divided into pushes.
// Cost:     a push reads the text's last line again.
// Threads:  one caller at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foresay::app {

struct Surroundings {
    std::string prefix, suffix;  // the text before and after the hole
    // The model was not given the blank that the prefix ends with, so a blank that it begins with is that one.
    bool blank_left_out = false;
};

class Hole {
public:
    // `sees_suffix`: the model was given the suffix. Otherwise a hole inside a line ends with the line.
    Hole(const Surroundings& around, bool sees_suffix);

    // Adds generated text. Returns the part that is now certain to be in the hole.
    std::string push(std::string_view text);
    // The generated text has ended. Returns the rest of what is in the hole.
    std::string finish();
    // Whether what follows is not in the hole, whatever it is.
    bool stopped() const { return stopped_; }
    // All that is in the hole so far; final after finish().
    const std::string& text() const { return shown_; }
    // How many bytes of the generated text that is, at most.
    std::size_t taken() const { return shown_.size() + (blank_taken_ ? 1 : 0); }

private:
    void take(char c);
    void take_code(char c);  // brackets and strings
    void end_line(std::size_t end);
    void look_at_head(std::string_view head);
    void stop(std::size_t cut);
    void stop_before_line(bool repeated);
    std::string show(std::size_t end);
    std::size_t certain() const;
    int depth_at(std::size_t end) const;
    void set_block();

    // The surroundings.
    std::string tail_;              // of the hole's line, before the hole
    std::string rest_;              // of the hole's line, after the hole, without blanks at its end
    std::string next_line_;         // when rest_ is empty: the next line of the suffix that is not blank
    std::string lead_;              // the blanks between the hole and that line
    std::string last_line_;         // the last line before the hole that is not blank
    bool tail_blank_ = true;        // whether tail_ is
    std::size_t least_indent_ = 0;  // of the block, in columns
    bool sees_suffix_ = true;
    bool blank_left_out_ = false;  // and nothing was generated yet
    bool blank_taken_ = false;

    // The generated text.
    std::string all_, shown_;
    std::size_t line_ = 0;   // where its last line begins
    int depth_ = 0;          // brackets opened minus brackets closed
    int depth_of_line_ = 0;  // at line_
    char quote_ = 0;         // of the string on this line that the text is in
    char long_quote_ = 0;    // of """ or '''
    char last_ = '\n';       // the character before
    int quotes_in_row_ = 0;
    bool line_in_string_ = false;  // the line begins inside """
    bool head_seen_ = false;       // the first word of the line was looked at
    bool stopped_ = false;
};

}  // namespace foresay::app
