// The list of languages.
#include <algorithm>
#include <array>
#include <cctype>

#include "app/highlight/language.h"

namespace foresay::app {

extern const Language kBash, kC, kCpp, kGo, kJava, kJavaScript, kJson, kPython, kRust, kSql, kToml, kYaml;

namespace {

constexpr std::array kLanguages = {&kBash, &kC,      &kCpp,  &kGo,  &kJava, &kJavaScript,
                                   &kJson, &kPython, &kRust, &kSql, &kToml, &kYaml};

}  // namespace

std::span<const Language* const> all_languages() { return kLanguages; }

const Language* find_language(std::string_view name) {
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const Language* language : kLanguages) {
        const Words aliases = language->aliases;
        if (language->name == lower || std::find(aliases.begin(), aliases.end(), lower) != aliases.end())
            return language;
    }
    return nullptr;
}

}  // namespace foresay::app
