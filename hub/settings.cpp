#include "hub/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "hub/http.h"

namespace foresay::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostTokenBytes = 4096;

std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
    return text;
}

std::string trimmed(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

class Reader {
public:
    explicit Reader(const Variables& variables) : variables_(variables) {}

    // The first of `names` that is set and not empty; empty if none is.
    std::string first(std::initializer_list<const char*> names) const {
        for (const char* name : names) {
            const auto value = variables_(name);
            if (value && !value->empty()) return *value;
        }
        return "";
    }
    bool is_true(const char* name) const {
        const std::string value = upper(first({name}));
        return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
    }
    // A path, of which ~ is the home folder.
    fs::path path(std::initializer_list<const char*> names) const {
        const std::string text = first(names);
        return text == "~" || text.starts_with("~/") ? fs::path(first({"HOME"}) + text.substr(1)) : fs::path(text);
    }
    // The folder of all that the hub's programs keep.
    fs::path home() const {
        if (const fs::path own = path({"HF_HOME"}); !own.empty()) return own;
        if (const fs::path caches = path({"XDG_CACHE_HOME"}); !caches.empty()) return caches / "huggingface";
        const fs::path user = path({"HOME"});
        return user.empty() ? fs::path() : user / ".cache" / "huggingface";
    }

private:
    const Variables& variables_;
};

void take_token(const Reader& reader, Settings& settings) {
    settings.token = trimmed(reader.first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}));
    settings.token_source = "HF_TOKEN";
    if (settings.token.empty() && !reader.is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
        fs::path file = reader.path({"HF_TOKEN_PATH"});
        if (file.empty() && !reader.home().empty()) file = reader.home() / "token";
        std::error_code ignored;
        if (file.empty() || !fs::is_regular_file(file, ignored)) return;
        std::ifstream stream(file, std::ios::binary);
        std::string text(kMostTokenBytes + 1, '\0');
        stream.read(text.data(), static_cast<std::streamsize>(text.size()));
        text.resize(static_cast<std::size_t>(stream.gcount()));
        settings.token = trimmed(text);
        settings.token_source = file.string();
    }
    // It becomes a line of the request.
    const bool plain =
        std::all_of(settings.token.begin(), settings.token.end(), [](char c) { return c > ' ' && c < 127; });
    if (!plain || settings.token.size() > kMostTokenBytes) {
        throw Error(settings.token_source + " holds no token of the hub; write the token there, and nothing else");
    }
}

}  // namespace

Settings settings_from(const Variables& variables) {
    const Reader reader(variables);
    Settings settings;
    if (std::string endpoint = trimmed(reader.first({"HF_ENDPOINT"})); !endpoint.empty()) {
        while (endpoint.ends_with('/')) endpoint.pop_back();
        if (origin_of(endpoint).empty()) {
            throw Error("HF_ENDPOINT must be an address such as https://huggingface.co, not '" + endpoint + "'");
        }
        settings.endpoint = endpoint;
    }
    settings.cache = reader.path({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
    if (settings.cache.empty() && !reader.home().empty()) settings.cache = reader.home() / "hub";
    if (settings.cache.empty()) throw Error("there is no place for models: set HOME, or HF_HUB_CACHE to a folder");
    std::error_code ignored;
    settings.cache = fs::absolute(settings.cache, ignored);
    settings.offline = reader.is_true("HF_HUB_OFFLINE") || reader.is_true("TRANSFORMERS_OFFLINE");
    settings.ca_file = reader.first({"CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"});
    settings.ca_folder = reader.first({"SSL_CERT_DIR"});
    if (fs::is_directory(settings.ca_file, ignored)) settings.ca_folder = std::exchange(settings.ca_file, "");
    if (const std::string text = reader.first({"HF_HUB_DOWNLOAD_TIMEOUT"}); !text.empty()) {
        int seconds = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
        if (error != std::errc() || end != text.data() + text.size() || seconds < 1) {
            throw Error("HF_HUB_DOWNLOAD_TIMEOUT must be a number of seconds, not '" + text + "'");
        }
        settings.stall_timeout = std::chrono::seconds(seconds);
    }
    take_token(reader, settings);
    return settings;
}

}  // namespace foresay::hub
