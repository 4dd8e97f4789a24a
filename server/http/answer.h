// server/http/answer.h: the Exchange of a connection: what is to be sent, until it is sent.
//
// Threads:  writers from any thread; take(), sent() and lose() from the network thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/server.h"

namespace foresay::server {

class Answer final : public Exchange {
public:
    struct Framing {
        bool chunked = true;  // false: the end of the connection ends a stream (HTTP/1.0)
        bool keep_alive = true;
        bool head_only = false;  // the method is HEAD
        std::string request_id, server;
        std::vector<Header> headers;  // further ones
    };
    // `wake`: called from any thread when there is something to take; must outlive nothing but itself.
    Answer(Framing framing, const HttpLimits& limits, std::function<void()> wake);
    ~Answer() override;

    void send(HttpResponse response) override;
    void begin(HttpResponse head, std::string ping) override;
    void write(std::string_view bytes) override;
    void finish() override;
    bool begun() const override;
    bool gone() const override;
    void on_gone(std::function<void()> callback) override;
    void on_pressure(std::function<void(bool)> callback) override;

    // ---- for the connection
    struct Taken {
        std::string bytes;      // to send now
        bool complete = false;  // nothing follows them
    };
    Taken take();
    void sent(std::size_t bytes);
    // The client has gone.
    void lose();
    // Sends `ping` of begin(), if a stream is open.
    void ping();
    bool overflowed() const { return overflowed_; }
    bool keep_alive() const { return framing_.keep_alive; }
    // The answer was dropped, so the connection cannot go on.
    void abandon();
    bool abandoned() const;

private:
    void append_head(const HttpResponse& response, bool stream);
    void append(std::string_view bytes);
    void notify(std::unique_lock<std::mutex>& lock);

    const Framing framing_;
    const HttpLimits& limits_;
    std::function<void()> wake_;
    mutable std::mutex mutex_;
    std::string pending_;
    std::size_t in_flight_ = 0;
    std::string ping_;
    bool begun_ = false, streaming_ = false, finished_ = false, gone_ = false, woken_ = false, pressed_ = false;
    bool abandoned_ = false;
    std::atomic<bool> overflowed_{false};
    std::function<void()> when_gone_;
    std::function<void(bool)> when_pressed_;
};

// What the rest of the server holds: when the last holder drops it without having answered, the connection learns.
std::shared_ptr<Exchange> held_answer(std::shared_ptr<Answer> answer);

}  // namespace foresay::server
