// app/chain_picture.h: what each stage of the chain did to the row of a token, to be shown as a table, as JSON or as
// SVG.
//
// Units:    a probability is among the candidates that are left after a stage. A move is the change of its logarithm,
//           in nats: what a stage that drops others, or favours them, does to a candidate.
// Threads:  plain data and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::samplers {
struct ChainTrace;
}

namespace foresay::app {

struct ChainPicture {
    struct Column {
        std::string name;
        std::int64_t left = 0;  // candidates after the stage
        bool changes = true;    // false: the stage did nothing to this row
        std::string failure;    // why the stage was left out; empty: it was not
    };
    struct Candidate {
        std::int32_t id = -1;
        std::string text;                     // quoted
        std::vector<double> log_probability;  // after each column; -inf: it has been dropped
        double noise = 0.0, score = 0.0;      // score: the last logarithm and the noise; the largest wins

        bool alive(std::size_t column) const { return log_probability[column] > -1e300; }
        bool dropped() const { return !alive(log_probability.size() - 1); }
        // What the column did to it, as long as it is alive.
        double move(std::size_t column) const { return log_probability[column] - log_probability[column - 1]; }
    };

    std::string subject;       // the line that says which token it is
    std::string replay;        // whether it is what was sampled
    std::int32_t token = -1;   // the one in the text
    std::int32_t winner = -1;  // the one that the chain samples; -1: none
    bool greedy = false;       // without noise
    double margin = 0.0;       // of the winner's score; +inf: there is no second
    std::vector<Column> columns;
    std::vector<Candidate> candidates;  // likeliest for the model first
    std::int64_t others = 0;            // candidates that are not shown
};

// The candidates that matter most: the token in the text, the winner, and those that are likeliest for the model, at
// the end of the chain, and with the noise. `quote` gives a token's text. The caller sets subject and replay.
ChainPicture chain_picture(const samplers::ChainTrace& trace, std::int32_t token,
                           const std::function<std::string(std::int32_t)>& quote);

// A table of at most `width` columns (at least 28), in several parts where it has more stages than fit.
std::string chain_table(const ChainPicture& picture, std::size_t width, bool colours);
std::string chain_json(const ChainPicture& picture);
std::string chain_svg(const ChainPicture& picture);
inline constexpr std::string_view kChainSvgMark = "<!-- foresay chain -->";  // that every such picture has

}  // namespace foresay::app
