#include "app/edits/line_diff.h"

#include <algorithm>
#include <unordered_map>

#include "app/output.h"
#include "core/text/utf8.h"

namespace foresay::app {

namespace {

using Ids = std::vector<std::size_t>;  // equal lines have equal numbers

class Differ {
public:
    Differ(const std::vector<std::string_view>& before, const std::vector<std::string_view>& after) : after_(after) {
        std::unordered_map<std::string_view, std::size_t> known;
        const auto number = [&](const std::vector<std::string_view>& lines) {
            Ids ids;
            ids.reserve(lines.size());
            for (const std::string_view line : lines) ids.push_back(known.emplace(line, known.size()).first->second);
            return ids;
        };
        a_ = number(before);
        b_ = number(after);
    }

    std::vector<LineEdit> run() {
        compare(0, a_.size(), 0, b_.size());
        return std::move(edits_);
    }

private:
    // Compares a_[a, a_end) with b_[b, b_end) and appends to edits_.
    void compare(std::size_t a, std::size_t a_end, std::size_t b, std::size_t b_end) {
        while (a < a_end && b < b_end && a_[a] == b_[b]) ++a, ++b;
        while (a < a_end && b < b_end && a_[a_end - 1] == b_[b_end - 1]) --a_end, --b_end;
        if (a == a_end && b == b_end) return;
        if (a == a_end || b == b_end || !(few_differences(a, a_end, b, b_end) || divide(a, a_end, b, b_end))) {
            add(a, a_end, b, b_end);
        }
    }

    void add(std::size_t a, std::size_t a_end, std::size_t b, std::size_t b_end) {
        if (edits_.empty() || edits_.back().end != a || last_b_ != b) edits_.push_back({a, a, {}});
        LineEdit& edit = edits_.back();
        edit.end = a_end;
        edit.lines.insert(edit.lines.end(), after_.begin() + static_cast<std::ptrdiff_t>(b),
                          after_.begin() + static_cast<std::ptrdiff_t>(b_end));
        last_b_ = b_end;
    }

    using Signed = std::ptrdiff_t;
    // reach[d][k + d]: how far in `a` a path with d differences gets on diagonal k = x - y; -1 where none does.
    using Reach = std::vector<std::vector<Signed>>;
    struct Step {
        Signed x = -1;  // after the step; -1: there is none
        bool removes = false;
    };
    // The better one of the two steps from d - 1 differences to diagonal k of an n by m grid.
    static Step step_to(const Reach& reach, Signed d, Signed k, Signed n, Signed m) {
        const auto at = [&](Signed diagonal) {
            const bool reached = diagonal > -d && diagonal < d;
            return reached ? reach[static_cast<std::size_t>(d - 1)][static_cast<std::size_t>(diagonal + d - 1)] : -1;
        };
        const Signed added = at(k + 1), removed = at(k - 1);
        Step step;
        if (added >= 0 && added - k <= m) step.x = added;
        if (removed >= 0 && removed < n && removed + 1 > step.x) step = {removed + 1, true};
        return step;
    }

    // Myers' greedy algorithm. False, without a change, for more than kMostDifferences.
    bool few_differences(std::size_t a0, std::size_t a_end, std::size_t b0, std::size_t b_end) {
        const auto n = static_cast<Signed>(a_end - a0), m = static_cast<Signed>(b_end - b0);
        const Signed most = std::min(static_cast<Signed>(kMostDifferences), n + m);
        Reach reach;
        for (Signed d = 0; d <= most; ++d) {
            reach.emplace_back(static_cast<std::size_t>(2 * d + 1), -1);
            for (Signed k = -d; k <= d; k += 2) {
                Signed x = d == 0 ? 0 : step_to(reach, d, k, n, m).x;
                if (x < 0) continue;
                while (x < n && x - k < m &&
                       a_[a0 + static_cast<std::size_t>(x)] == b_[b0 + static_cast<std::size_t>(x - k)]) {
                    ++x;
                }
                reach.back()[static_cast<std::size_t>(k + d)] = x;
                if (x == n && x - k == m) {
                    take_path(reach, d, a0, b0, n, m);
                    return true;
                }
            }
        }
        return false;
    }

    // Walks back from (n, m) and adds each difference, from the first one on.
    void take_path(const Reach& reach, Signed d, std::size_t a0, std::size_t b0, Signed n, Signed m) {
        struct Difference {
            std::size_t a, b;
            bool removes;
        };
        std::vector<Difference> differences;
        for (Signed k = n - m; d > 0; --d) {
            const Step step = step_to(reach, d, k, n, m);
            const Signed x = step.x - (step.removes ? 1 : 0), y = step.x - k - (step.removes ? 0 : 1);
            differences.push_back({a0 + static_cast<std::size_t>(x), b0 + static_cast<std::size_t>(y), step.removes});
            k = x - y;
        }
        for (auto one = differences.rbegin(); one != differences.rend(); ++one) {
            add(one->a, one->a + (one->removes ? 1 : 0), one->b, one->b + (one->removes ? 0 : 1));
        }
    }

