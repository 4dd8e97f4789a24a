#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

class OffStage : public Stage {
public:
    StageKind kind() const override { return StageKind::process; }
    bool idle() const override { return true; }
    bool whole_vocabulary() const override { return true; }
};

class SwitchableFactory : public StageFactory {
public:
    SwitchableFactory(std::shared_ptr<const StageFactory> inner, IsOff is_off)
        : inner_(std::move(inner)), is_off_(is_off) {}
    const StageDescription& description() const override { return inner_->description(); }
    std::unique_ptr<Stage> create(std::span<const ParameterValue> parameters,
                                  const Vocabulary& vocabulary) const override {
        if (is_off_(parameters)) return std::make_unique<OffStage>();
        return inner_->create(parameters, vocabulary);
    }

private:
    std::shared_ptr<const StageFactory> inner_;
    IsOff is_off_;
};

}  // namespace

std::shared_ptr<const StageFactory> switchable(const foresay_sampler* sampler, IsOff is_off) {
    return std::make_shared<SwitchableFactory>(make_plugin_factory(sampler, nullptr, "foresay"), is_off);
}

}  // namespace foresay::samplers
