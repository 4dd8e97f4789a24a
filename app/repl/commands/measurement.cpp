// Commands that say how fast things go.
#include <string>

#include "app/output.h"
#include "app/repl/commands/topics.h"
#include "app/repl/repl.h"

namespace foresay::app {

namespace {

void stats(Repl& repl, const std::string&) {
    const ReplTotals& totals = repl.totals();
    const auto number = [](double value) {
        std::string text = std::to_string(value);
        return text.substr(0, text.find('.') + 2);
    };
    std::string out = "answers   " + std::to_string(totals.answers) + ", " + std::to_string(totals.tokens) + " tokens";
    if (totals.decode_ms > 0)
        out += " at " + number(static_cast<double>(totals.tokens) * 1000.0 / totals.decode_ms) + "/s";
    out += "\nrounds    " + std::to_string(totals.rounds);
    if (totals.drafted > 0) {
        out += "; accepted " + std::to_string(totals.accepted) + " of " + std::to_string(totals.drafted) +
               " drafted tokens (" +
               number(100.0 * static_cast<double>(totals.accepted) / static_cast<double>(totals.drafted)) + " %)";
    }
    const Latencies& waited = repl.latencies();
    if (waited.first_ms().count() > 0) {
        out += "\nfirst     token after " + number(waited.first_ms().last()) + " ms; p50 " +
               number(waited.first_ms().quantile(0.5)) + ", p99 " + number(waited.first_ms().quantile(0.99)) + " ms";
    }
    if (waited.gap_ms().count() > 0) {
        out += "\nbetween   tokens p50 " + number(waited.gap_ms().quantile(0.5)) + ", p99 " +
               number(waited.gap_ms().quantile(0.99)) + " ms; tokens of one round come together";
    }
    out += "\ncontext   " + std::to_string(repl.conversation().tokens()) + " of " +
           std::to_string(repl.session().context_length()) + " positions\n";
    if (!repl.conversation().empty()) {
        const Turn& turn = repl.conversation().last();
        out += "last      seed " + std::to_string(turn.seed) + ", branch " + std::to_string(turn.branch) + "\n";
    }
    say(out);
}

constexpr ReplCommand kCommands[] = {
    {"stats", "", "what this session did so far, and how long one waited",
     "The time to the first token counts from the Enter key. Times between tokens are those of the engine; a burst of "
     "tokens is shown a little more evenly than it comes.",
     stats},
};

}  // namespace

CommandTopic measurement_commands() { return {"Measurement", kCommands}; }

}  // namespace foresay::app
