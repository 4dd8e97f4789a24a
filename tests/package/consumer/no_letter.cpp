// A plugin as its author writes it, from the installed SDK: no token may hold a certain letter.
#include <string>
#include <string_view>
#include <vector>

#include "samplers/sdk/sampler.hpp"

namespace {

struct NoLetter {
    static constexpr foresay::Info info{"no_letter", "1.0.0", "Keeps a letter out of the text.", "Apache-2.0"};
    struct Parameters {
        std::string letter = "e";
    };
    static auto parameters() {
        return foresay::parameters(foresay::text("letter", &Parameters::letter, "What must not appear."));
    }

    NoLetter(const Parameters& p, foresay::Host host) {
        for (std::int32_t id = 0; id < host.vocabulary_size(); ++id) {
            holds_.push_back(host.token_text(id).find(p.letter) != std::string_view::npos);
        }
    }
    void process(const foresay::Context&, foresay::Mask& candidates) const {
        candidates.drop_if([&](foresay::Candidate c) { return holds_[static_cast<std::size_t>(c.id)]; });
    }

private:
    std::vector<bool> holds_;
};

}  // namespace

FORESAY_EXPORT_SAMPLERS(NoLetter)
