#include "app/hosts.h"

#include <spdlog/spdlog.h>

#include <csignal>

#include "app/command_line/parser.h"
#include "app/configuration.h"
#include "app/interrupt.h"
#include "app/options.h"
#include "base/error.h"

namespace foresay::app {
namespace {

std::shared_ptr<engine::Hosts>& joined() {
    static std::shared_ptr<engine::Hosts> hosts;
    return hosts;
}

int serve(const engine::Launch& launch, const core::Config& config, const Options& options) {
    engine::EngineOptions engine;
    engine.random_target = {options.shape, options.quant_type};
    engine.inflate_target = {options.inflate, options.quant_type};
    const std::string end = engine::serve_layers(launch, config, engine, FORESAY_VERSION, [](const std::string& line) {
        // From now on Ctrl-C at the terminal of all ranks is for rank 0, which says when to end.
        std::signal(SIGINT, SIG_IGN);
        if (interrupted()) throw Error("interrupted before rank 0 had layers to serve");
        spdlog::info("{}", line);
    });
    spdlog::info("{}", end);
    return 0;
}

}  // namespace

HostsOfCommand::HostsOfCommand(const ParsedCommand& command) {
    if (command.over_hosts == nullptr) return;  // every rank runs it for itself
    std::optional<engine::Launch> launch = engine::read_launch();
    if (!launch) return;
    launch->interrupted = &interrupted();
    const core::Config config = Configuration(*command.over_hosts).config();
    spdlog::info("rank {} of {} waits for the others at {}:{}", launch->rank, launch->size, launch->host, launch->port);
    if (launch->rank > 0) {
        status = serve(*launch, config, *command.over_hosts);
        return;
    }
    joined() = engine::Hosts::join(*launch, config, FORESAY_VERSION);
    spdlog::info("{} ranks are connected by {} ({})", launch->size, joined()->nccl(), launch->origin);
}

HostsOfCommand::~HostsOfCommand() { joined().reset(); }

const std::shared_ptr<engine::Hosts>& other_hosts() { return joined(); }

}  // namespace foresay::app
