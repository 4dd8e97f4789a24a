#include "hub/http.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/lower_case.h"
#include "hub/curl_abi.h"
#include "hub/settings.h"

namespace foresay::hub {

using namespace curl_abi;

namespace {

// Debian has a second flavour, which differs in the library for TLS only.
constexpr std::array kLibraries = {"libcurl.so.4", "libcurl-gnutls.so.4"};

struct Library {
    Functions functions{};
    std::string missing;  // a sentence; empty: all is there
};

template <typename Function>
void find(void* library, Function& function, const char* name, std::string& missing) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr && missing.empty()) {
        missing =
            std::string("the installed libcurl is too old (it has no ") + name + "); install version 7.66 or newer";
    }
}

Library open_library() {
    Library out;
    void* library = nullptr;
    for (const char* name : kLibraries) {
        library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);  // never closed: libcurl keeps global state
        if (library != nullptr) break;
    }
    if (library == nullptr) {
        out.missing =
            "models are fetched with libcurl, which is not installed; install it (on Debian and Ubuntu: "
            "apt-get install libcurl4 ca-certificates), or download the model by other means and name its file";
        return out;
    }
    Functions& f = out.functions;
    find(library, f.global_init, "curl_global_init", out.missing);
    find(library, f.easy_init, "curl_easy_init", out.missing);
    find(library, f.easy_cleanup, "curl_easy_cleanup", out.missing);
    find(library, f.easy_setopt, "curl_easy_setopt", out.missing);
    find(library, f.easy_getinfo, "curl_easy_getinfo", out.missing);
    find(library, f.easy_strerror, "curl_easy_strerror", out.missing);
    find(library, f.slist_append, "curl_slist_append", out.missing);
    find(library, f.slist_free_all, "curl_slist_free_all", out.missing);
    find(library, f.multi_init, "curl_multi_init", out.missing);
    find(library, f.multi_cleanup, "curl_multi_cleanup", out.missing);
    find(library, f.multi_add_handle, "curl_multi_add_handle", out.missing);
    find(library, f.multi_remove_handle, "curl_multi_remove_handle", out.missing);
    find(library, f.multi_perform, "curl_multi_perform", out.missing);
    find(library, f.multi_poll, "curl_multi_poll", out.missing);
    find(library, f.multi_info_read, "curl_multi_info_read", out.missing);
    if (out.missing.empty() && f.global_init(kGlobalAll) != kOk) out.missing = "libcurl cannot start";
    return out;
}

const Library& library() {
    static const Library opened = open_library();
    return opened;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
    return text;
}

// Headers of one response, at most; a server that sends more is not a hub.
constexpr std::size_t kMostHeaderBytes = 1 << 18;

struct Transfer {
    Transfer(const Functions& functions, Request wanted) : curl(functions), request(std::move(wanted)) {}
    ~Transfer() {
        curl.easy_cleanup(easy);
        curl.slist_free_all(headers);
    }
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    const Functions& curl;
    Request request;
    int id = 0;
    Easy* easy = nullptr;
    Strings* headers = nullptr;
    std::array<char, kErrorBytes> error{};
    Response response;
    std::size_t header_bytes = 0;
    bool begun = false;
    std::exception_ptr thrown;

    void take_header(std::string_view line) {
        if (line.starts_with("HTTP/")) {  // another response: of a proxy, or 100 Continue
            response.headers.clear();
            return;
        }
        const std::size_t colon = line.find(':');
        if (colon == line.npos) return;
        response.headers[lower_case(trimmed(line.substr(0, colon)))] = trimmed(line.substr(colon + 1));
    }
    void begin() {
        if (std::exchange(begun, true)) return;
        long status = 0;
        curl.easy_getinfo(easy, kInfoStatus, &status);
        response.status = static_cast<int>(status);
        if (request.begin) request.begin(response);
    }
};

