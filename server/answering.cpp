#include "server/answering.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "core/text/fill.h"
#include "core/text/stop_strings.h"
#include "engine/unfinished.h"
#include "samplers/grammar_stages.h"
#include "server/output/machine.h"

namespace foresay::server {

namespace {

using Clock = std::chrono::steady_clock;

// JavaScript keeps integers up to 2^53, and clients send the seed back.
std::uint64_t random_seed() {
    static std::mutex mutex;
    static std::mt19937_64 random{std::random_device{}()};
    const std::lock_guard lock(mutex);
    return random() >> 11;
}

// The text of a prompt as it was sent, without what tokenization puts in front of it.
std::string sent_text(const Prompt& prompt, const core::Tokenizer& tokenizer) {
    std::string text;
    for (const Prompt::Part& part : prompt.parts)
        text += part.is_text ? part.text : tokenizer.whole_text(part.tokens, true);
    return text;
}

class Answering : public std::enable_shared_from_this<Answering> {
public:
    Answering(AnswerContext context, GenerationRequest request, std::shared_ptr<AnswerWriter> writer)
        : context_(std::move(context)), request_(std::move(request)), writer_(std::move(writer)) {}

    void start();

private:
    // What one text is being made of.
    struct Lane {
        Lane(OutputMachine machine, const std::vector<std::string>& stops)
            : machine(std::move(machine)), stops(stops) {}
        OutputMachine machine;
        core::StopStrings stops;
        Choice choice;
        Ticket ticket = 0;
        std::string held;       // of a hole: line breaks and blanks that begin a line
        bool any_line = false;  // of a hole: a line break was written
        bool at_start = false;  // of a hole: of a line
        bool stopped = false;   // by what was written, so that nothing more counts
        bool prompt_alone = false;
        bool ends_count = true;  // end tokens end the text
        // For a text under a grammar: what reads it when it was cut off, and its tokens.
        std::shared_ptr<const engine::Unfinished> grammars;
        std::vector<std::int32_t> tokens;
        bool first = true;
        Clock::time_point first_token, last_token;
        std::vector<OutputEvent> events;
    };

    class LaneSink final : public TokenSink {
    public:
        LaneSink(std::shared_ptr<Answering> whole, std::size_t index) : whole_(std::move(whole)), index_(index) {}
        bool token(const GeneratedToken& token) override { return whole_->token(index_, token); }
        void end(const BackendEnd& end) override {
            whole_->end(index_, end);
            whole_.reset();
        }

    private:
        std::shared_ptr<Answering> whole_;
        std::size_t index_;
    };

    std::vector<std::vector<std::int32_t>> encode_prompts();
    bool token(std::size_t index, const GeneratedToken& token);
    void end(std::size_t index, const BackendEnd& end);
    void filter(Lane& lane, std::vector<OutputEvent> raw);
    void filter_hole(Lane& lane, std::string& text);
    void finish_text(Lane& lane);
    static void cut_by_deadline(Lane& lane);
    std::string unfinished(const Lane& lane) const;
    void cancel_all();

    AnswerContext context_;
    GenerationRequest request_;
    std::shared_ptr<AnswerWriter> writer_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::size_t left_ = 0;
    bool failed_ = false;
    Clock::time_point begun_ = Clock::now();
};

void Answering::start() {
    const ServedModel& model = context_.model;
    const std::int64_t most = request_.max_tokens.value_or(0);
    const bool nothing = request_.max_tokens && *request_.max_tokens == 0;
    std::vector<std::vector<std::int32_t>> prompts;
    AnswerFacts facts;
    for (const Prompt& prompt : request_.prompts) {
        prompts.push_back(model.encode(prompt, most));
        facts.prompt_tokens += static_cast<std::int64_t>(prompts.back().size());
    }
    facts.id = context_.id;
    facts.model = context_.model_name;
    facts.fingerprint = model.fingerprint();
    facts.created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::uint64_t seed = request_.seed ? *request_.seed : random_seed();
    facts.seed = request_.seed && request_.negative_seed ? Json(static_cast<std::int64_t>(seed)) : Json(seed);
    facts.tokenizer = &model.tokenizer();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        const Prompt& prompt = request_.prompts[i];
        const bool hole = prompt.hole && prompt.parts.empty();  // whose texts are not one after the other
        facts.prompts.push_back(hole ? model.tokenizer().whole_text(prompts[i], true)
                                     : sent_text(prompt, model.tokenizer()));
    }
    if (request_.priority > 0 && context_.caller.right != Right::admin)
        throw ApiError(Problem::permission, "a priority above 0 needs a key with the rights of an admin",
                       "admin_key_required", "foresay.priority");
    context_.metrics.count_prompt(facts.prompt_tokens);

