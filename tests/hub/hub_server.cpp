#include "tests/hub/hub_server.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

namespace foresay::testing {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
namespace http = boost::beast::http;
using asio::ip::tcp;
using nlohmann::json;

namespace {

std::string digits(const EVP_MD* kind, const std::string& bytes) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, kind, nullptr) != 1)
        throw std::runtime_error("no digest");
    std::string out;
    for (unsigned int i = 0; i < size; ++i) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", digest[i]);
        out += two;
    }
    return out;
}

std::string oid_of(const ServedFile& file) { return file.large ? sha256_of(file.content) : git_id_of(file.content); }

struct Repo {
    std::string commit, token;
    std::vector<ServedFile> files;
    std::map<std::string, std::string> oids;  // by path

    const std::string& oid_of(const ServedFile& file) const { return oids.at(file.path); }
};

std::string decoded(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%' && i + 2 < text.size()) {
            out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

Reply refusal(int status, const std::string& code, const std::string& message) {
    return {status, {{"X-Error-Code", code}, {"X-Error-Message", message}}, "{\"error\":\"" + message + "\"}"};
}

// A certificate for 127.0.0.1 that nothing vouches for, and its key.
std::pair<std::string, std::string> self_signed() {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_set_pubkey(certificate, key);
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("local hub"), -1, -1,
                               0);
    X509_set_issuer_name(certificate, name);
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
    for (const auto& [kind, value] :
         {std::pair(NID_subject_alt_name, "IP:127.0.0.1"), std::pair(NID_basic_constraints, "critical,CA:TRUE")}) {
        X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
        X509_add_ext(certificate, extension, -1);
        X509_EXTENSION_free(extension);
    }
    X509_sign(certificate, key, EVP_sha256());
    const auto text = [](auto write) {
        BIO* memory = BIO_new(BIO_s_mem());
        write(memory);
        char* data = nullptr;
        const long size = BIO_get_mem_data(memory, &data);
        std::string out(data, static_cast<std::size_t>(size));
        BIO_free(memory);
        return out;
    };
    const std::string pem = text([&](BIO* to) { PEM_write_bio_X509(to, certificate); });
    const std::string secret =
        text([&](BIO* to) { PEM_write_bio_PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr); });
    X509_free(certificate);
    EVP_PKEY_free(key);
    return {pem, secret};
}

}  // namespace

std::string sha256_of(const std::string& content) { return digits(EVP_sha256(), content); }
std::string git_id_of(const std::string& content) {
    return digits(EVP_sha1(), "blob " + std::to_string(content.size()) + '\0' + content);
}

std::string ServedRequest::header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
}

struct HubServer::State {
    asio::io_context io;
    std::optional<ssl::context> tls;
    std::string certificate;
    tcp::acceptor hub{io, {asio::ip::address_v4::loopback(), 0}};
    tcp::acceptor storage{io, {asio::ip::address_v4::loopback(), 0}};
    std::vector<std::thread> acceptors;
    std::atomic<int> connections{0};
    std::atomic<bool> ending{false};

    mutable std::mutex mutex;  // of what follows
    std::map<std::string, Repo> repos;
    std::size_t page = 1000;
    std::function<void(const ServedRequest&, Reply&)> fault;
    std::vector<ServedRequest> requests;
    std::set<int> sockets;

    std::string address(const tcp::acceptor& acceptor) const {
        return (tls ? "https" : "http") + std::string("://127.0.0.1:") +
               std::to_string(acceptor.local_endpoint().port());
    }

    Reply answer(const ServedRequest& request);
    Reply list(const Repo& repo, const std::string& target, const std::string& query) const;
    Reply resolve(const Repo& repo, const std::string& name, const std::string& path,
                  const ServedRequest& request) const;
    static Reply content(const std::string& bytes, const std::string& tag, const ServedRequest& request);
    void accept(const std::shared_ptr<State>& self, tcp::acceptor& acceptor, bool is_storage);
    template <typename Stream>
    void serve(Stream& stream, tcp::socket& socket, bool is_storage);
    template <typename Stream>
    bool send(Stream& stream, tcp::socket& socket, const Reply& reply);
    void sleep(std::chrono::milliseconds time) const {
        for (const auto end = std::chrono::steady_clock::now() + time;
             !ending && std::chrono::steady_clock::now() < end;) {
            std::this_thread::sleep_for(std::min(time, std::chrono::milliseconds(10)));
        }
    }
};

