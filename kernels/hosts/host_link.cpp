#include "kernels/hosts/host_link.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

namespace foresay::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBytes = 1;  // ncclUint8
// How a wait polls: without a pause for kEager, for latency; then with kPause, so that a host whose cores are all busy
// runs what is waited for; from kIdle on, when nothing is being generated, with kIdlePause.
constexpr std::chrono::microseconds kEager{200}, kPause{20}, kIdle{1'000'000}, kIdlePause{500};

struct PlainBuffer final : LinkBuffer {
    explicit PlainBuffer(std::size_t bytes) : memory(new std::byte[bytes]) {
        data = memory.get();
        size = bytes;
    }
    std::unique_ptr<std::byte[]> memory;
};

class HostLinkDevice final : public LinkDevice {
public:
    std::unique_ptr<LinkBuffer> allocate(std::size_t bytes) override { return std::make_unique<PlainBuffer>(bytes); }
    void write(LinkBuffer& to, std::span<const std::byte> from) override {
        check(from.size() <= to.size, "a message larger than its buffer");
        std::memcpy(to.data, from.data(), from.size());
    }
    void read(const LinkBuffer& from, std::span<std::byte> to) override {
        check(to.size() <= from.size, "a message larger than its buffer");
        std::memcpy(to.data(), from.data, to.size());
    }
    int call(int (*work)(void*), void* with) override { return work(with); }
    void* stream() override { return nullptr; }
    bool idle() override { return true; }
};

// call() takes a plain function, so that a device's header needs no more than pointers.
template <class Work>
int call_on(LinkDevice& device, Work work) {
    return device.call([](void* with) { return (*static_cast<Work*>(with))(); }, &work);
}

std::string seconds_text(double seconds) {
    const auto whole = static_cast<long>(std::lround(std::max(1.0, seconds)));
    return std::to_string(whole) + (whole == 1 ? " second" : " seconds");
}

constexpr const char* kWayOn = "; start all ranks again to go on";

}  // namespace

std::unique_ptr<LinkDevice> make_host_link_device() { return std::make_unique<HostLinkDevice>(); }

HostLink::HostLink(Options options) : options_(std::move(options)), nccl_(Nccl::open()) {
    options_.hosts.resize(static_cast<std::size_t>(options_.size));
    NcclConfig config;
    const int result = call_on(
        *options_.device, [&] { return nccl_.comm_init(&comm_, options_.size, options_.id, options_.rank, &config); });
    finish(result, -1, options_.start_seconds);
}

HostLink::~HostLink() {
    if (comm_ == nullptr) return;
    // Nothing is under way, so nothing is lost; and it waits for no other rank, as ncclCommDestroy may.
    call_on(*options_.device, [&] { return nccl_.comm_abort(comm_); });
}

std::string HostLink::name(int rank) const {
    const std::string& host = options_.hosts[static_cast<std::size_t>(rank)];
    return "rank " + std::to_string(rank) + (host.empty() ? "" : " (" + host + ")");
}

void HostLink::lose(const std::string& why) {
    if (why_.empty()) why_ = why;
    if (comm_ != nullptr) {
        NcclComm* const comm = std::exchange(comm_, nullptr);
        call_on(*options_.device, [&] { return nccl_.comm_abort(comm); });
    }
    throw LostHost(why_);
}

void HostLink::send(int peer, const LinkBuffer& from, std::size_t bytes, double seconds) {
    if (lost()) throw LostHost(why_);
    if (bytes == 0) return;
    check(bytes <= from.size, "a message larger than its buffer");
    const int result = call_on(
        *options_.device, [&] { return nccl_.send(from.data, bytes, kBytes, peer, comm_, options_.device->stream()); });
    finish(result, peer, seconds);
}

void HostLink::receive(int peer, LinkBuffer& to, std::size_t bytes, double seconds) {
    if (lost()) throw LostHost(why_);
    if (bytes == 0) return;
    check(bytes <= to.size, "a message larger than its buffer");
    const int result = call_on(*options_.device, [&] {
        return nccl_.receive(to.data, bytes, kBytes, peer, comm_, options_.device->stream());
    });
    finish(result, peer, seconds);
}

void HostLink::finish(int result, int peer, double seconds) {
    const auto start = Clock::now();
    bool enqueued = false;
    for (;;) {
        if (result == kNcclInProgress || (result == kNcclSuccess && enqueued)) {
            int state = kNcclSuccess;
            const int asked = call_on(*options_.device, [&] { return nccl_.async_error(comm_, &state); });
            result = asked != kNcclSuccess ? asked : state;
        }
        if (result == kNcclSuccess) {
            enqueued = true;
            if (options_.device->idle()) return;
        } else if (result != kNcclInProgress) {
            const std::string what = nccl_.error_string(result);
            if (peer < 0) lose("the ranks could not be connected by NCCL (" + what + "); NCCL_DEBUG=WARN tells more");
            lose("the connection to " + name(peer) + " is lost (NCCL: " + what + ")" + kWayOn);
        }
        if (options_.interrupted != nullptr && *options_.interrupted) {
            lose("interrupted while rank " + std::to_string(options_.rank) + " waited for the other ranks");
        }
        const auto spent = Clock::now() - start;
        if (std::chrono::duration<double>(spent).count() > seconds) {
            if (peer < 0) {
                lose("not all of the " + std::to_string(options_.size) + " ranks were connected by NCCL within " +
                     seconds_text(seconds) + "; NCCL_DEBUG=INFO tells more");
            }
            lose(name(peer) + " has not answered for " + seconds_text(seconds) + kWayOn);
        }
        if (spent > kEager) std::this_thread::sleep_for(spent < kIdle ? kPause : kIdlePause);
    }
}

}  // namespace foresay::kernels
