// OpenAI's chat and completions, and the list of models.
#include <algorithm>
#include <array>
#include <utility>

#include "server/api/openai.h"

namespace foresay::server {

namespace {

// ------------------------------------------------------------------------------------------------------------ fields

const Shape& function_shape() {
    static const Shape shape{"function",
                             {{.name = "name", .kinds = kString, .doc = "The name by which it is called."},
                              {.name = "description", .kinds = kString, .doc = "What it does."},
                              {.name = "parameters", .kinds = kObject, .doc = "A JSON Schema."},
                              {.name = "strict", .kinds = kBoolean, .doc = "Not supported yet but for false."}}};
    return shape;
}

const Shape& tool_shape() {
    static const Shape shape{
        "tool",
        {{.name = "type", .kinds = kString, .doc = "function; tools of other types are left out."},
         {.name = "function", .kinds = kObject, .doc = "The function.", .shape = &function_shape()}}};
    return shape;
}

const Shape& message_shape() {
    static const Shape shape{
        "message",
        {{.name = "role",
          .kinds = kString,
          .doc = "Who speaks.",
          .choices = {"system", "developer", "user", "assistant", "tool", "function"},
          .required = true},
         {.name = "content", .kinds = kString | kList, .doc = "A text, or a list of parts of the type text."},
         {.name = "reasoning_content", .kinds = kString, .doc = "The reasoning of an answer."},
         {.name = "tool_calls", .kinds = kList, .doc = "The calls of an answer.", .items = kObject},
         {.name = "tool_call_id", .kinds = kString, .doc = "Which call this is the result of."},
         {.name = "name", .kinds = kString, .doc = "Of a tool; of a speaker it is left out."}}};
    return shape;
}

const Shape& common_shape() {
    static const Shape shape{
        "generation",
        {
            {.name = "model", .kinds = kString, .doc = "The name of the model."},
            {.name = "stream", .kinds = kBoolean, .doc = "Whether the answer comes piece by piece."},
            {.name = "stream_options", .kinds = kObject, .doc = "include_usage: a last chunk with the usage."},
            {.name = "n", .kinds = kInteger, .doc = "How many answers: branches of one seed.", .least = 1, .most = 64},
            {.name = "max_tokens",
             .kinds = kInteger,
             .doc = "Most tokens of an answer; absent: to the end of the context.",
             .least = 0,
             .most = 1e9},
            {.name = "user", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "metadata", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "store", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "service_tier", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "safety_identifier", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "prompt_cache_key", .kinds = kAny, .doc = "Ignored here; gateways route by it.", .ignored = true},
            {.name = "prompt_cache_retention", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "verbosity", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "cache_prompt",
             .kinds = kBoolean,
             .doc = "false: evaluates the whole prompt, whatever the cache holds. The text is the same."},
        },
        &sampler_shape()};
    return shape;
}

const Shape& prediction_shape() {
    static const Shape shape{"prediction",
                             {{.name = "type", .kinds = kString, .doc = "content.", .choices = {"content"}},
                              {.name = "content",
                               .kinds = kString | kList,
                               .doc = "A text, or a list of parts of the type text.",
                               .required = true}}};
    return shape;
}

const Shape& chat_shape() {
    static const Shape shape{
        "chat",
        {
            {.name = "messages",
             .kinds = kList,
             .doc = "The conversation.",
             .items = kObject,
             .shape = &message_shape(),
             .required = true},
            {.name = "max_completion_tokens",
             .kinds = kInteger,
             .doc = "As max_tokens, and above it.",
             .least = 0,
             .most = 1e9},
            {.name = "logprobs", .kinds = kBoolean, .doc = "Log probabilities of the tokens, before any sampler."},
            {.name = "top_logprobs",
             .kinds = kInteger,
             .doc = "How many of the likeliest tokens are told.",
             .least = 0,
             .most = 20},
            {.name = "response_format", .kinds = kObject, .doc = "The type text; others need a grammar."},
            {.name = "tools",
             .kinds = kList,
             .doc = "Functions that the model may call.",
             .items = kObject,
             .shape = &tool_shape()},
            {.name = "functions",
             .kinds = kList,
             .doc = "The old form of tools.",
             .items = kObject,
             .shape = &function_shape()},
            {.name = "tool_choice",
             .kinds = kString | kObject,
             .doc = "none or auto; others need a grammar.",
             .choices = {"none", "auto", "required"}},
            {.name = "function_call",
             .kinds = kString | kObject,
             .doc = "The old form of tool_choice.",
             .choices = {"none", "auto"}},
            {.name = "parallel_tool_calls", .kinds = kBoolean, .doc = "false: the first call alone counts."},
            {.name = "reasoning_effort",
             .kinds = kString,
             .doc = "How much the model reasons, where its template can tell it.",
             .choices = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}},
            {.name = "chat_template_kwargs", .kinds = kObject, .doc = "Variables of the chat template."},
            {.name = "continue_final_message", .kinds = kBoolean, .doc = "The last message is the answer's beginning."},
            {.name = "add_generation_prompt",
             .kinds = kBoolean,
             .doc = "Whether the prompt ends where an answer begins."},
            {.name = "prediction",
             .kinds = kObject,
             .doc = "What the answer may be: it is drafted from. The text is the same.",
             .shape = &prediction_shape()},
            {.name = "modalities", .kinds = kList, .doc = "text alone.", .items = kString},
        },
        &common_shape()};
    return shape;
}

const Shape& completion_shape() {
    static const Shape shape{
        "completion",
        {
            {.name = "prompt",
             .kinds = kString | kList,
             .doc = "A text, a list of token ids, or a list of those.",
             .required = true},
            {.name = "suffix",
             .kinds = kString,
             .doc = "What follows the text that is wanted; the model must know holes."},
            {.name = "echo", .kinds = kBoolean, .doc = "Whether the prompt comes first."},
            {.name = "logprobs",
             .kinds = kInteger,
             .doc = "How many of the likeliest tokens are told.",
             .least = 0,
             .most = 20},
            {.name = "best_of", .kinds = kInteger, .doc = "Only what n says.", .least = 1, .most = 64},
        },
        &common_shape()};
    return shape;
}

const Shape& fim_shape() {
    static const Shape shape{
        "fim",
        {
            {.name = "prompt", .kinds = kString, .doc = "The text before the hole.", .required = true},
            {.name = "suffix", .kinds = kString, .doc = "The text after the hole."},
            {.name = "random_seed", .kinds = kInteger, .doc = "As seed."},
        },
        &common_shape()};
    return shape;
}

// ----------------------------------------------------------------------------------------------------------- reading

void check_common(const Json& body) {
    const Json& tool_choice = body["tool_choice"];
    (void)tool_choice;
    for (const Json& kind : body["modalities"].is_list() ? body["modalities"].items() : Json::List{}) {
        if (kind.string() != "text")
            throw ApiError(Problem::invalid, "'modalities' may be text alone", "unsupported_value", "modalities");
    }
}

void read_common(const Json& body, const Shape& shape, const ServedModel& model, GenerationRequest& out) {
    read_samplers(shape, body, "", model, out);
    if (body.has("n")) out.n = static_cast<int>(body["n"].number());
    for (const char* name : {"max_tokens", "max_completion_tokens"}) {
        if (body.has(name)) out.max_tokens = static_cast<std::int64_t>(body[name].number());
    }
    if (body.has("cache_prompt")) out.reuse = body["cache_prompt"].boolean();
}

bool wants_stream(const Json& body) { return body["stream"].is(Json::Kind::boolean) && body["stream"].boolean(); }
bool wants_usage(const Json& body) {
    const Json& usage = body["stream_options"]["include_usage"];
    return usage.is(Json::Kind::boolean) && usage.boolean();
}

// ----------------------------------------------------------------------------------------------------------- writing

Json token_entry(const core::Tokenizer& tokenizer, std::int32_t token, float log_probability) {
    const std::string_view bytes = tokenizer.bytes(token);
    Json numbers = Json::list();
    for (const char byte : bytes) numbers.push(static_cast<int>(static_cast<unsigned char>(byte)));
    return Json::object({{"token", bytes}, {"logprob", static_cast<double>(log_probability)}, {"bytes", numbers}});
}

Json chat_logprobs(const core::Tokenizer& tokenizer, std::span<const TokenNote> notes) {
    Json entries = Json::list();
    for (const TokenNote& note : notes) {
        Json entry = token_entry(tokenizer, note.token, note.log_probability);
        Json others = Json::list();
        for (const TokenProbability& other : note.alternatives)
            others.push(token_entry(tokenizer, other.token, other.log_probability));
        entry.set("top_logprobs", std::move(others));
        entries.push(std::move(entry));
    }
    return Json::object({{"content", std::move(entries)}, {"refusal", nullptr}});
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
    struct Options {
        bool usage = false, logprobs = false, explain = false;
        bool all_calls = true;  // false: the first one alone
    };
    OpenAiWriter(std::shared_ptr<Exchange> exchange, bool stream, const Options& options)
        : AnswerWriter(std::move(exchange), stream), options_(options) {}

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
        last.set("seed", facts_.seed);
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
        json.set("seed", facts_.seed);
        json.set("foresay", own());
        return json;
    }
    void late_error(const ApiError& error, std::string& out) override {
        append_event(Json::object({{"error", openai_error_body(error)}}), out);
    }
    HttpResponse error(const ApiError& error) override { return openai_error(error, facts_.id); }

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
    void open(std::string& out) override {
        for (std::size_t i = 0; i < choices_.size(); ++i) {
            Json chunk = envelope(chunk_object());
            chunk.set("choices", Json::list({delta(i, Json::object({{"role", "assistant"}, {"content", ""}}))}));
            chunk.set("seed", facts_.seed);
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
                const std::size_t call = choices_[index].calls.size() - 1;
                if (call > 0 && !options_.all_calls) return;
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
        append_chunk(delta(index, Json::object(), finish_name(choices_[index].finish)), out);
    }
    Json whole_choice(std::size_t index) override {
        const Choice& choice = choices_[index];
        Json message = Json::object({{"role", "assistant"}});
        const bool empty = choice.content.empty() && !choice.calls.empty();
        message.set("content", empty ? Json() : Json(choice.content));
        if (!choice.reasoning.empty()) message.set("reasoning_content", choice.reasoning);
        message.set("refusal", nullptr);
        if (!choice.calls.empty()) {
            Json calls = Json::list();
            for (std::size_t i = 0; i < (options_.all_calls ? choice.calls.size() : 1); ++i) {
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
                          {"finish_reason", finish_name(choice.finish)}});
        explain(json, choice.notes);
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
        append_chunk(choice_of(index, "", finish_name(choices_[index].finish)), out);
    }
    Json whole_choice(std::size_t index) override {
        const Choice& choice = choices_[index];
        Json json = choice_of(index, (echo_ ? prompt_of(index) : "") + choice.content, finish_name(choice.finish));
        if (options_.logprobs) json.set("logprobs", old_logprobs(*facts_.tokenizer, choice.notes));
        explain(json, choice.notes);
        return json;
    }

private:
    bool echo_;
};

bool explains(const Json& body) {
    const Json& explain = body["foresay"]["explain"];
    return explain.is(Json::Kind::boolean) && explain.boolean();
}

// ------------------------------------------------------------------------------------------------------------ routes

void chat(Call& call) {
    const Json& body = call.body;
    check_common(body);
    GenerationRequest wanted;
    read_common(body, chat_shape(), call.model, wanted);
    const bool logprobs = body["logprobs"].is(Json::Kind::boolean) && body["logprobs"].boolean();
    if (body.has("top_logprobs") && !logprobs)
        throw wrong_value("top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (logprobs) wanted.alternatives = body.has("top_logprobs") ? static_cast<int>(body["top_logprobs"].number()) : 0;
    const std::string& format = body["response_format"].text("type");
    if (body.has("response_format") && format != "text") {
        if (format == "json_object" || format == "json_schema")
            refuse_grammar("response_format", "this 'response_format'");
        throw wrong_value("response_format.type", "'response_format.type' is '" + format + "', but must be text");
    }
    if (body.has("prediction")) wanted.prediction = read_content(body["prediction"]["content"], "prediction.content");
    Prompt prompt;
    prompt.param = "messages";
    prompt.conversation = read_conversation(body);
    wanted.prompts.push_back(std::move(prompt));
    const Json& parallel = body["parallel_tool_calls"];
    const OpenAiWriter::Options options{.usage = wants_usage(body),
                                        .logprobs = logprobs,
                                        .explain = explains(body),
                                        .all_calls = parallel.is_null() || parallel.boolean()};
    call.answer(std::move(wanted), std::make_shared<ChatWriter>(call.exchange, wants_stream(body), options), "chat");
}

void completions(Call& call) {
    const Json& body = call.body;
    GenerationRequest wanted;
    read_common(body, completion_shape(), call.model, wanted);
    if (body.has("best_of") && body["best_of"].number() != wanted.n)
        throw wrong_value("best_of", "'best_of' must be what 'n' is: answers are not compared here");
    if (body.has("logprobs")) wanted.alternatives = static_cast<int>(body["logprobs"].number());
    wanted.prompts = read_prompts(body["prompt"], "prompt");
    if (body.has("suffix") && !body.text("suffix").empty()) {
        if (!call.model.fills())
            throw wrong_value("suffix", "'suffix' needs a model that knows holes, and this one does not");
        for (Prompt& prompt : wanted.prompts) {
            if (prompt.parts.size() != 1 || !prompt.parts.front().is_text)
                throw wrong_type("prompt", "with 'suffix', 'prompt' must be a string");
            prompt.hole = Hole{prompt.parts.front().text, body.text("suffix"), {}};
        }
    }
    if (wanted.prompts.size() * static_cast<std::size_t>(wanted.n) > 64)
        throw wrong_value("n", "64 texts at most, of all prompts together");
    const OpenAiWriter::Options options{
        .usage = wants_usage(body), .logprobs = body.has("logprobs"), .explain = explains(body), .all_calls = true};
    const bool echo = body["echo"].is(Json::Kind::boolean) && body["echo"].boolean();
    call.answer(std::move(wanted), std::make_shared<CompletionWriter>(call.exchange, wants_stream(body), options, echo),
                "completions");
}

// Mistral's: the prompt and the answer of a completion, in the form of a chat.
void fim(Call& call) {
    const Json& body = call.body;
    GenerationRequest wanted;
    read_common(body, fim_shape(), call.model, wanted);
    if (body.has("random_seed"))
        wanted.seed = static_cast<std::uint64_t>(static_cast<std::int64_t>(body["random_seed"].number()));
    if (!call.model.fills() && !body.text("suffix").empty())
        throw wrong_value("suffix", "'suffix' needs a model that knows holes, and this one does not");
    Prompt prompt;
    prompt.param = "prompt";
    prompt.hole = Hole{body.text("prompt"), body.text("suffix"), {}};
    wanted.prompts.push_back(std::move(prompt));
    const OpenAiWriter::Options options{.usage = true, .logprobs = false, .explain = false, .all_calls = true};
    call.answer(std::move(wanted), std::make_shared<ChatWriter>(call.exchange, wants_stream(body), options), "fim");
}

Json model_entry(const Call& call) {
    const ServedModel& model = call.model;
    const core::ModelConfig& config = model.engine().target().config();
    Json meta = Json::object({{"n_ctx", model.context_length()},
                              {"n_ctx_train", config.context_length},
                              {"n_vocab", model.tokenizer().vocab_size()},
                              {"size", model.file_bytes()},
                              {"quantization", config.file_type},
                              {"architecture", config.architecture},
                              {"draft", call.model.engine().draft() != nullptr}});
    return Json::object({{"id", model.name()},
                         {"object", "model"},
                         {"created", model.created()},
                         {"owned_by", "foresay"},
                         {"meta", std::move(meta)}});
}

Json anthropic_entry(const Call& call) {
    return Json::object({{"type", "model"},
                         {"id", call.model.name()},
                         {"display_name", call.model.name()},
                         {"created_at", "2026-01-01T00:00:00Z"},
                         {"max_input_tokens", call.model.context_length() - 1},
                         {"max_tokens", call.model.context_length() - 1}});
}

bool for_anthropic(const Call& call) { return !call.request.header("anthropic-version").empty(); }

void models(Call& call) {
    const std::string& name = call.model.name();
    if (for_anthropic(call)) {
        call.send(Json::object({{"data", Json::list({anthropic_entry(call)})},
                                {"has_more", false},
                                {"first_id", name},
                                {"last_id", name}}));
        return;
    }
    const Json slug =
        Json::object({{"slug", name}, {"display_name", name}, {"context_window", call.model.context_length()}});
    call.send(
        Json::object({{"object", "list"}, {"data", Json::list({model_entry(call)})}, {"models", Json::list({slug})}}));
}

void model(Call& call) {
    if (!call.model.answers_to(call.tail))
        throw ApiError(Problem::not_found,
                       "the model '" + std::string(call.tail) + "' is not here; '" + call.model.name() + "' is",
                       "model_not_found", "model");
    call.send(for_anthropic(call) ? anthropic_entry(call) : model_entry(call));
}

void embeddings(Call&) {
    throw ApiError(Problem::unsupported, "this server has no embeddings: its model generates text", "unsupported");
}

}  // namespace

Json openai_error_body(const ApiError& error) {
    const char* type = "server_error";
    switch (error.problem) {
        case Problem::authentication:
            type = "authentication_error";
            break;
        case Problem::permission:
            type = "permission_error";
            break;
        case Problem::not_found:
            type = "not_found_error";
            break;
        case Problem::busy:
            type = "rate_limit_error";
            break;
        case Problem::unavailable:
            type = "unavailable_error";
            break;
        case Problem::failed:
            break;
        default:
            type = "invalid_request_error";
    }
    Json body = Json::object({{"message", error.what()},
                              {"type", type},
                              {"param", error.param.empty() ? Json() : Json(error.param)},
                              {"code", error.code.empty() ? Json() : Json(error.code)}});
    if (error.context_length > 0) {
        body.set("n_prompt_tokens", error.prompt_tokens);
        body.set("n_ctx", error.context_length);
    }
    return body;
}

HttpResponse openai_error(const ApiError& error, const std::string&) {
    HttpResponse response;
    response.status = error.status;
    response.body = Json::object({{"error", openai_error_body(error)}}).dump();
    return response;
}

Conversation read_conversation(const Json& body) {
    Conversation out;
    const Json::List& messages = body["messages"].items();
    if (messages.empty()) throw wrong_value("messages", "'messages' is empty, so there is nothing to answer");
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const Json& message = messages[i];
        Message next;
        next.path = "messages[" + std::to_string(i) + "]";
        next.role = message.text("role") == "function" ? "tool" : message.text("role");
        next.content =
            read_content(message["content"], next.path + ".content", {"text", "refusal", "input_text", "output_text"});
        next.reasoning = message.text("reasoning_content");
        next.call_id = message.text("tool_call_id");
        if (next.role == "tool") next.tool_name = message.text("name");
        if (next.role == "assistant" && message["tool_calls"].is_list()) {
            for (const Json& call : message["tool_calls"].items()) {
                const Json& function = call["function"];
                if (function.text("name").empty())
                    throw ApiError(Problem::invalid, "'" + next.path + ".tool_calls' has a call without a name",
                                   "invalid_value", next.path + ".tool_calls");
                next.calls.push_back({call.text("id"), function.text("name"),
                                      function["arguments"].is_object()    ? function["arguments"].dump()
                                      : function.text("arguments").empty() ? "{}"
                                                                           : function.text("arguments")});
            }
        }
        // A result is told by the name of what was called.
        if (next.role == "tool" && next.tool_name.empty()) {
            for (const Message& before : out.messages) {
                for (const ToolCall& call : before.calls) {
                    if (!call.id.empty() && call.id == next.call_id) next.tool_name = call.name;
                }
            }
        }
        out.messages.push_back(std::move(next));
    }
    out.tools = read_tools(body["tools"], "tools");
    if (out.tools.empty()) out.tools = read_tools(body["functions"], "functions");
    read_tool_choice(body, out);
    const std::string& effort = body.text("reasoning_effort");
    if (effort == "none") {
        out.reasoning = "off";
    } else if (effort == "minimal" || effort == "low") {
        out.reasoning = "low";
    } else if (effort == "xhigh" || effort == "max") {
        out.reasoning = "high";
    } else {
        out.reasoning = effort;
    }
    out.template_arguments = body["chat_template_kwargs"];
    if (body.has("continue_final_message")) out.continue_last = body["continue_final_message"].boolean();
    if (body.has("add_generation_prompt")) out.generation_prompt = body["add_generation_prompt"].boolean();
    return out;
}

