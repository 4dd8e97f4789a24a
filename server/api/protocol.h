// server/api/protocol.h: what a protocol is: routes, and the shape of its errors. Each has a file; the list of all is
// in protocols.cpp.
//
// Threads:  routes run on any thread, several at once.
// Errors:   a route throws ApiError, which is answered in the protocol's shape.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/fields.h"
#include "server/api/writer.h"
#include "server/error.h"
#include "server/http/exchange.h"
#include "server/keys.h"
#include "server/metrics.h"
#include "server/model.h"
#include "server/models.h"
#include "server/request.h"
#include "server/stored.h"

namespace foresay::server {

class Service;
struct Route;

// A request on its way.
struct Call {
    const HttpRequest& request;
    Json body;  // checked against the route's shape; null for a route without one
    std::shared_ptr<Exchange> exchange;
    const ServedModel& model;
    Backend& backend;
    Metrics& metrics;
    const Caller& caller;
    std::shared_ptr<Lease> lease;
    const std::vector<Route>& routes;
    std::string version;
    bool any_model = true;
    bool draining = false;
    Metrics::Gauges gauges;
    std::string_view tail;  // of the path, after the route's
    // Keeps model and backend while anything of the request is left; null where they live long enough.
    std::shared_ptr<const void> keep;
    StoredResponses* stored = nullptr;  // null: nothing is stored

    // The model that the body names; throws ApiError when it is another one than ours and that counts.
    std::string model_name() const;
    // The hexadecimal part of ids.
    std::string id() const { return request.id.substr(4); }
    void send(const Json& json) const;
    // Runs the request and gives its texts to the writer.
    void answer(GenerationRequest wanted, std::shared_ptr<AnswerWriter> writer, const char* api) const;
};

// A request that needs no model: it asks about models, or changes the one that is loaded.
struct ManageCall {
    const HttpRequest& request;
    const Json& body;  // as that of Call
    std::shared_ptr<Exchange> exchange;
    ModelManager& models;
    const Caller& caller;
    std::string version;

    void send(const Json& json) const;
};

using ErrorShape = HttpResponse (*)(const ApiError& error, const std::string& id);

struct Route {
    const char* method;
    std::string_view path;  // one that ends with '/' takes what begins with it
    Right right = Right::api;
    const Shape* body = nullptr;  // of JSON; null: the body is not read
    void (*run)(Call& call) = nullptr;
    ErrorShape error = nullptr;
    std::string_view doc;
    bool while_draining = false;
    // Instead of `run`: an answer that needs no model, so that it is there before one. `tail`: of the path.
    HttpResponse (*alone)(std::string_view tail) = nullptr;
    // Instead of `run`: needs no model.
    void (*manage)(ManageCall& call) = nullptr;
};

// The routes of all protocols, and those of the page at "/". To add a protocol: a file with its add_NAME(), declared
// and called in protocols.cpp.
std::vector<Route> all_routes(bool with_page = true);
// docs/server-reference.md: all of them, with every field of their bodies.
std::string server_reference();
// The shape of errors where there is no route: by the beginning of the path.
ErrorShape error_shape_of(std::string_view path);

// ---- what protocols share (shared.cpp)

// What belongs to an error whatever its shape: retry-after, x-should-retry, www-authenticate, and the note for the log.
void add_error_headers(const ApiError& error, HttpResponse& response);
// An error as the log has it. Its message quotes what was sent where the request is at fault, so code and field stand
// for it.
std::string note_of(const ApiError& error);

// Sampler fields of a body, as the table maps them to stages.
void read_samplers(const Shape& shape, const Json& body, const std::string& path, const ServedModel& model,
                   GenerationRequest& out);
// The seed, exactly: from -2^63 to 2^64-1, where a negative one has the bits of its 64-bit integer. `any`: -1 stands
// for none, as with llama.cpp and Ollama.
void read_seed(const Json& seed, GenerationRequest& out, bool any = false);
// {"15": -3.5} or [[15, -3.5], [16, false]].
void read_logit_bias(const Json& bias, const ServedModel& model, GenerationRequest& out);
// The member "foresay": chain, branch, speculation.
void read_own(const Json& own, GenerationRequest& out);
// A text, or a list of texts; empty ones are left out.
std::vector<std::string> read_stops(const Json& stops);
// A text, or a list of texts and ids; lists of those are several prompts.
std::vector<Prompt> read_prompts(const Json& prompt, const std::string& param);
// A text, or a list of parts of the types in `types` with the member "text". Other types: unsupported_content.
std::string read_content(const Json& content, const std::string& path,
                         std::initializer_list<std::string_view> types = {"text"});
// The messages and tools of OpenAI's chat. `param`: where the client has written the messages.
Conversation read_conversation(const Json& body, const std::string& param = "messages");
// `name`: where the protocol has a tool's name. Tools are also read where they are written as in other protocols.
std::vector<Tool> read_tools(const Json& tools, const std::string& path, const std::string& name);
// OpenAI's choice among tools: which may be called, and whether one must be.
void read_tool_choice(const Json& body, Conversation& conversation);
// One tool must be called, or, without a name, any. Throws where there is none of that name.
void require_call(Conversation& conversation, const std::string& name, const std::string& param);
// The content is valid under a schema; any JSON object is {"type": "object"}.
void want_schema(const Json& schema, const std::string& param, GenerationRequest& out);
Json any_object();
// response_format of chat, text.format of Responses: {"type": "json_schema", ...}. `schema`: where the protocol has the
// schema; it is also read where others have it.
void read_format(const Json& format, const std::string& param, const std::string& schema, GenerationRequest& out);
const Shape& own_shape();
const Shape& sampler_shape();
// Of OpenAI's protocols, and of those that write the same (openai_fields.cpp).
const Shape& chat_tool_shape();
const Shape& chat_choice_shape();
const Shape& chat_call_shape();
const Shape& chat_part_shape();      // of a content that is a list
const Shape& chat_message_shape();   // of a chat
const Shape& schema_format_shape();  // with its schema beside the type
// All that a conversation may have but its messages: tools, and how the template is used.
const Shape& chat_conversation_shape();

}  // namespace foresay::server
