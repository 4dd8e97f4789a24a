#include "app/edits/file_text.h"

#include <algorithm>

#include "app/edits/line_diff.h"
#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::app {

namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";

bool has_wide_character(std::string_view text) {
    while (!text.empty()) {
        const core::Utf8Step step = core::next_utf8(text);
        if (step.status == core::Utf8Status::valid && step.length_bytes > 1) return true;
        text.remove_prefix(step.length_bytes);
    }
    return false;
}

void append_latin1_as_utf8(std::string_view bytes, std::string& out) {
    for (const char byte : bytes) core::append_utf8(static_cast<unsigned char>(byte), out);
}

}  // namespace

std::vector<std::string_view> split_lines(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t newline = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, newline);
        if (newline < text.size() && line.ends_with('\r')) line.remove_suffix(1);
        lines.push_back(line);
        text.remove_prefix(std::min(newline + 1, text.size()));
    }
    return lines;
}

FileText::FileText(std::string bytes) : bytes_(std::move(bytes)) {
    const std::string_view all(bytes_);
    if (all.starts_with(kMark)) mark_ = kMark.size();
    std::size_t lf = 0, crlf = 0;
    bool valid = true, wide = false;
    for (std::size_t begin = mark_; begin < all.size();) {
        const std::size_t newline = std::min(all.find('\n', begin), all.size());
        Line line{.begin = begin, .length = newline - begin, .ending = {}, .text_begin = text_.size()};
        if (newline < all.size()) {
            const bool returns = line.length > 0 && all[newline - 1] == '\r';
            line.ending = returns ? "\r\n" : "\n";
            line.length -= returns ? 1 : 0;
            ++(returns ? crlf : lf);
        }
        const std::string_view content = raw(line);
        line.latin1 = !core::is_valid_utf8(content);
        wide = wide || has_wide_character(content);
        if (line.latin1) {
            valid = false;
            append_latin1_as_utf8(content, text_);
        } else {
            text_ += content;
        }
        if (!line.ending.empty()) text_ += '\n';
        lines_.push_back(line);
        begin = newline + 1;
    }
    if (crlf > lf) usual_ending_ = "\r\n";
    // A file with characters of UTF-8 and some bytes that are none is damaged UTF-8.
    encoding_ = valid || wide || mark_ > 0 ? Encoding::utf8 : Encoding::latin1;
}

std::string FileText::encoded(std::string_view text) const {
    if (encoding_ == Encoding::utf8) return std::string(text);
    std::string out;
    while (!text.empty()) {
        const core::Utf8Step step = core::next_utf8(text);
        const std::string_view character = text.substr(0, step.length_bytes);
        if (step.status != core::Utf8Status::valid || step.code > 0xff) {
            throw Error("the file is in Latin-1, which lacks the character '" + core::to_valid_utf8(character) +
                        "' of the new text; convert the file to UTF-8 first, for example with iconv");
        }
        out += static_cast<char>(static_cast<unsigned char>(step.code));
        text.remove_prefix(step.length_bytes);
    }
    return out;
}

std::string_view FileText::ending_near(std::size_t place) const {
    if (place > 0 && !lines_[place - 1].ending.empty()) return lines_[place - 1].ending;
    if (place < lines_.size() && !lines_[place].ending.empty()) return lines_[place].ending;
    return usual_ending_;
}

std::string FileText::with_edits(std::span<const LineEdit> edits, FinalNewline final_newline) const {
    struct Part {
        std::string_view kept;  // of the file; or
        std::string added;
        std::string_view ending;
    };
    std::vector<Part> parts;
    std::size_t next = 0;
    const auto keep_until = [&](std::size_t end) {
        for (; next < end; ++next) {
            const Line& line = lines_[next];
            parts.push_back({raw(line), {}, line.ending.empty() ? ending_near(next) : line.ending});
        }
    };
    for (const LineEdit& edit : edits) {
        check(edit.begin >= next && edit.begin <= edit.end && edit.end <= lines_.size(), "edits are in order");
        keep_until(edit.begin);
        for (std::size_t i = 0; i < edit.lines.size(); ++i) {
            // The line that it replaces, the last of those, or the line before.
            const std::size_t replaced = std::min(edit.begin + i + 1, edit.end);
            const bool ends = replaced > edit.begin && !lines_[replaced - 1].ending.empty();
            parts.push_back({{}, encoded(edit.lines[i]), ends ? lines_[replaced - 1].ending : ending_near(edit.begin)});
        }
        next = edit.end;
    }
    keep_until(lines_.size());

    const bool had = lines_.empty() || !lines_.back().ending.empty();
    const bool ends = final_newline == FinalNewline::keep ? had : final_newline == FinalNewline::present;
    std::string out = bytes_.substr(0, mark_);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        out += parts[i].kept;
        out += parts[i].added;
        if (i + 1 < parts.size() || ends) out += parts[i].ending;
    }
    return out;
}

std::string FileText::with_text(std::string_view text) const {
    const auto policy = !lines_.empty() || text.ends_with('\n') ? FinalNewline::keep : FinalNewline::absent;
    return with_edits(diff_lines(lines(), split_lines(text)), policy);
}

std::string FileText::with_insertion(std::size_t offset, std::string_view more) const {
    check(offset <= text_.size(), "the place is in the text");
    const auto after = std::upper_bound(lines_.begin(), lines_.end(), offset,
                                        [](std::size_t at, const Line& line) { return at < line.text_begin; });
    std::size_t index = static_cast<std::size_t>(after - lines_.begin());  // of the line after the place
    std::size_t at = bytes_.size();
    if (index > 0 && !(offset == text_.size() && text_.ends_with('\n'))) {
        const Line& line = lines_[--index];
        std::size_t inside = offset - line.text_begin;
        if (line.latin1) {
            const std::string_view before = std::string_view(text_).substr(line.text_begin, inside);
            inside = static_cast<std::size_t>(std::count_if(before.begin(), before.end(), [](char byte) {
                return (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u;
            }));
        }
        at = line.begin + inside;
    }
    const std::string_view own = index < lines_.size() ? lines_[index].ending : std::string_view{};
    const std::string_view ending = own.empty() ? ending_near(index) : own;
    std::string out = bytes_.substr(0, at);
    while (!more.empty()) {
        const std::size_t newline = std::min(more.find('\n'), more.size());
        std::string_view line = more.substr(0, newline);
        if (newline < more.size() && line.ends_with('\r')) line.remove_suffix(1);
        out += encoded(line);
        if (newline < more.size()) out += ending;
        more.remove_prefix(std::min(newline + 1, more.size()));
    }
    return out + bytes_.substr(at);
}

}  // namespace foresay::app
