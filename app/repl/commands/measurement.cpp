// Commands that report speed: rates and latencies, and the time of each op.
#include <limits>
#include <string>

#include "app/bench/bench.h"
#include "app/bench/metered_ops.h"
#include "app/output.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/repl.h"
#include "app/statistics.h"
#include "app/terminal.h"
#include "base/error.h"

namespace foresay::app {

namespace {

void stats(Repl& repl, const std::string&) {
    const ReplTotals& totals = repl.totals();
    const auto number = [](double value) { return format("%.1f", value); };
    const std::size_t columns = stderr_is_terminal() ? terminal_columns() : std::numeric_limits<std::size_t>::max();
    std::string out;
    const auto row = [&](const std::string& label, const std::string& text) {
        constexpr std::size_t kIndent = 10;
        out += padded(label, kIndent) + wrapped(text, columns, kIndent).substr(kIndent);
    };
    const double rate = totals.decode_ms > 0 ? static_cast<double>(totals.tokens) * 1000.0 / totals.decode_ms : 0.0;
    row("answers", std::to_string(totals.answers) + ", " + std::to_string(totals.tokens) + " tokens" +
                       (rate > 0 ? " at " + number(rate) + "/s" : ""));
    std::string rounds = std::to_string(totals.rounds);
    if (totals.drafted > 0) {
        rounds += "; accepted " + std::to_string(totals.accepted) + " of " + std::to_string(totals.drafted) +
                  " drafted tokens (" +
                  number(100.0 * static_cast<double>(totals.accepted) / static_cast<double>(totals.drafted)) + " %)";
    }
    row("rounds", rounds);
    const Latencies& waited = repl.latencies();
    if (waited.first_ms().count() > 0) {
        row("first", "token after " + number(waited.first_ms().last()) + " ms; p50 " +
                         number(waited.first_ms().quantile(0.5)) + ", p99 " + number(waited.first_ms().quantile(0.99)) +
                         " ms");
    }
    if (waited.gap_ms().count() > 0) {
        row("between", "tokens p50 " + number(waited.gap_ms().quantile(0.5)) + ", p99 " +
                           number(waited.gap_ms().quantile(0.99)) + " ms; tokens of one step arrive together");
    }
    if (totals.show_ms > 0 && totals.decode_ms > 0) {
        row("showing", "answers took " + number(totals.show_ms) + " ms, " +
                           format("%.2f", 100.0 * totals.show_ms / totals.decode_ms) + " % of the decoding time");
    }
    row("context", std::to_string(repl.conversation().tokens()) + " of " +
                       std::to_string(repl.engine().context_length()) + " positions");
    if (const Workspace::PageTotals& pages = repl.workspace().page_totals(); pages.saved + pages.loaded > 0) {
        row("pages", "of " + std::to_string(pages.loaded) + " tokens came back from files, of " +
                         std::to_string(pages.saved) + " were written");
    }
    if (!repl.conversation().empty()) {
        const Turn& turn = repl.conversation().last();
        row("last", "seed " + std::to_string(turn.seed) + ", branch " + std::to_string(turn.branch));
    }
    for (const samplers::StageReport& report : repl.workspace().generator().chain().reports()) {
        const std::string cost = stage_cost(report, totals.token_ms());
        row("sampler", report.stage + ": " + stage_text(report) + (cost.empty() ? "" : ". " + cost));
    }
    say(out);
}

std::string table(const MeteredOps::Meters& meters, double bandwidth) {
    double all = 0.0;
    for (const OpMeter& meter : meters) all += meter.ms;
    if (all <= 0.0) return "  nothing was computed\n";
    std::string out = "  op                calls        ms   share     GB/s  of read   GMAC/s\n";
    for (int i = 0; i < kMeteredOps; ++i) {
        const OpMeter& meter = meters[static_cast<std::size_t>(i)];
        if (meter.calls == 0 || meter.ms <= 0.0) continue;
        const double rate = static_cast<double>(meter.weight_bytes) / (meter.ms / 1000.0);
        out += format("  %-14s %8lld %9.2f %5.1f %% %8.1f %6.0f %% %8.1f\n",
                      std::string(name(static_cast<ForwardOp>(i))).c_str(), static_cast<long long>(meter.calls),
                      meter.ms, 100.0 * meter.ms / all, rate / 1e9, 100.0 * rate / bandwidth,
                      static_cast<double>(meter.macs) / (meter.ms / 1000.0) / 1e9);
    }
    return out;
}

void profile(Repl& repl, const std::string&) {
    if (repl.profile().empty()) throw Error("there is no answer to profile yet");
    if (repl.engine().ops().asynchronous()) {
        throw Error("/profile cannot time the ops of " + repl.engine().backend() +
                    ", which run asynchronously; use `foresay bench kernels`");
    }
    const int threads = repl.engine().ops().describe().threads;
    const double bandwidth = repl.engine().read_bandwidth();
    std::string out = format("read bandwidth with %d threads: %.1f GB/s\n", threads, bandwidth / 1e9);
    out += "up to the first token of the last answer\n" + table(repl.profile().front(), bandwidth);
    if (repl.profile().size() > 1) out += "after it, drafting and verifying\n" + table(repl.profile()[1], bandwidth);
    say(out);
}

constexpr ReplCommand kCommands[] = {
    {"stats", "", "show token counts, speed and latencies so far",
     "The time to the first token counts from the Enter key, or from the end of an editor. Times between tokens are "
     "the engine's; the screen spreads "
     "the tokens of one step a little more evenly. Samplers that run on the host, plugins among them, have a line "
     "each: what "
     "they took since the chain was made, and a sentence where that is more than 5 % of a token. p50 is the median, "
     "p99 the 99th percentile.",
     stats},
    {"profile", "", "show where the time of the last answer went",
     "For each op of a forward pass, target and draft together: its calls, its time and share of the total, the weight "
     "bytes and multiply-accumulates per second, and how that compares with the read bandwidth of memory, measured "
     "on the spot. Weights that stay in a CPU cache can be read faster than memory.",
     profile},
};

}  // namespace

CommandTopic measurement_commands() { return {"Measurement", kCommands}; }

}  // namespace foresay::app
