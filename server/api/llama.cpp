// llama.cpp's server: completions, holes, tokens, and how the server is set up.
#include <algorithm>
#include <utility>

#include "server/api/protocol.h"

namespace foresay::server {

namespace {

// ------------------------------------------------------------------------------------------------------------ fields

const Shape& generation_shape() {
    static const Shape shape{
        "generation",
        {{.name = "model", .kinds = kString, .doc = "The name of the model."},
         {.name = "n_predict",
          .kinds = kInteger,
          .doc = "Most tokens of the text; -1: to the end of the context.",
          .least = -2,
          .most = 1e9},
         {.name = "max_tokens", .kinds = kInteger, .doc = "The same.", .least = -2, .most = 1e9},
         {.name = "stream", .kinds = kBoolean, .doc = "Whether the text comes piece by piece."},
         {.name = "seed", .kinds = kInteger, .doc = "The seed of the noise; -1: chosen and reported."},
         {.name = "n_probs",
          .kinds = kInteger,
          .doc = "How many of the likeliest tokens are told.",
          .least = 0,
          .most = 100},
         {.name = "return_tokens", .kinds = kBoolean, .doc = "Whether the token ids are told."},
         {.name = "samplers", .kinds = kAny, .doc = "Ignored; foresay.chain sets the stages.", .ignored = true},
         {.name = "cache_prompt",
          .kinds = kBoolean,
          .doc = "false: evaluates the whole prompt, whatever the cache holds. The text is the same."},
         {.name = "id_slot", .kinds = kAny, .doc = "Ignored.", .ignored = true},
         {.name = "response_fields",
          .kinds = kList,
          .doc = "The fields that are told; a slash leads to inner ones.",
          .items = kString},
         {.name = "t_max_predict_ms",
          .kinds = kInteger,
          .doc =
              "After so long, the text ends at the next line break. Such a text is not promised to be the same again.",
          .least = 0,
          .most = 9e15},
         {.name = "n_indent", .kinds = kInteger, .doc = "The text ends at a line that is indented less.", .least = 0},
         {.name = "timings_per_token", .kinds = kAny, .doc = "Ignored.", .ignored = true},
         {.name = "t_max_prompt_ms", .kinds = kAny, .doc = "Ignored.", .ignored = true}},
        &sampler_shape()};
    return shape;
}

const Shape& completion_shape() {
    static const Shape shape{
        "completion",
        {{.name = "prompt",
          .kinds = kString | kList,
          .doc = "A text, token ids, or both in turn; or a list of those. The answer has it as text.",
          .required = true}},
        &generation_shape()};
    return shape;
}

const Shape& extra_shape() {
    static const Shape shape{"extra",
                             {{.name = "filename", .kinds = kString, .doc = "Its name."},
                              {.name = "text", .kinds = kString, .doc = "Its text.", .required = true}}};
    return shape;
}

const Shape& infill_shape() {
    static const Shape shape{
        "infill",
        {{.name = "input_prefix", .kinds = kString, .doc = "The text before the hole."},
         {.name = "input_suffix", .kinds = kString, .doc = "The text after the hole."},
         {.name = "input_extra",
          .kinds = kList,
          .doc = "Other files of the project.",
          .items = kObject,
          .shape = &extra_shape()},
         {.name = "prompt", .kinds = kString, .doc = "What stands between the prefix and the hole."}},
        &generation_shape()};
    return shape;
}

const Shape& tokenize_shape() {
    static const Shape shape{
        "tokenize",
        {{.name = "content", .kinds = kString, .doc = "The text."},
         {.name = "add_special", .kinds = kBoolean, .doc = "Whether the text begins as a prompt does."},
         {.name = "parse_special", .kinds = kBoolean, .doc = "Whether names of special tokens become those."},
         {.name = "with_pieces", .kinds = kBoolean, .doc = "Whether the texts of the tokens are told."},
         {.name = "prompt", .kinds = kString, .doc = "vLLM's name of the text; the answer then has its form."},
         {.name = "messages",
          .kinds = kList,
          .doc = "A conversation, in vLLM's form.",
          .items = kObject,
          .shape = &chat_message_shape()},
         {.name = "model", .kinds = kString, .doc = "The name of the model."}},
        &chat_conversation_shape()};
    return shape;
}

const Shape& detokenize_shape() {
    static const Shape shape{
        "detokenize",
        {{.name = "tokens", .kinds = kList, .doc = "Token ids.", .items = kInteger, .required = true},
         {.name = "model", .kinds = kString, .doc = "The name of the model."}}};
    return shape;
}

const Shape& template_shape() {
    static const Shape shape{"apply_template",
                             {{.name = "messages",
                               .kinds = kList,
                               .doc = "The conversation.",
                               .items = kObject,
                               .shape = &chat_message_shape(),
                               .required = true},
                              {.name = "model", .kinds = kString, .doc = "The name of the model."}},
                             &chat_conversation_shape()};
    return shape;
}

// ----------------------------------------------------------------------------------------------------------- writing

HttpResponse llama_error_response(const ApiError& error, const std::string&) {
    const char* type = error.problem == Problem::authentication ? "authentication_error"
                       : error.problem == Problem::permission   ? "permission_error"
                       : error.problem == Problem::not_found    ? "not_found_error"
                       : error.problem == Problem::unavailable  ? "unavailable_error"
                       : error.problem == Problem::busy         ? "rate_limit_error"
                       : error.problem == Problem::failed       ? "server_error"
                       : error.problem == Problem::unsupported  ? "not_supported_error"
                       : error.context_length > 0               ? "exceed_context_size_error"
                                                                : "invalid_request_error";
    Json body = Json::object({{"code", error.status}, {"message", error.what()}, {"type", type}});
    if (!error.param.empty()) body.set("param", error.param);
    if (error.context_length > 0) {
        body.set("n_prompt_tokens", error.prompt_tokens);
        body.set("n_ctx", error.context_length);
    }
    HttpResponse response;
    response.status = error.status;
    response.body = Json::object({{"error", std::move(body)}}).dump();
    return response;
}

// The member that "a/b" leads to; null when there is none.
const Json& member_at(const Json& json, std::string_view path) {
    const std::size_t slash = path.find('/');
    const Json& member = json[path.substr(0, slash)];
    return slash == path.npos ? member : member_at(member, path.substr(slash + 1));
}

class TextWriter final : public AnswerWriter {
public:
    struct Options {
        std::vector<std::string> fields;  // of the answer; empty: all
        bool tokens = false, probabilities = false, several = false;
    };
    TextWriter(std::shared_ptr<Exchange> exchange, bool stream, Options options)
        : AnswerWriter(std::move(exchange), stream), options_(std::move(options)) {}

protected:
    HttpResponse error(const ApiError& error) override { return llama_error_response(error, {}); }
    bool tells_tokens() const override { return options_.tokens || options_.probabilities; }
    void late_error(const ApiError& error, std::string& out) override {
        Json parsed;
        try_parse_json(llama_error_response(error, {}).body, parsed);
        append_event(parsed, out);
    }

