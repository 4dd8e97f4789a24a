#include "app/chain_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "app/terminal.h"
#include "samplers/chain_trace.h"

namespace foresay::app {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr std::size_t kOfEach = 6;  // likeliest of the model, and at the end
constexpr std::size_t kNoisy = 3;   // best with the noise
constexpr std::size_t kMostRows = 14;
constexpr double kSmall = 0.005;  // a move that is shown as 0.00

template <typename... Values>
std::string format(const char* form, Values... values) {
    std::array<char, 400> text{};
    std::snprintf(text.data(), text.size(), form, values...);
    return text.data();
}

// A sign that takes one column, for numbers that take as many as possible.
std::string signed_number(double value) {
    if (std::fabs(value) < kSmall) return "0.00";
    return std::fabs(value) < 10 ? format("%+.2f", value) : format("%+.1f", value);
}
std::string percent(double log_probability) {
    const double share = std::exp(log_probability);
    return share < 0.0005 ? "<0.1 %" : format("%.1f %%", 100.0 * share);
}

std::vector<double> log_probabilities(const std::vector<float>& logits) {
    std::vector<double> out(logits.begin(), logits.end());
    const double best = *std::ranges::max_element(out);
    if (!(best > kNone)) return out;
    double sum = 0.0;
    for (const double logit : out) sum += std::exp(logit - best);
    for (double& logit : out) logit -= best + std::log(sum);
    return out;
}

// Adds the indices of the `count` best values.
void add_best(const std::vector<double>& values, std::size_t count, std::vector<std::int32_t>& to) {
    std::vector<std::int32_t> ids(values.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(std::min(count, ids.size()));
    std::partial_sort(ids.begin(), middle, ids.end(), [&](std::int32_t a, std::int32_t b) {
        const double left = values[static_cast<std::size_t>(a)], right = values[static_cast<std::size_t>(b)];
        return left != right ? left > right : a < b;
    });
    for (auto id = ids.begin(); id != middle; ++id) {
        if (values[static_cast<std::size_t>(*id)] > kNone && std::ranges::find(to, *id) == to.end()) to.push_back(*id);
    }
}

std::string digits(std::int64_t value) {
    std::string text = std::to_string(value);
    for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
    return text;
}

std::string joined(const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
    return out;
}

std::vector<std::string> names_without_effect(const ChainPicture& picture) {
    std::vector<std::string> names;
    for (const ChainPicture::Column& column : picture.columns) {
        if (!column.changes && column.failure.empty()) names.push_back(column.name);
    }
    return names;
}

// Sentences below the table.
std::vector<std::string> remarks(const ChainPicture& picture) {
    std::vector<std::string> out;
    for (const ChainPicture::Column& column : picture.columns) {
        if (!column.failure.empty()) out.push_back(column.name + " was left out: " + column.failure + ".");
    }
    if (picture.others > 0) out.push_back(digits(picture.others) + " more candidates are not shown.");
    const std::vector<std::string> idle = names_without_effect(picture);
    if (!idle.empty()) out.push_back("Without effect on this row: " + joined(idle) + ".");
    out.push_back(picture.greedy ? "The likeliest candidate wins: a temperature of 0 leaves out the noise."
                                 : "Bars are probabilities, numbers beside them moves of their logarithm in nats. The "
                                   "last logarithm and the noise make the score, and the best score wins.");
    return out;
}

}  // namespace

ChainPicture chain_picture(const samplers::ChainTrace& trace, std::int32_t token,
                           const std::function<std::string(std::int32_t)>& quote) {
    ChainPicture picture;
    picture.token = token;
    picture.winner = trace.token;
    picture.margin = trace.margin;
    picture.greedy = trace.noise.empty();
    std::vector<std::vector<double>> after;
    for (const samplers::ChainTrace::Column& column : trace.columns) {
        ChainPicture::Column& one = picture.columns.emplace_back();
        one.failure = column.failure;
        // A stage that ends the answer leaves nothing to show.
        after.push_back(column.logits.empty() ? after.back() : log_probabilities(column.logits));
        one.left = std::ranges::count_if(after.back(), [](double value) { return value > kNone; });
        // Stages that rank see so many of the best.
        one.name = column.best_only ? digits(one.left) + " best" : column.stage.empty() ? "model" : column.stage;
        if (after.size() == 1) continue;
        const std::vector<double>& before = after[after.size() - 2];
        one.changes = !std::ranges::equal(before, after.back(),
                                          [](double a, double b) { return a == b || std::fabs(a - b) < 1e-5; });
    }
    std::vector<double> scores = after.back();
    for (std::size_t id = 0; id < scores.size() && !picture.greedy; ++id) scores[id] += trace.noise[id];
    std::vector<std::int32_t> shown;
    for (const std::int32_t id : {token, trace.token}) {
        if (id >= 0 && std::ranges::find(shown, id) == shown.end()) shown.push_back(id);
    }
    add_best(after.front(), kOfEach, shown);
    add_best(scores, kNoisy, shown);
    add_best(after.back(), kOfEach, shown);
    shown.resize(std::min(shown.size(), kMostRows));
    std::ranges::sort(shown, [&](std::int32_t a, std::int32_t b) {
        const double left = after.front()[static_cast<std::size_t>(a)],
                     right = after.front()[static_cast<std::size_t>(b)];
        return left != right ? left > right : a < b;
    });
    for (const std::int32_t id : shown) {
        const auto at = static_cast<std::size_t>(id);
        ChainPicture::Candidate& one = picture.candidates.emplace_back();
        one.id = id;
        one.text = quote(id);
        for (const std::vector<double>& values : after) one.log_probability.push_back(values[at]);
        one.noise = picture.greedy ? 0.0 : trace.noise[at];
        one.score = scores[at];
    }
    picture.others = picture.columns.front().left - static_cast<std::int64_t>(picture.candidates.size());
    return picture;
}

namespace {

// Text with a width on the screen and the codes of its looks.
std::string fitted(const std::string& text, std::size_t width, bool right = false) {
    std::string cut = text;
    while (columns_of(cut) > width) {
        cut.resize(last_character(cut));
        while (!cut.empty() && columns_of(cut) + 1 > width) cut.resize(last_character(cut));
        cut += "…";
    }
    const std::string blanks(width - columns_of(cut), ' ');
    return right ? blanks + cut : cut + blanks;
}

std::string bar(double log_probability, std::size_t width) {
    static constexpr std::array<const char*, 9> kParts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    const double eighths = std::exp(log_probability) * 8.0 * static_cast<double>(width);
    const auto filled = static_cast<std::size_t>(std::clamp(std::lround(eighths), 1L, static_cast<long>(8 * width)));
    std::string out;
    for (std::size_t i = 0; i < filled / 8; ++i) out += kParts[8];
    out += kParts[filled % 8];
    return out + std::string(width - (filled + 7) / 8, ' ');
}

class Table {
public:
    Table(const ChainPicture& picture, std::size_t width, bool colours) : picture_(picture), colours_(colours) {
        width_ = std::max(width, kLeast + std::max(cell(), ends()));
        for (const ChainPicture::Candidate& one : picture.candidates) label_ = std::max(label_, columns_of(one.text));
        label_ = std::clamp<std::size_t>(label_, kLeast, std::min(kMost, width_ - std::max(cell(), ends())));
        for (std::size_t i = 0; i < picture.columns.size(); ++i) {
            if (i == 0 || picture.columns[i].changes) shown_.push_back(i);
        }
        // What is left when every column has its narrowest bar makes the bars wider.
        const std::size_t used = label_ + shown_.size() * cell() + ends();
        if (used < width_) bar_ = std::min<std::size_t>(12, bar_ + (width_ - used) / shown_.size());
    }

