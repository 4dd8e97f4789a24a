// Ollama's protocol: lines of JSON.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "server/api/openai.h"

namespace foresay::server {

namespace {

// A version of theirs whose protocol this is; clients want three numbers.
constexpr const char* kVersion = "0.18.0";

// ------------------------------------------------------------------------------------------------------------ fields

const Shape& options_shape() {
    static const Shape shape{
        "options",
        {{.name = "num_predict",
          .kinds = kInteger,
          .doc = "Most tokens of the answer; -1: to the end of the context.",
          .least = -2,
          .most = 1e9},
         {.name = "num_ctx", .kinds = kInteger, .doc = "Ignored unless it is more than the server's.", .least = 0},
         {.name = "seed", .kinds = kInteger, .doc = "The seed of the noise; -1: chosen and reported."}},
        &sampler_shape()};
    return shape;
}

const Shape& message_shape() {
    static const Shape shape{"message",
                             {{.name = "role",
                               .kinds = kString,
                               .doc = "Who speaks.",
                               .choices = {"system", "user", "assistant", "tool"},
                               .required = true},
                              {.name = "content", .kinds = kString, .doc = "The text."},
                              {.name = "thinking", .kinds = kString, .doc = "The reasoning of an answer."},
                              {.name = "images", .kinds = kList, .doc = "Refused: the model reads text alone."},
                              {.name = "tool_calls",
                               .kinds = kList,
                               .doc = "The calls of an answer.",
                               .items = kObject,
                               .shape = &chat_call_shape()},
                              {.name = "tool_name", .kinds = kString, .doc = "Which tool this is the result of."}}};
    return shape;
}

const Shape& generation_shape() {
    static const Shape shape{
        "generation",
        {{.name = "model", .kinds = kString, .doc = "The name of the model."},
         {.name = "stream", .kinds = kBoolean, .doc = "Whether the answer comes piece by piece; absent: it does."},
         {.name = "options", .kinds = kObject, .doc = "Samplers and limits.", .shape = &options_shape()},
         {.name = "format",
          .kinds = kString | kObject,
          .doc = "json, or a JSON Schema that the answer is valid under."},
         {.name = "think",
          .kinds = kBoolean | kString,
          .doc = "Whether the model reasons, where its template can tell it.",
          .choices = {"low", "medium", "high"}},
         {.name = "keep_alive", .kinds = kAny, .doc = "Ignored: the model stays.", .ignored = true},
         {.name = "logprobs", .kinds = kBoolean, .doc = "Log probabilities of the tokens, before any sampler."},
         {.name = "top_logprobs",
          .kinds = kInteger,
          .doc = "How many of the likeliest tokens are told.",
          .least = 0,
          .most = 20}}};
    return shape;
}

const Shape& lines_shape() {
    static const Shape shape{
        "chat",
        {{.name = "messages", .kinds = kList, .doc = "The conversation.", .items = kObject, .shape = &message_shape()},
         {.name = "tools",
          .kinds = kList,
          .doc = "Functions that the model may call.",
          .items = kObject,
          .shape = &chat_tool_shape()}},
        &generation_shape()};
    return shape;
}

const Shape& generate_shape() {
    static const Shape shape{
        "generate",
        {{.name = "prompt", .kinds = kString, .doc = "The text."},
         {.name = "suffix", .kinds = kString, .doc = "What follows the text that is wanted."},
         {.name = "system", .kinds = kString, .doc = "The system prompt."},
         {.name = "raw", .kinds = kBoolean, .doc = "The prompt is continued as it is."},
         {.name = "template", .kinds = kString, .doc = "Refused: the model's own counts."},
         {.name = "context", .kinds = kList, .doc = "Refused: send the conversation to /api/chat."},
         {.name = "images", .kinds = kList, .doc = "Refused: the model reads text alone."}},
        &generation_shape()};
    return shape;
}

const Shape& show_shape() {
    static const Shape shape{"show",
                             {{.name = "model", .kinds = kString, .doc = "The name of the model."},
                              {.name = "name", .kinds = kString, .doc = "The old name of the field."},
                              {.name = "verbose", .kinds = kAny, .doc = "Ignored.", .ignored = true}}};
    return shape;
}

// ----------------------------------------------------------------------------------------------------------- writing

std::string time_text() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count() % 1'000'000;
    const std::time_t time = seconds;
    std::tm parts{};
    ::gmtime_r(&time, &parts);
    char text[40], fraction[16];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    std::snprintf(fraction, sizeof fraction, ".%06dZ", static_cast<int>(micros));
    return std::string(text) + fraction;
}

HttpResponse ollama_error_response(const ApiError& error, const std::string&) {
    HttpResponse response;
    response.status = error.status;
    std::string message = error.what();
    if (!error.param.empty() && message.find(error.param) == std::string::npos) message += " (" + error.param + ")";
    response.body = Json::object({{"error", message}}).dump();
    return response;
}

class LineWriter final : public AnswerWriter {
public:
    LineWriter(std::shared_ptr<Exchange> exchange, bool stream, bool chat, bool logprobs)
        : AnswerWriter(std::move(exchange), stream), chat_(chat), logprobs_(logprobs) {}

protected:
    HttpResponse stream_head() const override {
        HttpResponse head;
        head.type = "application/x-ndjson";
        head.headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
        return head;
    }
    std::string ping() const override { return {}; }
    HttpResponse error(const ApiError& error) override { return ollama_error_response(error, {}); }
    void late_error(const ApiError& error, std::string& out) override {
        Json::object({{"error", error.what()}}).append_to(out);
        out += '\n';
    }

