#include "app/edits/unified_diff.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::size_t kMostLines = 1'000'000'000;
constexpr std::string_view kBlank = " \t\r\n\v\f";

struct Header {
    bool numbered = false;
    std::size_t old_line = 0, old_count = 1, new_line = 0, new_count = 1;
};

bool is_header(std::string_view line) { return line.starts_with("@@"); }

[[noreturn]] void fail(std::size_t line, const std::string& what) {
    throw Error("line " + std::to_string(line + 1) + " of the diff " + what);
}

// Takes "-12,3" or "+12" from the front of `text`. False if there is none.
bool take_range(std::string_view& text, char sign, std::size_t& line, std::size_t& count) {
    const auto number = [&](std::size_t& value) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || value > kMostLines) return false;
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        return true;
    };
    if (!text.starts_with(sign)) return false;
    text.remove_prefix(1);
    if (!number(line)) return false;
    if (!text.starts_with(',')) return true;
    text.remove_prefix(1);
    return number(count);
}

// "@@ -1,2 +1,3 @@ def f():", or "@@", "@@ ... @@" and "@@ def f():" without numbers.
Header parse_header(std::string_view line, std::size_t index) {
    Header header;
    std::string_view rest = line.substr(2);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (!rest.starts_with('-')) return header;
    const bool old_side = take_range(rest, '-', header.old_line, header.old_count) && rest.starts_with(' ');
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (!old_side || !take_range(rest, '+', header.new_line, header.new_count)) {
        fail(index, "is not the header of a hunk: '" + std::string(line.substr(0, 60)) + "'");
    }
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (!rest.starts_with("@@")) fail(index, "has a hunk header without its second @@");
    header.numbered = true;
    return header;
}

// "--- a/dir/name.py\t2026-01-01" after its first four bytes.
std::string file_name(std::string_view text) {
    text = text.substr(0, text.find('\t'));
    text = text.substr(0, text.find_last_not_of(kBlank) + 1);
    if (text.size() > 1 && text.starts_with('"') && text.ends_with('"')) text = text.substr(1, text.size() - 2);
    if (text.starts_with("a/") || text.starts_with("b/")) text.remove_prefix(2);
    return std::string(text);
}

class Parser {
public:
    Parser(std::string_view text, bool fenced) : lines_(split_lines(text)), fenced_(fenced) {}

    std::vector<FileDiff> run() {
        while (at_ < lines_.size()) {
            if (begins_file(at_)) {
                files_.push_back({file_name(lines_[at_].substr(4)), file_name(lines_[at_ + 1].substr(4)), {}});
                at_ += 2;
            } else if (is_header(lines_[at_])) {
                if (files_.empty()) files_.emplace_back();
                read_hunk();
            } else {
                ++at_;
            }
        }
        std::erase_if(files_, [](const FileDiff& file) { return file.hunks.empty(); });
        if (files_.empty()) throw Error("the answer has no diff: no line begins with @@");
        return std::move(files_);
    }

private:
    // "--- a/name", "+++ b/name", and a hunk after them. Inside a hunk the first two could be changed lines.
    bool begins_file(std::size_t at) const {
        return at + 2 < lines_.size() && lines_[at].starts_with("--- ") && lines_[at + 1].starts_with("+++ ") &&
               is_header(lines_[at + 2]);
    }
    bool ends_hunk(std::size_t at) const {
        return at >= lines_.size() || is_header(lines_[at]) || begins_file(at) || lines_[at].starts_with("diff --git ");
    }
    static bool tagged(std::string_view line) {
        return line.empty() || line[0] == ' ' || line[0] == '-' || line[0] == '+' || line[0] == '\\';
    }

