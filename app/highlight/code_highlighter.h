// app/highlight/code_highlighter.h: colours code as it comes, in pieces of any size.
//
// The looks depend on the text alone, never on where the pieces are cut. A piece may end where the look is still
// undecided, in the middle of a word or of an operator. That end is held back as undecided(); it is at most kMostHeld
// bytes long, and a newline leaves nothing undecided.
//
// Threads:  one caller at a time.
// Cost:     a few tens of nanoseconds per byte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "app/highlight/language.h"
#include "app/highlight/look.h"

namespace foresay::app {

class CodeHighlighter {
public:
    // A key of a data file that is longer is coloured like other text.
    static constexpr std::size_t kMostHeld = 80;

    explicit CodeHighlighter(const Language& language) : language_(&language) {}

    // Adds `text` and appends what is decided now to `out`.
    void add(std::string_view text, Runs& out);
    // Decides the rest: the text has ended, or what comes next cannot change the looks of what is on the screen.
    void finish(Runs& out);
    std::string_view undecided() const { return held_; }

private:
    enum class Mode : unsigned char { code, word, number, text, line_comment, block_comment, here_document };

    std::string_view rest() const { return std::string_view(held_).substr(at_); }
    char next(std::size_t ahead = 0) const { return at_ + ahead < held_.size() ? held_[at_ + ahead] : '\0'; }
    // Whether what a decision needs, `count` more bytes, is not there yet.
    bool lacks(std::size_t count) const { return !last_ && held_.size() - at_ < count; }
    void take(std::size_t count, Look look);
    // Takes `count` bytes of code, after which the line has begun.
    void take_token(std::size_t count, Look look);

    void run(Runs& out, bool last);
    // Each takes at least one byte or changes the mode; false: more text is needed to decide.
    bool step();
    bool code_step();
    bool number_step();
    void word_step();
    void text_step();
    void block_comment_step();
    void here_document_step();

    // Parts of code_step(). A token is taken, is not there, or needs more text.
    enum class Found : unsigned char { taken, none, undecided };
    Found take_key();
    Found take_quoted_key();
    Found take_opening();
    Found take_character();
    Found take_sigil();
    Found take_word();
    Found take_here_document();
    Found open_text(const StringRule& rule);
    void begin_word(Look look, std::string_view inside);

    bool is_word(char c) const;
    bool begins_word() const;  // whether what stands before allows a comment here
    Look look_of(std::string_view word) const;

    const Language* language_;
    std::string held_;     // not decided yet; during run(), also what has just been decided
    std::size_t at_ = 0;   // where the undecided part of held_ begins
    bool last_ = false;    // no more text will come
    Runs* out_ = nullptr;  // of run()

    Mode mode_ = Mode::code;
    Look look_ = Look::plain;   // of Mode::word and Mode::text
    std::string_view inside_;   // Mode::word: characters of it, besides letters, digits and '_'
    std::string close_;         // Mode::text: what ends it
    std::size_t matched_ = 0;   // Mode::text: how much of close_ has just come
    char escape_ = 0;           // Mode::text
    bool multiline_ = false;    // Mode::text
    bool escaped_ = false;      // Mode::text: the next character is part of the string
    bool hexadecimal_ = false;  // Mode::number
    std::size_t depth_ = 0;     // Mode::block_comment
    std::string here_;          // the word that ends the here-document
    bool here_tabs_ = false;    // <<-: tabs before it do not count
    std::string here_line_;     // the current line of the document, as far as it matters

    char previous_ = '\n';       // the byte before
    bool line_start_ = true;     // only blanks so far
    bool expects_name_ = false;  // after "def"
    bool after_dot_ = false;     // a keyword after a single dot is a name: x.class
};

}  // namespace foresay::app
