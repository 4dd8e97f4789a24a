#include "server/keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "server/error.h"

namespace foresay::server {

namespace {

using Clock = std::chrono::steady_clock;

struct Key {
    std::string digest;
    Caller caller;
};

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
        text += kDigits[bytes[i] >> 4];
        text += kDigits[bytes[i] & 15];
    }
    return text;
}

std::string sha256(std::string_view text) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
    return hexadecimal(digest.data(), size);
}

Key parse_line(const std::string& line, const std::string& place) {
    const auto wrong = [&](const std::string& why) {
        return Error(place + ": " + why +
                     "; a line is 'sha256:HEX name=NAME rights=api' as foresay serve --new-key prints it");
    };
    std::istringstream words(line);
    std::string word;
    words >> word;
    Key key;
    if (!word.starts_with("sha256:") || word.size() != 7 + 64 ||
        word.find_first_not_of("0123456789abcdef", 7) != std::string::npos)
        throw wrong("'" + word.substr(0, 16) + "' is no hash of a key");
    key.digest = word.substr(7);
    while (words >> word) {
        const std::size_t equals = word.find('=');
        const std::string name = word.substr(0, equals), value = equals == word.npos ? "" : word.substr(equals + 1);
        if (name == "name" && !value.empty()) {
            key.caller.name = value;
        } else if (name == "rights" && (value == "api" || value == "admin")) {
            key.caller.right = value == "admin" ? Right::admin : Right::api;
        } else if (name == "running" || name == "tokens_per_minute") {
            std::uint32_t most = 0;
            const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), most);
            if (error != std::errc() || end != value.data() + value.size() || most == 0)
                throw wrong("'" + name + "' must be a number above 0, not '" + value + "'");
            if (name == "running") {
                key.caller.most_running = most;
            } else {
                key.caller.tokens_per_minute = most;
            }
        } else {
            throw wrong("'" + word + "' is not known");
        }
    }
    if (key.caller.name.empty()) throw wrong("the name is missing");
    return key;
}

}  // namespace

struct Keys::State {
    std::filesystem::path file;
    std::function<void(const std::string&)> complain;
    mutable std::mutex mutex;
    std::vector<Key> keys;
    std::map<std::string, std::size_t> running;
    // Of keys with tokens per minute: how many are left. An account outlives its key, as a new file may have it again.
    struct Account {
        double left = 0;
        Clock::time_point counted;
    };
    std::map<std::string, Account> accounts;
    timespec changed{};
    off_t size = -1;
    ino_t inode = 0;
    Clock::time_point looked{};

    bool has_changed() {
        struct stat status {};
        if (::stat(file.c_str(), &status) != 0) return false;  // being replaced, or gone: what was read holds
        const bool same = status.st_mtim.tv_sec == changed.tv_sec && status.st_mtim.tv_nsec == changed.tv_nsec &&
                          status.st_size == size && status.st_ino == inode;
        changed = status.st_mtim;
        size = status.st_size;
        inode = status.st_ino;
        return !same;
    }

    Account& account_of(const Caller& caller) {
        const Clock::time_point now = Clock::now();
        const auto [found, is_new] = accounts.try_emplace(caller.name, Account{caller.tokens_per_minute, now});
        Account& account = found->second;
        const double seconds = std::chrono::duration<double>(now - account.counted).count();
        account.left = std::min(caller.tokens_per_minute, account.left + caller.tokens_per_minute * seconds / 60);
        account.counted = now;
        return account;
    }

    void read() {
        std::ifstream stream(file);
        if (!stream) throw Error("the file of keys " + file.string() + " cannot be read");
        std::vector<Key> read;
        std::string line;
        for (int number = 1; std::getline(stream, line); ++number) {
            line.resize(std::min(line.find('#'), line.size()));
            if (line.find_first_not_of(" \t\r") == line.npos) continue;
            read.push_back(parse_line(line, file.string() + ":" + std::to_string(number)));
        }
        if (read.empty())
            throw Error("the file of keys " + file.string() + " has no key; foresay serve --new-key makes one");
        keys = std::move(read);
    }

    void read_if_changed(bool now) {
        if (file.empty() || (!now && Clock::now() - looked < std::chrono::seconds(1))) return;
        looked = Clock::now();
        if (!has_changed() && !now) return;
        try {
            read();
        } catch (const Error& problem) {
            if (complain) complain(std::string(problem.what()) + "; the keys from before stay");
        }
    }
};

