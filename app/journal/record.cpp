#include "app/journal/record.h"

#include <array>
#include <boost/crc.hpp>
#include <charconv>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/weights/json_config.h"

namespace foresay::app {

using nlohmann::json;

namespace {

constexpr std::size_t kPrefix = 9;  // checksum and space
constexpr const char* kFinish[] = {"stop", "length", "cancelled"};
constexpr std::int32_t kMaxToken = 1 << 22;

std::uint32_t checksum(std::string_view text) {
    boost::crc_32_type crc;
    crc.process_bytes(text.data(), text.size());
    return crc.checksum();
}

std::string bits(const std::vector<std::uint8_t>& flags) {
    std::string text;
    for (const std::uint8_t flag : flags) text += flag != 0 ? '1' : '0';
    return text;
}

json turn_json(const TurnTree::Node& node) {
    const Turn& turn = node.turn;
    json out = {{"after", node.parent}, {"said", turn.said},
                {"input", turn.input},  {"answer", turn.answer},
                {"seed", turn.seed},    {"branch", turn.branch},
                {"ended", turn.ended},  {"finish", kFinish[static_cast<std::size_t>(turn.finish)]}};
    if (turn.kept) out["kept"] = *turn.kept;
    if (!turn.given.empty()) {
        out["given"] = turn.given;
        out["given_drawn"] = bits(turn.given_sampled);
    }
    return out;
}

struct ToJson {
    json operator()(const SessionHeader& header) const {
        return {{"foresay_session", header.version}, {"created", header.created}};
    }
    json operator()(const EngineRecord& engine) const {
        return {{"engine",
                 {{"model", engine.model},
                  {"identity", engine.identity},
                  {"vocabulary", engine.vocabulary},
                  {"backend", engine.backend}}}};
    }
    json operator()(const SettingsRecord& settings) const { return {{"settings", settings.toml}}; }
    json operator()(const TurnTree::Change& change) const {
        json turns = json::array();
        for (const TurnTree::Node& node : change.added) turns.push_back(turn_json(node));
        json out = {{"turns", std::move(turns)}, {"branches", change.state.heads}, {"current", change.state.current}};
        if (change.undo) out["undo"] = true;
        return out;
    }
    json operator()(const UnfinishedRecord& record) const {
        json out = (*this)(record.change);
        out["unfinished"] = true;
        return out;
    }
    json operator()(const TokensRecord& more) const { return {{"tokens", more.tokens}, {"of", more.turn}}; }
};

// ---- reading: every member is checked, because the file may come from anywhere

[[noreturn]] void wrong(const std::string& member, const std::string& what) {
    throw Error("'" + member + "' must be " + what);
}

const json& get(const json& object, const std::string& member) {
    const auto found = object.find(member);
    if (found == object.end()) throw Error("'" + member + "' is missing");
    return *found;
}

std::string text(const json& object, const std::string& member) {
    const json& value = get(object, member);
    if (!value.is_string()) wrong(member, "a string");
    return value.get<std::string>();
}

bool boolean(const json& object, const std::string& member, bool fallback) {
    const auto found = object.find(member);
    if (found == object.end()) return fallback;
    if (!found->is_boolean()) wrong(member, "true or false");
    return found->get<bool>();
}

std::int64_t integer(const json& value, const std::string& member, std::int64_t least, std::int64_t most) {
    const bool fits =
        value.is_number_integer() &&
        !(value.is_number_unsigned() &&
          value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    const std::int64_t number = fits ? value.get<std::int64_t>() : 0;
    if (!fits || number < least || number > most) {
        wrong(member, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return number;
}

std::uint64_t whole(const json& object, const std::string& member) {
    const json& value = get(object, member);
    if (!value.is_number_unsigned()) wrong(member, "a non-negative integer");
    return value.get<std::uint64_t>();
}

std::vector<std::int32_t> integers(const json& value, const std::string& member, std::int64_t least,
                                   std::int64_t most) {
    if (!value.is_array()) wrong(member, "a list of integers");
    std::vector<std::int32_t> out;
    out.reserve(value.size());
    for (const json& entry : value) out.push_back(static_cast<std::int32_t>(integer(entry, member, least, most)));
    return out;
}

Turn::Finish finish(const json& object) {
    const std::string name = text(object, "finish");
    for (std::size_t i = 0; i < std::size(kFinish); ++i) {
        if (name == kFinish[i]) return static_cast<Turn::Finish>(i);
    }
    wrong("finish", "stop, length or cancelled");
}

TurnTree::Node node(const json& object) {
    constexpr std::int64_t kMost = TurnTree::kMaxTurns;
    if (!object.is_object()) wrong("turns", "a list of objects");
    TurnTree::Node out;
    Turn& turn = out.turn;
    out.parent = static_cast<int>(integer(get(object, "after"), "after", TurnTree::kRoot, kMost));
    turn.said = text(object, "said");
    turn.input = integers(get(object, "input"), "input", 0, kMaxToken);
    turn.answer = integers(get(object, "answer"), "answer", 0, kMaxToken);
    if (object.contains("kept")) turn.kept = integer(object["kept"], "kept", 0, std::int64_t{1} << 40);
    turn.seed = whole(object, "seed");
    turn.branch = whole(object, "branch");
    turn.ended = boolean(object, "ended", false);
    turn.finish = finish(object);
    if (object.contains("given")) {
        turn.given = integers(get(object, "given"), "given", 0, kMaxToken);
        for (const char flag : text(object, "given_drawn")) {
            if (flag != '0' && flag != '1') wrong("given_drawn", "a string of 0 and 1");
            turn.given_sampled.push_back(flag == '1' ? 1 : 0);
        }
        if (turn.given.size() != turn.given_sampled.size()) wrong("given_drawn", "as long as 'given'");
    }
    return out;
}

TurnTree::Change change(const json& object) {
    constexpr std::int64_t kMost = TurnTree::kMaxTurns;
    TurnTree::Change out;
    const json& turns = get(object, "turns");
    if (!turns.is_array()) wrong("turns", "a list");
    for (const json& entry : turns) out.added.push_back(node(entry));
    out.state.heads = integers(get(object, "branches"), "branches", TurnTree::kRoot, kMost);
    out.state.current = static_cast<std::size_t>(
        integer(get(object, "current"), "current", 0, static_cast<std::int64_t>(TurnTree::kMaxBranches)));
    out.undo = boolean(object, "undo", false);
    return out;
}

}  // namespace

std::string checked_line(std::string_view json_text) {
    std::array<char, kPrefix + 1> prefix{};
    std::snprintf(prefix.data(), prefix.size(), "%08x ", static_cast<unsigned>(checksum(json_text)));
    return std::string(prefix.data()).append(json_text).append("\n");
}

std::string record_line(const SessionRecord& record) {
    // Typed text may not be UTF-8. Replacing bytes is harmless: the tokens are what counts, the text is for reading.
    return checked_line(std::visit(ToJson{}, record).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string_view whole_line(std::string_view line) {
    if (line.size() <= kPrefix || line[kPrefix - 1] != ' ') return {};
    std::uint32_t stated = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + kPrefix - 1, stated, 16);
    if (error != std::errc() || end != line.data() + kPrefix - 1) return {};
    const std::string_view body = line.substr(kPrefix);
    return checksum(body) == stated ? body : std::string_view{};
}

SessionRecord parse_record(std::string_view text_of_record) {
    core::check_json_depth(text_of_record, "the session");
    const json object = json::parse(text_of_record, nullptr, false);
    if (object.is_discarded() || !object.is_object()) throw Error("not a JSON object");
    if (object.contains("foresay_session")) {
        SessionHeader header;
        header.version = static_cast<int>(integer(get(object, "foresay_session"), "foresay_session", 0, 1 << 30));
        header.created = text(object, "created");
        return header;
    }
    if (object.contains("engine")) {
        const json& engine = get(object, "engine");
        if (!engine.is_object()) wrong("engine", "an object");
        return EngineRecord{text(engine, "model"), text(engine, "identity"),
                            integer(get(engine, "vocabulary"), "vocabulary", 0, kMaxToken), text(engine, "backend")};
    }
    if (object.contains("settings")) return SettingsRecord{text(object, "settings")};
    if (object.contains("tokens")) {
        constexpr auto kMost = static_cast<std::int64_t>(TurnTree::kMaxBranches);
        return TokensRecord{static_cast<std::size_t>(integer(get(object, "of"), "of", 0, kMost)),
                            integers(get(object, "tokens"), "tokens", 0, kMaxToken)};
    }
    TurnTree::Change read = change(object);
    if (boolean(object, "unfinished", false)) return UnfinishedRecord{std::move(read)};
    return read;
}

}  // namespace foresay::app
