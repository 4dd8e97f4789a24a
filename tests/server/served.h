// tests/server/served.h: a server in this process, on the bundled pair.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/serving.h"
#include "tests/server/client.h"

namespace foresay::testing {

// The bundled pair without its plugin, with a context of 512 tokens; opened once.
const engine::Engine& bundled();

// Runs until it is destroyed.
class Served {
public:
    explicit Served(server::ServingOptions options = {}, const engine::Engine& engine = bundled());
    ~Served();
    // "127.0.0.1:PORT"
    std::string address(std::size_t index = 0) const;
    Client client() const { return Client(address()); }
    server::Serving& serving() { return *serving_; }
    // Ends it as SIGTERM does, and waits until it has.
    void drain();
    // Waits until no text is generated and none waits.
    bool becomes_idle() const;

private:
    std::unique_ptr<server::Serving> serving_;
    std::thread thread_;
};

// With these options and this request of /v1/completions, a text whose client does not read is paused before it ends:
// what it is sent is more than the socket of the second address, which has a buffer of fixed size, and the server hold.
void pause_soon(server::ServingOptions& options);
extern const char* const kNeverRead;

// The text of OpenAI's answers: of a whole one, and of a stream.
std::string text_of_answer(const std::string& body, std::size_t choice = 0);
std::string text_of_stream(const std::string& body, std::size_t choice = 0);

}  // namespace foresay::testing
