#include "hub/client.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace foresay::hub {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMostText = std::size_t{64} << 20;  // of an answer in JSON
constexpr std::size_t kMostQuoted = 200;
constexpr milliseconds kPoll{100};
constexpr std::chrono::seconds kBetweenNotes{3};

// The first line of what a hub says, short enough for a message.
std::string first_line(std::string_view text) {
    text = text.substr(0, text.find_first_of("\r\n"));
    return std::string(text.substr(0, kMostQuoted));
}

// Seconds from Retry-After, or from the hub's own RateLimit: "api";r=0;t=55. -1 without either.
long long wait_asked(const Response& response) {
    std::string_view text = response.header("retry-after");
    if (text.empty()) {
        const std::string_view limit = response.header("ratelimit");
        const std::size_t at = limit.find("t=");
        if (response.status == 429 && at != limit.npos) text = limit.substr(at + 2);
    }
    long long seconds = -1;
    std::from_chars(text.data(), text.data() + text.size(), seconds);
    return seconds;
}

std::string seconds_text(milliseconds time) {
    const auto seconds = static_cast<long long>(std::ceil(static_cast<double>(time.count()) / 1000));
    return std::to_string(seconds) + (seconds == 1 ? " second" : " seconds");
}

bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

Client::Client(const Settings& settings, const ModelName& name, Observer& observer)
    : settings_(settings), name_(name), observer_(observer), http_(settings) {}

bool Client::is_hub(const std::string& url) const { return origin_of(url) == origin_of(settings_.endpoint); }

std::vector<std::string> Client::headers_for(const std::string& url) const {
    // Files must come as they are, or their lengths and ranges mean something else.
    std::vector<std::string> headers = {"Accept-Encoding: identity"};
    if (!settings_.token.empty() && is_hub(url)) headers.push_back("Authorization: Bearer " + settings_.token);
    return headers;
}

std::string Client::redirected(const std::string& url, const Response& response) const {
    const std::string to = origin_of(response.redirect);
    if (to.empty()) throw Error(origin_of(url) + " redirects to no address of a file; try again later");
    if (url.starts_with("https:") && !to.starts_with("https:")) {
        throw Error(origin_of(url) + " redirects to " + to +
                    ", which is not encrypted; nothing was fetched from there. Check HF_ENDPOINT");
    }
    return response.redirect;
}

bool Client::may_pass(const Response& response) {
    return response.status == 408 || response.status == 429 || (response.status >= 500 && response.status != 501);
}

milliseconds Client::delay(int tries, const Response& response) const {
    const long long asked = wait_asked(response);
    if (asked > settings_.longest_wait.count()) {
        throw Error(origin_of(settings_.endpoint) + " asks to wait " + std::to_string(asked) + " seconds (status " +
                    std::to_string(response.status) + "); try again then");
    }
    if (asked > 0) return std::chrono::seconds(asked);
    return settings_.backoff * (1 << std::clamp(tries - 1, 0, 4));
}

void Client::check_cancelled() {
    if (!observer_.cancelled()) return;
    throw Cancelled("cancelled; `foresay pull " + name_.text() + "` continues where it stopped");
}

void Client::note_repetition(const std::string& problem, milliseconds delay) {
    const auto now = steady_clock::now();
    if (last_note_ != steady_clock::time_point() && now - last_note_ < kBetweenNotes) return;
    last_note_ = now;
    observer_.note(problem + "; trying again in " + seconds_text(delay));
}

