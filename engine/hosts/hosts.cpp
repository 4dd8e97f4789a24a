#include "engine/hosts/hosts.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "core/weights/checksums.h"
#include "core/weights/mapped_file.h"
#include "engine/backend.h"
#include "engine/hosts/host_parts.h"
#include "engine/hosts/rendezvous.h"

namespace foresay::engine {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Message;
using kernels::MessageKind;

// A rank that loads nothing more for so long has stopped. One tensor from a slow disk may take a while.
constexpr double kLoadPause = 180.0;

// NCCL's memory: of the first GPU of the list, or the host's.
std::unique_ptr<kernels::LinkDevice> link_device(const core::Config& config, int rank) {
    const kernels::Nccl& nccl = kernels::Nccl::open();
    if (nccl.host_memory) return kernels::make_host_link_device();
    for (const core::Config& one : each_device(config)) {
        const BackendChoice choice = choose_backend(one);
        if (choice.cuda) return kernels::make_cuda_link_device(choice.device);
    }
    throw Error("rank " + std::to_string(rank) +
                " has no GPU in its list of devices, and NCCL moves the memory of GPUs; "
                "begin the list with one, as --device cuda:0");
}

}  // namespace

std::unique_ptr<kernels::HostLink> open_link(const Launch& launch, const core::Config& config) {
    const kernels::Nccl& nccl = kernels::Nccl::open();
    kernels::HostLink::Options options{.rank = launch.rank, .size = launch.size};
    options.start_seconds = launch.start_seconds;
    options.interrupted = launch.interrupted;
    options.device = link_device(config, launch.rank);
    const bool by_address = std::getenv("NCCL_COMM_ID") != nullptr;
    if (launch.rank == 0 || by_address) {
        if (const int result = nccl.get_unique_id(&options.id); result != kernels::kNcclSuccess) {
            throw Error(std::string("NCCL gives no id (") + nccl.error_string(result) +
                        "); NCCL_DEBUG=WARN tells more");
        }
    }
    if (!by_address) {
        Meeting meeting = meet(launch, options.id);
        options.id = meeting.id;
        options.hosts = std::move(meeting.hosts);
    }
    return std::make_unique<kernels::HostLink>(std::move(options));
}

Hosts::Hosts(std::unique_ptr<kernels::HostLink> link, double seconds)
    : group_(std::make_shared<kernels::HostGroup>(std::move(link), seconds)),
      nccl_("NCCL " + kernels::Nccl::open().version) {}

std::shared_ptr<Hosts> Hosts::join(const Launch& launch, const core::Config& config, const std::string& version) {
    if (choose_backend(config).rows) throw rows_on_one_host(config);
    const std::shared_ptr<Hosts> hosts(new Hosts(open_link(launch, config), launch.seconds));
    for (int rank = 1; rank < hosts->size(); ++rank) {
        Message hello(MessageKind::hello);
        hello.put_text(version);
        // It opens its devices first.
        kernels::MessageReader answer = hosts->group_->ask(rank, hello, {}, {}, launch.start_seconds);
        const auto count = answer.get<std::uint32_t>();
        for (std::uint32_t d = 0; d < count; ++d) {
            kernels::RemoteDevice device{.rank = rank, .device = static_cast<std::int32_t>(d)};
            device.facts = answer.get<kernels::RemoteDeviceFacts>();
            device.info.name = answer.get_text();
            device.info.detail = answer.get_text();
            device.info.threads = device.facts.threads;
            hosts->devices_.push_back(std::move(device));
        }
    }
    hosts->group_->all_joined();
    return hosts;
}

std::vector<std::shared_ptr<kernels::RemoteOps>> Hosts::open_devices() {
    std::vector<std::shared_ptr<kernels::RemoteOps>> all;
    for (const kernels::RemoteDevice& device : devices_) {
        all.push_back(std::make_shared<kernels::RemoteOps>(group_, device));
    }
    return all;
}

