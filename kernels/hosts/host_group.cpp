#include "kernels/hosts/host_group.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace foresay::kernels {

void send_message(HostLink& link, int peer, const Message& message, std::unique_ptr<LinkBuffer>& block,
                  std::vector<std::byte>& scratch, double seconds) {
    const std::span<const std::byte> body = message.body();
    MessageHeader header;
    header.kind = message.kind();
    header.size = static_cast<std::uint32_t>(body.size());
    header.checksum = message_checksum(body);
    scratch.resize(std::max(kBlock, sizeof(header) + body.size()));
    std::memcpy(scratch.data(), &header, sizeof(header));
    if (!body.empty()) std::memcpy(scratch.data() + sizeof(header), body.data(), body.size());
    link.device().write(*block, std::span(scratch).first(kBlock));
    link.send(peer, *block, kBlock, seconds);
    const std::size_t rest = scratch.size() - kBlock;
    if (rest == 0) return;
    if (block->size < rest) block = link.device().allocate(rest);
    link.device().write(*block, std::span(scratch).last(rest));
    link.send(peer, *block, rest, seconds);
}

MessageKind receive_message(HostLink& link, int peer, std::unique_ptr<LinkBuffer>& block, std::vector<std::byte>& body,
                            double seconds) {
    constexpr std::size_t kMost = std::size_t{1} << 28;
    link.receive(peer, *block, kBlock, seconds);
    body.resize(kBlock);
    link.device().read(*block, body);
    MessageHeader header;
    std::memcpy(&header, body.data(), sizeof(header));
    if (header.magic != MessageHeader().magic || header.protocol != kHostProtocol || header.size > kMost) {
        link.lose(link.name(peer) +
                  " speaks another version of the protocol between hosts; start the same program on "
                  "every host");
    }
    const std::size_t all = sizeof(header) + header.size;
    if (all > kBlock) {
        const std::size_t rest = all - kBlock;
        if (block->size < rest) block = link.device().allocate(rest);
        link.receive(peer, *block, rest, seconds);
        body.resize(all);
        link.device().read(*block, std::span(body).last(rest));
    }
    body.erase(body.begin(), body.begin() + sizeof(header));
    body.resize(header.size);
    if (message_checksum(body) != header.checksum) link.lose("a message of " + link.name(peer) + " is damaged");
    return header.kind;
}

HostGroup::HostGroup(std::unique_ptr<HostLink> link, double seconds)
    : link_(std::move(link)),
      seconds_(seconds),
      block_(link_->device().allocate(kBlock)),
      pending_(static_cast<std::size_t>(link_->size())),
      pinger_([this] { ping(); }) {}

HostGroup::~HostGroup() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    ends_.notify_all();
    pinger_.join();
    // The answer says that the request has come, and the link may go.
    for (int rank = 1; rank < size() && !link_->lost(); ++rank) {
        try {
            ask(rank, Message(MessageKind::end), {}, {}, 1.0);
        } catch (const Error&) {  // it goes by itself
        }
    }
}

Message HostGroup::ping_for(double seconds) const {
    Message message(MessageKind::ping);
    message.put(seconds);
    return message;
}

// While rank 0 waits for one rank, it sends nothing to the others.
void HostGroup::announce(int waiting_for, double seconds) {
    for (int rank = 1; rank < size(); ++rank) {
        if (rank == waiting_for || pending_[static_cast<std::size_t>(rank)].waits) continue;
        send(rank, ping_for(seconds + patience()));
    }
}

void HostGroup::ping() {
    const auto pause = std::chrono::duration<double>(std::min(1.0, seconds_ / 5.0));
    std::unique_lock lock(mutex_);
    while (!ending_ && !link_->lost()) {
        ends_.wait_for(lock, pause);
        for (int rank = 1; rank < size() && !ending_ && !link_->lost(); ++rank) {
            if (!pending_[static_cast<std::size_t>(rank)].waits) tell_quietly(rank, ping_for(patience()));
        }
    }
}

void HostGroup::send(int rank, const Message& message) {
    send_message(*link_, rank, message, block_, bytes_, seconds_);
}

void HostGroup::settle(int rank) {
    const std::lock_guard lock(mutex_);
    if (pending_[static_cast<std::size_t>(rank)].waits) collect_bytes(rank);
}

void HostGroup::post(int rank, const Message& request, LinkPayload payload, LinkPayload answer, double seconds) {
    const std::lock_guard lock(mutex_);
    settle(rank);
    send(rank, request);
    if (payload.bytes > 0) link_->send(rank, *payload.buffer, payload.bytes, seconds_);
    pending_[static_cast<std::size_t>(rank)] = {true, answer, std::max(seconds, seconds_)};
    if (seconds > seconds_) announce(rank, seconds);
}

std::span<const std::byte> HostGroup::collect_bytes(int rank) {
    Pending& pending = pending_[static_cast<std::size_t>(rank)];
    check(pending.waits, "an answer to nothing");
    const Pending expected = std::exchange(pending, {});
    const MessageKind kind = receive_message(*link_, rank, block_, answer_, expected.seconds);
    if (kind == MessageKind::failed) throw NamedError(name(rank) + ": " + MessageReader(answer_).get_text());
    if (kind != MessageKind::done) link_->lose("a message of " + name(rank) + " is none that was expected");
    if (expected.answer.bytes > 0) {
        link_->receive(rank, *expected.answer.buffer, expected.answer.bytes, expected.seconds);
    }
    return answer_;
}

MessageReader HostGroup::collect(int rank) {
    const std::lock_guard lock(mutex_);
    return MessageReader(collect_bytes(rank));
}

void HostGroup::tell(int rank, const Message& request) {
    const std::lock_guard lock(mutex_);
    settle(rank);
    send(rank, request);
}

void HostGroup::tell_quietly(int rank, const Message& request) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        settle(rank);
    } catch (const std::exception&) {  // of a forward whose result is not wanted any more
    }
    try {
        send(rank, request);
    } catch (const std::exception&) {  // the link is lost, and says so next time
    }
}

}  // namespace foresay::kernels
