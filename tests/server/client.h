// tests/server/client.h: a small client of HTTP/1.1, which can do what a good one never would.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::testing {

// For what must come at some time: long enough for a machine that is slow and busy.
inline constexpr std::chrono::seconds kPatience{60};

struct Reply {
    int status = 0;                              // 0: the connection ended before an answer
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;                            // without chunks
    bool complete = false;                       // the body ended as it must
    std::vector<std::string> pieces;             // chunks, as they were sent
};

class Client {
public:
    // "127.0.0.1:PORT" or "unix:PATH". Throws when nothing listens.
    explicit Client(const std::string& address);
    ~Client();
    Client(Client&& other) noexcept;
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // False: the other side has closed.
    bool send(std::string_view bytes);
    // The next answer. `on_piece`: called with each piece of the body; false: stop reading.
    Reply receive(const std::function<bool(std::string_view)>& on_piece = {}, bool head_only = false);
    // A request with a body, if it is not empty, and its answer.
    Reply ask(const std::string& method, const std::string& path, const std::string& body = "",
              const std::vector<std::string>& headers = {});
    Reply post(const std::string& path, const std::string& body, const std::vector<std::string>& headers = {}) {
        return ask("POST", path, body, headers);
    }
    Reply get(const std::string& path, const std::vector<std::string>& headers = {}) {
        return ask("GET", path, "", headers);
    }
    static std::string text_of(const std::string& method, const std::string& path, const std::string& body,
                               const std::vector<std::string>& headers);
    // Whether the other side has closed, waiting for it.
    bool is_closed();
    void close();
    // A small buffer makes a slow reader of this client.
    void receive_little();
    // How often something came.
    int reads() const { return reads_; }

private:
    bool fill();
    bool line(std::string& out);

    int socket_ = -1, reads_ = 0;
    std::string read_;
};

// The values of "data: " in a stream of server-sent events.
std::vector<std::string> data_of(std::string_view stream);

}  // namespace foresay::testing
