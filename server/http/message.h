// server/http/message.h: a request and an answer of HTTP, as the rest of the server sees them.
//
// Threads:  values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::server {

struct Header {
    std::string name;  // of a request: in lower case
    std::string value;
};

struct HttpRequest {
    std::string method;
    std::string path;   // without the query; as sent
    std::string query;  // without the '?'
    std::vector<Header> headers;
    std::string body;
    std::string peer;                    // the client's address without its port; "unix" for a socket of that kind
    bool from_network = true;            // false: a unix socket, where no web page can send anything
    std::string listen_address;          // the address that it came to: "127.0.0.1:8080"
    std::string id;                      // given by us; x-request-id of the answer
    std::vector<Header> answer_headers;  // that check() wants on every answer

    // The value of the first such header; empty when there is none.
    std::string_view header(std::string_view name) const {
        for (const Header& one : headers) {
            if (one.name == name) return one.value;
        }
        return {};
    }
};

struct HttpResponse {
    int status = 200;
    std::string body;
    std::string type = "application/json; charset=utf-8";
    std::vector<Header> headers;
    std::string note;  // of an error, for the log and not for the client: it has no text of the request
};

// "Not Found"
std::string_view reason_of(int status);

}  // namespace foresay::server
