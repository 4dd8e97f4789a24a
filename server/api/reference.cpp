// docs/server-reference.md, from the routes and the table of fields.
#include <algorithm>
#include <map>
#include <utility>

#include "server/api/protocol.h"

namespace foresay::server {

namespace {

std::string code(std::string_view text) { return "`" + std::string(text) + "`"; }

// Kinds, range and choices, and where what is inside is described.
class Reference {
public:
    explicit Reference(const std::vector<Route>& routes) : routes_(routes) {
        for (const Route& route : routes_) {
            if (route.body != nullptr) find(*route.body, std::string(route.path));
        }
    }

    std::string text() const {
        std::string out =
            "<!-- Generated from the table of fields in server/api; tests/server/reference_test.cpp says how to renew "
            "it. "
            "-->\n\n# Every path and field of the server\n\n"
            "[server.md](server.md) explains them. `null` counts as absent everywhere. A field that is not listed is\n"
            "ignored, and named in the log. `/openapi.json` of a server has the same in the form of OpenAPI.\n\n"
            "| path | does | body |\n|---|---|---|\n";
        for (const Route& route : routes_) {
            out += "| " +
                   code(std::string(route.method) + " " + std::string(route.path) +
                        (route.path.size() > 1 && route.path.ends_with('/') ? "NAME" : "")) +
                   " | " + std::string(route.doc) +
                   (route.right == Right::admin ? " Needs the rights of an admin." : "") +
                   (route.right == Right::open ? " Needs no key." : "") + " | " +
                   (route.body != nullptr ? link(*route.body) : "") + " |\n";
        }
        for (const auto& [shape, title] : shapes_) out += section(*shape, title);
        return out.append(kAnswers);
    }

private:
    static constexpr std::string_view kAnswers =
        "\n## foresay in answers\n\n"
        "| member | in | is |\n|---|---|---|\n"
        "| `unfinished` | a choice of OpenAI's chat and completions, a response, a message of Anthropic's (of a "
        "stream, "
        "`message_delta`), the last line of Ollama's answers, the last event of llama.cpp's | Why the text ends before "
        "its grammar does, a sentence; absent where it does not. |\n"
        "| `seed`, `system_fingerprint` | a message of Anthropic's (of a stream, in `message_start` and "
        "`message_delta`), the last line of Ollama's answers | The seed, chosen where the request has none, and what "
        "else the text depends on. Other protocols have members of these names: OpenAI's in answers, responses and all "
        "chunks, llama.cpp's in the last event, with the seed in `generation_settings`. |\n"
        "| `tokens` | a choice of OpenAI's chat and completions, with `explain` | The tokens of the piece: `token`, "
        "`text`, and in `source` who drafted it. |\n"
        "| `speculation`, `queue_ms` | the whole answer of OpenAI's chat and completions | What speculation did, and "
        "how "
        "long the request waited. |\n";

    // Shapes in the order in which they are met; those of one name are told apart by the path.
    void find(const Shape& shape, const std::string& path) {
        for (const auto& [known, title] : shapes_) {
            if (known == &shape) return;
        }
        std::string title(shape.name);
        for (const auto& [known, other] : shapes_) {
            if (other == title) title += " of " + path;
        }
        shapes_.emplace_back(&shape, title);
        for (const Field& field : shape.fields) {
            if (field.shape != nullptr) find(*field.shape, path);
        }
        if (shape.base != nullptr) find(*shape.base, path);
    }

    std::string link(const Shape& shape) const {
        const auto found = std::ranges::find(shapes_, &shape, &std::pair<const Shape*, std::string>::first);
        std::string anchor;
        for (const char c : found->second) {
            if (c == ' ') anchor += '-';
            if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') anchor += c;
        }
        return "[" + found->second + "](#" + anchor + ")";
    }

    std::string takes(const Field& field) const {
        std::string out = field.kinds == kAny ? "anything" : kinds_text(field.kinds);
        if (has_range(field)) out += " " + range_text(field);
        for (std::size_t i = 0; i < field.choices.size(); ++i) out += (i == 0 ? ": " : ", ") + code(field.choices[i]);
        if ((field.kinds & kList) != 0 && field.items != 0 && field.shape == nullptr)
            out += " (each " + kinds_text(field.items) + ")";
        if (field.shape != nullptr) out += ": " + link(*field.shape);
        return out;
    }

    std::string section(const Shape& shape, const std::string& title) const {
        std::string out = "\n## " + title + "\n\n", ignored;
        std::string rows;
        for (const Field& field : shape.fields) {
            if (field.ignored) {
                ignored += (ignored.empty() ? "" : ", ") + code(field.name);
                continue;
            }
            rows += "| " + code(field.name) + " | " + takes(field) + " | " + (field.required ? "Required. " : "") +
                    std::string(field.doc) +
                    (field.stage.empty()
                         ? ""
                         : " Sets " + code(std::string(field.stage) + "." + std::string(field.parameter)) + ".") +
                    " |\n";
        }
        if (!ignored.empty()) rows += "| " + ignored + " | anything | Taken and ignored. |\n";
        if (!rows.empty()) out += "| field | takes | is |\n|---|---|---|\n" + rows;
        if (shape.base != nullptr) out += "\nAnd all of " + link(*shape.base) + ".\n";
        return out;
    }

    const std::vector<Route>& routes_;
    std::vector<std::pair<const Shape*, std::string>> shapes_;
};

}  // namespace

std::string server_reference() { return Reference(all_routes()).text(); }

}  // namespace foresay::server