    speculative::SpeculationOptions speculation = model.engine().speculation();
    if (request_.draft && *request_.draft == 0) {
        speculation.mode = core::SpeculationMode::off;
    } else if (request_.draft) {
        speculation.mode = core::SpeculationMode::fixed;
        speculation.draft_length = *request_.draft;
    }
    std::vector<std::int32_t> prediction;
    if (!request_.prediction.empty()) {
        core::EncodeOptions plain{.add_special = false, .parse_special = false};
        plain.enough = static_cast<std::size_t>(model.context_length());
        prediction = model.tokenizer().encode(request_.prediction, plain);
    }
    const double deadline = speculative::steady_now() + static_cast<double>(request_.deadline_ms) -
                            std::chrono::duration<double, std::milli>(Clock::now() - begun_).count();
    const auto self = shared_from_this();
    const std::lock_guard lock(mutex_);
    std::vector<BackendRequest> requests;
    for (std::size_t p = 0; p < prompts.size(); ++p) {
        const std::optional<Conversation>& conversation = request_.prompts[p].conversation;
        std::shared_ptr<const engine::Unfinished> grammars;  // null: none
        for (int i = 0; i < request_.n; ++i) {
            auto machine = conversation ? OutputMachine(model.output_format(), model.style().markup, model.tokenizer(),
                                                        prompts[p], conversation->tools)
                                        : OutputMachine(model.tokenizer());
            lanes_.push_back(std::make_unique<Lane>(std::move(machine), request_.stop));
            lanes_.back()->choice.prompt_tokens = static_cast<std::int64_t>(prompts[p].size());
            BackendRequest one;
            one.prompt = prompts[p];
            one.chain = model.chain(request_, request_.prompts[p], prompts[p]);
            if (i == 0 && samplers::under_grammar(*one.chain))
                grammars = std::make_shared<engine::Unfinished>(model.engine(), one.chain->spec());
            lanes_.back()->grammars = grammars;
            lanes_.back()->ends_count = !request_.ignore_eos || grammars != nullptr;
            // The context's last position needs no successor, so an answer may fill it.
            one.max_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(most, 1 << 30));
            one.seed = seed;
            one.branch = request_.branch + static_cast<std::uint64_t>(i);
            one.ignore_eos = request_.ignore_eos;
            one.speculation = speculation;
            one.alternatives = request_.alternatives;
            one.prediction = prediction;
            one.queue = context_.caller.name;
            one.reuse = request_.reuse;
            one.priority = request_.priority;
            if (request_.deadline_ms > 0) one.deadline = deadline;
            requests.push_back(std::move(one));
        }
    }
    left_ = lanes_.size();
    if (nothing) {
        // The prompt alone was asked for, so that the cache holds it before it is needed: after all others, and the
        // one token that a text has at least is left out.
        for (std::size_t i = 0; i < lanes_.size(); ++i) {
            requests[i].max_tokens = 1;
            requests[i].priority = -10;
            lanes_[i]->stopped = lanes_[i]->prompt_alone = true;
        }
    }
    try {
        for (std::size_t i = 0; i < requests.size(); ++i)
            lanes_[i]->ticket = context_.backend.submit(std::move(requests[i]), std::make_shared<LaneSink>(self, i));
    } catch (...) {
        failed_ = true;  // what was submitted ends unheard
        cancel_all();
        throw;
    }
    // Now that nothing refuses it any more.
    if (context_.lease != nullptr) context_.lease->charge(facts.prompt_tokens);
    writer_->begin(std::move(facts), lanes_.size());
    const std::weak_ptr<Answering> weak = self;
    writer_->exchange()->on_pressure([weak](bool pressed) {
        const auto whole = weak.lock();
        if (!whole) return;
        for (const auto& lane : whole->lanes_) whole->context_.backend.pause(lane->ticket, pressed);
    });
    writer_->exchange()->on_gone([weak] {
        if (const auto whole = weak.lock()) whole->cancel_all();
    });
}