    std::string text() const {
        std::string out;
        bool ended = false;
        for (std::size_t first = 0; !ended;) {
            std::size_t end = first;
            while (end < shown_.size() && label_ + (end - first + 1) * cell() <= width_) ++end;
            ended = end == shown_.size() && label_ + (end - first) * cell() + ends() <= width_;
            if (!ended && end == shown_.size() && end > first + 1) --end;  // so that the score has a column beside it
            if (first > 0) out += "\n";
            out += part(first, end, ended);
            first = end;
        }
        return out;
    }

private:
    static constexpr std::size_t kGap = 2, kNumber = 6;
    static constexpr std::size_t kLeast = 6, kMost = 18;  // of a candidate's text
    static constexpr std::string_view kWins = "  wins";
    std::size_t cell() const { return kGap + bar_ + 1 + kNumber; }
    // Noise, score and the word at the winner.
    std::size_t ends() const { return kWins.size() + (picture_.greedy ? 0 : 2 * (kGap + kNumber)); }
    std::string look(const char* code, const std::string& text) const {
        return colours_ ? std::string("\x1b[") + code + "m" + text + "\x1b[0m" : text;
    }

    // Columns `first` to `end`. `last`: and what comes after all of them.
    std::string part(std::size_t first, std::size_t end, bool last) const {
        const std::string gap(kGap, ' ');
        std::string head = fitted("", label_), left = fitted("left", label_);
        for (std::size_t i = first; i < end; ++i) {
            const ChainPicture::Column& column = picture_.columns[shown_[i]];
            head += gap + fitted(column.name, cell() - kGap);
            left += gap + fitted(digits(column.left), cell() - kGap);
        }
        if (last && !picture_.greedy)
            head += gap + fitted("noise", kNumber, true) + gap + fitted("score", kNumber, true);
        std::string out = trimmed(head).empty() ? "" : look("2", trimmed(head)) + "\n";
        for (const ChainPicture::Candidate& one : picture_.candidates) out += row(one, first, end, last) + "\n";
        return first == end ? out : out + look("2", trimmed(left)) + "\n";
    }

