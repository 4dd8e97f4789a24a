// app/bench/http_client.h: a client of HTTP/1.1 for `foresay bench serve`: one request at a time, answers as they come.
//
// Threads:  one caller for each client.
// Errors:   Error: no server there, an answer that is none, a status other than 200.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace foresay::app {

// "http://HOST:PORT" with an optional path in front of what is asked for.
struct ServerUrl {
    std::string host, port = "80", path;
    std::string key;  // sent as a bearer token; empty: none
};
// Throws UsageError for what is no such URL.
ServerUrl parse_server_url(const std::string& text);

class HttpClient {
public:
    explicit HttpClient(const ServerUrl& url);
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    // Posts JSON. `take` gets the body piece by piece, as it arrives; what it throws ends the connection.
    void post(const std::string& path, const std::string& body, const std::function<void(std::string_view)>& take);

private:
    void post_once(const std::string& path, const std::string& body, const std::function<void(std::string_view)>& take);
    void connect();
    void disconnect();
    bool send(std::string_view bytes);  // false: the connection is closed
    bool fill();
    std::string line();

    ServerUrl url_;
    int socket_ = -1;
    std::string read_;
};

}  // namespace foresay::app
