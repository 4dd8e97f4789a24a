// server/http/exchange.h: the answer to one request, given from any thread: at once, or as a stream.
//
// Data flow: write() appends to a buffer, which the network thread sends. Nothing waits for the network: what is too
//           much for a slow reader is told by on_pressure(), and after a limit the reader is given up.
// Life:     shared by the connection and by what answers. Dropping it without an answer closes the connection.
// Threads:  any. Callbacks come from the thread that writes or from the network thread, one at a time.
// Errors:   none. After the client has gone, everything is ignored.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace foresay::server {

class Exchange {
public:
    virtual ~Exchange() = default;

    // A whole answer.
    virtual void send(HttpResponse response) = 0;

    // A stream: its head, then pieces, then its end. `ping`: sent when nothing was written for a while; may be empty.
    virtual void begin(HttpResponse head, std::string ping) = 0;
    virtual void write(std::string_view bytes) = 0;
    virtual void finish() = 0;
    // Why a stream that has begun ends here, for the log. The client reads it in the last event.
    virtual void failed(const std::string& note) { (void)note; }

    // Whether send() or begin() was called.
    virtual bool begun() const = 0;
    // The client has gone or was given up.
    virtual bool gone() const = 0;

    // Called once when the client goes before the answer is complete; at once if it has gone already.
    virtual void on_gone(std::function<void()> callback) = 0;
    // true: much is written that was not read, so write less; false: go on.
    virtual void on_pressure(std::function<void(bool)> callback) = 0;
};

}  // namespace foresay::server
