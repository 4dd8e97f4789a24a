#include "engine/draft_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "core/models/op_maker.h"
#include "core/models/shapes.h"
#include "speculative/known_drafts.h"
#include "speculative/pairing.h"

namespace foresay::engine {
namespace {

namespace fs = std::filesystem;

constexpr double kMostShare = 0.5;       // of the target's bytes
constexpr double kLeastGain = 1.05;      // that is worth a second model in memory
constexpr std::size_t kMostFiles = 500;  // opened
constexpr int kMostEntries = 10000;      // of all folders
constexpr int kLevels = 2;               // of folders below a folder
constexpr std::int32_t kMostPadding = 1024;

struct Candidate {
    fs::path path;
    std::unique_ptr<core::ModelSource> source;
    const speculative::KnownDraft* known = nullptr;
    double acceptance = 0.0;
    double share = 0.0;  // of the target's bytes that a token of it reads
    speculative::Gain gain;
};

// What a token of a model reads.
struct Reads {
    double bytes = 0.0;
    double expert_share = 0.0;  // of them, by the chosen experts
};

Reads reads_of(core::ModelSource& source) {
    const core::ModelConfig& config = source.config();
    const auto all = static_cast<double>(core::parameter_count(config));
    const auto active = static_cast<double>(core::active_parameter_count(config));
    double experts = 0.0;
    for (const core::TensorUse& use : core::tensors_of(config)) {
        if (use.name.expert < 0 || use.name.expert >= config.experts.used) continue;
        experts += static_cast<double>(use.shape.rows * use.shape.cols);
    }
    return {static_cast<double>(source.weight_bytes()) * active / all, experts / active};
}

std::string percent(double share) {
    char text[32];
    std::snprintf(text, sizeof text, share < 0.0995 ? "%.1f %%" : "%.0f %%", 100.0 * share);
    return text;
}

std::string times(double factor) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f times", factor);
    return text;
}

// Collects models without opening them.
class Collector {
public:
    explicit Collector(const fs::path& target) : target_(target) {}

    std::vector<fs::path> take() { return std::move(found_); }

    void folder(const fs::path& folder, int levels) {
        const std::vector<fs::directory_entry> entries = entries_of(folder);
        std::error_code ignored;
        bool safetensors = false, config = false;
        for (const fs::directory_entry& entry : entries) {
            const fs::path& path = entry.path();
            safetensors = safetensors || path.extension() == ".safetensors";
            config = config || path.filename() == "config.json";
            if (path.extension() == ".gguf") add(path);
        }
        if (safetensors && config) add(folder);
        if (levels == 0) return;
        for (const fs::directory_entry& entry : entries) {
            const bool hidden = entry.path().filename().string().starts_with('.');
            if (!hidden && entry.is_directory(ignored)) this->folder(entry.path(), levels - 1);
        }
    }

    void hub(const fs::path& cache) {
        std::error_code ignored;
        for (const fs::directory_entry& entry : entries_of(cache)) {
            const fs::path model = entry.path();
            if (!model.filename().string().starts_with("models--")) continue;
            std::ifstream ref(model / "refs" / "main");
            std::string revision;
            std::getline(ref, revision);
            const bool plain = !revision.empty() && revision.find('/') == std::string::npos && revision != "..";
            const fs::path snapshots = model / "snapshots";
            if (plain && fs::is_directory(snapshots / revision, ignored)) {
                folder(snapshots / revision, 1);
            } else {
                folder(snapshots, kLevels);
            }
        }
    }

private:
    // In the order of their names.
    std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
        std::error_code ignored;
        std::vector<fs::directory_entry> entries;
        for (fs::directory_iterator at(folder, fs::directory_options::skip_permission_denied, ignored), end;
             !ignored && at != end && entries_left_ > 0; at.increment(ignored), --entries_left_) {
            entries.push_back(*at);
        }
        std::ranges::sort(entries);
        return entries;
    }

    void add(const fs::path& path) {
        std::error_code ignored;
        if (found_.size() >= kMostFiles || fs::equivalent(path, target_, ignored)) return;
        const std::string name = path.filename().string();
        // The first part of a split file opens all of them.
        const std::size_t part = name.rfind("-of-");
        const bool later_part = part != std::string::npos && part >= 5 && name.compare(part - 5, 5, "00001") != 0 &&
                                name.find_first_not_of("0123456789", part - 5) == part;
        if (later_part || name.starts_with("mmproj")) return;
        if (seen_.insert(fs::weakly_canonical(path, ignored)).second) found_.push_back(path);
    }

    fs::path target_;
    std::set<fs::path> seen_;
    std::vector<fs::path> found_;
    int entries_left_ = kMostEntries;
};

// Bytes of the files of a model, without opening it; a split file counts its first part.
std::int64_t bytes_on_disk(const fs::path& path) {
    std::error_code ignored;
    std::int64_t sum = 0;
    if (!fs::is_directory(path, ignored)) return static_cast<std::int64_t>(fs::file_size(path, ignored));
    for (fs::directory_iterator at(path, ignored), end; !ignored && at != end; at.increment(ignored)) {
        if (at->path().extension() == ".safetensors") sum += static_cast<std::int64_t>(fs::file_size(*at, ignored));
    }
    return sum;
}

class Finder {
public:
    Finder(core::ModelSource& target, const core::Tokenizer& tokenizer, const fs::path& path, const DraftSearch& search)
        : target_(target),
          tokenizer_(tokenizer),
          path_(path),
          search_(search),
          name_(core::published_name(target.config())),
          reads_(reads_of(target)),
          target_bytes_(target.weight_bytes()) {}