void read_tool_choice(const Json& body, Conversation& conversation) {
    for (const char* list : {"tools", "functions"}) {
        if (!body[list].is_list()) continue;
        for (std::size_t i = 0; i < body[list].items().size(); ++i) {
            const Json& item = body[list].items()[i];
            const Json& strict = item["function"].is_object() ? item["function"]["strict"] : item["strict"];
            if (strict.is(Json::Kind::boolean) && strict.boolean())
                refuse_grammar(std::string(list) + "[" + std::to_string(i) + "].function.strict", "a strict tool");
        }
    }
    for (const char* name : {"tool_choice", "function_call"}) {
        const Json& choice = body[name];
        if (choice.is_null()) continue;
        if (choice.is_string()) {
            if (choice.string() == "none") conversation.tools.clear();
            if (choice.string() == "required") refuse_grammar(name, "a required call");
            continue;
        }
        const Json& allowed = choice["allowed_tools"];
        if (choice.text("type") != "allowed_tools" || !allowed.is_object()) refuse_grammar(name, "a required call");
        if (allowed.text("mode") == "required")
            refuse_grammar(std::string(name) + ".allowed_tools.mode", "a required call");
        std::vector<Tool> kept;
        for (const Tool& tool : conversation.tools) {
            const Json& names = allowed["tools"];
            const bool named =
                names.is_list() && std::any_of(names.items().begin(), names.items().end(), [&](const Json& one) {
                    return one.text("name") == tool.name || one["function"].text("name") == tool.name;
                });
            if (named) kept.push_back(tool);
        }
        conversation.tools = std::move(kept);
    }
}

void add_openai(std::vector<Route>& routes) {
    for (const char* path : {"/v1/chat/completions", "/chat/completions"})
        routes.push_back({"POST", path, Right::api, &chat_shape(), chat, openai_error, "Answers a conversation."});
    for (const char* path : {"/v1/completions"})
        routes.push_back(
            {"POST", path, Right::api, &completion_shape(), completions, openai_error, "Continues a text."});
    routes.push_back({"POST", "/v1/fim/completions", Right::api, &fim_shape(), fim, openai_error,
                      "The text between two others, as Mistral's clients ask for it."});
    for (const char* path : {"/v1/models", "/models"})
        routes.push_back({"GET", path, Right::api, nullptr, models, openai_error, "The models."});
    routes.push_back({"GET", "/v1/models/", Right::api, nullptr, model, openai_error, "One model."});
    routes.push_back({"POST", "/v1/embeddings", Right::api, nullptr, embeddings, openai_error, "Not supported."});
}

}  // namespace foresay::server