    void read_hunk() {
        const std::size_t begin = at_;
        const Header header = parse_header(lines_[at_++], begin);
        DiffHunk hunk;
        if (header.numbered) {
            // The header of an empty range names the line before it.
            hunk.old_begin = header.old_line - (header.old_count > 0 && header.old_line > 0 ? 1 : 0);
        }
        const bool exact = header.numbered && take_counted(header, hunk);
        if (!exact || fenced_) {
            while (!ends_hunk(at_) && tagged(lines_[at_])) take(hunk);
            if (fenced_ && !ends_hunk(at_)) {
                fail(at_,
                     "begins with neither a space nor '-' nor '+': '" + std::string(lines_[at_].substr(0, 60)) + "'");
            }
        }
        drop_blank_end(hunk, exact ? header.old_count : 0);
        const bool changes =
            std::any_of(hunk.lines.begin(), hunk.lines.end(), [](const auto& line) { return line.tag != ' '; });
        if (changes) {
            files_.back().hunks.push_back(std::move(hunk));
        } else if (hunk.lines.empty()) {
            fail(begin, "is the header of a hunk without lines");
        }
    }

    // Takes as many lines as the header counts. False, with nothing taken, if they are not there.
    bool take_counted(const Header& header, DiffHunk& hunk) {
        std::size_t old_left = header.old_count, new_left = header.new_count, end = at_;
        for (; old_left > 0 || new_left > 0; ++end) {
            if (end >= lines_.size() || !tagged(lines_[end])) return false;
            const char tag = lines_[end].empty() ? ' ' : lines_[end][0];
            if (tag == '\\') continue;
            if ((tag != '+' && old_left == 0) || (tag != '-' && new_left == 0)) return false;
            if (tag != '+') --old_left;
            if (tag != '-') --new_left;
        }
        while (at_ < end) take(hunk);
        if (at_ < lines_.size() && lines_[at_].starts_with('\\')) take(hunk);
        return true;
    }

    void take(DiffHunk& hunk) {
        const std::string_view line = lines_[at_++];
        if (line.starts_with('\\')) {
            if (hunk.lines.empty()) return;
            const char last = hunk.lines.back().tag;
            if (last != '+') hunk.old_ends_open = true;
            if (last != '-') hunk.new_ends_open = true;
        } else {
            hunk.lines.push_back({line.empty() ? ' ' : line[0], std::string(line.empty() ? line : line.substr(1))});
        }
    }

    // Blank lines between a hunk and what follows it are not its context, unless its header counts them.
    static void drop_blank_end(DiffHunk& hunk, std::size_t counted) {
        const auto blank = [](const DiffHunk::Line& line) { return line.tag == ' ' && line.text.empty(); };
        const auto olds = [&] {
            return static_cast<std::size_t>(
                std::count_if(hunk.lines.begin(), hunk.lines.end(), [](const auto& line) { return line.tag != '+'; }));
        };
        while (!hunk.lines.empty() && blank(hunk.lines.back()) && olds() > counted) hunk.lines.pop_back();
    }

    std::vector<std::string_view> lines_;
    bool fenced_;
    std::size_t at_ = 0;
    std::vector<FileDiff> files_;
};

std::string_view without_blank_end(std::string_view text) { return text.substr(0, text.find_last_not_of(kBlank) + 1); }

class Placer {
public:
    explicit Placer(const std::vector<std::string_view>& lines) : lines_(lines) {}

