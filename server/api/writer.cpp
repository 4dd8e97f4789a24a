#include "server/api/writer.h"

#include <algorithm>
#include <utility>

#include "server/api/protocol.h"

namespace foresay::server {

HttpResponse AnswerWriter::stream_head() const {
    HttpResponse head;
    head.type = "text/event-stream";
    head.headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
    return head;
}

void AnswerWriter::begin(AnswerFacts facts, std::size_t choices) {
    facts_ = std::move(facts);
    choices_.resize(choices);
    if (!stream_) return;
    std::string out;
    open(out);
    HttpResponse head = stream_head();
    head.body = std::move(out);
    exchange_->begin(std::move(head), ping());
}

void AnswerWriter::events(std::size_t index, std::span<const OutputEvent> events, std::span<const TokenNote> notes) {
    Choice& choice = choices_[index];
    choice.notes.insert(choice.notes.end(), notes.begin(), notes.end());
    std::string out;
    for (const OutputEvent& event : events) {
        const bool is_call = event.kind == OutputEvent::Kind::call;
        if (event.kind == OutputEvent::Kind::blank || (is_call && one_call_ && !choice.calls.empty())) continue;
        // With those of tokens before it whose text was held back.
        const std::size_t told = std::exchange(choice.told_notes, choice.notes.size());
        if (is_call || choice.items.empty() || choice.items.back().kind != event.kind)
            choice.items.push_back({event.kind, {}, choice.calls.size(), told, told});
        AnswerItem& item = choice.items.back();
        item.end_note = choice.notes.size();
        if (is_call) {
            choice.calls.push_back(event.call);
        } else {
            item.text += event.text;
            (event.kind == OutputEvent::Kind::content ? choice.content : choice.reasoning) += event.text;
        }
        if (stream_) piece(index, event, std::span(choice.notes).subspan(told), out);
    }
    if (!out.empty()) exchange_->write(out);
}

void AnswerWriter::end_choice(std::size_t index, const Choice& end) {
    Choice& choice = choices_[index];
    choice.finish = end.finish;
    choice.stopped_by_string = end.stopped_by_string;
    choice.cut_by_time = end.cut_by_time;
    choice.cut_by_deadline = end.cut_by_deadline;
    choice.stop_string = end.stop_string;
    choice.unfinished = end.unfinished;
    choice.tokens = end.tokens;
    choice.reasoning_tokens = end.reasoning_tokens;
    choice.prompt_tokens = end.prompt_tokens;
    choice.end = end.end;
    choice.ended = true;
    if (choice.finish == Finish::stop && !choice.calls.empty()) choice.finish = Finish::tool_calls;
    if (!stream_) return;
    std::string out;
    if (tells_tokens() && choice.told_notes < choice.notes.size())
        piece(index, {OutputEvent::Kind::content, {}, {}}, std::span(choice.notes).subspan(choice.told_notes), out);
    close_choice(index, out);
    if (!out.empty()) exchange_->write(out);
}

void AnswerWriter::end() {
    if (stream_) {
        std::string out;
        close(out);
        exchange_->write(out);
        exchange_->finish();
        return;
    }
    HttpResponse response = whole_head();
    response.body = whole().dump();
    exchange_->send(std::move(response));
}

void AnswerWriter::fail(const ApiError& problem) {
    if (!exchange_->begun()) {
        HttpResponse response = error(problem);
        add_error_headers(problem, response);
        exchange_->send(std::move(response));
        return;
    }
    exchange_->failed(note_of(problem));
    std::string out;
    late_error(problem, out);
    exchange_->write(out);
    exchange_->finish();
}

std::int64_t AnswerWriter::completion_tokens() const {
    std::int64_t sum = 0;
    for (const Choice& choice : choices_) sum += choice.tokens;
    return sum;
}
std::int64_t AnswerWriter::reasoning_tokens() const {
    std::int64_t sum = 0;
    for (const Choice& choice : choices_) sum += choice.reasoning_tokens;
    return sum;
}
std::int64_t AnswerWriter::cached_tokens() const {
    // Branches of one prompt find it in the cache because of each other; that is no saving of the client's.
    return choices_.empty() ? 0 : std::min(choices_.front().end.cached_tokens, facts_.prompt_tokens);
}

void append_event(const Json& json, std::string& out) {
    out += "data: ";
    json.append_to(out);
    out += "\n\n";
}

void append_named_event(std::string_view name, const Json& json, std::string& out) {
    out.append("event: ").append(name).append("\n");
    append_event(json, out);
}

std::string_view finish_name(Finish finish) {
    return finish == Finish::stop ? "stop" : finish == Finish::length ? "length" : "tool_calls";
}

Json timings_of(const Choice& choice) {
    const BackendEnd& end = choice.end;
    const auto per = [](double ms, std::int64_t count) { return count > 0 ? ms / static_cast<double>(count) : 0.0; };
    const auto rate = [](double ms, std::int64_t count) {
        return ms > 0 ? 1e3 * static_cast<double>(count) / ms : 0.0;
    };
    const std::int64_t read = choice.prompt_tokens - end.cached_tokens;
    Json timings = Json::object({{"cache_n", end.cached_tokens},
                                 {"prompt_n", read},
                                 {"prompt_ms", end.prompt_ms},
                                 {"prompt_per_token_ms", per(end.prompt_ms, read)},
                                 {"prompt_per_second", rate(end.prompt_ms, read)},
                                 {"predicted_n", choice.tokens},
                                 {"predicted_ms", end.generation_ms},
                                 {"predicted_per_token_ms", per(end.generation_ms, choice.tokens)},
                                 {"predicted_per_second", rate(end.generation_ms, choice.tokens)}});
    if (end.speculation.drafted > 0) {
        timings.set("draft_n", end.speculation.drafted);
        timings.set("draft_n_accepted", end.speculation.accepted);
    }
    timings.set("queue_ms", end.queue_ms);
    if (choice.cut_by_time) timings.set("truncated_by", choice.cut_by_deadline ? "deadline" : "time");
    return timings;
}

namespace {

void set_own(Json& json, std::string_view name, Json value) {
    Json own = json["foresay"].is_object() ? json["foresay"] : Json::object();
    own.set(name, std::move(value));
    json.set("foresay", std::move(own));
}

}  // namespace

void tell_seed(const AnswerFacts& facts, Json& json) {
    set_own(json, "seed", facts.seed);
    set_own(json, "system_fingerprint", facts.fingerprint);
}

void tell_unfinished(const Choice& choice, Json& json) {
    if (!choice.unfinished.empty()) set_own(json, "unfinished", choice.unfinished);
}

std::string call_id(const AnswerFacts& facts, const ToolCall& call, std::size_t choice, std::size_t index,
                    std::string_view prefix) {
    if (!call.id.empty()) return call.id;
    return std::string(prefix) + facts.id + "_" + std::to_string(choice) + "_" + std::to_string(index);
}

}  // namespace foresay::server