Keys::Keys(std::filesystem::path file, std::function<void(const std::string&)> complain)
    : state_(std::make_shared<State>()) {
    state_->file = std::move(file);
    state_->complain = std::move(complain);
    if (state_->file.empty()) return;
    state_->has_changed();
    state_->read();
}
Keys::~Keys() = default;

bool Keys::required() const { return !state_->file.empty(); }

void Keys::reload() {
    const std::lock_guard lock(state_->mutex);
    state_->read_if_changed(true);
}

Caller Keys::check(const HttpRequest& request, Right wanted) {
    if (wanted == Right::open) return {};
    if (!required()) {
        if (wanted == Right::admin)
            throw ApiError(Problem::permission,
                           "this needs a key with the rights of an admin, and the server has no keys",
                           "admin_key_required");
        return {};
    }
    std::string_view given = request.header("authorization");
    if (given.size() > 7 && (given.starts_with("Bearer ") || given.starts_with("bearer "))) {
        given.remove_prefix(7);
    } else {
        given = request.header("x-api-key");
        if (given.empty()) given = request.header("x-admin-key");
    }
    if (given.empty())
        throw ApiError(Problem::authentication,
                       "a key is missing; send it as 'Authorization: Bearer KEY' or as 'x-api-key: KEY'",
                       "missing_api_key");
    const std::string digest = sha256(given);
    const std::lock_guard lock(state_->mutex);
    state_->read_if_changed(false);
    const Key* found = nullptr;
    for (const Key& key : state_->keys) {
        if (same_secret(key.digest, digest)) found = &key;  // all are compared, so that the time says nothing
    }
    if (found == nullptr) throw ApiError(Problem::authentication, "the key is not known here", "invalid_api_key");
    if (wanted == Right::admin && found->caller.right != Right::admin)
        throw ApiError(Problem::permission, "the key '" + found->caller.name + "' lacks the rights of an admin",
                       "admin_key_required");
    return found->caller;
}

// A key may use its tokens of a minute at once, and they come back evenly. A request is taken while any are left, and
// what it then uses beyond them delays the next one.
class Keys::Running final : public Lease {
public:
    Running(std::shared_ptr<State> state, Caller caller) : state_(std::move(state)), caller_(std::move(caller)) {}
    ~Running() override {
        const std::lock_guard lock(state_->mutex);
        if (--state_->running[caller_.name] == 0) state_->running.erase(caller_.name);
    }
    void charge(std::int64_t tokens) override {
        if (caller_.tokens_per_minute <= 0) return;
        const std::lock_guard lock(state_->mutex);
        state_->account_of(caller_).left -= static_cast<double>(tokens);
    }

private:
    std::shared_ptr<State> state_;
    Caller caller_;
};

std::shared_ptr<Lease> Keys::begin(const Caller& caller) {
    if (caller.most_running == 0 && caller.tokens_per_minute <= 0) return nullptr;
    const std::lock_guard lock(state_->mutex);
    if (caller.tokens_per_minute > 0) {
        const double left = state_->account_of(caller).left;
        if (left <= 0) {
            ApiError busy(Problem::busy,
                          "the key '" + caller.name + "' has used its " +
                              std::to_string(static_cast<std::int64_t>(caller.tokens_per_minute)) +
                              " tokens per minute; come again",
                          "key_limit");
            busy.retry_after = 1 + static_cast<int>(-left * 60 / caller.tokens_per_minute);
            throw busy;
        }
    }
    std::size_t& running = state_->running[caller.name];
    if (caller.most_running > 0 && running >= caller.most_running) {
        ApiError busy(Problem::busy,
                      "the key '" + caller.name + "' may have " + std::to_string(caller.most_running) +
                          " requests at once; come again",
                      "key_limit");
        busy.retry_after = 1;
        throw busy;
    }
    ++running;
    return std::make_shared<Running>(state_, caller);
}

bool same_secret(std::string_view a, std::string_view b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

NewKey make_key(const std::string& name, bool admin) {
    if (name.empty() || name.find_first_of(" \t\r\n#=") != std::string::npos)
        throw UsageError("the name of a key is one word without '#' and '=', not '" + name + "'");
    std::array<unsigned char, 24> bytes{};
    if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
        throw Error("the system gives no random numbers");
    NewKey made;
    made.key = "fs-" + hexadecimal(bytes.data(), bytes.size());
    made.line = "sha256:" + sha256(made.key) + " name=" + name + " rights=" + (admin ? "admin" : "api");
    return made;
}

}  // namespace foresay::server
