// Answers in the form of OpenAI's chat and completions.
#include <algorithm>
#include <utility>

#include "server/api/openai.h"

namespace foresay::server {

namespace {

Json token_entry(const core::Tokenizer& tokenizer, std::int32_t token, float log_probability) {
    const std::string_view bytes = tokenizer.bytes(token);
    Json numbers = Json::list();
    for (const char byte : bytes) numbers.push(static_cast<int>(static_cast<unsigned char>(byte)));
    return Json::object({{"token", bytes}, {"logprob", static_cast<double>(log_probability)}, {"bytes", numbers}});
}

Json chat_logprobs(const core::Tokenizer& tokenizer, std::span<const TokenNote> notes) {
    return Json::object({{"content", logprob_entries(tokenizer, notes)}, {"refusal", nullptr}});
}

Json old_logprobs(const core::Tokenizer& tokenizer, std::span<const TokenNote> notes) {
    Json tokens = Json::list(), values = Json::list(), others = Json::list(), offsets = Json::list();
    for (const TokenNote& note : notes) {
        tokens.push(tokenizer.bytes(note.token));
        values.push(static_cast<double>(note.log_probability));
        Json best = Json::object();
        for (const TokenProbability& other : note.alternatives)
            best.set(tokenizer.bytes(other.token), static_cast<double>(other.log_probability));
        others.push(std::move(best));
        offsets.push(static_cast<std::int64_t>(note.text_at));
    }
    return Json::object({{"tokens", std::move(tokens)},
                         {"token_logprobs", std::move(values)},
                         {"top_logprobs", std::move(others)},
                         {"text_offset", std::move(offsets)}});
}

// Chunks of the same answer differ in their choices.
class OpenAiWriter : public AnswerWriter {
public:
    using Options = OpenAiOptions;
    OpenAiWriter(std::shared_ptr<Exchange> exchange, bool stream, const Options& options)
        : AnswerWriter(std::move(exchange), stream, options.one_call), options_(options) {}

protected:
    virtual const char* prefix() const = 0;
    virtual const char* chunk_object() const = 0;
    virtual const char* whole_object() const = 0;
    virtual Json whole_choice(std::size_t index) = 0;

    Json envelope(const char* object) const {
        return Json::object({{"id", prefix() + facts_.id},
                             {"object", object},
                             {"created", facts_.created},
                             {"model", facts_.model},
                             {"seed", facts_.seed},
                             {"system_fingerprint", facts_.fingerprint}});
    }
    void append_chunk(Json choice, std::string& out) const {
        Json chunk = envelope(chunk_object());
        chunk.set("choices", Json::list({std::move(choice)}));
        if (options_.usage) chunk.set("usage", nullptr);
        append_event(chunk, out);
    }
    Json usage() const {
        const std::int64_t completion = completion_tokens();
        std::int64_t accepted = 0, rejected = 0;
        for (const Choice& choice : choices_) {
            for (const auto& source : choice.end.speculation.sources) {
                if (source.name != "prediction") continue;
                accepted += source.accepted;
                rejected += source.drafted - source.accepted;
            }
        }
        return Json::object({{"prompt_tokens", facts_.prompt_tokens},
                             {"completion_tokens", completion},
                             {"total_tokens", facts_.prompt_tokens + completion},
                             {"prompt_tokens_details", Json::object({{"cached_tokens", cached_tokens()}})},
                             {"completion_tokens_details", Json::object({{"reasoning_tokens", reasoning_tokens()},
                                                                         {"accepted_prediction_tokens", accepted},
                                                                         {"rejected_prediction_tokens", rejected}})}});
    }
    Json own() const {
        std::int64_t rounds = 0, drafted = 0, accepted = 0;
        Json sources = Json::object();
        double queue_ms = 0;
        for (const Choice& choice : choices_) {
            rounds += choice.end.speculation.rounds;
            drafted += choice.end.speculation.drafted;
            accepted += choice.end.speculation.accepted;
            queue_ms = std::max(queue_ms, choice.end.queue_ms);
            for (const auto& source : choice.end.speculation.sources) {
                const Json& before = sources[source.name];
                const auto sum = [&](const char* name, std::int64_t more) {
                    return (before.has(name) ? before[name].integer() : 0) + more;
                };
                sources.set(source.name, Json::object({{"drafted", sum("drafted", source.drafted)},
                                                       {"accepted", sum("accepted", source.accepted)}}));
            }
        }
        return Json::object(
            {{"speculation",
              Json::object(
                  {{"rounds", rounds}, {"drafted", drafted}, {"accepted", accepted}, {"sources", std::move(sources)}})},
             {"queue_ms", queue_ms}});
    }
    void close(std::string& out) override {
        Json last = envelope(chunk_object());
        last.set("choices", Json::list());
        last.set("usage", usage());
        last.set("timings", timings_of(choices_.front()));
        last.set("foresay", own());
        if (options_.usage) append_event(last, out);
        out += "data: [DONE]\n\n";
    }
    Json whole() override {
        Json json = envelope(whole_object());
        Json all = Json::list();
        for (std::size_t i = 0; i < choices_.size(); ++i) all.push(whole_choice(i));
        json.set("choices", std::move(all));
        json.set("usage", usage());
        json.set("timings", timings_of(choices_.front()));
        json.set("foresay", own());
        return json;
    }
    void late_error(const ApiError& error, std::string& out) override {
        append_event(Json::object({{"error", openai_error_body(error)}}), out);
    }
    HttpResponse error(const ApiError& error) override { return openai_error(error, facts_.id); }
    bool tells_tokens() const override { return options_.logprobs || options_.explain; }