// The callbacks of libcurl. Nothing may be thrown through C, so an exception waits in the transfer.
std::size_t on_header(char* text, std::size_t, std::size_t bytes, void* user) {
    Transfer& transfer = *static_cast<Transfer*>(user);
    transfer.header_bytes += bytes;
    if (transfer.header_bytes > kMostHeaderBytes) return 0;
    try {
        transfer.take_header({text, bytes});
    } catch (...) {
        transfer.thrown = std::current_exception();
        return 0;
    }
    return bytes;
}

std::size_t on_body(char* text, std::size_t, std::size_t bytes, void* user) {
    Transfer& transfer = *static_cast<Transfer*>(user);
    try {
        transfer.begin();
        if (transfer.request.body) transfer.request.body({text, bytes});
    } catch (...) {
        transfer.thrown = std::current_exception();
        return 0;  // fewer than `bytes` end the transfer
    }
    return bytes;
}

Problem problem_of(int code) {
    switch (code) {
        case kOk:
            return Problem::none;
        case kNoProxy:
        case kNoHost:
        case kNoConnection:
            return Problem::unreachable;
        case kBadCertificate:
        case kBadCaFile:
        case kTlsHandshake:
            return Problem::untrusted;
        case kPartialFile:
        case kTimeout:
        case 16:  // HTTP/2
        case 52:  // nothing came
        case 55:  // sending
        case 56:  // receiving
        case 92:  // a stream of HTTP/2
            return Problem::broken;
        default:
            return Problem::other;
    }
}

}  // namespace

struct Http::State {
    const Functions& curl;
    const Settings& settings;
    Multi* multi = nullptr;
    std::map<int, std::unique_ptr<Transfer>> transfers;
    int last_id = 0;

    template <typename Value>
    void set(Transfer& transfer, const Option& option, Value value) const {
        const int code = curl.easy_setopt(transfer.easy, option.number, value);
        if (code != kOk) {
            throw Error(std::string("libcurl refuses its option ") + option.name + ": " + curl.easy_strerror(code) +
                        "; install a newer libcurl");
        }
    }
    void prepare(Transfer& transfer) const;
    void end(int id) {
        const auto found = transfers.find(id);
        if (found == transfers.end()) return;
        curl.multi_remove_handle(multi, found->second->easy);
        transfers.erase(found);
    }
};

void Http::State::prepare(Transfer& transfer) const {
    transfer.easy = curl.easy_init();
    if (transfer.easy == nullptr) throw Error("libcurl cannot begin a transfer; there may be too little memory");
    for (const std::string& header : transfer.request.headers) {
        transfer.headers = curl.slist_append(transfer.headers, header.c_str());
    }
    set(transfer, kUrl, transfer.request.url.c_str());
    set(transfer, kHeaders, transfer.headers);
    set(transfer, kUserAgent, settings.user_agent.c_str());
    set(transfer, kPrivate, static_cast<void*>(&transfer));
    set(transfer, kErrorBuffer, transfer.error.data());
    set(transfer, kHeaderFunction, &on_header);
    set(transfer, kHeaderData, static_cast<void*>(&transfer));
    set(transfer, kWriteFunction, &on_body);
    set(transfer, kWriteData, static_cast<void*>(&transfer));
    set(transfer, kSuppressConnectHeaders, 1L);
    set(transfer, kNoSignal, 1L);
    set(transfer, kProtocols, kHttpAndHttps);
    // HTTP/2 would send all ranges of a file through one connection.
    set(transfer, kHttpVersion, kHttp11);
    set(transfer, kVerifyPeer, 1L);
    set(transfer, kVerifyHost, 2L);
    if (!settings.ca_file.empty()) {
        set(transfer, kCaFile, settings.ca_file.c_str());
        set(transfer, kProxyCaFile, settings.ca_file.c_str());
    }
    if (!settings.ca_folder.empty()) set(transfer, kCaFolder, settings.ca_folder.c_str());
    set(transfer, kConnectTimeoutMs, static_cast<long>(settings.connect_timeout.count()));
    // A transfer that brings less than a byte a second for so long has broken.
    set(transfer, kLowSpeedLimit, 1L);
    set(transfer, kLowSpeedTime, static_cast<long>(settings.stall_timeout.count()));
}

std::string_view Response::header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

