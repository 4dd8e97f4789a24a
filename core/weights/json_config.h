// core/weights/json_config.h: typed access to a JSON document of settings, such as a model's config.json.
//
// Paths:    members are named by path, "rope_parameters.rope_type". A member that is null counts as absent.
// Threads:  immutable; any thread may read. Copies share the document.
// Errors:   the text is untrusted: parse() throws Error for anything that is not one JSON object, is larger than
//           kMaxJsonConfigBytes or nests deeper than kMaxJsonDepth. Getters throw when the member is missing (the `_or`
//           forms return the fallback instead) or has another type; the message names file and path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::core {

inline constexpr std::size_t kMaxJsonConfigBytes = std::size_t{4} << 20;
inline constexpr int kMaxJsonDepth = 64;

// Throws Error when `text` nests brackets deeper than `max_depth`; `path` is named in the error. A cheap scan,
// to run before a JSON parser sees untrusted text. It does not validate otherwise.
void check_json_depth(std::string_view text, const std::string& path, int max_depth = kMaxJsonDepth);

class JsonConfig {
public:
    JsonConfig();  // an empty object
    // Parses `text`; `path` is named in errors.
    static JsonConfig parse(std::string_view text, std::string path);

    const std::string& path() const { return path_; }

    bool has(std::string_view member) const;
    bool is_array(std::string_view member) const;
    bool is_object(std::string_view member) const;
    // The names of the members of an object; of the document itself for "". Empty when it is absent or no object.
    std::vector<std::string> members(std::string_view object) const;
    // An object as a document of its own; empty when it is absent or no object. `member_object` takes the name as one
    // member's, dots and all.
    JsonConfig object(std::string_view object) const;
    JsonConfig member_object(const std::string& name) const;
    // The objects of an array, each as a document of its own; empty when it is absent or no array.
    std::vector<JsonConfig> objects(std::string_view array) const;
    // Whether the member is absent, false, or an empty string, array or object.
    bool is_off(std::string_view member) const;

    std::int64_t get_int(std::string_view member) const;  // also a float that is a whole number
    double get_float(std::string_view member) const;      // any number
    bool get_bool(std::string_view member) const;
    std::string get_string(std::string_view member) const;
    std::int64_t get_int_or(std::string_view member, std::int64_t fallback) const;
    double get_float_or(std::string_view member, double fallback) const;
    bool get_bool_or(std::string_view member, bool fallback) const;
    std::string get_string_or(std::string_view member, std::string_view fallback) const;

    // Arrays; a single value counts as an array of one.
    std::vector<std::int64_t> get_ints(std::string_view member) const;
    std::vector<double> get_floats(std::string_view member) const;
    std::vector<std::string> get_strings(std::string_view member) const;

    // The document as text, indented, for people.
    std::string text() const;

private:
    struct Document;  // hides the JSON library
    JsonConfig part_of(const Document& part) const;
    std::string path_;
    std::shared_ptr<const Document> document_;
};

}  // namespace foresay::core