// The bytes, or the range of them that is asked for.
Reply HubServer::State::content(const std::string& bytes, const std::string& tag, const ServedRequest& request) {
    Reply reply{200, {{"ETag", tag}, {"Accept-Ranges", "bytes"}, {"Content-Type", "application/octet-stream"}}, ""};
    const std::string range = request.header("range"), only_if = request.header("if-range");
    if (!range.starts_with("bytes=") || (!only_if.empty() && only_if != tag)) {
        reply.body = bytes;
        return reply;
    }
    const std::size_t dash = range.find('-');
    const std::size_t begin = std::stoull(range.substr(6, dash - 6));
    const std::string last_text = range.substr(dash + 1);
    if (begin >= bytes.size()) return {416, {{"Content-Range", "bytes */" + std::to_string(bytes.size())}}, ""};
    const std::size_t last =
        last_text.empty() ? bytes.size() - 1 : std::min(std::stoull(last_text), bytes.size() - 1ULL);
    reply.status = 206;
    reply.headers["Content-Range"] =
        "bytes " + std::to_string(begin) + "-" + std::to_string(last) + "/" + std::to_string(bytes.size());
    reply.body = bytes.substr(begin, last - begin + 1);
    return reply;
}

Reply HubServer::State::list(const Repo& repo, const std::string& target, const std::string& query) const {
    const std::size_t at = query.find("cursor=");
    const std::size_t begin = at == query.npos ? 0 : std::stoull(query.substr(at + 7));
    json entries = json::array();
    for (std::size_t i = begin; i < std::min(begin + page, repo.files.size()); ++i) {
        const ServedFile& file = repo.files[i];
        json entry = {{"type", "file"}, {"path", file.path}, {"size", file.content.size()}, {"oid", repo.oid_of(file)}};
        if (file.large) {
            entry["oid"] = git_id_of("pointer to " + file.path);
            entry["lfs"] = {{"oid", repo.oid_of(file)}, {"size", file.content.size()}, {"pointerSize", 134}};
        }
        entries.push_back(std::move(entry));
    }
    Reply reply{200, {{"Content-Type", "application/json"}}, entries.dump()};
    if (begin + page < repo.files.size()) {
        reply.headers["Link"] =
            "<" + address(hub) + target + "?recursive=1&cursor=" + std::to_string(begin + page) + ">; rel=\"next\"";
    }
    return reply;
}

Reply HubServer::State::resolve(const Repo& repo, const std::string& name, const std::string& path,
                                const ServedRequest& request) const {
    if (!repo.token.empty() && request.header("authorization") != "Bearer " + repo.token) {
        return refusal(request.header("authorization").empty() ? 401 : 403, "GatedRepo",
                       "Access to model " + name + " is restricted.");
    }
    const auto file = std::find_if(repo.files.begin(), repo.files.end(), [&](const auto& f) { return f.path == path; });
    if (file == repo.files.end()) return refusal(404, "EntryNotFound", "Entry not found");
    const std::string oid = repo.oid_of(*file);
    if (!file->large) {
        Reply reply = content(file->content, "\"" + oid + "\"", request);
        reply.headers["X-Repo-Commit"] = repo.commit;
        return reply;
    }
    return {302,
            {{"Location", address(storage) + "/storage/" + oid + "?signature=s3cret"},
             {"X-Repo-Commit", repo.commit},
             {"X-Linked-Size", std::to_string(file->content.size())},
             {"X-Linked-Etag", "\"" + oid + "\""},
             {"ETag", "\"pointer\""}},
            "Found. Redirecting"};
}

Reply HubServer::State::answer(const ServedRequest& request) {
    const std::scoped_lock lock(mutex);
    const std::size_t mark = std::min(request.target.find('?'), request.target.size());
    const std::string target = request.target.substr(0, mark), query = request.target.substr(mark);
    if (request.storage) {
        for (const auto& [name, repo] : repos) {
            for (const ServedFile& file : repo.files) {
                if (target != "/storage/" + repo.oid_of(file)) continue;
                if (query != "?signature=s3cret") return {403, {}, "expired"};
                // The storage has tags of its own.
                return content(file.content, "\"stored-" + repo.oid_of(file).substr(0, 8) + "\"", request);
            }
        }
        return {404, {}, "no such key"};
    }
    for (const auto& [name, repo] : repos) {
        const std::string api = "/api/models/" + name + "/", files = "/" + name + "/resolve/";
        if (target.starts_with(api + "revision/")) {
            const std::string revision = decoded(target.substr(api.size() + 9));
            if (revision != "main" && revision != "refs/pr/1" && revision != repo.commit) {
                return refusal(404, "RevisionNotFound", "Invalid rev id: " + revision);
            }
            return {200,
                    {{"Content-Type", "application/json"}},
                    json({{"id", name}, {"sha", repo.commit}, {"gated", false}, {"siblings", json::array()}}).dump()};
        }
        if (target == api + "tree/" + repo.commit) return list(repo, target, query);
        if (target.starts_with(files + repo.commit + "/")) {
            return resolve(repo, name, decoded(target.substr(files.size() + repo.commit.size() + 1)), request);
        }
    }
    return refusal(401, "RepoNotFound", "Repository not found");
}