    // Divides at the lines that occur once on each side, the longest row of them that is in order. False: there are
    // none.
    bool divide(std::size_t a, std::size_t a_end, std::size_t b, std::size_t b_end) {
        constexpr std::size_t kNone = static_cast<std::size_t>(-1), kSeveral = kNone - 1;
        const auto once = [&](const Ids& ids, std::size_t begin, std::size_t end) {
            std::unordered_map<std::size_t, std::size_t> places;
            for (std::size_t i = begin; i < end; ++i) {
                const auto [place, first] = places.emplace(ids[i], i);
                if (!first) place->second = kSeveral;
            }
            return places;
        };
        const auto in_a = once(a_, a, a_end), in_b = once(b_, b, b_end);
        struct Anchor {
            std::size_t a, b, before;
        };
        std::vector<Anchor> anchors;
        std::vector<std::size_t> ends;  // the last anchor of the best row of each length
        for (std::size_t i = a; i < a_end; ++i) {
            const auto other = in_b.find(a_[i]);
            if (in_a.at(a_[i]) == kSeveral || other == in_b.end() || other->second == kSeveral) continue;
            const std::size_t place = other->second;
            const auto longer =
                std::lower_bound(ends.begin(), ends.end(), place,
                                 [&](std::size_t index, std::size_t at) { return anchors[index].b < at; });
            anchors.push_back({i, place, longer == ends.begin() ? kNone : *(longer - 1)});
            if (longer == ends.end()) {
                ends.push_back(anchors.size() - 1);
            } else {
                *longer = anchors.size() - 1;
            }
        }
        if (ends.empty()) return false;
        std::vector<Anchor> row;
        for (std::size_t index = ends.back(); index != kNone; index = anchors[index].before) {
            row.push_back(anchors[index]);
        }
        for (auto anchor = row.rbegin(); anchor != row.rend(); ++anchor) {
            compare(a, anchor->a, b, anchor->b);
            a = anchor->a + 1;
            b = anchor->b + 1;
        }
        compare(a, a_end, b, b_end);
        return true;
    }

    const std::vector<std::string_view>& after_;
    Ids a_, b_;
    std::vector<LineEdit> edits_;
    std::size_t last_b_ = 0;  // where the last edit ends in `after`
};

std::string line_of(char tag, std::string_view text, bool colours) {
    std::string line = printable(core::to_valid_utf8(text));
    line.insert(line.begin(), tag);
    if (colours && tag == '-') line = "\x1b[31m" + line + "\x1b[0m";
    if (colours && tag == '+') line = "\x1b[32m" + line + "\x1b[0m";
    return line + "\n";
}

// "12,3": a range of lines in the header of a hunk. An empty one is named by the line before it.
std::string range(std::size_t begin, std::size_t count) {
    const std::size_t first = count == 0 ? begin : begin + 1;
    return std::to_string(first) + (count == 1 ? "" : "," + std::to_string(count));
}

}  // namespace

std::vector<LineEdit> diff_lines(const std::vector<std::string_view>& before,
                                 const std::vector<std::string_view>& after) {
    return Differ(before, after).run();
}

DiffSize size_of(std::span<const LineEdit> edits) {
    DiffSize size;
    for (const LineEdit& edit : edits) {
        size.added += edit.lines.size();
        size.removed += edit.end - edit.begin;
    }
    return size;
}

std::string shown_diff(const std::vector<std::string_view>& before, std::span<const LineEdit> edits,
                       const DiffLook& look) {
    constexpr std::size_t kContext = 3;
    std::string out;
    std::size_t shown = 0, left_out = 0;
    const auto show = [&](const std::string& line) {
        if (shown < look.most_lines) {
            ++shown;
            out += line;
        } else {
            ++left_out;
        }
    };
    std::ptrdiff_t shift = 0;  // lines added so far
    for (std::size_t i = 0; i < edits.size();) {
        // A hunk: edits whose contexts touch.
        std::size_t last = i;
        while (last + 1 < edits.size() && edits[last + 1].begin - edits[last].end <= 2 * kContext) ++last;
        const std::size_t begin = edits[i].begin - std::min(edits[i].begin, kContext);
        const std::size_t end = std::min(edits[last].end + kContext, before.size());
        const DiffSize size = size_of(edits.subspan(i, last - i + 1));
        const std::size_t count = end - begin;
        const auto place = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(begin) + shift);
        const std::string header =
            "@@ -" + range(begin, count) + " +" + range(place, count + size.added - size.removed) + " @@";
        show((look.colours ? "\x1b[36m" + header + "\x1b[0m" : header) + "\n");
        std::size_t at = begin;
        for (; i <= last; ++i) {
            for (; at < edits[i].begin; ++at) show(line_of(' ', before[at], look.colours));
            for (; at < edits[i].end; ++at) show(line_of('-', before[at], look.colours));
            for (const std::string& line : edits[i].lines) show(line_of('+', line, look.colours));
        }
        for (; at < end; ++at) show(line_of(' ', before[at], look.colours));
        shift += static_cast<std::ptrdiff_t>(size.added) - static_cast<std::ptrdiff_t>(size.removed);
    }
    if (left_out > 0) out += "... and " + std::to_string(left_out) + " more lines\n";
    return out;
}

}  // namespace foresay::app