    std::string row(const ChainPicture::Candidate& one, std::size_t first, std::size_t end, bool last) const {
        const std::string gap(kGap, ' ');
        const bool won = one.id == picture_.winner;
        std::string out = fitted(one.text, label_);
        if (won) out = look("1;32", out);
        if (one.dropped()) out = struck(out);
        for (std::size_t i = first; i < end; ++i) {
            const std::size_t at = shown_[i];
            out += gap;
            if (one.alive(at)) {
                out += look(won ? "32" : "36", bar(one.log_probability[at], bar_)) + " ";
                // What the stages between two columns that are shown did is nothing.
                out += at == 0 ? fitted(percent(one.log_probability[0]), kNumber, true) : moved(one.move(at));
            } else if (at > 0 && one.alive(at - 1)) {
                const std::string before = percent(one.log_probability[at - 1]);
                out += colours_ ? struck(before) + std::string(cell() - kGap - columns_of(before), ' ')
                                : fitted("dropped", cell() - kGap);
            } else {
                out += std::string(cell() - kGap, ' ');
            }
        }
        if (last && !picture_.greedy && !one.dropped()) {
            out += gap + fitted(signed_number(one.noise), kNumber, true) + gap +
                   fitted(signed_number(one.score), kNumber, true);
        }
        if (last && won) out += look("1;32", std::string(kWins));
        return trimmed(out);
    }

    // The blanks at the end are not struck.
    std::string struck(const std::string& text) const {
        const std::string bare = trimmed(text);
        return look("2;9", bare) + std::string(text.size() - bare.size(), ' ');
    }
    std::string moved(double move) const {
        const std::string text = fitted(signed_number(move), kNumber, true);
        return std::fabs(move) < kSmall ? look("2", text) : text;
    }
    static std::string trimmed(std::string text) {
        text.erase(text.find_last_not_of(' ') + 1);
        return text;
    }

    const ChainPicture& picture_;
    bool colours_;
    std::size_t label_ = 0, bar_ = 4, width_ = 0;
    std::vector<std::size_t> shown_;
};

std::string escaped(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        // U+FFFE and U+FFFF may not be in XML.
        if (text.compare(i, 2, "\xef\xbf") == 0 && i + 2 < text.size() &&
            static_cast<unsigned char>(text[i + 2]) > 0xbd) {
            out += "?";
            i += 2;
            continue;
        }
        switch (text[i]) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += text[i];
        }
    }
    return out;
}

}  // namespace

std::string chain_table(const ChainPicture& picture, std::size_t width, bool colours) {
    std::string out = wrapped(picture.subject, width) + wrapped(picture.replay, width) + "\n";
    out += Table(picture, width, colours).text();
    std::string rest;
    for (const std::string& remark : remarks(picture)) rest += (rest.empty() ? "" : " ") + remark;
    return out + "\n" + wrapped(rest, width);
}