    // Where the old lines of a hunk are in the file.
    std::size_t place(const DiffHunk& hunk, std::size_t number, std::ptrdiff_t shift) const {
        std::vector<std::string_view> old;
        for (const DiffHunk::Line& line : hunk.lines) {
            if (line.tag != '+') old.push_back(line.text);
        }
        const std::string name = "hunk " + std::to_string(number) + " of the diff";
        if (old.empty()) {
            if (lines_.empty()) return 0;
            if (!hunk.old_begin || *hunk.old_begin > lines_.size()) {
                throw Error(name + " adds lines and does not say where");
            }
            return *hunk.old_begin;
        }
        for (const bool exactly : {true, false}) {
            if (hunk.old_begin) {
                const auto expected = static_cast<std::ptrdiff_t>(*hunk.old_begin) + shift;
                if (expected >= 0 && fits(old, static_cast<std::size_t>(expected), exactly)) {
                    return static_cast<std::size_t>(expected);
                }
            }
            std::optional<std::size_t> found;
            for (std::size_t at = 0; at + old.size() <= lines_.size(); ++at) {
                if (!fits(old, at, exactly)) continue;
                if (found) throw Error(name + " fits in several places; it needs more context, or right line numbers");
                found = at;
            }
            if (found) return *found;
        }
        throw Error(name + " does not fit the file: " + reason(old));
    }

private:
    static bool same(std::string_view a, std::string_view b, bool exactly) {
        return exactly ? a == b : without_blank_end(a) == without_blank_end(b);
    }
    bool fits(const std::vector<std::string_view>& old, std::size_t at, bool exactly) const {
        if (at > lines_.size() || old.size() > lines_.size() - at) return false;
        for (std::size_t i = 0; i < old.size(); ++i) {
            if (!same(old[i], lines_[at + i], exactly)) return false;
        }
        return true;
    }
    // Names the first line that the file has nowhere.
    std::string reason(const std::vector<std::string_view>& old) const {
        for (const std::string_view line : old) {
            const bool known = std::any_of(lines_.begin(), lines_.end(),
                                           [&](std::string_view other) { return same(line, other, false); });
            if (!known) return "it has no line '" + std::string(line.substr(0, 80)) + "'";
        }
        return "its lines are there, but not one after the other";
    }

    const std::vector<std::string_view>& lines_;
};

void add_edits(const DiffHunk& hunk, std::size_t at, std::vector<LineEdit>& edits) {
    bool open = false;
    for (const DiffHunk::Line& line : hunk.lines) {
        if (line.tag == ' ') {
            ++at;
            open = false;
            continue;
        }
        if (!open) edits.push_back({at, at, {}});
        open = true;
        if (line.tag == '-') {
            edits.back().end = ++at;
        } else {
            edits.back().lines.push_back(line.text);
        }
    }
}

}  // namespace

bool looks_like_diff(std::string_view text) {
    const std::vector<std::string_view> lines = split_lines(text);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (lines[i].starts_with("@@ -") && lines[i].find(" @@", 4) != std::string_view::npos) return true;
        if (i > 1 && is_header(lines[i]) && lines[i - 1].starts_with("+++ ") && lines[i - 2].starts_with("--- ")) {
            return true;
        }
    }
    return false;
}

std::vector<FileDiff> parse_diff(std::string_view text, bool fenced) { return Parser(text, fenced).run(); }

PlacedDiff place_diff(const FileDiff& diff, const std::vector<std::string_view>& lines) {
    const Placer placer(lines);
    PlacedDiff placed;
    struct Place {
        std::size_t begin, end, number;
        const DiffHunk* hunk;
    };
    std::vector<Place> places;
    std::ptrdiff_t shift = 0;
    for (const DiffHunk& hunk : diff.hunks) {
        const std::size_t number = places.size() + 1;
        const std::size_t begin = placer.place(hunk, number, shift);
        const auto count =
            std::count_if(hunk.lines.begin(), hunk.lines.end(), [](const auto& line) { return line.tag != '+'; });
        places.push_back({begin, begin + static_cast<std::size_t>(count), number, &hunk});
        if (hunk.old_begin) shift = static_cast<std::ptrdiff_t>(begin) - static_cast<std::ptrdiff_t>(*hunk.old_begin);
    }
    std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < places.size(); ++i) {
        if (i > 0 && places[i].begin < places[i - 1].end) {
            throw Error("hunks " + std::to_string(places[i - 1].number) + " and " + std::to_string(places[i].number) +
                        " of the diff change the same lines");
        }
        add_edits(*places[i].hunk, places[i].begin, placed.edits);
    }
    const DiffHunk& last = *places.back().hunk;
    if (places.back().end == lines.size() && last.old_ends_open != last.new_ends_open) {
        placed.final_newline = last.new_ends_open ? FinalNewline::absent : FinalNewline::present;
    }
    return placed;
}

}  // namespace foresay::app
