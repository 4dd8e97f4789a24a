// tests/hub/hub_server.h: a hub on this machine. It speaks the API of huggingface.co as its clients see it (revision
// and tree with pages, resolve with redirects to a second address, ranges, checksums in headers, error codes), and it
// can be made to fail in every way that a network or a hub can.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace foresay::testing {

struct ServedRequest {
    bool storage = false;                        // came to the address where large files are, not to the hub's
    std::string target;                          // with the query
    std::map<std::string, std::string> headers;  // names in lower case

    std::string header(const std::string& name) const;
};

struct Reply {
    int status = 200;
    std::map<std::string, std::string> headers;
    std::string body;
    // Faults.
    std::size_t cut = std::string::npos;  // send so many bytes of the body, and then end the connection
    bool reset = false;                   // end it with a reset
    std::chrono::milliseconds before{0};  // wait before the answer
    std::chrono::milliseconds piece{0};   // wait after each 16 KiB of the body
    bool hang = false;                    // after `cut`, keep the connection and send nothing
    bool no_length = false;               // no Content-Length: the end of the connection is the end of the body
};

struct ServedFile {
    std::string path, content;
    bool large = true;  // in the storage, by its SHA-256; else in the repository, by git's id
};

class HubServer {
public:
    // `tls`: https with a certificate of its own (certificate()).
    explicit HubServer(bool tls = false);
    ~HubServer();
    HubServer(const HubServer&) = delete;
    HubServer& operator=(const HubServer&) = delete;

    std::string url() const;          // "http://127.0.0.1:12345"
    std::string storage_url() const;  // of the second address
    std::string certificate() const;  // PEM; empty without TLS

    // Makes `files` the branch main of `repo`. Returns the commit.
    std::string put(const std::string& repo, const std::vector<ServedFile>& files);
    // The token without which files of `repo` are refused as gated.
    void gate(const std::string& repo, const std::string& token);
    // Entries on a page of the list of files.
    void set_page(std::size_t entries);
    // Sees each request with the answer that it would get, and may change it. Called by several threads.
    void set_fault(std::function<void(const ServedRequest&, Reply&)> fault);

    std::vector<ServedRequest> requests() const;
    void forget_requests();

private:
    struct State;
    std::shared_ptr<State> state_;
};

// Digits of a SHA-256, and of git's id of a blob.
std::string sha256_of(const std::string& content);
std::string git_id_of(const std::string& content);

}  // namespace foresay::testing
