// What several protocols read in the same way.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "server/answering.h"
#include "server/api/protocol.h"

namespace foresay::server {

namespace {

constexpr std::size_t kMostStops = 16;
constexpr std::size_t kMostStopBytes = 4096;
constexpr std::int64_t kWholeText = 1048576;  // the largest window of a stage

}  // namespace

std::string Call::model_name() const {
    const std::string& asked = body.text("model");
    if (asked.empty()) return model.name();
    if (!any_model && !model.answers_to(asked))
        throw ApiError(Problem::not_found, "the model '" + asked + "' is not here; '" + model.name() + "' is",
                       "model_not_found", "model");
    return asked;
}

void Call::send(const Json& json) const {
    HttpResponse response;
    response.body = json.dump();
    exchange->send(std::move(response));
}

void Call::answer(GenerationRequest wanted, std::shared_ptr<AnswerWriter> writer, const char* api) const {
    server::answer({model, backend, metrics, api, id(), model_name(), caller, lease, keep}, std::move(wanted),
                   std::move(writer));
}

void ManageCall::send(const Json& json) const {
    HttpResponse response;
    response.body = json.dump();
    exchange->send(std::move(response));
}

void add_error_headers(const ApiError& error, HttpResponse& response) {
    if (error.retry_after > 0) {
        response.headers.push_back({"retry-after", std::to_string(error.retry_after)});
        response.headers.push_back({"x-should-retry", "true"});
    } else if ((error.status >= 500 && error.problem != Problem::unavailable) || error.status == 408) {
        response.headers.push_back({"x-should-retry", "false"});  // the same request fails again
    }
    if (error.status == 401) response.headers.push_back({"www-authenticate", "Bearer"});
    response.note = note_of(error);
}

std::string note_of(const ApiError& error) {
    if (error.status >= 500) return error.what();
    constexpr std::size_t kMostBytes = 64;  // of a path, in which names may be the client's
    std::string note = error.code;
    if (!error.param.empty()) note += (note.empty() ? "" : " ") + json_quoted(error.param.substr(0, kMostBytes));
    return note;
}

// ---------------------------------------------------------------------------------------------------------- samplers

const Shape& sampler_shape() {
    static const Shape shape{
        "samplers",
        {
            {.name = "temperature",
             .kinds = kNumber,
             .doc = "0 always takes the most likely token.",
             .least = 0,
             .most = 100,
             .stage = "temperature",
             .parameter = "value"},
            {.name = "top_p",
             .kinds = kNumber,
             .doc = "Keeps the likeliest tokens that have this much probability.",
             .least = 0,
             .most = 1,
             .stage = "top_p",
             .parameter = "p"},
            {.name = "top_k",
             .kinds = kInteger,
             .doc = "How many tokens stay; 0 or -1 keeps all.",
             .least = -1,
             .most = 1e6,
             .stage = "top_k",
             .parameter = "k"},
            {.name = "min_p",
             .kinds = kNumber,
             .doc = "Drops tokens less likely than this share of the best.",
             .least = 0,
             .most = 1,
             .stage = "min_p",
             .parameter = "p"},
            {.name = "presence_penalty",
             .kinds = kNumber,
             .doc = "Subtracted once from a token that occurred.",
             .least = -100,
             .most = 100,
             .stage = "penalties",
             .parameter = "presence"},
            {.name = "frequency_penalty",
             .kinds = kNumber,
             .doc = "Subtracted for each time that a token occurred.",
             .least = -100,
             .most = 100,
             .stage = "penalties",
             .parameter = "frequency"},
            {.name = "repeat_penalty",
             .kinds = kNumber,
             .doc = "Divides the logit of a token that occurred.",
             .least = 0.01,
             .most = 100,
             .stage = "penalties",
             .parameter = "repeat"},
            {.name = "repetition_penalty",
             .kinds = kNumber,
             .doc = "The same as repeat_penalty.",
             .least = 0.01,
             .most = 100,
             .stage = "penalties",
             .parameter = "repeat"},
            {.name = "repeat_last_n",
             .kinds = kInteger,
             .doc = "Tokens that the penalties look back; -1: all.",
             .least = -1,
             .most = 1e6,
             .stage = "penalties",
             .parameter = "window"},
            {.name = "xtc_probability",
             .kinds = kNumber,
             .doc = "How often the stage xtc acts.",
             .least = 0,
             .most = 1,
             .stage = "xtc",
             .parameter = "probability",
             .off = 0},
            {.name = "xtc_threshold",
             .kinds = kNumber,
             .doc = "Of the stage xtc.",
             .least = 0,
             .most = 1,
             .stage = "xtc",
             .parameter = "threshold",
             .detail = true},
            {.name = "typical_p",
             .kinds = kNumber,
             .doc = "Keeps the tokens of the most typical surprise that have this much probability.",
             .least = 0,
             .most = 1,
             .stage = "typical",
             .parameter = "p",
             .off = 1},
            {.name = "top_n_sigma",
             .kinds = kNumber,
             .doc = "Keeps tokens within so many deviations of the best logit; 0 and less: all.",
             .least = -1,
             .most = 100,
             .stage = "top_n_sigma",
             .parameter = "n",
             .off = 0},
            {.name = "top_a",
             .kinds = kNumber,
             .doc = "Drops tokens less likely than this times the square of the best.",
             .least = 0,
             .most = 1,
             .stage = "top_a",
             .parameter = "a",
             .off = 0},
            {.name = "tfs_z",
             .kinds = kNumber,
             .doc = "Of the stage tfs; 1: off.",
             .least = 0,
             .most = 1,
             .stage = "tfs",
             .parameter = "z",
             .off = 1},
            {.name = "epsilon_cutoff",
             .kinds = kNumber,
             .doc = "Drops tokens less likely than this; a probability.",
             .least = 0,
             .most = 1,
             .stage = "epsilon_cutoff",
             .parameter = "epsilon",
             .off = 0},
            {.name = "eta_cutoff",
             .kinds = kNumber,
             .doc = "The same, less strict where the model is unsure.",
             .least = 0,
             .most = 1,
             .stage = "eta_cutoff",
             .parameter = "eta",
             .off = 0},
            {.name = "dry_multiplier",
             .kinds = kNumber,
             .doc = "Weight of the penalty of tokens that would lengthen a repetition; 0: off.",
             .least = 0,
             .most = 100,
             .stage = "dry",
             .parameter = "multiplier",
             .off = 0},
            {.name = "dry_base",
             .kinds = kNumber,
             .doc = "Its factor for each further token.",
             .least = 1,
             .most = 10,
             .stage = "dry",
             .parameter = "base",
             .detail = true},
            {.name = "dry_allowed_length",
             .kinds = kInteger,
             .doc = "The shortest repetition that counts.",
             .least = 1,
             .most = 50,
             .stage = "dry",
             .parameter = "allowed_length",
             .detail = true},
            {.name = "dry_penalty_last_n",
             .kinds = kInteger,
             .doc = "Tokens that it looks back; -1: all.",
             .least = -1,
             .most = 1e6,
             .stage = "dry",
             .parameter = "window",
             .detail = true},
            {.name = "dry_sequence_breakers",
             .kinds = kList,
             .doc = "Texts across which nothing is a repetition.",
             .items = kString,
             .stage = "dry",
             .parameter = "breakers",
             .detail = true},
            {.name = "no_repeat_ngram_size",
             .kinds = kInteger,
             .doc = "No sequence of so many tokens occurs twice; 0: off.",
             .least = 0,
             .most = 64,
             .stage = "no_repeat_ngram",
             .parameter = "size",
             .off = 0},
            {.name = "min_tokens",
             .kinds = kInteger,
             .doc = "Tokens before the answer may end.",
             .least = 0,
             .most = 1e6,
             .stage = "min_length",
             .parameter = "tokens",
             .off = 0},
            {.name = "smoothing_factor",
             .kinds = kNumber,
             .doc = "Of the stage smoothing; 0: off.",
             .least = 0,
             .most = 10,
             .stage = "smoothing",
             .parameter = "factor",
             .off = 0},
            {.name = "smoothing_curve",
             .kinds = kNumber,
             .doc = "Of the stage smoothing.",
             .least = 1,
             .most = 3,
             .stage = "smoothing",
             .parameter = "curve",
             .detail = true},
            {.name = "skew",
             .kinds = kNumber,
             .doc = "Of the stage skew; 0: off.",
             .least = -5,
             .most = 5,
             .stage = "skew",
             .parameter = "skew",
             .off = 0},
            {.name = "adaptive_target",
             .kinds = kNumber,
             .doc = "The probability that the stage adaptive_p aims at; below 0: off.",
             .least = -1,
             .most = 1,
             .stage = "adaptive_p",
             .parameter = "target",
             .off = -1},
            {.name = "adaptive_decay",
             .kinds = kNumber,
             .doc = "Of the stage adaptive_p.",
             .least = 0,
             .most = 0.99,
             .stage = "adaptive_p",
             .parameter = "decay",
             .detail = true},
            {.name = "dynatemp_range",
             .kinds = kNumber,
             .doc = "The temperature follows the doubt of the model, so far around its value; 0: off.",
             .least = 0,
             .most = 10},
            {.name = "dynatemp_exponent",
             .kinds = kNumber,
             .doc = "Bends the way between.",
             .least = 0.01,
             .most = 10,
             .stage = "dynatemp",
             .parameter = "exponent",
             .detail = true},
            {.name = "mirostat",
             .kinds = kInteger,
             .doc = "1 or 2: this version takes the place of penalties and of the stages that drop tokens.",
             .least = 0,
             .most = 2},
            {.name = "mirostat_tau",
             .kinds = kNumber,
             .doc = "The surprise that mirostat aims at, in bits.",
             .least = 0,
             .most = 100,
             .stage = "mirostat",
             .parameter = "tau",
             .detail = true},
            {.name = "mirostat_eta",
             .kinds = kNumber,
             .doc = "How fast it follows.",
             .least = 0,
             .most = 1,
             .stage = "mirostat",
             .parameter = "eta",
             .detail = true},
            {.name = "logit_bias", .kinds = kObject | kList, .doc = "Added to the logits of tokens, by their id."},
            {.name = "ignore_eos",
             .kinds = kBoolean,
             .doc = "End tokens are tokens like any other, except under a grammar, whose text ends there."},
            {.name = "seed",
             .kinds = kInteger,
             .doc = "The seed of the noise, from -2^63 to 2^64-1; chosen and reported when absent."},
            {.name = "stop", .kinds = kString | kList, .doc = "Texts before which the answer ends.", .items = kString},
            {.name = "foresay", .kinds = kObject, .doc = "What only foresay has.", .shape = &own_shape()},
            {.name = "grammar", .kinds = kString, .doc = "What the answer must be, in llama.cpp's notation (GBNF)."},
            {.name = "json_schema",
             .kinds = kObject | kBoolean,
             .doc = "A JSON Schema that the answer is valid under."},
        }};
    return shape;
}

const Shape& own_shape() {
    static const Shape shape{
        "foresay",
        {
            {.name = "chain", .kinds = kList, .doc = "The names of the sampler stages, in order.", .items = kString},
            {.name = "branch",
             .kinds = kInteger,
             .doc = "Which of several texts from one seed.",
             .least = 0,
             .most = 9e15},
            {.name = "speculation",
             .kinds = kString | kInteger,
             .doc = "\"auto\", \"off\", or how many tokens to draft. The text is the same.",
             .least = 0,
             .most = 32,
             .choices = {"auto", "off"}},
            {.name = "plugins",
             .kinds = kObject,
             .doc = "Options of plugins in the chain, by their names: {\"NAME\": {\"OPTION\": VALUE}}."},
            {.name = "prediction",
             .kinds = kString,
             .doc = "What the answer may be: it is drafted from. The text is the same."},
            {.name = "priority",
             .kinds = kInteger,
             .doc = "Who is answered first when not all can be; above 0 for admins alone. The text is the same.",
             .least = -10,
             .most = 10},
            {.name = "deadline_ms",
             .kinds = kInteger,
             .doc =
                 "After so long the answer ends, or, before its first token, is an error. Looked at with each token. "
                 "Such a text is not promised to be the same again.",
             .least = 1,
             .most = 1e9},
            {.name = "explain", .kinds = kBoolean, .doc = "Tells of each piece of the text who drafted it."},
            {.name = "cache",
             .kinds = kBoolean,
             .doc = "false: evaluates the whole prompt, whatever the cache holds. The text is the same."},
        }};
    return shape;
}

Json any_object() { return Json::object({{"type", "object"}}); }

void want_schema(const Json& schema, const std::string& param, GenerationRequest& out) {
    if (!schema.is_object() && !schema.is(Json::Kind::boolean))
        throw wrong_type(param, "'" + param + "' must be an object, a JSON Schema");
    if (out.form)
        throw wrong_value(param, "'" + param + "' and '" + out.form->param + "' both say what the answer must be");
    out.form = AnswerForm{.is_schema = true, .schema = schema, .gbnf = {}, .param = param};
}

void read_format(const Json& format, const std::string& param, const std::string& schema, GenerationRequest& out) {
    if (format.is_null()) return;
    const std::string& type = format.text("type");
    if (type == "text") return;
    if (type == "json_object") {
        const bool given = format.has("schema");  // as llama.cpp's clients write it
        return want_schema(given ? format["schema"] : any_object(), given ? param + ".schema" : param, out);
    }
    if (type != "json_schema")
        throw wrong_value(param + ".type",
                          "'" + param + ".type' is '" + type + "', but must be one of: text, json_object, json_schema");
    const bool nested = format["json_schema"].is_object();
    const Json& wanted = nested ? format["json_schema"]["schema"] : format["schema"];
    const std::string place = param + (nested ? ".json_schema.schema" : wanted.is_null() ? "." + schema : ".schema");
    if (wanted.is_null()) throw missing(place);
    want_schema(wanted, place, out);
}

void require_call(Conversation& conversation, const std::string& name, const std::string& param) {
    const bool known = std::any_of(conversation.tools.begin(), conversation.tools.end(),
                                   [&](const Tool& tool) { return name.empty() || tool.name == name; });
    if (!known)
        throw wrong_value(param, name.empty()
                                     ? "'" + param + "' asks for a call, but there are no tools"
                                     : "'" + param + "' names the tool '" + name + "', which is not in 'tools'");
    conversation.must_call = true;
    conversation.call_name = name;
    conversation.call_param = param;
}

void read_seed(const Json& seed, GenerationRequest& out, bool any) {
    if (seed.is_null()) return;
    if (seed.is(Json::Kind::large)) {
        out.seed = seed.large();
        out.negative_seed = false;
        return;
    }
    // A real is as small as integers that JavaScript has, by the table of fields.
    const std::int64_t number =
        seed.is(Json::Kind::integer) ? seed.integer() : static_cast<std::int64_t>(seed.number());
    out.negative_seed = number < 0;
    out.seed = static_cast<std::uint64_t>(number);
    if (any && number == -1) out.seed.reset();
}

void read_samplers(const Shape& shape, const Json& body, const std::string& path, const ServedModel& model,
                   GenerationRequest& out) {
    visit_fields(shape, [&](const Field& field) {
        if (field.stage.empty()) return;
        const Json& value = body[field.name];
        if (value.is_null()) return;
        SamplerSetting setting{
            std::string(field.stage), std::string(field.parameter), {}, path + std::string(field.name), !field.detail};
        if (value.is_list()) {
            std::vector<std::string> texts;
            for (const Json& text : value.items()) texts.push_back(text.string());
            setting.value = std::move(texts);
        } else if ((field.kinds & kNumber) != 0) {
            // Below 0 all are off that have an end there.
            const double number =
                field.off == 0.0 && field.least == -1.0 ? std::max(value.number(), 0.0) : value.number();
            setting.value = number;
            setting.adds_stage = !field.detail && !(number == field.off || (field.off < 0.0 && number < 0.0));
        } else {
            auto number = static_cast<std::int64_t>(value.number());
            // What clients write for "all".
            if (field.name == "top_k" && number < 0) number = 0;
            if (field.name == "dry_penalty_last_n" && number < 0) number = kWholeText;
            setting.value = number;
            setting.adds_stage = !field.detail && static_cast<double>(number) != field.off;
        }
        out.samplers.push_back(std::move(setting));
    });
    if (body.has("mirostat")) out.mirostat = static_cast<int>(body["mirostat"].number());
    if (body.has("dynatemp_range")) {
        out.dynatemp_range = body["dynatemp_range"].number();
        out.dynatemp_param = path + "dynatemp_range";
    }
    if (body.has("logit_bias")) read_logit_bias(body["logit_bias"], model, out);
    if (body.has("ignore_eos")) out.ignore_eos = body["ignore_eos"].boolean();
    read_seed(body["seed"], out);
    if (body.has("stop")) {
        for (std::string& stop : read_stops(body["stop"])) out.stop.push_back(std::move(stop));
    }
    if (body.has("foresay")) read_own(body["foresay"], out);
    if (!body.text("grammar").empty())
        out.form =
            AnswerForm{.is_schema = false, .schema = {}, .gbnf = body.text("grammar"), .param = path + "grammar"};
    if (body.has("json_schema")) want_schema(body["json_schema"], path + "json_schema", out);
}

void read_logit_bias(const Json& bias, const ServedModel& model, GenerationRequest& out) {
    std::vector<std::int64_t> tokens;
    std::vector<double> values;
    const auto add = [&](std::int64_t token, double value) {
        if (token < 0 || token >= model.tokenizer().vocab_size())
            throw wrong_value("logit_bias", "'logit_bias' names the token " + std::to_string(token) +
                                                ", but the model's are 0 to " +
                                                std::to_string(model.tokenizer().vocab_size() - 1));
        if (!(value >= -100 && value <= 100))
            throw wrong_value("logit_bias", "a bias of 'logit_bias' must be from -100 to 100");
        tokens.push_back(token);
        values.push_back(value);
    };
    const auto number = [](const Json& value) {
        if (value.is_false()) return -100.0;
        if (!value.is_number()) throw wrong_type("logit_bias", "a bias of 'logit_bias' must be a number");
        return value.number();
    };
    if (bias.is_object()) {
        for (const auto& [name, value] : bias.members()) {
            std::int64_t token = -1;
            const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
            if (error != std::errc() || end != name.data() + name.size())
                throw wrong_value("logit_bias", "'logit_bias' takes token ids, and '" + name.substr(0, 32) +
                                                    "' is none; /tokenize tells the ids of a text");
            add(token, number(value));
        }
    } else {
        for (const Json& pair : bias.items()) {
            if (!pair.is_list() || pair.items().size() != 2 || !pair.items()[0].is(Json::Kind::integer))
                throw wrong_type("logit_bias", "an item of 'logit_bias' must be a list of a token id and a number");
            add(pair.items()[0].integer(), number(pair.items()[1]));
        }
    }
    if (tokens.empty()) return;
    out.samplers.push_back({"logit_bias", "tokens", std::move(tokens), "logit_bias"});
    out.samplers.push_back({"logit_bias", "values", std::move(values), "logit_bias"});
}

namespace {

// Lists are of one kind; integers among reals are reals.
samplers::ParameterValue option_of(const Json& value, const std::string& param) {
    const auto wrong = [&] {
        return wrong_type(param,
                          "'" + param + "' must be a boolean, a number, a string, or a list of one of the last two");
    };
    switch (value.kind()) {
        case Json::Kind::boolean:
            return value.boolean();
        case Json::Kind::integer:
            return value.integer();
        case Json::Kind::real:
        case Json::Kind::large:
            return value.number();
        case Json::Kind::string:
            return value.string();
        case Json::Kind::list:
            break;
        default:
            throw wrong();
    }
    const auto all = [&](auto is) { return std::all_of(value.items().begin(), value.items().end(), is); };
    const auto make = [&](auto list, auto get) {
        for (const Json& item : value.items()) list.push_back(get(item));
        return samplers::ParameterValue(std::move(list));
    };
    if (all([](const Json& item) { return item.is_string(); }))
        return make(std::vector<std::string>(), [](const Json& item) { return item.string(); });
    if (all([](const Json& item) { return item.is(Json::Kind::integer); }))
        return make(std::vector<std::int64_t>(), [](const Json& item) { return item.integer(); });
    if (all([](const Json& item) { return item.is_number(); }))
        return make(std::vector<double>(), [](const Json& item) { return item.number(); });
    throw wrong();
}

void read_plugins(const Json& plugins, GenerationRequest& out) {
    for (const auto& [name, options] : plugins.members()) {
        const std::string path = "foresay.plugins." + name;
        if (!options.is_object()) throw wrong_type(path, "'" + path + "' must be an object: the options of the plugin");
        // A plugin without options is named all the same, so that it is known to be there.
        if (options.members().empty()) out.samplers.push_back({name, "", {}, path, true, true});
        for (const auto& [option, value] : options.members())
            out.samplers.push_back(
                {name, option, option_of(value, path + "." + option), path + "." + option, true, true});
    }
}

}  // namespace

void read_own(const Json& own, GenerationRequest& out) {
    if (own.has("chain")) {
        out.chain.emplace();
        for (const Json& name : own["chain"].items()) out.chain->push_back(name.string());
    }
    if (own.has("branch")) out.branch = static_cast<std::uint64_t>(own["branch"].number());
    const Json& speculation = own["speculation"];
    if (speculation.is_number()) out.draft = static_cast<int>(speculation.number());
    if (speculation.is_string() && speculation.string() == "off") out.draft = 0;
    if (own.has("cache")) out.reuse = own["cache"].boolean();
    if (own.has("prediction")) out.prediction = own.text("prediction");
    if (own.has("priority")) out.priority = static_cast<int>(own["priority"].number());
    if (own.has("deadline_ms")) out.deadline_ms = static_cast<std::int64_t>(own["deadline_ms"].number());
    if (own.has("plugins")) read_plugins(own["plugins"], out);
}

std::vector<std::string> read_stops(const Json& stops) {
    std::vector<std::string> out;
    std::size_t bytes = 0;
    const auto add = [&](const std::string& stop) {
        bytes += stop.size();
        if (!stop.empty()) out.push_back(stop);
    };
    if (stops.is_string()) add(stops.string());
    if (stops.is_list()) {
        for (const Json& stop : stops.items()) add(stop.string());
    }
    if (out.size() > kMostStops || bytes > kMostStopBytes)
        throw wrong_value("stop", "'stop' may have " + std::to_string(kMostStops) + " texts of " +
                                      std::to_string(kMostStopBytes) + " bytes in all");
    return out;
}

// ----------------------------------------------------------------------------------------------------------- prompts

namespace {

std::int32_t token_of(const Json& value, const std::string& param) {
    if (!value.is(Json::Kind::integer) || value.integer() < 0 || value.integer() > INT32_MAX)
        throw wrong_type(param, "'" + param + "' may hold texts and token ids");
    return static_cast<std::int32_t>(value.integer());
}

Prompt one_prompt(const Json& prompt, const std::string& param) {
    Prompt out;
    out.param = param;
    if (prompt.is_string()) {
        out.parts.push_back({prompt.string(), {}, true});
        return out;
    }
    if (!prompt.is_list()) throw wrong_type(param, "'" + param + "' must be a text or a list of token ids");
    for (const Json& item : prompt.items()) {
        if (item.is_string()) {
            out.parts.push_back({item.string(), {}, true});
        } else {
            if (out.parts.empty() || out.parts.back().is_text) out.parts.emplace_back();
            out.parts.back().tokens.push_back(token_of(item, param));
        }
    }
    return out;
}

}  // namespace

std::vector<Prompt> read_prompts(const Json& prompt, const std::string& param) {
    constexpr std::size_t kMost = 64;
    const auto all = [&](auto is) {
        return prompt.is_list() && !prompt.items().empty() &&
               std::all_of(prompt.items().begin(), prompt.items().end(), is);
    };
    const bool several = all([](const Json& item) { return item.is_string() || item.is_list(); });
    if (!several) return {one_prompt(prompt, param)};
    if (prompt.items().size() > kMost)
        throw wrong_value(param, "'" + param + "' may hold " + std::to_string(kMost) + " prompts at most");
    std::vector<Prompt> out;
    for (std::size_t i = 0; i < prompt.items().size(); ++i)
        out.push_back(one_prompt(prompt.items()[i], param + "[" + std::to_string(i) + "]"));
    return out;
}

std::string read_content(const Json& content, const std::string& path, std::initializer_list<std::string_view> types) {
    if (content.is_string()) return content.string();
    if (content.is_null()) return {};
    if (!content.is_list()) throw wrong_type(path, "'" + path + "' must be a string or a list of parts");
    std::string text;
    for (std::size_t i = 0; i < content.items().size(); ++i) {
        const Json& part = content.items()[i];
        const std::string place = path + "[" + std::to_string(i) + "]";
        if (part.is_string()) {
            text += part.string();
            continue;
        }
        if (!part.is_object()) throw wrong_type(place, "'" + place + "' must be an object");
        const std::string& type = part.text("type");
        if (std::find(types.begin(), types.end(), type) == types.end())
            throw ApiError(Problem::invalid,
                           "'" + place + "' is of the type '" + type + "', but this model reads text alone",
                           "unsupported_content", place);
        if (type == "refusal") {
            text += part.text("refusal");
            continue;
        }
        if (!part["text"].is_string()) throw wrong_type(place + ".text", "'" + place + ".text' must be a string");
        text += part["text"].string();
    }
    return text;
}

std::vector<Tool> read_tools(const Json& tools, const std::string& path, const std::string& name) {
    std::vector<Tool> out;
    if (!tools.is_list()) return out;
    for (std::size_t i = 0; i < tools.items().size(); ++i) {
        const Json& item = tools.items()[i];
        const std::string place = path + "[" + std::to_string(i) + "]";
        if (!item.is_object()) throw wrong_type(place, "'" + place + "' must be an object");
        // Types that are not functions belong to other servers.
        if (item.text("type") != "function" && item.has("type")) continue;
        const bool nested = item["function"].is_object();
        const Json& function = nested ? item["function"] : item;
        const std::string inner = nested ? place + ".function" : place;
        const Json& strict = function["strict"];
        Tool tool{function.text("name"), function.text("description"), function["parameters"], strict.is_true(),
                  inner + ".parameters"};
        if (tool.name.empty()) throw missing(nested ? inner + ".name" : place + "." + name);
        if (!tool.parameters.is_null() && !tool.parameters.is_object())
            throw wrong_type(inner + ".parameters", "'" + inner + ".parameters' must be an object, a JSON Schema");
        out.push_back(std::move(tool));
    }
    return out;
}

}  // namespace foresay::server
