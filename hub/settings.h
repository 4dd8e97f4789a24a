// hub/settings.h: which hub to ask, where the cache is, and as whom, from the variables that the hub's own programs
// read: HF_ENDPOINT, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN,
// HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT; and CURL_CA_BUNDLE, SSL_CERT_FILE, SSL_CERT_DIR and REQUESTS_CA_BUNDLE.
//
// Errors:   Error naming the variable or the file, never a token.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace foresay::hub {

struct Settings {
    std::string endpoint = "https://huggingface.co";  // without a slash at its end
    std::filesystem::path cache;                      // the folder of models--ORG--NAME
    std::string token;                                // empty: none
    std::string token_source;                         // "HF_TOKEN", or the file that it is from
    bool offline = false;
    std::string ca_file, ca_folder;  // empty: libcurl's
    std::string user_agent = "foresay";

    // Large files come in segments, over several connections at once. They are written in order, so at most twice
    // `connections` segments wait in memory.
    int connections = 8;
    std::int64_t segment = std::int64_t{8} << 20;  // bytes

    std::chrono::milliseconds connect_timeout{30000};
    std::chrono::seconds stall_timeout{30};   // without a byte
    int tries = 5;                            // without a byte, until a problem counts as permanent
    std::chrono::milliseconds backoff{1000};  // before the first repetition; doubles with each
    std::chrono::seconds longest_wait{300};   // that a hub may ask for (Retry-After)
};

// Looks up a variable of the environment; nullopt when it is not set.
using Variables = std::function<std::optional<std::string>(const std::string&)>;

Settings settings_from(const Variables& variables);

}  // namespace foresay::hub