    // Who drafted the tokens of a piece, for a client that shows it.
    void explain(Json& choice, std::span<const TokenNote> notes) const {
        if (!options_.explain) return;
        Json all = Json::list();
        for (const TokenNote& note : notes) {
            all.push(Json::object({{"token", note.token},
                                   {"text", facts_.tokenizer->bytes(note.token)},
                                   {"source", note.source.empty() ? Json() : Json(note.source)}}));
        }
        choice.set("foresay", Json::object({{"tokens", std::move(all)}}));
    }

    Options options_;
};

class ChatWriter : public OpenAiWriter {
public:
    using OpenAiWriter::OpenAiWriter;

protected:
    const char* prefix() const override { return "chatcmpl-"; }
    const char* chunk_object() const override { return "chat.completion.chunk"; }
    const char* whole_object() const override { return "chat.completion"; }

    Json delta(std::size_t index, Json delta, Json finish = {}) const {
        return Json::object({{"index", static_cast<std::int64_t>(index)},
                             {"delta", std::move(delta)},
                             {"logprobs", nullptr},
                             {"finish_reason", std::move(finish)}});
    }
    std::string_view finish(const Choice& choice) const {
        return choice.finish == Finish::tool_calls && options_.old_calls ? "function_call" : finish_name(choice.finish);
    }
    void open(std::string& out) override {
        for (std::size_t i = 0; i < choices_.size(); ++i) {
            Json chunk = envelope(chunk_object());
            chunk.set("choices", Json::list({delta(i, Json::object({{"role", "assistant"}, {"content", ""}}))}));
            if (options_.usage) chunk.set("usage", nullptr);
            append_event(chunk, out);
        }
    }
    void piece(std::size_t index, const OutputEvent& event, std::span<const TokenNote> notes,
               std::string& out) override {
        Json change = Json::object();
        switch (event.kind) {
            case OutputEvent::Kind::reasoning:
                change.set("reasoning_content", event.text);
                break;
            case OutputEvent::Kind::content:
                change.set("content", event.text);
                break;
            default: {
                if (options_.old_calls) {
                    const Json named = Json::object({{"name", event.call.name}, {"arguments", ""}});
                    append_chunk(delta(index, Json::object({{"function_call", named}})), out);
                    change.set("function_call", Json::object({{"arguments", event.call.arguments}}));
                    break;
                }
                const std::size_t call = choices_[index].calls.size() - 1;
                const auto number = static_cast<std::int64_t>(call);
                change.set("tool_calls",
                           Json::list({Json::object(
                               {{"index", number},
                                {"id", call_id(facts_, event.call, index, call)},
                                {"type", "function"},
                                {"function", Json::object({{"name", event.call.name}, {"arguments", ""}})}})}));
                append_chunk(delta(index, std::move(change)), out);
                change = Json::object(
                    {{"tool_calls",
                      Json::list({Json::object(
                          {{"index", number}, {"function", Json::object({{"arguments", event.call.arguments}})}})})}});
            }
        }
        Json choice = delta(index, std::move(change));
        if (options_.logprobs && !notes.empty()) choice.set("logprobs", chat_logprobs(*facts_.tokenizer, notes));
        explain(choice, notes);
        append_chunk(std::move(choice), out);
    }
    void close_choice(std::size_t index, std::string& out) override {
        Json choice = delta(index, Json::object(), finish(choices_[index]));
        tell_unfinished(choices_[index], choice);
        append_chunk(std::move(choice), out);
    }
    Json whole_choice(std::size_t index) override {
        const Choice& choice = choices_[index];
        Json message = Json::object({{"role", "assistant"}});
        const bool empty = choice.content.empty() && !choice.calls.empty();
        message.set("content", empty ? Json() : Json(choice.content));
        if (!choice.reasoning.empty()) message.set("reasoning_content", choice.reasoning);
        message.set("refusal", nullptr);
        if (!choice.calls.empty() && options_.old_calls) {
            const ToolCall& call = choice.calls.front();
            message.set("function_call", Json::object({{"name", call.name}, {"arguments", call.arguments}}));
        } else if (!choice.calls.empty()) {
            Json calls = Json::list();
            for (std::size_t i = 0; i < choice.calls.size(); ++i) {
                const ToolCall& call = choice.calls[i];
                calls.push(
                    Json::object({{"id", call_id(facts_, call, index, i)},
                                  {"type", "function"},
                                  {"function", Json::object({{"name", call.name}, {"arguments", call.arguments}})}}));
            }
            message.set("tool_calls", std::move(calls));
        }
        Json json =
            Json::object({{"index", static_cast<std::int64_t>(index)},
                          {"message", std::move(message)},
                          {"logprobs", options_.logprobs ? chat_logprobs(*facts_.tokenizer, choice.notes) : Json()},
                          {"finish_reason", finish(choice)}});
        explain(json, choice.notes);
        tell_unfinished(choice, json);
        return json;
    }
};

class CompletionWriter : public OpenAiWriter {
public:
    CompletionWriter(std::shared_ptr<Exchange> exchange, bool stream, const Options& options, bool echo)
        : OpenAiWriter(std::move(exchange), stream, options), echo_(echo) {}

protected:
    const char* prefix() const override { return "cmpl-"; }
    const char* chunk_object() const override { return "text_completion"; }
    const char* whole_object() const override { return "text_completion"; }