    Json selected(Json json) const {
        if (options_.fields.empty()) return json;
        Json out = Json::object();
        for (const std::string& field : options_.fields) {
            const Json& member = member_at(json, field);
            if (!member.is_null()) out.set(field, member);
        }
        return out;
    }
    Json ids(std::span<const TokenNote> notes) const {
        Json out = Json::list();
        if (!options_.tokens) return out;
        for (const TokenNote& note : notes) out.push(note.token);
        return out;
    }
    Json probabilities(std::span<const TokenNote> notes) const {
        const auto entry = [&](std::int32_t token, float value) {
            const std::string_view bytes = facts_.tokenizer->bytes(token);
            Json numbers = Json::list();
            for (const char byte : bytes) numbers.push(static_cast<int>(static_cast<unsigned char>(byte)));
            return Json::object({{"id", token},
                                 {"token", bytes},
                                 {"bytes", std::move(numbers)},
                                 {"logprob", static_cast<double>(value)}});
        };
        Json out = Json::list();
        for (const TokenNote& note : notes) {
            Json one = entry(note.token, note.log_probability);
            Json others = Json::list();
            for (const TokenProbability& other : note.alternatives)
                others.push(entry(other.token, other.log_probability));
            one.set("top_logprobs", std::move(others));
            out.push(std::move(one));
        }
        return out;
    }
    Json final_of(std::size_t index, bool with_text) const {
        const Choice& choice = choices_[index];
        const bool limit = choice.finish == Finish::length;
        Json json = Json::object({{"index", static_cast<std::int64_t>(index)},
                                  {"content", with_text ? choice.content : std::string()},
                                  {"tokens", with_text ? ids(choice.notes) : Json::list()},
                                  {"id_slot", 0},
                                  {"stop", true},
                                  {"model", facts_.model},
                                  {"tokens_predicted", choice.tokens},
                                  {"tokens_evaluated", choice.prompt_tokens},
                                  {"tokens_cached", choice.end.cached_tokens},
                                  {"generation_settings", Json::object({{"seed", facts_.seed}})},
                                  {"prompt", facts_.prompts[index * facts_.prompts.size() / choices_.size()]},
                                  {"has_new_line", choice.content.find('\n') != std::string::npos},
                                  {"truncated", false},
                                  {"stop_type", limit                      ? "limit"
                                                : choice.stopped_by_string ? "word"
                                                                           : "eos"},
                                  {"stopping_word", choice.stop_string},
                                  {"timings", timings_of(choice)},
                                  {"system_fingerprint", facts_.fingerprint}});
        if (options_.probabilities && with_text) json.set("completion_probabilities", probabilities(choice.notes));
        tell_unfinished(choice, json);
        return json;
    }
    void piece(std::size_t index, const OutputEvent& event, std::span<const TokenNote> notes,
               std::string& out) override {
        Json json = Json::object({{"index", static_cast<std::int64_t>(index)},
                                  {"content", event.text},
                                  {"tokens", ids(notes)},
                                  {"stop", false},
                                  {"id_slot", 0},
                                  {"tokens_predicted", static_cast<std::int64_t>(choices_[index].notes.size())},
                                  {"tokens_evaluated", facts_.prompt_tokens}});
        if (options_.probabilities) json.set("completion_probabilities", probabilities(notes));
        append_event(selected(std::move(json)), out);
    }
    void close_choice(std::size_t index, std::string& out) override {
        append_event(selected(final_of(index, false)), out);
    }
    void close(std::string&) override {}
    Json whole() override {
        if (!options_.several) return selected(final_of(0, true));
        Json all = Json::list();
        for (std::size_t i = 0; i < choices_.size(); ++i) all.push(selected(final_of(i, true)));
        return all;
    }

private:
    Options options_;
};

// ------------------------------------------------------------------------------------------------------------ routes

void read_generation(const Call& call, GenerationRequest& out, TextWriter::Options& options) {
    const Json& body = call.body;
    read_samplers(generation_shape(), body, "", call.model, out);
    read_seed(body["seed"], out, true);
    for (const char* name : {"max_tokens", "n_predict"}) {
        if (!body.has(name) || body[name].number() < 0) continue;
        out.max_tokens = static_cast<std::int64_t>(body[name].number());
        out.max_tokens_param = name;
    }
    if (body.has("cache_prompt")) out.reuse = body["cache_prompt"].boolean();
    if (body.has("n_probs") && body["n_probs"].number() > 0) {
        out.alternatives = static_cast<int>(body["n_probs"].number());
        options.probabilities = true;
    }
    if (body.has("return_tokens")) options.tokens = body["return_tokens"].boolean();
    if (body.has("t_max_predict_ms")) out.time_limit_ms = static_cast<std::int64_t>(body["t_max_predict_ms"].number());
    if (body.has("n_indent")) out.least_indent = static_cast<int>(std::min(body["n_indent"].number(), 1e6));
    if (body["response_fields"].is_list()) {
        for (const Json& field : body["response_fields"].items()) options.fields.push_back(field.string());
    }
}

void completion(Call& call) {
    GenerationRequest wanted;
    TextWriter::Options options;
    read_generation(call, wanted, options);
    wanted.prompts = read_prompts(call.body["prompt"], "prompt");
    options.several = wanted.prompts.size() > 1;
    call.answer(std::move(wanted),
                std::make_shared<TextWriter>(call.exchange, call.body["stream"].is_true(), std::move(options)),
                "completion");
}

void infill(Call& call) {
    const Json& body = call.body;
    GenerationRequest wanted;
    TextWriter::Options options;
    read_generation(call, wanted, options);
    Prompt prompt;
    prompt.param = "input_prefix";
    prompt.hole = Hole{body.text("input_prefix") + body.text("prompt"), body.text("input_suffix"), {}};
    if (body["input_extra"].is_list()) {
        for (const Json& extra : body["input_extra"].items())
            prompt.hole->others.push_back(
                {extra.text("filename").empty() ? "file" : extra.text("filename"), extra.text("text")});
    }
    wanted.prompts.push_back(std::move(prompt));
    call.answer(std::move(wanted),
                std::make_shared<TextWriter>(call.exchange, body["stream"].is_true(), std::move(options)), "infill");
}

Json list_of(std::span<const std::int32_t> tokens) {
    Json list = Json::list();
    for (const std::int32_t token : tokens) list.push(token);
    return list;
}

void tokenize(Call& call) {
    const Json& body = call.body;
    const core::Tokenizer& tokenizer = call.model.tokenizer();
    if (body.has("prompt") || body.has("messages")) {  // vLLM's form
        Prompt prompt;
        prompt.param = body.has("messages") ? "messages" : "prompt";
        if (body.has("messages")) {
            prompt.conversation = read_conversation(body);
        } else {
            prompt.parts.push_back({body.text("prompt"), {}, true});
        }
        const std::vector<std::int32_t> tokens = call.model.count(prompt);
        call.send(Json::object({{"count", static_cast<std::int64_t>(tokens.size())},
                                {"max_model_len", call.model.context_length()},
                                {"tokens", list_of(tokens)}}));
        return;
    }
    const auto flag = [&](const char* name, bool absent) { return body.has(name) ? body[name].boolean() : absent; };
    const std::vector<std::int32_t> tokens =
        tokenizer.encode(body.text("content"),
                         {.add_special = flag("add_special", false), .parse_special = flag("parse_special", true)});
    if (!flag("with_pieces", false)) {
        call.send(Json::object({{"tokens", list_of(tokens)}}));
        return;
    }
    Json pieces = Json::list();
    for (const std::int32_t token : tokens)
        pieces.push(Json::object({{"id", token}, {"piece", tokenizer.bytes(token)}}));
    call.send(Json::object({{"tokens", std::move(pieces)}}));
}

void detokenize(Call& call) {
    std::vector<std::int32_t> tokens;
    for (const Json& token : call.body["tokens"].items()) {
        const double id = token.number();
        if (id < 0 || id >= call.model.tokenizer().vocab_size())
            throw wrong_value("tokens", "'tokens' has " + token.dump() + ", but the model's are 0 to " +
                                            std::to_string(call.model.tokenizer().vocab_size() - 1));
        tokens.push_back(static_cast<std::int32_t>(id));
    }
    const std::string text = call.model.tokenizer().decode(tokens, true);
    call.send(Json::object({{"content", text}, {"prompt", text}}));
}

void apply_template(Call& call) {
    call.send(Json::object({{"prompt", call.model.render(read_conversation(call.body))}}));
}

void input_tokens(Call& call) {
    Prompt prompt;
    prompt.param = "messages";
    prompt.conversation = read_conversation(call.body);
    call.send(Json::object({{"input_tokens", static_cast<std::int64_t>(call.model.count(prompt).size())}}));
}

void props(Call& call) {
    const ServedModel& model = call.model;
    const core::Tokenizer& tokenizer = model.tokenizer();
    const auto token = [&](std::int32_t id) { return id >= 0 ? Json(tokenizer.text(id)) : Json(""); };
    const std::string source =
        model.style().chat ? model.style().chat->source() : std::string(tokenizer.chat_template());
    const Json caps =
        Json::object({{"supports_tools", model.takes_tools()},
                      {"supports_system_role", !model.style().chat || model.style().chat->why_no_system().empty()},
                      {"tool_calls", name_of(model.output_format().family)}});
    call.send(Json::object(
        {{"default_generation_settings",
          Json::object({{"n_ctx", model.context_length()}, {"params", Json::object({{"n_predict", -1}})}})},
         {"total_slots", static_cast<std::int64_t>(call.gauges.most_running)},
         {"model_alias", model.name()},
         {"model_path", model.name()},
         {"modalities", Json::object({{"vision", false}, {"audio", false}})},
         {"chat_template", source},
         {"chat_template_caps", caps},
         {"bos_token", token(tokenizer.special().bos)},
         {"eos_token", token(tokenizer.special().eos)},
         {"build_info", "foresay " + call.version},
         {"system_fingerprint", model.fingerprint()},
         {"is_sleeping", false}}));
}

void slots(Call& call) {
    if (call.request.query.find("fail_on_no_slot=1") != std::string::npos &&
        call.gauges.running >= call.gauges.most_running) {
        ApiError busy(Problem::unavailable, "no slot is free", "no_slot_available");
        busy.retry_after = 1;
        throw busy;
    }
    Json all = Json::list();
    for (std::size_t i = 0; i < call.gauges.most_running; ++i) {
        all.push(Json::object({{"id", static_cast<std::int64_t>(i)},
                               {"n_ctx", call.model.context_length()},
                               {"speculative", call.model.engine().draft() != nullptr},
                               {"is_processing", i < call.gauges.running}}));
    }
    call.send(all);
}

}  // namespace

void add_llama(std::vector<Route>& routes) {
    const auto add = [&](const char* method, const char* path, const Shape* shape, void (*run)(Call&),
                         const char* doc) {
        routes.push_back({method, path, Right::api, shape, run, llama_error_response, doc});
    };
    for (const char* path : {"/completion", "/completions"})
        add("POST", path, &completion_shape(), completion, "Continues a text, as llama.cpp's clients ask.");
    add("POST", "/infill", &infill_shape(), infill, "The text between two others, with other files of the project.");
    add("POST", "/tokenize", &tokenize_shape(), tokenize, "A text as token ids.");
    add("POST", "/detokenize", &detokenize_shape(), detokenize, "Token ids as text.");
    add("POST", "/apply-template", &template_shape(), apply_template,
        "A conversation as the text that the model reads.");
    add("POST", "/v1/chat/completions/input_tokens", &template_shape(), input_tokens,
        "How many tokens a conversation has.");
    add("GET", "/props", nullptr, props, "The model and its template.");
    add("GET", "/slots", nullptr, slots, "How many texts can be generated at once, and are.");
}

}  // namespace foresay::server