Http::Http(const Settings& settings) {
    if (!library().missing.empty()) throw Error(library().missing);
    state_.reset(new State{library().functions, settings});
    state_->multi = state_->curl.multi_init();
    if (state_->multi == nullptr) throw Error("libcurl cannot start; there may be too little memory");
}

Http::~Http() {
    while (!state_->transfers.empty()) state_->end(state_->transfers.begin()->first);
    state_->curl.multi_cleanup(state_->multi);
}

int Http::start(Request request) {
    auto transfer = std::make_unique<Transfer>(state_->curl, std::move(request));
    state_->prepare(*transfer);
    transfer->id = ++state_->last_id;
    if (const int code = state_->curl.multi_add_handle(state_->multi, transfer->easy)) {
        throw Error("libcurl cannot begin a transfer (error " + std::to_string(code) + ")");
    }
    state_->transfers.emplace(transfer->id, std::move(transfer));
    return state_->last_id;
}

void Http::stop(int id) { state_->end(id); }

std::vector<Finished> Http::poll(std::chrono::milliseconds most) {
    const Functions& curl = state_->curl;
    std::vector<Finished> finished;
    int running = 0, left = 0;
    const auto collect = [&] {
        while (Message* message = curl.multi_info_read(state_->multi, &left)) {
            if (message->kind != kDone) continue;
            const int code = message->data.result;
            void* user = nullptr;
            curl.easy_getinfo(message->easy, kInfoPrivate, &user);
            Transfer& transfer = *static_cast<Transfer*>(user);
            if (transfer.thrown == nullptr && code == kOk) {
                try {
                    transfer.begin();
                } catch (...) {
                    transfer.thrown = std::current_exception();
                }
            }
            if (transfer.thrown != nullptr) {
                const std::exception_ptr thrown = transfer.thrown;
                state_->end(transfer.id);
                std::rethrow_exception(thrown);
            }
            const char* redirect = nullptr;
            curl.easy_getinfo(transfer.easy, kInfoRedirectUrl, &redirect);
            if (redirect != nullptr) transfer.response.redirect = redirect;
            Finished& one = finished.emplace_back();
            one.id = transfer.id;
            one.response = std::move(transfer.response);
            one.problem = problem_of(code);
            if (code != kOk) one.text = transfer.error[0] != '\0' ? transfer.error.data() : curl.easy_strerror(code);
            state_->end(one.id);
        }
    };
    curl.multi_perform(state_->multi, &running);
    collect();
    if (!finished.empty()) return finished;
    if (state_->transfers.empty()) {
        std::this_thread::sleep_for(most);
        return finished;
    }
    int count = 0;
    curl.multi_poll(state_->multi, nullptr, 0, static_cast<int>(most.count()), &count);
    curl.multi_perform(state_->multi, &running);
    collect();
    return finished;
}

std::string missing_libcurl() { return library().missing; }

std::string origin_of(std::string_view url) {
    const std::size_t colon = url.find("://");
    if (colon == url.npos) return "";
    const std::string scheme = lower_case(url.substr(0, colon));
    if (scheme != "http" && scheme != "https") return "";
    const std::string_view rest = url.substr(colon + 3);
    std::string authority = lower_case(rest.substr(0, rest.find_first_of("/?#\\")));
    if (authority.empty() || authority.find('@') != authority.npos) return "";
    const std::string_view standard = scheme == "http" ? ":80" : ":443";
    if (authority.ends_with(standard)) authority.resize(authority.size() - standard.size());
    return scheme + "://" + authority;
}

std::string url_encoded(std::string_view text, std::string_view kept) {
    constexpr std::string_view kHexadecimal = "0123456789ABCDEF";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        const bool plain =
            (byte < 0x80 && std::isalnum(byte) != 0) || std::strchr("-._~", c) != nullptr || kept.find(c) != kept.npos;
        if (plain && c != '\0') {
            out += c;
        } else {
            out += {'%', kHexadecimal[byte >> 4], kHexadecimal[byte & 15]};
        }
    }
    return out;
}

}  // namespace foresay::hub