    static std::int64_t ns(double ms) { return static_cast<std::int64_t>(ms * 1e6); }
    Json line(Json text, const std::string& thinking, Json calls, bool done) const {
        Json json = Json::object({{"model", facts_.model}, {"created_at", time_text()}});
        if (chat_) {
            Json message = Json::object({{"role", "assistant"}, {"content", std::move(text)}});
            if (!thinking.empty()) message.set("thinking", thinking);
            if (calls.is_list()) message.set("tool_calls", std::move(calls));
            json.set("message", std::move(message));
        } else {
            json.set("response", std::move(text));
            if (!thinking.empty()) json.set("thinking", thinking);
        }
        json.set("done", done);
        return json;
    }
    Json last_line(Json json) const {
        const Choice& choice = choices_.front();
        const BackendEnd& end = choice.end;
        json.set("done_reason", choice.finish == Finish::length ? "length" : "stop");
        json.set("total_duration", ns(end.queue_ms + end.prompt_ms + end.generation_ms));
        json.set("load_duration", 0);
        json.set("prompt_eval_count", choice.prompt_tokens);
        json.set("prompt_eval_duration", ns(end.prompt_ms));
        json.set("eval_count", choice.tokens);
        json.set("eval_duration", ns(end.generation_ms));
        tell_seed(facts_, json);
        tell_unfinished(choice, json);
        return json;
    }
    Json call_of(const ToolCall& call) const {
        Json arguments = Json::object();
        try_parse_json(call.arguments, arguments);
        return Json::object({{"function", Json::object({{"name", call.name}, {"arguments", std::move(arguments)}})}});
    }
    bool tells_tokens() const override { return logprobs_; }
    void piece(std::size_t, const OutputEvent& event, std::span<const TokenNote> notes, std::string& out) override {
        Json json;
        if (event.kind == OutputEvent::Kind::reasoning) {
            json = line("", event.text, {}, false);
        } else if (event.kind == OutputEvent::Kind::call) {
            json = line("", "", Json::list({call_of(event.call)}), false);
        } else {
            json = line(event.text, "", {}, false);
        }
        tell_logprobs(notes, json);
        json.append_to(out);
        out += '\n';
    }
    void close_choice(std::size_t, std::string&) override {}
    void close(std::string& out) override {
        last_line(line("", "", {}, true)).append_to(out);
        out += '\n';
    }
    Json whole() override {
        const Choice& choice = choices_.front();
        Json calls;
        if (!choice.calls.empty()) {
            calls = Json::list();
            for (const ToolCall& call : choice.calls) calls.push(call_of(call));
        }
        Json json = line(choice.content, choice.reasoning, std::move(calls), true);
        tell_logprobs(choice.notes, json);
        return last_line(std::move(json));
    }

private:
    void tell_logprobs(std::span<const TokenNote> notes, Json& json) const {
        if (logprobs_ && !notes.empty()) json.set("logprobs", logprob_entries(*facts_.tokenizer, notes));
    }

