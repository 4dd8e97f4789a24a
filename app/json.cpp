#include "app/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "core/weights/json_config.h"

namespace foresay::app {

using nlohmann::json;

namespace {

json parse(std::string_view text, const std::string& path) {
    core::check_json_depth(text, path);
    json document = json::parse(text, nullptr, false);
    if (document.is_discarded()) throw Error(path + ": not JSON");
    if (!document.is_object()) throw Error(path + ": must be a JSON object");
    return document;
}

std::vector<std::int32_t> integers(const json& document, const std::string& member, const std::string& path,
                                   std::int64_t limit) {
    const auto found = document.find(member);
    if (found == document.end()) return {};
    if (!found->is_array()) throw Error(path + ": '" + member + "' must be a list of integers");
    std::vector<std::int32_t> out;
    out.reserve(found->size());
    for (const json& item : *found) {
        const bool ok = item.is_number_integer() && item.get<std::int64_t>() >= 0 && item.get<std::int64_t>() < limit &&
                        !(item.is_number_unsigned() && item.get<std::uint64_t>() > 0x7fffffff);
        if (!ok) {
            throw Error(path + ": '" + member + "' must contain integers from 0 to " + std::to_string(limit - 1) +
                        ", not " + item.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 40));
        }
        out.push_back(item.get<std::int32_t>());
    }
    return out;
}

std::string text_of(const json& document, const char* member, const std::string& place, bool required) {
    const auto found = document.find(member);
    if (found != document.end() && found->is_string()) return found->get<std::string>();
    if (found == document.end() && !required) return "";
    throw Error(place + ": '" + member + "' must be a string");
}

}  // namespace

TokensFile parse_tokens_file(std::string_view text, const std::string& path, std::int32_t vocabulary) {
    const json document = parse(text, path);
    TokensFile out;
    out.tokens = integers(document, "tokens", path, vocabulary);
    if (out.tokens.empty()) throw Error(path + ": 'tokens' must be a list of at least one token id");
    out.positions = integers(document, "positions", path, static_cast<std::int64_t>(out.tokens.size()));
    if (!document.contains("positions")) {
        out.positions.resize(out.tokens.size());
        std::iota(out.positions.begin(), out.positions.end(), 0);
    }
    return out;
}

std::vector<Prompt> parse_prompts(std::string_view text, const std::string& path) {
    std::vector<Prompt> prompts;
    int number = 0;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string place = path + ":" + std::to_string(number);
        const json document = parse(line, place);
        Prompt prompt{text_of(document, "id", place, false), text_of(document, "kind", place, false),
                      text_of(document, "prompt", place, true)};
        if (prompt.id.empty()) prompt.id = "line-" + std::to_string(number);
        prompts.push_back(std::move(prompt));
    }
    if (prompts.empty()) throw Error(path + ": contains no prompts");
    return prompts;
}

}  // namespace foresay::app
