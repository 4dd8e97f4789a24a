// app/edits/file_text.h: a text file as lines, for changing some of them and keeping every other byte.
//
// Layout:   text() is what people and models read: UTF-8, lines that end in LF, no byte order mark. bytes() is the
//           file. A line that is not valid UTF-8 is read as Latin-1. New lines take the encoding of the file, and the
//           line end of the lines that they replace or follow; LF, CRLF and a mixture are all kept. A carriage return
//           that is not followed by a line feed is a character like any other.
// Cost:     linear in the file.
// Errors:   Error for new text with a character that the file's encoding lacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

// The lines [begin, end) of a text become `lines`, which have no line ends. Edits of one text are in order and do not
// overlap.
struct LineEdit {
    std::size_t begin = 0, end = 0;
    std::vector<std::string> lines;
    bool operator==(const LineEdit&) const = default;
};

// Whether the last line ends in a line end. keep: as in the file; with one in a file without lines.
enum class FinalNewline : std::uint8_t { keep, present, absent };

// The lines of a text without their line ends (LF or CRLF).
std::vector<std::string_view> split_lines(std::string_view text);

class FileText {
public:
    explicit FileText(std::string bytes);

    const std::string& bytes() const { return bytes_; }
    const std::string& text() const { return text_; }
    std::size_t line_count() const { return lines_.size(); }
    // The lines of text(), without line ends.
    std::vector<std::string_view> lines() const { return split_lines(text_); }

    // The bytes of the file after `edits`.
    std::string with_edits(std::span<const LineEdit> edits, FinalNewline final_newline = FinalNewline::keep) const;
    // The bytes of the file with `text` in place of text(): lines that stay keep their bytes. The final newline stays
    // as it is, unless the file is empty.
    std::string with_text(std::string_view text) const;
    // The bytes of the file with `more` inserted at byte `offset` of text(), which must not be inside a character.
    std::string with_insertion(std::size_t offset, std::string_view more) const;

private:
    enum class Encoding : std::uint8_t { utf8, latin1 };
    struct Line {
        std::size_t begin = 0, length = 0;  // in bytes_, without the line end
        std::string_view ending;            // "\n", "\r\n" or empty
        std::size_t text_begin = 0;         // in text_
        bool latin1 = false;
    };

    std::string_view raw(const Line& line) const { return std::string_view(bytes_).substr(line.begin, line.length); }
    std::string encoded(std::string_view text) const;
    // The line end for a new line before line `place`.
    std::string_view ending_near(std::size_t place) const;

    std::string bytes_;
    std::string text_;
    std::vector<Line> lines_;
    std::string_view usual_ending_ = "\n";  // of most lines
    std::size_t mark_ = 0;                  // length of the byte order mark
    Encoding encoding_ = Encoding::utf8;
};

}  // namespace foresay::app