    FoundDraft find() {
        Collector collector(path_);
        std::error_code ignored;
        fs::path own = fs::absolute(path_, ignored).lexically_normal();
        if (!own.has_filename()) own = own.parent_path();
        collector.folder(own.parent_path(), 1);
        for (const fs::path& folder : search_.folders) collector.folder(folder, kLevels);
        if (!search_.hub.empty()) collector.hub(search_.hub);
        for (const fs::path& path : collector.take()) look_at(path);
        std::ranges::stable_sort(candidates_, [](const Candidate& a, const Candidate& b) {
            if ((a.known != nullptr) != (b.known != nullptr)) return a.known != nullptr;
            return a.gain.times > b.gain.times;
        });
        for (Candidate& candidate : candidates_) {
            if (std::optional<FoundDraft> found = choose(candidate)) return *std::move(found);
        }
        return {{}, what_to_fetch()};
    }

private:
    void skip(const fs::path& path, const std::string& why) const {
        if (search_.skipped) search_.skipped("as a draft, " + path.string() + " is left out: " + why);
    }

    void look_at(const fs::path& path) {
        if (bytes_on_disk(path) > target_bytes_) return skip(path, "it is larger than the target");
        Candidate candidate{.path = path};
        try {
            candidate.source = core::ModelSource::open(path);
            judge(candidate);
        } catch (const std::exception& problem) {
            skip(path, problem.what());
        }
    }

    void judge(Candidate& candidate) {
        const core::ModelConfig& config = candidate.source->config();
        candidate.share = reads_of(*candidate.source).bytes / reads_.bytes;
        if (candidate.share > kMostShare) {
            return skip(candidate.path, "it reads " + percent(candidate.share) + " of the target's bytes per token");
        }
        const std::int32_t rows = target_.config().shape.vocab, own = config.shape.vocab;
        if (std::abs(rows - own) > std::max(kMostPadding, rows / 10)) {
            return skip(candidate.path,
                        "it has " + std::to_string(own) + " tokens, the target " + std::to_string(rows));
        }
        candidate.known = speculative::find_known_draft(name_, core::published_name(config));
        const bool stated = candidate.known != nullptr && candidate.known->acceptance > 0.0;
        candidate.acceptance = stated ? candidate.known->acceptance : speculative::kAssumedAcceptance;
        candidate.gain = gain(candidate.acceptance, candidate.share);
        if (candidate.gain.times < kLeastGain) {
            return skip(candidate.path, "it reads " + percent(candidate.share) +
                                            " of the target's bytes per token, so that it would gain nothing");
        }
        candidates_.push_back(std::move(candidate));
    }

    speculative::Gain gain(double acceptance, double share) const {
        const core::ExpertConfig& experts = target_.config().experts;
        return speculative::expected_gain({.acceptance = acceptance,
                                           .draft_share = share,
                                           .row_share = search_.row_share,
                                           .experts = experts.count,
                                           .experts_used = experts.used,
                                           .expert_share = reads_.expert_share});
    }

    std::optional<FoundDraft> choose(Candidate& candidate) const {
        try {
            const std::optional<core::Tokenizer> tokens = core::Tokenizer::of_optional(*candidate.source);
            if (!tokens) throw Error("it has no tokenizer to compare");
            const speculative::Pairing pairing =
                speculative::check_pairing({target_.config(), &tokenizer_, target_.path()},
                                           {candidate.source->config(), &*tokens, candidate.source->path()});
            return FoundDraft{candidate.path, sentence(candidate, pairing)};
        } catch (const std::exception& problem) {
            skip(candidate.path, problem.what());
            return std::nullopt;
        }
    }

    std::string sentence(const Candidate& candidate, const speculative::Pairing& pairing) const {
        const bool known = candidate.known != nullptr;
        const bool stated = known && candidate.known->acceptance > 0.0;
        std::string text = "draft: " + candidate.path.string() + ", ";
        text += known ? "known to draft for " + std::string(name_) : "which shares the target's tokenizer";
        text += "; it reads " + percent(candidate.share) + " of the target's bytes, and if " +
                percent(candidate.acceptance) + " of its tokens are right (" + (stated ? "as stated" : "assumed") +
                "), text comes " + times(candidate.gain.times) + " as fast";
        if (const std::size_t never = pairing.never_proposed.size(); never > 0) {
            text += "; " + std::to_string(never) + (never == 1 ? " id" : " ids") + " will never be proposed";
        }
        return text;
    }

    // A draft that could be fetched, if one is known.
    std::string what_to_fetch() const {
        const speculative::KnownDraft* known = speculative::first_known_draft(name_);
        if (known == nullptr) return {};
        const std::string repository(known->repository);
        return "no draft model for " + std::string(name_) + " is here; `foresay pull " + repository +
               "` fetches one that is known to work, " + std::string(known->draft);
    }

    core::ModelSource& target_;
    const core::Tokenizer& tokenizer_;
    fs::path path_;
    const DraftSearch& search_;
    std::string_view name_;  // of the target's shape; may be empty
    Reads reads_;
    std::int64_t target_bytes_;
    std::vector<Candidate> candidates_;
};

}  // namespace

FoundDraft find_draft(core::ModelSource& target, const core::Tokenizer* tokenizer, const fs::path& path,
                      const DraftSearch& search) {
    if (tokenizer == nullptr) return {};
    return Finder(target, *tokenizer, path, search).find();
}

}  // namespace foresay::engine
