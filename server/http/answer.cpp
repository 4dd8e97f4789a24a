#include "server/http/answer.h"

#include <array>
#include <charconv>
#include <utility>

namespace foresay::server {

namespace {

// A header value must not begin another header.
std::string one_line(std::string_view text) {
    std::string line;
    for (const char c : text) {
        if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) line += c;
    }
    return line;
}

class HeldAnswer final : public Exchange {
public:
    explicit HeldAnswer(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
    ~HeldAnswer() override { answer_->abandon(); }
    void send(HttpResponse response) override { answer_->send(std::move(response)); }
    void begin(HttpResponse head, std::string ping) override { answer_->begin(std::move(head), std::move(ping)); }
    void write(std::string_view bytes) override { answer_->write(bytes); }
    void finish() override { answer_->finish(); }
    bool begun() const override { return answer_->begun(); }
    bool gone() const override { return answer_->gone(); }
    void on_gone(std::function<void()> callback) override { answer_->on_gone(std::move(callback)); }
    void on_pressure(std::function<void(bool)> callback) override { answer_->on_pressure(std::move(callback)); }

private:
    std::shared_ptr<Answer> answer_;
};

}  // namespace

std::shared_ptr<Exchange> held_answer(std::shared_ptr<Answer> answer) {
    return std::make_shared<HeldAnswer>(std::move(answer));
}

std::string_view reason_of(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 204:
            return "No Content";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 408:
            return "Request Timeout";
        case 413:
            return "Content Too Large";
        case 414:
            return "URI Too Long";
        case 421:
            return "Misdirected Request";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 500:
            return "Internal Server Error";
        case 501:
            return "Not Implemented";
        case 503:
            return "Service Unavailable";
        case 529:
            return "Overloaded";
        default:
            return "Status";
    }
}

Answer::Answer(Framing framing, const HttpLimits& limits, std::function<void()> wake)
    : framing_(std::move(framing)), limits_(limits), wake_(std::move(wake)) {}
Answer::~Answer() = default;

void Answer::append_head(const HttpResponse& response, bool stream) {
    pending_ += "HTTP/1.1 " + std::to_string(response.status) + ' ' + std::string(reason_of(response.status)) + "\r\n";
    const auto add = [&](std::string_view name, std::string_view value) {
        pending_.append(name).append(": ").append(one_line(value)).append("\r\n");
    };
    add("server", framing_.server);
    add("x-request-id", framing_.request_id);
    if (response.status != 204) add("content-type", response.type);
    for (const Header& header : framing_.headers) add(header.name, header.value);
    for (const Header& header : response.headers) add(header.name, header.value);
    if (!stream) {
        if (response.status != 204) add("content-length", std::to_string(response.body.size()));
    } else if (framing_.chunked) {
        add("transfer-encoding", "chunked");
    }
    if (!framing_.keep_alive) add("connection", "close");
    pending_ += "\r\n";
}

void Answer::append(std::string_view bytes) {
    if (bytes.empty() || framing_.head_only) return;
    if (!framing_.chunked) {
        pending_ += bytes;
        return;
    }
    std::array<char, 16> size{};
    const auto end = std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16).ptr;
    pending_.append(size.data(), end).append("\r\n").append(bytes).append("\r\n");
}

void Answer::notify(std::unique_lock<std::mutex>& lock) {
    const bool wake = !woken_;
    woken_ = true;
    std::function<void(bool)> pressed;
    std::function<void()> gone;
    const std::size_t unsent = pending_.size() + in_flight_;
    if (unsent > limits_.give_up_bytes && !gone_) {
        overflowed_ = true;
        gone_ = true;
        pending_.clear();
        gone = std::exchange(when_gone_, nullptr);
    } else if (unsent > limits_.pause_bytes && !pressed_) {
        pressed_ = true;
        pressed = when_pressed_;
    }
    lock.unlock();
    if (pressed) pressed(true);
    if (gone) gone();
    if (wake) wake_();
}

void Answer::send(HttpResponse response) {
    std::unique_lock lock(mutex_);
    if (gone_ || begun_) return;
    begun_ = finished_ = true;
    append_head(response, false);
    if (!framing_.head_only) pending_ += response.body;
    notify(lock);
}

void Answer::begin(HttpResponse head, std::string ping) {
    std::unique_lock lock(mutex_);
    if (gone_ || begun_) return;
    begun_ = streaming_ = true;
    ping_ = std::move(ping);
    append_head(head, true);
    append(head.body);
    notify(lock);
}

void Answer::write(std::string_view bytes) {
    std::unique_lock lock(mutex_);
    if (gone_ || finished_ || !streaming_) return;
    append(bytes);
    notify(lock);
}

void Answer::finish() {
    std::unique_lock lock(mutex_);
    if (gone_ || finished_ || !streaming_) return;
    finished_ = true;
    if (framing_.chunked && !framing_.head_only) pending_ += "0\r\n\r\n";
    notify(lock);
}

bool Answer::begun() const {
    const std::lock_guard lock(mutex_);
    return begun_;
}

bool Answer::gone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
}

void Answer::on_gone(std::function<void()> callback) {
    {
        const std::lock_guard lock(mutex_);
        if (!gone_) {
            if (!finished_) when_gone_ = std::move(callback);
            return;
        }
    }
    callback();
}

void Answer::on_pressure(std::function<void(bool)> callback) {
    const std::lock_guard lock(mutex_);
    when_pressed_ = std::move(callback);
}

Answer::Taken Answer::take() {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    Taken taken{std::move(pending_), finished_};
    pending_.clear();
    in_flight_ += taken.bytes.size();
    return taken;
}

void Answer::sent(std::size_t bytes) {
    std::function<void(bool)> pressed;
    {
        const std::lock_guard lock(mutex_);
        in_flight_ -= bytes;
        if (!pressed_ || pending_.size() + in_flight_ > limits_.resume_bytes) return;
        pressed_ = false;
        pressed = when_pressed_;
    }
    if (pressed) pressed(false);
}

void Answer::lose() {
    std::function<void()> gone;
    {
        const std::lock_guard lock(mutex_);
        if (gone_) return;
        gone_ = true;
        gone = std::exchange(when_gone_, nullptr);
        when_pressed_ = nullptr;
    }
    if (gone) gone();
}

void Answer::ping() {
    const std::lock_guard lock(mutex_);
    if (streaming_ && !finished_ && !gone_ && pending_.empty()) append(ping_);
}

void Answer::abandon() {
    std::unique_lock lock(mutex_);
    when_gone_ = nullptr;
    when_pressed_ = nullptr;
    if (finished_ || gone_) return;
    abandoned_ = true;
    notify(lock);
}

bool Answer::abandoned() const {
    const std::lock_guard lock(mutex_);
    return abandoned_ && pending_.empty();
}

}  // namespace foresay::server