std::string chain_json(const ChainPicture& picture) {
    using Json = nlohmann::ordered_json;
    const auto number = [](double value) -> Json { return std::isfinite(value) ? Json(value) : Json(nullptr); };
    Json out = {
        {"token", picture.token},   {"winner", picture.winner},         {"same", picture.token == picture.winner},
        {"greedy", picture.greedy}, {"margin", number(picture.margin)}, {"stages", Json::array()}};
    for (const ChainPicture::Column& column : picture.columns) {
        Json one = {{"stage", column.name}, {"candidates", column.left}, {"changes", column.changes}};
        if (!column.failure.empty()) one["failure"] = column.failure;
        out["stages"].push_back(std::move(one));
    }
    out["candidates"] = Json::array();
    for (const ChainPicture::Candidate& candidate : picture.candidates) {
        Json one = {{"id", candidate.id}, {"text", candidate.text}, {"log_probabilities", Json::array()}};
        for (const double value : candidate.log_probability) one["log_probabilities"].push_back(number(value));
        one["noise"] = picture.greedy ? Json(nullptr) : Json(candidate.noise);
        one["score"] = number(candidate.score);
        out["candidates"].push_back(std::move(one));
    }
    out["others"] = picture.others;
    return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string chain_svg(const ChainPicture& picture) {
    constexpr int kLabel = 170, kCell = 132, kBar = 72, kRow = 26, kTop = 96, kNumbers = 76, kLeft = 16, kLine = 18;
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < picture.columns.size(); ++i) {
        if (i == 0 || picture.columns[i].changes) shown.push_back(i);
    }
    const int rows = static_cast<int>(picture.candidates.size());
    const int table = kLabel + kCell * static_cast<int>(shown.size()) + (picture.greedy ? 0 : 2 * kNumbers);
    const int width = std::max(table, 560) + 2 * kLeft;
    std::string notes;
    for (const std::string& remark : remarks(picture)) notes += (notes.empty() ? "" : " ") + remark;
    std::vector<std::string> lines;
    const std::string folded = wrapped(notes, static_cast<std::size_t>(width / 7));
    for (std::size_t at = 0; at < folded.size();) {
        const std::size_t end = std::min(folded.find('\n', at), folded.size());
        lines.push_back(folded.substr(at, end - at));
        at = end + 1;
    }
    const int bottom = kTop + kRow * (rows + 1);
    const int height = bottom + 24 + kLine * static_cast<int>(lines.size());
    std::string out = format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"13\" fill=\"#1f2430\">\n%s\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
        width, height, width, height, kChainSvgMark.data());
    const auto write = [&](int x, int y, const std::string& text, const char* more = "") {
        out += "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" " + more + ">" + escaped(text) +
               "</text>\n";
    };
    constexpr const char* kRight = "text-anchor=\"end\"";
    write(kLeft, 30, picture.subject, "font-size=\"16\" font-weight=\"bold\"");
    write(kLeft, 52, picture.replay, "fill=\"#5c6370\"");
    const auto x_of = [&](std::size_t column) { return kLeft + kLabel + kCell * static_cast<int>(column); };
    for (std::size_t i = 0; i < shown.size(); ++i)
        write(x_of(i), kTop - 14, picture.columns[shown[i]].name, "font-weight=\"bold\"");
    const int noise_x = x_of(shown.size()) + kNumbers - 16, score_x = noise_x + kNumbers;
    if (!picture.greedy) {
        write(noise_x, kTop - 14, "noise", "text-anchor=\"end\" font-weight=\"bold\"");
        write(score_x, kTop - 14, "score", "text-anchor=\"end\" font-weight=\"bold\"");
    }
    for (int r = 0; r < rows; ++r) {
        const ChainPicture::Candidate& one = picture.candidates[static_cast<std::size_t>(r)];
        const bool won = one.id == picture.winner;
        const int top = kTop + kRow * r, base = top + 17;
        if (won) {
            out += format("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"#e3f4e6\"/>\n", kLeft - 8,
                          top, width - 2 * kLeft + 16, kRow);
        }
        write(kLeft, base, fitted(one.text, std::min<std::size_t>(20, columns_of(one.text))),
              one.dropped() ? "font-family=\"monospace\" fill=\"#9aa0aa\" text-decoration=\"line-through\""
              : won         ? "font-family=\"monospace\" font-weight=\"bold\""
                            : "font-family=\"monospace\"");
        for (std::size_t i = 0; i < shown.size(); ++i) {
            const std::size_t at = shown[i];
            const int x = x_of(i);
            if (one.alive(at)) {
                out += format(
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\" fill=\"#eef0f3\"/>"
                    "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"12\" fill=\"%s\"/>\n",
                    x, top + 7, kBar, x, top + 7, std::max(1.0, kBar * std::exp(one.log_probability[at])),
                    won ? "#2e9e4f" : "#4a7fb5");
                write(x + kCell - 12, base, at == 0 ? percent(one.log_probability[0]) : signed_number(one.move(at)),
                      at == 0 || std::fabs(one.move(at)) >= kSmall ? kRight : "text-anchor=\"end\" fill=\"#9aa0aa\"");
            } else if (at > 0 && one.alive(at - 1)) {
                write(x, base, percent(one.log_probability[at - 1]),
                      "fill=\"#b4453c\" text-decoration=\"line-through\"");
            }
        }
        if (!picture.greedy && !one.dropped()) {
            write(noise_x, base, signed_number(one.noise), kRight);
            write(score_x, base, signed_number(one.score), won ? "text-anchor=\"end\" font-weight=\"bold\"" : kRight);
        }
    }
    const int base = kTop + kRow * rows + 17;
    write(kLeft, base, "left", "fill=\"#5c6370\"");
    for (std::size_t i = 0; i < shown.size(); ++i)
        write(x_of(i), base, digits(picture.columns[shown[i]].left), "fill=\"#5c6370\"");
    for (std::size_t i = 0; i < lines.size(); ++i)
        write(kLeft, bottom + 20 + kLine * static_cast<int>(i), lines[i], "font-size=\"12\" fill=\"#5c6370\"");
    return out + "</svg>\n";
}

}  // namespace foresay::app
