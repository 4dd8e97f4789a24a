#include "hub/name.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace foresay::hub {

namespace {

constexpr std::size_t kMostName = 96;  // as on the hub
constexpr std::size_t kMostPath = 1024, kMostPart = 255;

// One part of ORG/NAME, by the hub's own rules: "--" stands for the slash in the names of folders.
bool is_name(std::string_view text) {
    const bool characters = std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return (c < 0x80 && std::isalnum(c) != 0) || c == '-' || c == '_' || c == '.';
    });
    if (text.empty() || text.size() > kMostName || !characters) return false;
    const auto edge = [](char c) { return c == '-' || c == '.'; };
    return !edge(text.front()) && !edge(text.back()) && text.find("--") == text.npos && text.find("..") == text.npos;
}

std::string shown(std::string_view text) { return std::string(text.substr(0, 2 * kMostName)); }

}  // namespace

bool is_safe_path(std::string_view text) {
    if (text.empty() || text.size() > kMostPath) return false;
    const bool plain =
        std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\'; });
    if (!plain) return false;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('/', begin), text.size());
        const std::string_view part = text.substr(begin, end - begin);
        if (part.empty() || part == "." || part == ".." || part.size() > kMostPart) return false;
        begin = end + 1;
    }
    return true;
}

bool is_commit(std::string_view text) {
    return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::string ModelName::text() const {
    return repo + (revision == "main" ? "" : "@" + revision) + (choice.empty() ? "" : ":" + choice);
}

ModelName parse_model_name(std::string_view text) {
    const std::string whole(text);
    if (text.starts_with(kHubPrefix)) text.remove_prefix(kHubPrefix.size());
    for (const std::string_view page : {"https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/"}) {
        if (!text.starts_with(page)) continue;
        text.remove_prefix(page.size());
        if (text.ends_with('/')) text.remove_suffix(1);
        break;
    }
    ModelName name;
    std::size_t end = std::min(text.find_first_of("@:"), text.size());
    name.repo = text.substr(0, end);
    bool revision = false, choice = false;
    while (end < text.size()) {
        const bool at = text[end] == '@';
        const std::size_t begin = end + 1;
        end = std::min(text.find_first_of("@:", begin), text.size());
        (at ? name.revision : name.choice) = text.substr(begin, end - begin);
        if ((at ? revision : choice) || begin == end) {
            throw UsageError("'" + shown(whole) + "' is no model name; write ORG/NAME, ORG/NAME:QUANT or " +
                             "ORG/NAME@REVISION:QUANT");
        }
        (at ? revision : choice) = true;
    }
    const std::size_t slash = name.repo.find('/');
    const bool fine = slash == name.repo.npos
                          ? is_name(name.repo)
                          : is_name(name.repo.substr(0, slash)) && is_name(name.repo.substr(slash + 1));
    if (!fine) {
        throw UsageError("'" + shown(whole) + "' is no model of the hub; write ORG/NAME as on its page, for example " +
                         "Qwen/Qwen3-0.6B-GGUF:Q8_0");
    }
    if (!is_safe_path(name.revision))
        throw UsageError("'" + shown(name.revision) + "' is no revision; name a branch, a tag or a commit");
    if (!name.choice.empty() && !is_safe_path(name.choice)) {
        throw UsageError("'" + shown(name.choice) + "' is no quantisation; write it as in the file's name: Q4_K_M");
    }
    return name;
}

}  // namespace foresay::hub
