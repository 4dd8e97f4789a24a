// hub/http.h: HTTP and HTTPS transfers, several at once in one thread, by the system's libcurl.
//
// libcurl is opened at run time, so that a program starts where there is none. Certificates are checked. Redirects are
// not followed: the caller decides where a token may go. Proxies come from the environment (http_proxy, https_proxy,
// no_proxy), as libcurl reads them.
// Threads:  one caller at a time.
// Errors:   Error if libcurl is not installed or too old. What goes wrong on the way is a Finished::problem.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::hub {

struct Settings;

struct Response {
    int status = 0;
    std::map<std::string, std::string> headers;  // names in lower case; the last one of several counts
    std::string redirect;                        // where a status 3xx leads, absolute; only when finished

    std::string_view header(const std::string& name) const;  // empty when absent
};

struct Request {
    std::string url;
    std::vector<std::string> headers;  // "Range: bytes=0-99"
    // Called when the headers have arrived, before any of the body, and then with each piece of the body. What they
    // throw ends the transfer and leaves Http::poll().
    std::function<void(const Response&)> begin;
    std::function<void(std::string_view)> body;
};

enum class Problem {
    none,
    unreachable,  // no such host, no connection
    broken,       // the connection was lost, or nothing came for too long
    untrusted,    // the certificate
    other,
};

struct Finished {
    int id = 0;
    Response response;
    Problem problem = Problem::none;
    std::string text;  // of the problem, in libcurl's words
};

class Http {
public:
    explicit Http(const Settings& settings);
    ~Http();
    Http(const Http&) = delete;
    Http& operator=(const Http&) = delete;

    // Begins a transfer; returns its number, never 0.
    int start(Request request);
    // Ends a transfer that is not needed any more. Numbers of finished ones are ignored.
    void stop(int id);
    // Moves all transfers on, for at most `most` (longer only while callbacks run). Returns those that have ended.
    std::vector<Finished> poll(std::chrono::milliseconds most);

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Why there is no libcurl, in one sentence; empty if there is one.
std::string missing_libcurl();

// "https://host:port" in lower case, without a default port; empty for a URL that is not plain http or https (user
// names included).
std::string origin_of(std::string_view url);

// `text` with everything but unreserved characters, and `kept`, as %XX.
std::string url_encoded(std::string_view text, std::string_view kept = "");

}  // namespace foresay::hub