void Answering::cancel_all() {
    for (const auto& lane : lanes_) {
        if (lane->ticket != 0) context_.backend.cancel(lane->ticket);
    }
}

void Answering::cut_by_deadline(Lane& lane) {
    if (lane.stopped) return;  // by what was written, before
    lane.stopped = lane.choice.cut_by_time = lane.choice.cut_by_deadline = true;
    lane.choice.finish = Finish::length;
}

// Why a text that was cut off ends before its grammar does; empty: it does not. A text that ends at a line break,
// because its time is over, is shorter than its tokens; that of a hole alone may.
std::string Answering::unfinished(const Lane& lane) const {
    const Choice& choice = lane.choice;
    if (lane.grammars == nullptr || choice.finish != Finish::length || lane.prompt_alone) return {};
    if (choice.cut_by_time && !choice.cut_by_deadline) return {};
    const std::string stage = lane.grammars->stage(lane.tokens);
    if (choice.cut_by_deadline) return engine::unfinished_by_time(stage, "foresay.deadline_ms");
    return engine::unfinished_text(stage, lane.tokens.size(), request_.max_tokens.value_or(0),
                                   request_.max_tokens_param);
}

bool Answering::token(std::size_t index, const GeneratedToken& token) {
    const std::lock_guard lock(mutex_);
    Lane& lane = *lanes_[index];
    if (failed_ || lane.stopped) return false;
    const Clock::time_point now = Clock::now();
    if (request_.deadline_ms > 0 && now - begun_ > std::chrono::milliseconds(request_.deadline_ms)) {
        cut_by_deadline(lane);
        return false;
    }
    if (lane.first) {
        lane.first_token = now;
        context_.metrics.first_token(std::chrono::duration<double>(now - begun_).count());
    } else {
        context_.metrics.next_token(std::chrono::duration<double>(now - lane.last_token).count());
    }
    lane.first = false;
    lane.last_token = now;
    ++lane.choice.tokens;
    const core::Tokenizer& tokenizer = context_.model.tokenizer();
    const bool hole = request_.prompts.front().hole.has_value();
    if (lane.grammars != nullptr) lane.tokens.push_back(token.token);
    const bool ends = (tokenizer.is_end_of_text(token.token) && lane.ends_count) ||
                      (hole && core::ends_middle(tokenizer, token.token));
    std::vector<OutputEvent> raw;
    if (!ends) {
        if (lane.machine.in_reasoning()) ++lane.choice.reasoning_tokens;
        lane.machine.push(token.token, raw);
    }
    TokenNote note{token.token, std::string(token.source), 0.0f, {}, lane.choice.content.size()};
    filter(lane, std::move(raw));
    if (ends) lane.stopped = true;
    if (token.probabilities != nullptr) {
        note.log_probability = token.probabilities->log_probability;
        note.alternatives = token.probabilities->alternatives;
    }
    writer_->events(index, lane.events, {&note, 1});
    lane.events.clear();
    return !lane.stopped;
}

// Looks for stop strings in content, and for the end of a hole. What may be told goes to lane.events.
void Answering::filter(Lane& lane, std::vector<OutputEvent> raw) {
    for (OutputEvent& event : raw) {
        if (lane.stopped) return;
        if (event.kind == OutputEvent::Kind::content) {
            filter_hole(lane, event.text);
            event.text = lane.stops.push(event.text);
            if (lane.stops.stopped()) {
                lane.stopped = true;
                lane.choice.stopped_by_string = true;
                lane.choice.stop_string = request_.stop[static_cast<std::size_t>(lane.stops.stopped_by())];
            }
            if (event.text.empty()) continue;
            lane.choice.content += event.text;
        } else if (event.kind != OutputEvent::Kind::blank) {
            std::string rest(lane.stops.flush());
            if (!rest.empty()) {
                lane.choice.content += rest;
                lane.events.push_back({OutputEvent::Kind::content, std::move(rest), {}});
            }
        }
        lane.events.push_back(std::move(event));
    }
}