    bool chat_, logprobs_;
};

// ------------------------------------------------------------------------------------------------------------ routes

bool wants_logprobs(const Json& body) { return body["logprobs"].is_true(); }

void read_options(const Call& call, GenerationRequest& out) {
    const Json& options = call.body["options"];
    const Json& format = call.body["format"];
    if (format.is_object()) {
        want_schema(format, "format", out);
    } else if (call.body.text("format") == "json") {
        want_schema(any_object(), "format", out);
    } else if (!call.body.text("format").empty()) {
        throw wrong_value("format",
                          "'format' is '" + call.body.text("format") + "', but must be json or a JSON Schema");
    }
    const bool logprobs = wants_logprobs(call.body);
    if (call.body.has("top_logprobs") && call.body["top_logprobs"].number() > 0 && !logprobs)
        throw wrong_value("top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (logprobs)
        out.alternatives = call.body.has("top_logprobs") ? static_cast<int>(call.body["top_logprobs"].number()) : 0;
    if (!options.is_object()) return;
    read_samplers(options_shape(), options, "options.", call.model, out);
    read_seed(options["seed"], out, true);
    if (options.has("num_predict") && options["num_predict"].number() >= 0) {
        out.max_tokens = static_cast<std::int64_t>(options["num_predict"].number());
        out.max_tokens_param = "options.num_predict";
    }
    if (options.has("num_ctx") && options["num_ctx"].number() > call.model.context_length())
        throw wrong_value("options.num_ctx",
                          "'options.num_ctx' is " + options["num_ctx"].dump() + ", but the server's context holds " +
                              std::to_string(call.model.context_length()) + "; start it with a larger --context");
}

bool wants_stream(const Json& body) { return !body["stream"].is(Json::Kind::boolean) || body["stream"].boolean(); }

std::string reasoning_of(const Json& think) {
    if (think.is_string()) return think.string();
    if (think.is(Json::Kind::boolean)) return think.boolean() ? "on" : "off";
    return "";
}

// An empty request asks that the model be loaded, and it is.
void answer_loaded(const Call& call, bool chat) {
    Json json = Json::object({{"model", call.model_name()}, {"created_at", time_text()}});
    if (chat) json.set("message", Json::object({{"role", "assistant"}, {"content", ""}}));
    if (!chat) json.set("response", "");
    json.set("done", true);
    json.set("done_reason", "load");
    call.send(json);
}

void refuse_images(const Json& holder, const std::string& path) {
    if (holder["images"].is_list() && !holder["images"].items().empty())
        throw ApiError(Problem::invalid, "'" + path + "images' is not supported: this model reads text alone",
                       "unsupported_content", path + "images");
}

void chat(Call& call) {
    const Json& body = call.body;
    if (!body["messages"].is_list() || body["messages"].items().empty()) return answer_loaded(call, true);
    GenerationRequest wanted;
    read_options(call, wanted);
    Conversation conversation;
    for (std::size_t i = 0; i < body["messages"].items().size(); ++i) {
        const Json& message = body["messages"].items()[i];
        Message next;
        next.path = "messages[" + std::to_string(i) + "]";
        refuse_images(message, next.path + ".");
        next.role = message.text("role");
        next.content = message.text("content");
        next.reasoning = message.text("thinking");
        next.tool_name = message.text("tool_name");
        if (message["tool_calls"].is_list()) {
            for (const Json& one : message["tool_calls"].items()) {
                const Json& arguments = one["function"]["arguments"];
                next.calls.push_back({one.text("id"), one["function"].text("name"),
                                      arguments.is_object()   ? arguments.dump()
                                      : arguments.is_string() ? arguments.string()
                                                              : std::string("{}")});
            }
        }
        conversation.messages.push_back(std::move(next));
    }
    conversation.tools = read_tools(body["tools"], "tools", "function.name");
    conversation.reasoning = reasoning_of(body["think"]);
    conversation.continue_last =
        conversation.messages.back().role == "assistant" && conversation.messages.back().calls.empty();
    Prompt prompt;
    prompt.param = "messages";
    prompt.conversation = std::move(conversation);
    wanted.prompts.push_back(std::move(prompt));
    call.answer(std::move(wanted),
                std::make_shared<LineWriter>(call.exchange, wants_stream(body), true, wants_logprobs(body)),
                "ollama_chat");
}

void generate(Call& call) {
    const Json& body = call.body;
    refuse_images(body, "");
    if (!body.text("template").empty())
        throw ApiError(Problem::invalid, "'template' is not supported: the model's own counts", "unsupported_value",
                       "template");
    if (body["context"].is_list() && !body["context"].items().empty())
        throw ApiError(Problem::invalid, "'context' is not supported; send the conversation to /api/chat",
                       "unsupported_value", "context");
    if (body.text("prompt").empty() && body.text("suffix").empty()) return answer_loaded(call, false);
    GenerationRequest wanted;
    read_options(call, wanted);
    Prompt prompt;
    prompt.param = "prompt";
    const bool raw = body["raw"].is_true();
    if (!body.text("suffix").empty()) {
        if (!call.model.fills())
            throw wrong_value("suffix", "'suffix' needs a model that knows holes, and this one does not");
        prompt.hole = Hole{body.text("prompt"), body.text("suffix"), {}};
    } else if (raw || !call.model.converses()) {
        prompt.parts.push_back({body.text("prompt"), {}, true});
    } else {
        Conversation conversation;
        if (!body.text("system").empty())
            conversation.messages.push_back({.role = "system", .content = body.text("system"), .path = "system"});
        conversation.messages.push_back({.role = "user", .content = body.text("prompt"), .path = "prompt"});
        conversation.reasoning = reasoning_of(body["think"]);
        prompt.conversation = std::move(conversation);
    }
    wanted.prompts.push_back(std::move(prompt));
    call.answer(std::move(wanted),
                std::make_shared<LineWriter>(call.exchange, wants_stream(body), false, wants_logprobs(body)),
                "ollama_generate");
}

Json details(const ServedModel& model) {
    const core::ModelConfig& config = model.engine().target().config();
    return Json::object({{"parent_model", ""},
                         {"format", "gguf"},
                         {"family", config.architecture},
                         {"families", Json::list({config.architecture})},
                         {"parameter_size", ""},
                         {"quantization_level", config.file_type}});
}

Json tag(const ServedModel& model) {
    return Json::object({{"name", model.name()},
                         {"model", model.name()},
                         {"modified_at", "2026-01-01T00:00:00Z"},
                         {"size", model.file_bytes()},
                         {"digest", model.digest()},
                         {"details", details(model)}});
}

void tags(Call& call) { call.send(Json::object({{"models", Json::list({tag(call.model)})}})); }

void running(Call& call) {
    Json one = tag(call.model);
    one.set("expires_at", "2318-01-01T00:00:00Z");
    one.set("size_vram", 0);
    one.set("context_length", call.model.context_length());
    call.send(Json::object({{"models", Json::list({std::move(one)})}}));
}

void version(Call& call) { call.send(Json::object({{"version", kVersion}})); }

void show(Call& call) {
    const ServedModel& model = call.model;
    call.model_name();
    const core::ModelConfig& config = model.engine().target().config();
    const std::string& family = config.architecture;
    Json info = Json::object({{"general.architecture", family},
                              {"general.file_type", config.file_type},
                              {family + ".context_length", model.context_length()},
                              {family + ".block_count", config.shape.layers},
                              {family + ".vocab_size", model.tokenizer().vocab_size()}});
    Json capabilities = Json::list({"completion", "tools"});
    if (model.fills()) capabilities.push("insert");
    if (!model.style().markup.none()) capabilities.push("thinking");
    // Clients look for the variable of theirs to know that holes can be filled.
    const std::string source = model.style().chat ? model.style().chat->source() : "{{ .Prompt }}";
    call.send(Json::object({{"modelfile", "# served by foresay"},
                            {"parameters", "num_ctx " + std::to_string(model.context_length())},
                            {"template", source + (model.fills() ? "\n{{/* .Suffix */}}" : "")},
                            {"details", details(model)},
                            {"model_info", std::move(info)},
                            {"capabilities", std::move(capabilities)},
                            {"modified_at", "2026-01-01T00:00:00Z"}}));
}

void refused(Call& call) {
    throw ApiError(Problem::unsupported,
                   "'" + call.request.path +
                       "' is not supported: this server neither fetches nor changes models; see foresay pull",
                   "unsupported");
}

void embeddings(Call&) { throw no_embeddings(); }

}  // namespace

HttpResponse ollama_error(const ApiError& error, const std::string& id) { return ollama_error_response(error, id); }

void add_ollama(std::vector<Route>& routes) {
    const auto add = [&](const char* method, const char* path, const Shape* shape, void (*run)(Call&),
                         const char* doc) {
        routes.push_back({method, path, Right::api, shape, run, ollama_error_response, doc});
    };
    add("POST", "/api/chat", &lines_shape(), chat, "Answers a conversation, as Ollama's clients ask.");
    add("POST", "/api/generate", &generate_shape(), generate, "Continues a text, or fills a hole.");
    add("GET", "/api/tags", nullptr, tags, "The models.");
    add("GET", "/api/ps", nullptr, running, "The models that are loaded.");
    add("GET", "/api/version", nullptr, version, "The version of Ollama whose protocol this is.");
    add("POST", "/api/show", &show_shape(), show, "What the model can do.");
    for (const char* path : {"/api/pull", "/api/push", "/api/create", "/api/copy"})
        add("POST", path, nullptr, refused, "Not supported.");
    for (const char* path : {"/api/embed", "/api/embeddings"}) add("POST", path, nullptr, embeddings, "Not supported.");
    add("DELETE", "/api/delete", nullptr, refused, "Not supported.");
}

}  // namespace foresay::server
