// One iteration of the loop: read_entry() waits for an entry, while reading_ evaluates what is typed so far in its own
// thread. stop() ends that work before handle() touches the generator: commands and answers run on the main thread.
// An answer goes through show_answer(), which feeds a view and keeps the totals. Errors are printed and the loop
// continues; only a failed write to standard output ends it.
#include "app/repl/repl.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "app/interrupt.h"
#include "app/output.h"
#include "app/quick_thread.h"
#include "app/statistics.h"
#include "base/error.h"
#include "core/config/diagnostic.h"

namespace foresay::app {

namespace {

constexpr std::chrono::seconds kTwice{2};

bool computed(const std::vector<MeteredOps::Meters>& profile) {
    return std::any_of(profile.begin(), profile.end(), [](const MeteredOps::Meters& meters) {
        return std::any_of(meters.begin(), meters.end(), [](const OpMeter& meter) { return meter.calls > 0; });
    });
}

}  // namespace

Repl::Repl(OpenedEngine& engine, const ReplOptions& options)
    : engine_(engine),
      interactive_(stdin_is_terminal() && stdout_is_terminal()),
      edits_(interactive_ && terminal_moves() && !options.simple_io),
      workspace_(engine) {
    if (edits_) {
        terminal_.emplace();
        keyboard_.emplace();
        EditingOptions editing;
        editing.complete = [this](std::string_view line) { return complete_line(*this, line); };
        editing.pause = [this](const std::string& text) {
            // An entry that begins with a slash or quotes is a command, or will change before it is sent.
            const bool is_message = !text.starts_with('/') && !text.starts_with("\"\"\"");
            if (is_message && engine_.config().chat_read_ahead) reading_->text(text);
        };
        reading_.emplace(
            [this](const std::string& text, const std::atomic<bool>& cancel) { read_ahead(text, cancel); });
        reader_ = make_editing_reader(*keyboard_, std::move(editing));
    }
    if (!reader_) {
        edits_ = false;
        reading_.reset();
        keyboard_.reset();
        terminal_.reset();
        reader_ = make_plain_reader(interactive_);
    }
}

void Repl::banner() {
    if (!interactive_) return;
    const std::filesystem::path target(engine_.target().source().path());
    std::string text = target.filename().string();
    if (engine_.draft()) text += " with " + std::filesystem::path(engine_.draft()->source().path()).filename().string();
    text += ", " + engine_.backend() + ". /help lists the commands.\n";
    if (conversation().format() == core::ChatFormat::complete)
        text += "The model continues what you write; end a line with \\ to continue it on the next.\n";
    text = wrapped(text, terminal_columns());
    text.pop_back();
    say(dim(text) + "\n");  // dimmed after wrapping, because wrapped() counts escape codes as columns
}

int Repl::run() {
    while (!quit_) {
        if (edits_) run_at_once(true);
        const Line entry = read_entry(*reader_, "> ", ". ", std::exchange(offered_, {}));
        latencies_.begin();
        if (edits_) run_at_once(false);
        if (reading_) reading_->stop();
        if (entry.how == LineEnd::end) break;
        if (entry.how == LineEnd::interrupt) {
            interrupted() = false;
            if (second_interrupt() || !interactive_) return kCancelled;
            say(dim("Press Ctrl-C again to quit, or Ctrl-D.") + "\n");
            continue;
        }
        last_interrupt_.reset();
        const std::string ahead = reading_ ? reading_->failure() : std::string();
        try {
            handle(entry);
            workspace_.save();
            // The answer does not depend on what was read ahead, but the user should know.
            if (!ahead.empty()) throw Error("read-ahead failed: " + ahead);
        } catch (const OutputFailed&) {
            throw;  // answers can no longer be shown
        } catch (const core::ConfigError& problem) {
            failed_ = true;
            complain(problem.what());
        } catch (const Error& problem) {
            failed_ = true;
            std::string sentence = std::string("foresay: ") + problem.what();
            if (interactive_ && columns_of(sentence) > terminal_columns()) {
                sentence = wrapped(sentence, terminal_columns());
                sentence.pop_back();
            }
            complain(sentence);
        }
        if (interrupted() && !interactive_) return kCancelled;
        interrupted() = false;
    }
    // A script must see that something went wrong; a user has read the message.
    return failed_ && !interactive_ ? 1 : 0;
}

bool Repl::second_interrupt() {
    const auto now = std::chrono::steady_clock::now();
    const bool second = last_interrupt_ && now - *last_interrupt_ < kTwice;
    last_interrupt_ = now;
    return second;
}

void Repl::handle(const Line& entry) {
    const std::string& text = entry.text;
    if (text.empty()) return;
    if (entry.literal || !text.starts_with('/')) {
        answer(text);
    } else if (text.starts_with("//")) {
        answer(text.substr(1));
    } else {
        run_repl_command(*this, text);
    }
}

void Repl::read_ahead(const std::string& text, const std::atomic<bool>& cancel) {
    const Document prompt = conversation().upcoming(text);
    speculative::Generator& generator = workspace_.generator();
    const auto held = generator.tokens();
    if (std::equal(held.begin(), held.end(), prepared_.begin(), prepared_.end())) {
        // Drop what was read ahead earlier and is no longer part of the prompt.
        const auto same = std::mismatch(held.begin(), held.end(), prompt.tokens.begin(), prompt.tokens.end()).first;
        generator.truncate(static_cast<std::int32_t>(same - held.begin()));
    } else {
        const Document said = conversation().document();
        generator.switch_to(said.tokens, said.generated);
    }
    const std::size_t begun = generator.tokens().size();
    if (begun < prompt.tokens.size()) generator.prepare(std::span(prompt.tokens).subspan(begun), &cancel);
    prepared_.assign(generator.tokens().begin(), generator.tokens().end());
}

Conversation::Limits Repl::limits() const {
    const core::Config& config = engine_.config();
    Conversation::Limits limits;
    limits.max_tokens = config.chat_max_tokens;
    limits.seed = config.seed;
    limits.branch = config.branch;
    limits.cancel = &interrupted();
    return limits;
}

void Repl::answer(const std::string& text) {
    send([&] { show_answer([&](const Show& show) { return conversation().answer(text, limits(), show); }); });
}

void Repl::send(const std::function<void()>& generate) {
    const std::size_t attached = conversation().files().size();
    const std::size_t turns = conversation().tree().nodes().size();
    try {
        watched_.attach_changed(*this);
        generate();
    } catch (...) {
        while (conversation().files().size() > attached) conversation().undo();
        throw;
    }
    watched_.sent(conversation(), turns);
}

bool Repl::confirm(const std::string& question) {
    check(interactive_, "a question needs a terminal");
    if (edits_) return ask_at_terminal(question + " [y/N] ");
    const Line line = reader_->read(question + " [y/N] ");
    return line.how == LineEnd::line && (line.text.starts_with('y') || line.text.starts_with('Y'));
}

void Repl::show_answer(const Generate& generate) {
    const auto view = edits_ ? make_live_view(*keyboard_, tint_) : make_plain_view(interactive_);
    MeteredOps* const meter = engine_.meter();
    const auto keep_profile = [&] {
        if (!meter) return;
        profile_.push_back(meter->meters());
        meter->reset();
    };
    const auto show = [&](const speculative::TokenEvent& event) {
        if (profile_.empty()) keep_profile();
        if (event.token >= 0) latencies_.token();
        view->add(event.text, event.drafted);
    };
    if (meter) meter->reset();
    const std::vector<MeteredOps::Meters> before = std::exchange(profile_, {});
    profile_.reserve(2);
    if (!latencies_.waiting()) latencies_.begin();
    try {
        const Conversation::Answer answer = generate(show);
        keep_profile();
        if (!computed(profile_)) profile_ = before;  // the answer was computed earlier and only shown
        view->finish();
        if (answer.result.finish == speculative::FinishReason::cancelled && keyboard_) keyboard_->hold_ahead();
        // In a pipe a newline ends every answer, to keep answers apart; on a terminal only an open line gets one.
        if (view->line_open() || !interactive_) print("\n");
        totals_.show_ms += view->cost_ms();
        finish(answer);
    } catch (const OutputFailed&) {
        throw;
    } catch (const Error&) {
        view->finish();
        if (view->line_open()) print("\n");
        throw;
    }
}

void Repl::finish(const Conversation::Answer& answer) {
    const speculative::GenerateResult& result = answer.result;
    engine_.report_stages(workspace_.generator().chain());
    totals_.answers += 1;
    totals_.tokens += static_cast<std::int64_t>(result.tokens.size());
    totals_.rounds += result.speculation.rounds;
    totals_.drafted += result.speculation.drafted;
    totals_.accepted += result.speculation.accepted;
    totals_.prefill_ms += result.prefill_ms;
    totals_.decode_ms += result.decode_ms;
    if (!interactive_) return;
    const std::int32_t capacity = workspace_.generator().capacity();
    say(dim(statistics_line(result, conversation().tokens(), capacity, answer.input_tokens, terminal_columns())) +
        "\n");
}

void Repl::configure(const Configuration& next) {
    for (const std::string& note : workspace_.configure(next)) complain(note);
}

}  // namespace foresay::app