    Json choice_of(std::size_t index, std::string text, Json finish) const {
        return Json::object({{"index", static_cast<std::int64_t>(index)},
                             {"text", std::move(text)},
                             {"logprobs", nullptr},
                             {"finish_reason", std::move(finish)}});
    }
    const std::string& prompt_of(std::size_t index) const {
        return facts_.prompts[index * facts_.prompts.size() / choices_.size()];
    }
    void open(std::string& out) override {
        if (!echo_) return;
        for (std::size_t i = 0; i < choices_.size(); ++i) append_chunk(choice_of(i, prompt_of(i), {}), out);
    }
    void piece(std::size_t index, const OutputEvent& event, std::span<const TokenNote> notes,
               std::string& out) override {
        Json choice = choice_of(index, event.text, {});
        if (options_.logprobs && !notes.empty()) choice.set("logprobs", old_logprobs(*facts_.tokenizer, notes));
        explain(choice, notes);
        append_chunk(std::move(choice), out);
    }
    void close_choice(std::size_t index, std::string& out) override {
        Json choice = choice_of(index, "", finish_name(choices_[index].finish));
        tell_unfinished(choices_[index], choice);
        append_chunk(std::move(choice), out);
    }
    Json whole_choice(std::size_t index) override {
        const Choice& choice = choices_[index];
        Json json = choice_of(index, (echo_ ? prompt_of(index) : "") + choice.content, finish_name(choice.finish));
        if (options_.logprobs) json.set("logprobs", old_logprobs(*facts_.tokenizer, choice.notes));
        explain(json, choice.notes);
        tell_unfinished(choice, json);
        return json;
    }

private:
    bool echo_;
};

}  // namespace

Json logprob_entries(const core::Tokenizer& tokenizer, std::span<const TokenNote> notes) {
    Json entries = Json::list();
    for (const TokenNote& note : notes) {
        Json entry = token_entry(tokenizer, note.token, note.log_probability);
        Json others = Json::list();
        for (const TokenProbability& other : note.alternatives)
            others.push(token_entry(tokenizer, other.token, other.log_probability));
        entry.set("top_logprobs", std::move(others));
        entries.push(std::move(entry));
    }
    return entries;
}

std::shared_ptr<AnswerWriter> make_chat_writer(std::shared_ptr<Exchange> exchange, bool stream,
                                               const OpenAiOptions& options) {
    return std::make_shared<ChatWriter>(std::move(exchange), stream, options);
}

std::shared_ptr<AnswerWriter> make_completion_writer(std::shared_ptr<Exchange> exchange, bool stream,
                                                     const OpenAiOptions& options, bool echo) {
    return std::make_shared<CompletionWriter>(std::move(exchange), stream, options, echo);
}

}  // namespace foresay::server