Client::Answer Client::get(const std::string& first_url) {
    std::string url = first_url;
    int tries = 0, redirects = 0;
    for (;;) {
        Answer answer;
        std::vector<Finished> finished;
        http_.start({url, headers_for(url), {}, [&](std::string_view bytes) {
                         if (answer.text.size() + bytes.size() > kMostText) {
                             throw Error(origin_of(url) + " answers with more than it can have to say about " +
                                         name_.repo + "; check HF_ENDPOINT");
                         }
                         answer.text += bytes;
                     }});
        while (finished.empty()) {
            check_cancelled();
            finished = http_.poll(kPoll);
        }
        Finished& one = finished.front();
        std::string problem;
        if (one.problem == Problem::none && one.response.status == 200) {
            answered_ = true;
            answer.response = std::move(one.response);
            return answer;
        }
        if (one.problem == Problem::none && is_redirect(one.response.status)) {
            if (++redirects > kMostRedirects) {
                throw Error(origin_of(first_url) + " redirects without end; check HF_ENDPOINT");
            }
            url = redirected(url, one.response);
            continue;
        }
        const bool lost = one.problem == Problem::unreachable || one.problem == Problem::broken;
        const Error error = one.problem == Problem::none ? refusal(one.response, url) : failure(one, url);
        const bool again = lost || (one.problem == Problem::none && may_pass(one.response));
        answered_ = answered_ || one.response.status != 0;
        // Without a network there is no point in trying for long.
        const bool no_network = one.problem == Problem::unreachable && !answered_;
        if (!again || ++tries >= (no_network ? std::min(2, settings_.tries) : settings_.tries)) throw error;
        const milliseconds wait = delay(tries, one.response);
        const std::string what = error.what();
        note_repetition(what.substr(0, what.find(';')), wait);
        for (const auto end = steady_clock::now() + wait; steady_clock::now() < end;) {
            check_cancelled();
            http_.poll(std::min(kPoll, wait));
        }
    }
}

Error Client::refusal(const Response& response, const std::string& url) const {
    const std::string host = origin_of(url), page = settings_.endpoint + "/" + name_.repo;
    const std::string code(response.header("x-error-code"));
    const std::string message = first_line(response.header("x-error-message"));
    const std::string said = message.empty() ? "" : " (it says: " + message + ")";
    const std::string status = std::to_string(response.status);
    const bool token = !settings_.token.empty();
    if (code == "GatedRepo") {
        return Error(name_.repo + " is gated: accept its terms at " + page +
                     (token ? " with the account of the token in " + settings_.token_source
                            : ", then set HF_TOKEN to a token of that account") +
                     said);
    }
    if (code == "RevisionNotFound") {
        return Error(name_.repo + " has no revision '" + name_.revision + "' at " + host +
                     "; its page lists them: " + page);
    }
    if (code == "EntryNotFound") {
        return Error(host + " lists a file of " + name_.repo + " that it does not have; try again later");
    }
    if (code == "DisabledRepo") return Error(name_.repo + " has been disabled by " + host + said);
    if (response.status == 429) {
        return Error(host + " has had too many requests from here (status 429); try again later" +
                     (token ? "" : ", or set HF_TOKEN, which allows more"));
    }
    if (response.status == 401 && token && code != "RepoNotFound") {
        return Error(host + " refuses the token in " + settings_.token_source + said +
                     "; make another one in the settings of your account");
    }
    if (response.status == 401 || response.status == 404 || code == "RepoNotFound") {
        return Error("there is no " + name_.repo + " at " + host +
                     (token ? ", or the token in " + settings_.token_source + " may not see it"
                            : ", or it is private and needs HF_TOKEN") +
                     "; check the name");
    }
    if (response.status == 403) return Error(host + " does not give out " + name_.repo + " (status 403)" + said);
    if (response.status == 407) return Error("the proxy asks for a password; put it into https_proxy");
    if (response.status >= 500)
        return Error(host + " has trouble (status " + status + ")" + said + "; try again later");
    return Error(host + " answers with status " + status + said + "; check HF_ENDPOINT, which may be no hub");
}

Error Client::failure(const Finished& finished, const std::string& url) const {
    const std::string host = origin_of(url), why = first_line(finished.text);
    switch (finished.problem) {
        case Problem::unreachable:
            return Error(
                "no connection to " + host + ": " + why +
                "; check the network, https_proxy and HF_ENDPOINT. `foresay list` shows the models that are here");
        case Problem::untrusted:
            return Error("the certificate of " + host + " is not trusted: " + why +
                         "; install ca-certificates, or name the authority's certificate with SSL_CERT_FILE");
        case Problem::broken:
            return Error("the connection to " + host + " was lost: " + why + "; try again, what has arrived is kept");
        default:
            return Error("cannot read from " + host + ": " + why + "; try again");
    }
}

}  // namespace foresay::hub