// A hole ends at a line that is indented less than asked for, and at a line break when its time is over. A line's
// beginning is held back until it is known how far it is indented.
void Answering::filter_hole(Lane& lane, std::string& text) {
    const bool timed = request_.time_limit_ms > 0;
    if (request_.least_indent <= 0 && !timed) return;
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - lane.first_token).count();
    std::string out;
    for (const char c : text) {
        if (c == '\n') {
            if (timed && elapsed > request_.time_limit_ms && lane.any_line) {
                lane.stopped = lane.choice.cut_by_time = true;
                lane.choice.finish = Finish::length;
                break;
            }
            lane.any_line = lane.at_start = true;
            lane.held += c;
        } else if (lane.at_start && (c == ' ' || c == '\t')) {
            lane.held += c;
        } else {
            // The first line goes on where the cursor stands.
            const std::size_t indent = lane.held.size() - (lane.held.rfind('\n') + 1);
            if (lane.at_start && static_cast<int>(indent) < request_.least_indent) {
                lane.stopped = true;
                break;
            }
            out += std::exchange(lane.held, {}) + c;
            lane.at_start = false;
        }
    }
    text = std::move(out);
}

void Answering::finish_text(Lane& lane) {
    if (lane.stopped && (lane.choice.stopped_by_string || lane.choice.cut_by_time)) return;
    std::vector<OutputEvent> raw;
    lane.machine.finish(raw);
    const bool stopped = std::exchange(lane.stopped, false);
    filter(lane, std::move(raw));
    std::string rest(stopped ? std::string_view() : lane.stops.push(lane.held));
    rest += lane.stops.flush();
    if (!rest.empty()) {
        lane.choice.content += rest;
        lane.events.push_back({OutputEvent::Kind::content, std::move(rest), {}});
    }
    lane.stopped = lane.stopped || stopped;
}

void Answering::end(std::size_t index, const BackendEnd& end) {
    const std::lock_guard lock(mutex_);
    Lane& lane = *lanes_[index];
    --left_;
    context_.metrics.end_text(end, lane.choice.tokens, context_.api,
                              std::chrono::duration<double>(Clock::now() - begun_).count());
    if (context_.lease != nullptr) context_.lease->charge(lane.choice.tokens);
    if (left_ == 0) context_.lease.reset();
    if (failed_) return;
    if (end.finish == BackendEnd::Finish::deadline) cut_by_deadline(lane);
    if (lane.choice.cut_by_deadline && lane.first) {
        failed_ = true;
        cancel_all();
        writer_->fail(
            ApiError(Problem::timeout,
                     "the deadline of " + std::to_string(request_.deadline_ms) + " ms came before the first token",
                     "deadline_exceeded", "foresay.deadline_ms"));
        return;
    }
    if (end.finish == BackendEnd::Finish::failed || (end.finish == BackendEnd::Finish::cancelled && !lane.stopped)) {
        failed_ = true;
        cancel_all();
        if (end.finish == BackendEnd::Finish::failed) {
            writer_->fail(ApiError(Problem::failed, end.error, "generation_failed"));
        } else {
            ApiError stopped(Problem::unavailable,
                             "the server is stopping or changes its model, so the answer ends here; come again",
                             "shutting_down");
            stopped.retry_after = 5;
            writer_->fail(stopped);
        }
        return;
    }
    lane.choice.end = end;
    finish_text(lane);
    if (!lane.events.empty()) writer_->events(index, lane.events, {});
    lane.events.clear();
    if (lane.prompt_alone) {
        lane.choice.finish = Finish::length;
    } else if (!lane.choice.cut_by_time)
        lane.choice.finish = lane.stopped || end.finish == BackendEnd::Finish::stop ? Finish::stop : Finish::length;
    lane.choice.unfinished = unfinished(lane);
    writer_->end_choice(index, lane.choice);
    if (left_ == 0) writer_->end();
}

}  // namespace

void answer(AnswerContext context, GenerationRequest request, std::shared_ptr<AnswerWriter> writer) {
    std::make_shared<Answering>(std::move(context), std::move(request), std::move(writer))->start();
}

}  // namespace foresay::server
