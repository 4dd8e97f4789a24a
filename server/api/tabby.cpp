// TabbyAPI: models and templates by name, for those who have an admin's key; tokens, and what a key may do.
#include <utility>

#include "server/api/openai.h"

namespace foresay::server {

namespace {

// ------------------------------------------------------------------------------------------------------------ fields

const Shape& draft_shape() {
    static const Shape shape{
        "draft_model",
        {{.name = "draft_model_name", .kinds = kString, .doc = "The name of the draft model.", .required = true}}};
    return shape;
}

const Shape& load_shape() {
    static const Shape shape{
        "model_load",
        {{.name = "model_name", .kinds = kString, .doc = "A name of /v1/model/list.", .required = true},
         {.name = "max_seq_len", .kinds = kInteger, .doc = "The context in tokens.", .least = 1, .most = 1e9},
         {.name = "cache_size", .kinds = kInteger, .doc = "The same.", .least = 1, .most = 1e9},
         {.name = "cache_mode",
          .kinds = kString,
          .doc = "How the KV cache stores keys and values: FP16, Q8, Q6 or Q4.",
          .choices = {"FP16", "Q8", "Q6", "Q4", "fp16", "q8", "q6", "q4"}},
         {.name = "prompt_template", .kinds = kString, .doc = "A name of /v1/templates."},
         {.name = "draft_model", .kinds = kObject, .doc = "The draft model.", .shape = &draft_shape()}}};
    return shape;
}

const Shape& switch_shape() {
    static const Shape shape{
        "template_switch",
        {{.name = "prompt_template_name", .kinds = kString, .doc = "A name of /v1/templates.", .required = true}}};
    return shape;
}

const Shape& encode_shape() {
    static const Shape shape{
        "token_encode",
        {{.name = "text",
          .kinds = kString | kList,
          .doc = "A text, or the messages of a conversation.",
          .items = kObject,
          .shape = &chat_message_shape(),
          .required = true},
         {.name = "add_bos_token", .kinds = kBoolean, .doc = "Whether the text begins as a prompt does."},
         {.name = "encode_special_tokens", .kinds = kBoolean, .doc = "Whether names of special tokens become those."},
         {.name = "decode_special_tokens", .kinds = kBoolean, .doc = "Of /v1/token/decode."},
         {.name = "add_generation_prompt",
          .kinds = kBoolean,
          .doc = "Of a conversation: whether it ends where an answer begins."}}};
    return shape;
}

const Shape& decode_shape() {
    static const Shape shape{
        "token_decode",
        {{.name = "tokens", .kinds = kList, .doc = "Token ids.", .items = kInteger, .required = true},
         {.name = "add_bos_token", .kinds = kAny, .doc = "Ignored.", .ignored = true},
         {.name = "encode_special_tokens", .kinds = kAny, .doc = "Ignored.", .ignored = true},
         {.name = "decode_special_tokens", .kinds = kBoolean, .doc = "Whether special tokens are told by name."}}};
    return shape;
}

// ------------------------------------------------------------------------------------------------------------ models

Json card(const std::string& name) {
    return Json::object({{"id", name}, {"object", "model"}, {"owned_by", "foresay"}});
}

Json list_of(const std::vector<std::string>& names) {
    Json data = Json::list();
    for (const std::string& name : names) data.push(card(name));
    return Json::object({{"object", "list"}, {"data", std::move(data)}});
}

void model(Call& call) {
    const ServedModel& model = call.model;
    const engine::Engine& engine = model.engine();
    Json json = card(model.name());
    json.set("created", model.created());
    json.set("parameters",
             Json::object(
                 {{"max_seq_len", model.context_length()},
                  {"cache_size", model.context_length()},
                  {"max_batch_size", static_cast<std::int64_t>(call.gauges.most_running)},
                  {"draft", engine.draft() == nullptr ? Json() : card(engine.config().draft_model.filename().string())},
                  {"use_vision", false}}));
    call.send(json);
}

// The folder is the admin's; others see what they may use.
void models(ManageCall& call) {
    if (call.caller.right == Right::admin) return call.send(list_of(call.models.folder().models()));
    const std::string loaded = call.models.loaded();
    call.send(list_of(loaded.empty() ? std::vector<std::string>{} : std::vector{loaded}));
}

void drafts(ManageCall& call) { call.send(list_of(call.models.folder().models())); }

void templates(ManageCall& call) {
    Json data = Json::list();
    for (const std::string& name : call.models.folder().templates()) data.push(name);
    call.send(Json::object({{"object", "list"}, {"data", std::move(data)}}));
}

void no_adapters(ManageCall& call) { call.send(list_of({})); }

void refuse(ManageCall& call) {
    throw ApiError(Problem::unsupported,
                   "'" + call.request.path + "' is not supported: this server has no adapters and fetches nothing",
                   "unsupported");
}

// Progress as events; what goes wrong before the first one is an answer of its own.
ModelManager::Report tell_progress(const ManageCall& call) {
    const auto step = [](std::int64_t module, const char* status) {
        std::string out;
        append_event(Json::object({{"model_type", "model"}, {"module", module}, {"modules", 1}, {"status", status}}),
                     out);
        return out;
    };
    ModelManager::Report report;
    report.began = [exchange = call.exchange, step] {
        HttpResponse head;
        head.type = "text/event-stream";
        head.headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
        head.body = step(0, "processing");
        exchange->begin(std::move(head), ": ping\n\n");
    };
    report.done = [exchange = call.exchange, step, id = call.request.id](const ApiError* problem) {
        if (!exchange->begun()) {
            if (problem == nullptr) return exchange->send({});
            HttpResponse response = openai_error(*problem, id);
            add_error_headers(*problem, response);
            return exchange->send(std::move(response));
        }
        std::string out;
        if (problem == nullptr) {
            out = step(1, "finished");
        } else {
            exchange->failed(note_of(*problem));
            append_event(Json::object({{"error", openai_error_body(*problem)}}), out);
        }
        exchange->write(out);
        exchange->finish();
    };
    return report;
}

// The same for clients that wait for one answer.
ModelManager::Report tell_end(const ManageCall& call) {
    ModelManager::Report report;
    report.done = [exchange = call.exchange, id = call.request.id](const ApiError* problem) {
        if (problem == nullptr) return exchange->send({.body = Json::object({{"status", "ok"}}).dump()});
        HttpResponse response = openai_error(*problem, id);
        add_error_headers(*problem, response);
        exchange->send(std::move(response));
    };
    return report;
}

void load(ManageCall& call) {
    const Json& body = call.body;
    const ModelsFolder& folder = call.models.folder();
    ModelChange change;
    change.name = body.text("model_name");
    change.model = folder.model(change.name, "model_name");
    const std::string& draft = body["draft_model"].text("draft_model_name");
    if (!draft.empty()) change.draft = folder.model(draft, "draft_model.draft_model_name");
    if (!body.text("prompt_template").empty())
        change.prompt_template = folder.prompt_template(body.text("prompt_template"), "prompt_template");
    for (const char* name : {"cache_size", "max_seq_len"}) {
        if (body.has(name)) change.context = static_cast<std::int64_t>(body[name].number());
    }
    const std::string& mode = body.text("cache_mode");
    if (!mode.empty()) change.kv_format = mode.size() == 2 ? "q" + mode.substr(1) : "f16";
    call.models.change(std::move(change), tell_progress(call));
}

void unload(ManageCall& call) { call.models.unload(tell_end(call)); }

void switch_template(ManageCall& call) {
    ModelChange change;
    change.prompt_template =
        call.models.folder().prompt_template(call.body.text("prompt_template_name"), "prompt_template_name");
    call.models.change(std::move(change), tell_end(call));
}

void unload_template(ManageCall& call) {
    ModelChange change;
    change.prompt_template.emplace();
    call.models.change(std::move(change), tell_end(call));
}

// ------------------------------------------------------------------------------------------------------------ tokens

void encode(Call& call) {
    const Json& body = call.body;
    const auto flag = [&](const char* name) { return !body.has(name) || body[name].boolean(); };
    std::vector<std::int32_t> tokens;
    if (body["text"].is_list()) {
        Json conversation = Json::object({{"messages", body["text"]}});
        if (body.has("add_generation_prompt")) conversation.set("add_generation_prompt", body["add_generation_prompt"]);
        Prompt prompt;
        prompt.param = "text";
        prompt.conversation = read_conversation(conversation, "text");
        tokens = call.model.count(prompt);
    } else {
        tokens = call.model.tokenizer().encode(
            body.text("text"), {.add_special = flag("add_bos_token"), .parse_special = flag("encode_special_tokens")});
    }
    Json list = Json::list();
    for (const std::int32_t token : tokens) list.push(token);
    call.send(Json::object({{"tokens", std::move(list)}, {"length", static_cast<std::int64_t>(tokens.size())}}));
}

void decode(Call& call) {
    std::vector<std::int32_t> tokens;
    for (const Json& token : call.body["tokens"].items()) {
        const double id = token.number();
        if (id < 0 || id >= call.model.tokenizer().vocab_size())
            throw wrong_value("tokens", "'tokens' has " + token.dump() + ", but the model's are 0 to " +
                                            std::to_string(call.model.tokenizer().vocab_size() - 1));
        tokens.push_back(static_cast<std::int32_t>(id));
    }
    const bool special = !call.body.has("decode_special_tokens") || call.body["decode_special_tokens"].boolean();
    call.send(Json::object({{"text", call.model.tokenizer().decode(tokens, special)}}));
}

// -------------------------------------------------------------------------------------------------------------- keys

void permission(ManageCall& call) {
    call.send(Json::object({{"permission", call.caller.right == Right::admin ? "admin" : "api"}}));
}

void service_info(ManageCall& call) {
    call.send(Json::object({{"version", 0.1},
                            {"software", Json::object({{"name", "foresay"}, {"version", call.version}})},
                            {"api", Json::object({{"openai", Json::object({{"name", "OpenAI API"},
                                                                           {"relative_url", "/v1"},
                                                                           {"documentation", "/openapi.json"},
                                                                           {"version", 1}})}})}}));
}

}  // namespace

void add_tabby(std::vector<Route>& routes) {
    const auto add = [&](const char* method, std::string_view path, Right right, const Shape* body,
                         void (*manage)(ManageCall&), std::string_view doc) {
        Route route{method, path, right, body, nullptr, openai_error, doc};
        route.manage = manage;
        routes.push_back(route);
    };
    routes.push_back({"GET", "/v1/model", Right::api, nullptr, model, openai_error, "The model that is loaded."});
    add("GET", "/v1/model/list", Right::api, nullptr, models,
        "Models that can be loaded; without an admin's key, the one that is.");
    add("GET", "/v1/model/draft/list", Right::admin, nullptr, drafts, "Models that can be loaded as a draft.");
    add("POST", "/v1/model/load", Right::admin, &load_shape(), load, "Loads a model, and tells when it is there.");
    add("POST", "/v1/model/unload", Right::admin, nullptr, unload, "Frees the memory of the model.");
    for (const char* path : {"/v1/templates", "/v1/template/list"})
        add("GET", path, Right::admin, nullptr, templates, "Chat templates of the server's folder.");
    add("POST", "/v1/template/switch", Right::admin, &switch_shape(), switch_template, "Uses another chat template.");
    add("POST", "/v1/template/unload", Right::admin, nullptr, unload_template, "Uses the model's own chat template.");
    for (const char* path : {"/v1/loras", "/v1/lora/list", "/v1/lora"})
        add("GET", path, Right::api, nullptr, no_adapters, "None: adapters are not supported.");
    for (const char* path : {"/v1/lora/load", "/v1/lora/unload", "/v1/download"})
        add("POST", path, Right::admin, nullptr, refuse, "Not supported.");
    routes.push_back({"POST", "/v1/token/encode", Right::api, &encode_shape(), encode, openai_error,
                      "A text or a conversation as token ids."});
    routes.push_back(
        {"POST", "/v1/token/decode", Right::api, &decode_shape(), decode, openai_error, "Token ids as text."});
    add("GET", "/v1/auth/permission", Right::api, nullptr, permission, "What the key may do.");
    add("GET", "/.well-known/serviceinfo", Right::open, nullptr, service_info, "What this server is.");
}

}  // namespace foresay::server
