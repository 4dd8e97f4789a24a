// One iteration of the loop: read_entry() waits for an entry, while reading_ evaluates what is typed so far in its own
// thread. stop() ends that work before handle() touches the generator: commands and answers run on the main thread.
// An answer goes through show_answer(), which feeds a view and keeps the totals. Errors are printed and the loop
// continues; only a failed write to standard output ends it.
#include "app/repl/repl.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "app/files.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "app/quick_thread.h"
#include "app/repl/editor.h"
#include "app/repl/rebuilt_plugins.h"
#include "app/repl/screen_text.h"
#include "app/statistics.h"
#include "base/error.h"
#include "engine/unfinished.h"

namespace foresay::app {

namespace {

constexpr std::chrono::seconds kTwice{2};
constexpr std::size_t kTokensBefore = 4096;  // of the document, to know how an answer that continues it begins

// chat.language; null: none.
const Language* code_language(const core::Config& config) {
    const std::string& name = config.chat_language;
    if (name == "auto" || name == "none") return nullptr;
    if (const Language* language = find_language(name)) return language;
    std::vector<std::string> names = {"auto", "none"};
    for (const Language* language : all_languages()) names.emplace_back(language->name);
    std::string list;
    for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
    throw Error(config.setting("chat.language").origin.text() + ": chat.language is '" + name +
                "', but must be one of " + list);
}
constexpr std::size_t kJointColumns = 24;  // of the line that an entry continues, in its prompt

bool computed(const std::vector<MeteredOps::Meters>& profile) {
    return std::any_of(profile.begin(), profile.end(), [](const MeteredOps::Meters& meters) {
        return std::any_of(meters.begin(), meters.end(), [](const OpMeter& meter) { return meter.calls > 0; });
    });
}

bool is_command_name(std::string_view name) {
    for (const CommandTopic& topic : command_topics()) {
        for (const ReplCommand& command : topic.commands) {
            if (command.name == name || (!command.alias.empty() && command.alias == name)) return true;
        }
    }
    return false;
}

// The name of the command that `text` begins with, with its slash; empty if there is none.
std::string_view leading_command(std::string_view text) {
    if (!text.starts_with('/')) return {};
    const std::size_t end = std::min(text.find_first_of(" :\t\r\n"), text.size());
    return is_command_name(text.substr(1, end - 1)) ? text.substr(0, end) : std::string_view{};
}

// A message without the commands that its lines name as the places of their errors ("/set: ..."): the user has just
// typed the command.
std::string without_places(std::string_view message) {
    std::string out;
    for (;;) {
        const std::size_t end = std::min(message.find('\n'), message.size());
        std::string_view line = message.substr(0, end);
        const std::string_view command = leading_command(line);
        if (!command.empty() && line.substr(command.size()).starts_with(": ")) line.remove_prefix(command.size() + 2);
        out += line;
        if (end == message.size()) return out;
        out += '\n';
        message.remove_prefix(end + 1);
    }
}

}  // namespace

Repl::Repl(OpenedEngine& engine, const ReplOptions& options)
    : engine_(engine),
      interactive_(stdin_is_terminal() && stdout_is_terminal()),
      edits_(interactive_ && terminal_moves() && !options.simple_io),
      workspace_(engine),
      one_prompt_(!stdin_is_terminal() && !options.lines) {
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
    code_language(engine_.config());  // complains if it is unknown
    if (!reader_) {
        edits_ = false;
        reading_.reset();
        keyboard_.reset();
        terminal_.reset();
        reader_ = make_plain_reader(interactive_);
    }
}

std::string Repl::text_before(const std::optional<std::string>& said) {
    // Nothing else needs the text, and to find it takes a while when the entry or the document is long.
    if (!colours_answers() || conversation().format() != core::ChatFormat::complete) return {};
    if (code_language(engine_.config()) == nullptr) return {};
    try {
        return conversation().text_before(said, kTokensBefore);
    } catch (const Error&) {
        return {};  // the entry does not fit, as the attempt to answer it will say
    }
}

bool Repl::colours_answers() const {
    return edits_ && !tint_ && colourful_output() && engine_.config().chat_language != "none";
}

std::optional<Highlighter> Repl::highlighter(const std::string& before) {
    if (!colours_answers()) return std::nullopt;
    const Language* language = code_language(engine_.config());
    if (conversation().format() != core::ChatFormat::complete) return Highlighter::markdown(language);
    if (language == nullptr) return std::nullopt;
    Highlighter highlighter = Highlighter::code(*language);
    Runs ignored;
    highlighter.add(printable(before), ignored);
    highlighter.finish(ignored);
    return highlighter;
}

std::string Repl::shown_answer() {
    const std::string text = printable(conversation().answer_text(conversation().last()));
    std::optional<Highlighter> code = highlighter(text_before());
    if (!code) return text;
    Runs runs;
    code->add(text, runs);
    code->finish(runs);
    return with_colours(runs);
}

void Repl::banner() {
    if (!interactive_) return;
    const std::filesystem::path target(engine_.target().source().path());
    std::string text = target.filename().string();
    if (engine_.draft()) text += " with " + std::filesystem::path(engine_.draft()->source().path()).filename().string();
    text += ", " + engine_.backend() + ". /help lists the commands.\n";
    if (conversation().format() == core::ChatFormat::complete) {
        const bool none = engine_.config().chat_style == "auto" && engine_.tokenizer().chat_templates().empty();
        text += none ? "The model has no chat template, so it continues what you write."
                     : "The model continues what you write.";
        text += " Enter sends it, Ctrl-J begins another line.\n";
    }
    text = wrapped(text, terminal_columns());
    text.pop_back();
    say(dim(text) + "\n");  // dimmed after wrapping, because wrapped() counts escape codes as columns
}

// In a document whose entries are added as they are, the prompt shows the end of the line that the next one continues.
std::string Repl::prompt() {
    if (!interactive_ || conversation().style().newline) return "> ";
    const std::string line = printable(conversation().open_line());
    if (line.empty()) return "> ";
    const std::string_view end = tail(line, kJointColumns);
    return (end.size() < line.size() ? "\u2026" : "") + std::string(end) + "> ";
}

// Standard input as one prompt.
int Repl::run_prompt() {
    const std::string text = read_stdin("the prompt");
    if (interrupted()) return kCancelled;
    if (const std::string_view command = leading_command(text); !command.empty()) {
        note("piped input is one prompt, so " + std::string(command) +
             " is part of it and no command; --lines reads entries and commands line by line");
    }
    attempt({LineEnd::line, text, true, true});
    if (interrupted()) return kCancelled;
    return failed_ ? 1 : 0;
}

void Repl::attempt(const Line& entry) {
    const std::string ahead = reading_ ? reading_->failure() : std::string();
    try {
        handle(entry);
        workspace_.save();
        // The answer does not depend on what was read ahead, but the user should know.
        if (!ahead.empty()) throw Error("read-ahead failed: " + ahead);
    } catch (const OutputFailed&) {
        save_before_end();
        throw;  // answers can no longer be shown
    } catch (const OutputClosed&) {
        save_before_end();
        throw;
    } catch (const Error& problem) {
        fail(problem.what());
    }
}

void Repl::fail(const std::string& sentence) {
    failed_ = true;
    note(without_places(sentence));
}

void Repl::note(const std::string& sentence) const {
    std::string text = "foresay: " + sentence;
    if (interactive_) {
        text = wrapped(text, terminal_columns());
        text.pop_back();
    }
    complain(text);
}

int Repl::run() {
    const EndGently gently;
    if (one_prompt_) return run_prompt();
    while (!quit_ && !asked_to_end()) {
        if (edits_) run_at_once(true);
        const Line entry = read_entry(*reader_, prompt(), ". ", std::exchange(offered_, {}));
        latencies_.begin();
        if (edits_) run_at_once(false);
        if (reading_) reading_->stop();
        if (entry.how == LineEnd::end || asked_to_end()) break;
        if (entry.how == LineEnd::interrupt) {
            interrupted() = false;
            if (second_interrupt() || !interactive_) return kCancelled;
            say(dim("Press Ctrl-C again to quit, or Ctrl-D.") + "\n");
            continue;
        }
        last_interrupt_.reset();
        attempt(entry);
        if (asked_to_end()) break;
        if (interrupted() && !interactive_) return kCancelled;
        interrupted() = false;
    }
    // A script must see that something went wrong; a user has read the message.
    return failed_ && !interactive_ ? 1 : 0;
}

void Repl::save_before_end() {
    try {
        workspace_.save();
    } catch (const Error& problem) {
        complain(std::string("foresay: ") + problem.what());
    }
}

bool Repl::second_interrupt() {
    const auto now = std::chrono::steady_clock::now();
    const bool second = last_interrupt_ && now - *last_interrupt_ < kTwice;
    last_interrupt_ = now;
    return second;
}

void Repl::handle(const Line& entry) {
    std::string text = entry.text;
    if (text.empty()) return;
    reload_rebuilt_plugins(*this);
    struct Noting {
        Repl& repl;
        ~Noting() { note_plugin_builds(repl); }
    } const noting{*this};
    if (!entry.literal && text.starts_with('/') && !text.starts_with("//")) return run_repl_command(*this, text);
    if (!entry.literal && text.starts_with("//")) text.erase(0, 1);
    // An empty last line that was typed is a line of the document too.
    const ChatStyle& style = conversation().style();
    const bool lines = style.format == core::ChatFormat::complete && style.newline && !entry.pasted;
    if (lines && text.ends_with('\n')) text += '\n';
    answer(text);
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

Conversation::Limits Repl::limits() {
    const core::Config& config = engine_.config();
    Conversation::Limits limits;
    limits.max_tokens = config.chat_max_tokens;
    limits.seed = config.seed;
    limits.branch = config.branch;
    limits.cancel = &interrupted();
    limits.reasoning = [this](std::string_view text) {
        if (view_ == nullptr || output_failure_) return;
        try {
            view_->reason(text);
        } catch (...) {
            output_failure_ = std::current_exception();
            interrupted() = true;
        }
    };
    return limits;
}

void Repl::answer(const std::string& text, std::optional<std::uint64_t> seed) {
    Conversation::Limits with = limits();
    if (seed) with.seed = *seed;
    if (seed) with.branch = 0;
    // Where no line break follows the entry, the answer continues its last line, and is shown so.
    const ChatStyle& style = conversation().style();
    const bool joined = interactive_ && style.format == core::ChatFormat::complete && !style.newline;
    const std::size_t line = joined ? text.find_last_of('\n') + 1 : text.size();
    std::string before = text_before(text);
    if (joined && before.ends_with(text)) before.resize(before.size() - (text.size() - line));
    send(text, [&] {
        show_answer([&](const Show& show) { return conversation().answer(text, with, show); }, before,
                    text.substr(line));
    });
}

void Repl::with_files(const std::function<void()>& generate) {
    const std::size_t attached = conversation().files().size();
    try {
        generate();
    } catch (...) {
        while (conversation().files().size() > attached) conversation().undo();
        throw;
    }
}

void Repl::send(const std::string& text, const std::function<void()>& generate) {
    const std::size_t turns = conversation().tree().nodes().size();
    try {
        with_files([&] {
            watched_.attach_changed(*this);
            generate();
        });
    } catch (const Error&) {
        remember_unanswered(text);
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

void Repl::remember_unanswered(const std::string& text) {
    const TurnTree& tree = conversation().tree();
    unanswered_ = {text, tree.state(), tree.nodes().size()};
}

std::optional<std::string> Repl::unanswered() const {
    const TurnTree& tree = workspace_.conversation().tree();
    if (!unanswered_ || unanswered_->turns != tree.nodes().size() || unanswered_->state != tree.state())
        return std::nullopt;
    return unanswered_->text;
}

std::string Repl::edited_text(const std::string& text) {
    std::string edited = edit_externally(text);
    latencies_.begin();
    return edited;
}

std::string Repl::why_no_tint() const {
    if (edits_) return {};
    if (!interactive_) return "the input or the output is not a terminal";
    if (terminal_moves()) return "--simple-io shows plain text";
    const char* term = std::getenv("TERM");
    return std::string("this terminal shows plain text (TERM=") + (term ? term : "") + ")";
}

void Repl::show_answer(const Generate& generate, const std::string& before, const std::string& given) {
    const auto view = edits_ ? make_live_view(*keyboard_, {tint_, highlighter(before)}) : make_plain_view(interactive_);
    struct Shown {
        AnswerView*& place;
        ~Shown() { place = nullptr; }
    } const shown{view_};
    view_ = view.get();
    MeteredOps* const meter = engine_.meter();
    const auto keep_profile = [&] {
        if (!meter) return;
        profile_.push_back(meter->meters());
        meter->reset();
    };
    const auto show = [&](const speculative::TokenEvent& event) {
        if (event.token >= 0) {
            if (profile_.empty()) keep_profile();
            latencies_.token();
        }
        if (output_failure_) return;
        try {
            view->add(event.text, event.drafted);
        } catch (...) {
            // Ends the answer as Ctrl-C does, so that what there is of it can be saved.
            output_failure_ = std::current_exception();
            interrupted() = true;
        }
    };
    view->add(given, false);
    if (meter) meter->reset();
    const std::vector<MeteredOps::Meters> profile_before = std::exchange(profile_, {});
    profile_.reserve(2);
    if (!latencies_.waiting()) latencies_.begin();
    try {
        const Conversation::Answer answer = generate(show);
        if (output_failure_) {
            interrupted() = false;
            std::rethrow_exception(std::exchange(output_failure_, nullptr));
        }
        keep_profile();
        if (!computed(profile_)) profile_ = profile_before;  // the answer was computed earlier and only shown
        view->finish();
        if (answer.result.finish == speculative::FinishReason::cancelled && keyboard_) keyboard_->hold_ahead();
        // In a pipe a newline ends every answer, to keep answers apart; on a terminal only an open line gets one.
        if (view->line_open() || !interactive_) print("\n");
        totals_.show_ms += view->cost_ms();
        finish(answer);
    } catch (const OutputFailed&) {
        throw;
    } catch (const Error&) {
        if (std::exchange(output_failure_, nullptr)) interrupted() = false;
        view->finish();
        if (interrupted() && keyboard_) keyboard_->hold_ahead();
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
    totals_.chain_tokens += std::max<std::int64_t>(0, static_cast<std::int64_t>(result.tokens.size()) - 1);
    totals_.chain_ms += result.decode_ms;
    if (result.finish == speculative::FinishReason::length) {
        std::vector<std::int32_t> whole;  // with what /edit made it begin with
        if (!conversation().empty()) whole = conversation().last().given;
        whole.insert(whole.end(), result.tokens.begin(), result.tokens.end());
        const std::string stage = engine::unfinished_stage(engine_, workspace_.generator().chain().spec(), whole);
        if (!stage.empty()) {
            note(engine::unfinished_text(stage, result.tokens.size(), engine_.config().chat_max_tokens,
                                         "/set chat.max_tokens"));
        }
    }
    const std::string closing = std::exchange(closing_, {});
    if (!interactive_) return;
    if (!closing.empty()) return say(dim(closing) + "\n");
    const std::int32_t capacity = workspace_.generator().capacity();
    say(dim(statistics_line(result, conversation().tokens(), capacity, answer.input_tokens, terminal_columns())) +
        "\n");
}

void Repl::configure(const Configuration& next) {
    code_language(next.config());  // complains before anything changes
    const int context = next.config().target_context;
    if (context > 0 && context != engine_.config().target_context && !conversation().empty() &&
        context <= conversation().tokens()) {
        throw Error("the conversation takes " + std::to_string(conversation().tokens()) +
                    " positions, so target.context must be larger than that, not " + std::to_string(context) +
                    "; /clear starts a new conversation");
    }
    for (const std::string& sentence : workspace_.configure(next)) note(sentence);
    totals_.chain_tokens = 0;
    totals_.chain_ms = 0.0;
}

}  // namespace foresay::app