template <typename Stream>
bool HubServer::State::send(Stream& stream, tcp::socket& socket, const Reply& reply) {
    sleep(reply.before);
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " Status\r\n";
    for (const auto& [name, value] : reply.headers) head += name + ": " + value + "\r\n";
    const bool length = !reply.no_length && !reply.headers.contains("Content-Length");
    if (length) head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
    if (reply.no_length) head += "Connection: close\r\n";
    asio::write(stream, asio::buffer(head + "\r\n"));
    const std::size_t all = std::min(reply.cut, reply.body.size());
    constexpr std::size_t kPiece = 16384;
    for (std::size_t at = 0; at < all; at += kPiece) {
        asio::write(stream, asio::buffer(reply.body.data() + at, std::min(kPiece, all - at)));
        sleep(reply.piece);
    }
    if (reply.hang) sleep(std::chrono::minutes(1));
    if (reply.reset) socket.set_option(asio::socket_base::linger(true, 0));
    return !reply.hang && !reply.reset && reply.cut == std::string::npos && !reply.no_length;
}

template <typename Stream>
void HubServer::State::serve(Stream& stream, tcp::socket& socket, bool is_storage) {
    boost::beast::flat_buffer buffer;
    for (bool more = true; more && !ending;) {
        http::request<http::string_body> read;
        http::read(stream, buffer, read);
        ServedRequest request{is_storage, std::string(read.target()), {}};
        for (const auto& field : read) {
            std::string name(field.name_string());
            std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
            request.headers[name] = std::string(field.value());
        }
        Reply reply = answer(request);
        std::function<void(const ServedRequest&, Reply&)> change;
        {
            const std::scoped_lock lock(mutex);
            requests.push_back(request);
            change = fault;
        }
        if (change) change(request, reply);
        more = send(stream, socket, reply);
    }
}

void HubServer::State::accept(const std::shared_ptr<State>& self, tcp::acceptor& acceptor, bool is_storage) {
    for (;;) {
        boost::system::error_code problem;
        auto socket = std::make_shared<tcp::socket>(io);
        acceptor.accept(*socket, problem);
        if (ending || problem) return;
        socket->set_option(tcp::no_delay(true), problem);
        {
            const std::scoped_lock lock(mutex);
            sockets.insert(socket->native_handle());
        }
        ++connections;
        std::thread([self, socket, is_storage] {
            const int handle = socket->native_handle();
            try {
                if (self->tls) {
                    ssl::stream<tcp::socket&> stream(*socket, *self->tls);
                    stream.handshake(ssl::stream_base::server);
                    self->serve(stream, *socket, is_storage);
                } else {
                    self->serve(*socket, *socket, is_storage);
                }
            } catch (const std::exception&) {  // the client has gone
            }
            {
                const std::scoped_lock lock(self->mutex);
                self->sockets.erase(handle);
                boost::system::error_code ignored;
                socket->close(ignored);
            }
            --self->connections;
        }).detach();
    }
}

HubServer::HubServer(bool tls) : state_(std::make_shared<State>()) {
    if (tls) {
        const auto [certificate, key] = self_signed();
        state_->certificate = certificate;
        state_->tls.emplace(ssl::context::tls_server);
        state_->tls->use_certificate_chain(asio::buffer(certificate));
        state_->tls->use_private_key(asio::buffer(key), ssl::context::pem);
    }
    for (const bool is_storage : {false, true}) {
        tcp::acceptor& acceptor = is_storage ? state_->storage : state_->hub;
        state_->acceptors.emplace_back(
            [state = state_, &acceptor, is_storage] { state->accept(state, acceptor, is_storage); });
    }
}

HubServer::~HubServer() {
    state_->ending = true;
    for (tcp::acceptor* acceptor : {&state_->hub, &state_->storage}) ::shutdown(acceptor->native_handle(), SHUT_RDWR);
    for (std::thread& thread : state_->acceptors) thread.join();
    {
        const std::scoped_lock lock(state_->mutex);
        for (const int handle : state_->sockets) ::shutdown(handle, SHUT_RDWR);
    }
    while (state_->connections > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::string HubServer::url() const { return state_->address(state_->hub); }
std::string HubServer::storage_url() const { return state_->address(state_->storage); }
std::string HubServer::certificate() const { return state_->certificate; }

std::string HubServer::put(const std::string& repo, const std::vector<ServedFile>& files) {
    const std::scoped_lock lock(state_->mutex);
    std::string all = repo;
    Repo& at = state_->repos[repo];
    at.oids.clear();
    for (const ServedFile& file : files) all += file.path + (at.oids[file.path] = oid_of(file));
    at.files = files;
    at.commit = git_id_of(all);
    return at.commit;
}

void HubServer::gate(const std::string& repo, const std::string& token) {
    const std::scoped_lock lock(state_->mutex);
    state_->repos[repo].token = token;
}

void HubServer::set_page(std::size_t entries) {
    const std::scoped_lock lock(state_->mutex);
    state_->page = entries;
}

void HubServer::set_fault(std::function<void(const ServedRequest&, Reply&)> fault) {
    const std::scoped_lock lock(state_->mutex);
    state_->fault = std::move(fault);
}

std::vector<ServedRequest> HubServer::requests() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->requests;
}

void HubServer::forget_requests() {
    const std::scoped_lock lock(state_->mutex);
    state_->requests.clear();
}

}  // namespace foresay::testing
