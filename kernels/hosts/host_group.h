// kernels/hosts/host_group.h: rank 0's side of the link: requests to the other hosts and their answers, and a ping now
// and then, by which they know that rank 0 is there.
//
// Threads:  any; requests follow one another. A thread of its own pings.
// Errors:   LostHost (kernels/hosts/host_link.h): from then on, each request throws it. Error: what a rank could not
//           do; it can do what comes next.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/hosts/host_link.h"
#include "kernels/hosts/message.h"

namespace foresay::kernels {

// What comes after a message, of either side.
struct LinkPayload {
    LinkBuffer* buffer = nullptr;
    std::size_t bytes = 0;
};

class HostGroup {
public:
    // `seconds`: how long a rank may take for an answer, more for the rows of a prompt.
    HostGroup(std::unique_ptr<HostLink> link, double seconds);
    // Ends the other ranks.
    ~HostGroup();
    HostGroup(const HostGroup&) = delete;
    HostGroup& operator=(const HostGroup&) = delete;

    // As HostLink::all_joined().
    void all_joined() {
        const std::lock_guard lock(mutex_);
        link_->all_joined();
    }
    int size() const { return link_->size(); }
    std::string name(int rank) const { return link_->name(rank); }
    LinkDevice& device() { return link_->device(); }
    double seconds() const { return seconds_; }

    // Sends `request` and `payload`; the answer is left for collect().
    void post(int rank, const Message& request, LinkPayload payload = {}, LinkPayload answer = {},
              double seconds = 0.0);
    // Waits for the answer to what was posted to a rank. The body is valid until the next call.
    MessageReader collect(int rank);
    // The same, if an answer is still to come.
    void settle(int rank);
    // Both.
    MessageReader ask(int rank, const Message& request, LinkPayload payload = {}, LinkPayload answer = {},
                      double seconds = 0.0) {
        post(rank, request, payload, answer, seconds);
        return collect(rank);
    }
    // A request that has no answer.
    void tell(int rank, const Message& request);
    // The same from a destructor: what fails is found by the next request.
    void tell_quietly(int rank, const Message& request) noexcept;

private:
    struct Pending {
        bool waits = false;
        LinkPayload answer;
        double seconds = 0.0;
    };

    void send(int rank, const Message& message);
    std::span<const std::byte> collect_bytes(int rank);
    void ping();
    Message ping_for(double seconds) const;
    void announce(int waiting_for, double seconds);
    // How long a rank waits for rank 0: for another one's answer in between, if there are others.
    double patience() const { return size() > 2 ? 2.0 * seconds_ : seconds_; }

    std::unique_ptr<HostLink> link_;
    double seconds_;
    std::recursive_mutex mutex_;
    std::unique_ptr<LinkBuffer> block_;
    std::vector<std::byte> bytes_, answer_;
    std::vector<Pending> pending_;  // by rank
    std::condition_variable_any ends_;
    bool ending_ = false;
    std::thread pinger_;
};

// One message over a link, for both sides. `scratch` has kBlock bytes and grows.
void send_message(HostLink& link, int peer, const Message& message, std::unique_ptr<LinkBuffer>& block,
                  std::vector<std::byte>& scratch, double seconds);
// Returns the kind; the body in `body`. Throws Error when the other side speaks another protocol.
MessageKind receive_message(HostLink& link, int peer, std::unique_ptr<LinkBuffer>& block, std::vector<std::byte>& body,
                            double seconds);

}  // namespace foresay::kernels