void Hosts::begin_load(const Load& load, const std::vector<kernels::RemoteOps*>& remotes) {
    std::int32_t first = load.own;
    for (int rank = 1; rank < size(); ++rank) {
        Message request(MessageKind::load);
        request.put_list(std::span<const std::int32_t>(load.devices)).put(first);
        request.put(load.own + static_cast<std::int32_t>(remotes.size()));
        request.put(load.context).put(load.by_backend).put_text(load.fingerprint);
        group_->ask(rank, request);
        first += static_cast<std::int32_t>(std::ranges::count(devices_, rank, &kernels::RemoteDevice::rank));
    }
    for (kernels::RemoteOps* remote : remotes) remote->begin_model();
}

void Hosts::finish_load(const std::vector<kernels::RemoteOps*>& remotes,
                        const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
    struct Rank {
        kernels::LoadStatus status;
        Clock::time_point moved = Clock::now();
    };
    std::vector<Rank> ranks(static_cast<std::size_t>(size()));
    for (;;) {
        bool done = true;
        std::int64_t done_bytes = 0, all_bytes = 0;
        for (int r = 1; r < size(); ++r) {
            Rank& rank = ranks[static_cast<std::size_t>(r)];
            if (!rank.status.done) {
                kernels::MessageReader answer = group_->ask(r, Message(MessageKind::load_status));
                const auto status = answer.get<kernels::LoadStatus>();
                if (status.done_bytes != rank.status.done_bytes) rank.moved = Clock::now();
                rank.status = status;
                for (const kernels::RemoteOps* remote : remotes) {
                    if (!status.done || remote->device().rank != r) continue;
                    if (answer.get<std::int32_t>() == remote->prepared()) continue;
                    throw Error(group_->name(r) +
                                " has loaded other layers than it was asked for; start the same "
                                "program with the same options on every host");
                }
                if (!status.done && std::chrono::duration<double>(Clock::now() - rank.moved).count() > kLoadPause) {
                    throw Error(group_->name(r) + " has not gone on loading the model for 3 minutes; look at its disk");
                }
            }
            done &= rank.status.done;
            done_bytes += rank.status.done_bytes;
            all_bytes += rank.status.all_bytes;
        }
        if (done) return;
        if (progress) progress(done_bytes, std::max<std::int64_t>(1, all_bytes));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

double Hosts::echo_seconds(int rank, std::size_t bytes) {
    if (!echo_ || echo_->size < bytes) echo_ = group_->device().allocate(bytes);
    Message request(MessageKind::echo);
    request.put(static_cast<std::uint64_t>(bytes));
    const auto start = Clock::now();
    group_->ask(rank, request, {echo_.get(), bytes}, {echo_.get(), bytes});
    return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string quick_fingerprint(const core::Config& config, const EngineOptions& options) {
    const SyntheticModel& random = options.random_target;
    if (config.target_model.empty()) return "random " + random.shape + " " + random.quant_type;
    constexpr std::size_t kSample = 64 << 10, kSamples = 64, kBeginning = 1 << 20;
    std::string text = options.inflate_target.shape + " " + options.inflate_target.quant_type;
    for (const std::filesystem::path& path : core::model_files(config.target_model)) {
        const core::MappedFile file(path);
        const std::span<const std::byte> bytes = file.bytes();
        std::vector<std::byte> sample(bytes.begin(),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(std::min(kBeginning, bytes.size())));
        for (std::size_t i = 0; i < kSamples && bytes.size() > kSample; ++i) {
            const std::size_t at = (bytes.size() - kSample) / (kSamples - 1) * i;
            const auto piece = bytes.subspan(at, kSample);
            sample.insert(sample.end(), piece.begin(), piece.end());
        }
        text += " " + std::to_string(bytes.size()) + " " + core::xxh128(sample);
    }
    return text;
}

}  // namespace foresay::engine
