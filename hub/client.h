// hub/client.h: what all requests to a hub share: who is told, the token, redirects, repetition, and refusals as
// sentences.
//
// The token goes to the hub's own address only, never to where a redirect leads.
// Threads:  one caller at a time.
// Errors:   Error, one sentence. Cancelled when the observer says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/http.h"
#include "hub/name.h"
#include "hub/settings.h"

namespace foresay::hub {

struct ModelFiles;

// Learns what happens. Called by the thread that pulls.
class Observer {
public:
    virtual ~Observer() = default;
    // What makes up the model, once it is known. `missing`: bytes that are still to come.
    virtual void plan(const ModelFiles& model, const std::string& commit, std::int64_t missing) = 0;
    // Bytes of the model that are here, and all of them. At least ten times a second while it waits.
    virtual void progress(std::int64_t done, std::int64_t all) = 0;
    // A sentence: a connection was lost, another program has the lock.
    virtual void note(const std::string& sentence) = 0;
    virtual bool cancelled() = 0;
};

class Cancelled : public Error {
public:
    using Error::Error;
};

class Client {
public:
    Client(const Settings& settings, const ModelName& name, Observer& observer);

    Http& http() { return http_; }
    const Settings& settings() const { return settings_; }
    const ModelName& name() const { return name_; }
    Observer& observer() { return observer_; }

    // The answer to GET `url` (JSON), with its headers. Follows redirects and repeats what may pass.
    struct Answer {
        Response response;
        std::string text;
    };
    Answer get(const std::string& url);

    bool is_hub(const std::string& url) const;
    // What each request for `url` has: the token if that is the hub.
    std::vector<std::string> headers_for(const std::string& url) const;
    // Where a redirect from `url` leads. Errors: nowhere that is http or https, or from https to http.
    std::string redirected(const std::string& url, const Response& response) const;
    static constexpr int kMostRedirects = 10;

    // Whether an answer may be another one later: too many requests, trouble of a server.
    static bool may_pass(const Response& response);
    // How long to wait before the repetition after `tries` failures. Throws Error if the hub asks for too long a wait.
    std::chrono::milliseconds delay(int tries, const Response& response) const;
    void check_cancelled();
    // Says what went wrong, at most every few seconds.
    void note_repetition(const std::string& problem, std::chrono::milliseconds delay);

    // The sentence for an answer that is no success, or for a transfer that failed.
    Error refusal(const Response& response, const std::string& url) const;
    Error failure(const Finished& finished, const std::string& url) const;

private:
    const Settings& settings_;
    const ModelName& name_;
    Observer& observer_;
    Http http_;
    std::chrono::steady_clock::time_point last_note_{};
    bool answered_ = false;  // by anything, ever
};

}  // namespace foresay::hub
