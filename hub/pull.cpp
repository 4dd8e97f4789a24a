#include "hub/pull.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "hub/cache.h"
#include "hub/digest.h"
#include "hub/download.h"

namespace foresay::hub {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int kMostDepth = 64, kMostPages = 1000;
constexpr std::size_t kMostFiles = 200000;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // of a file
constexpr std::int64_t kRoom = std::int64_t{64} << 20;      // that stays free

json parse(const Client::Answer& answer, const std::string& url) {
    bool deep = false;
    const auto limit = [&](int depth, json::parse_event_t, json&) {
        deep = deep || depth > kMostDepth;
        return !deep;
    };
    json document = json::parse(answer.text, limit, false);
    if (deep || document.is_discarded()) {
        const bool page = answer.response.header("content-type").starts_with("text/html");
        throw Error(origin_of(url) + " answers " + (page ? "with a web page" : "with something else") +
                    " where a hub lists files; check HF_ENDPOINT, the proxy, and whether the network wants a login");
    }
    return document;
}

std::string text_of(const json& document, const char* member) {
    if (!document.is_object()) return "";
    const auto found = document.find(member);
    return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t size_of(const json& document) {
    const auto found = document.find("size");
    if (found == document.end() || !found->is_number_integer()) return -1;
    if (found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(kMostBytes)) return -1;
    return found->get<std::int64_t>();
}

std::optional<HubFile> file_of(const json& entry) {
    if (text_of(entry, "type") != "file") return std::nullopt;
    HubFile file{text_of(entry, "path"), size_of(entry), text_of(entry, "oid")};
    const auto large = entry.find("lfs");
    if (large != entry.end() && large->is_object()) {
        file.oid = text_of(*large, "oid");
        if (file.oid.starts_with("sha256:")) file.oid.erase(0, 7);
        if (large->contains("size")) file.size = size_of(*large);
    }
    return file;
}

// The address in `<...>; rel="next"`, made absolute; empty if there is none.
std::string next_page(const Response& response, const std::string& endpoint) {
    std::string_view text = response.header("link");
    while (!text.empty()) {
        const std::size_t open = text.find('<'), close = text.find('>', open);
        if (open == text.npos || close == text.npos) return "";
        const std::string_view url = text.substr(open + 1, close - open - 1);
        const std::string_view rest = text.substr(close + 1);
        const std::string_view about = rest.substr(0, rest.find('<'));
        if (about.find("rel=\"next\"") != about.npos || about.find("rel=next") != about.npos) {
            return url.starts_with("/") ? origin_of(endpoint) + std::string(url) : std::string(url);
        }
        text = rest;
    }
    return "";
}

class Puller {
public:
    Puller(const Settings& settings, const ModelName& name, Observer& observer)
        : settings_(settings),
          name_(name),
          observer_(observer),
          client_(settings, name, observer),
          cache_(settings.cache) {}

    PulledModel run() {
        const Listing listing = list_files(client_);
        commit_ = listing.commit;
        PulledModel out;
        out.commit = commit_;
        out.model = choose(listing.files, name_.choice, name_.repo);
        check(out.model.files);
        cache_.prepare(name_.repo);
        if (const HubFile* index = index_of(out.model)) {
            const HubFile file = *index;
            all_ = file.size;
            fetch(file);
            std::ifstream stream(cache_.blob(name_.repo, file.oid), std::ios::binary);
            const std::string text{std::istreambuf_iterator<char>(stream), {}};
            add_shards(out.model, listing.files, text, name_.repo);
            check(out.model.files);
        }
        const std::int64_t missing = check_room(out.model);
        observer_.plan(out.model, commit_, missing);
        done_ = 0;
        all_ = out.model.bytes();
        for (const HubFile& file : out.model.files) fetch(file);
        for (const HubFile& file : out.model.files) cache_.link(name_.repo, commit_, file);
        cache_.set_ref(name_.repo, name_.revision, commit_);
        out.fetched = fetched_;
        out.path = cache_.snapshot(name_.repo, commit_) / out.model.path;
        if (out.model.path.empty()) out.path = cache_.snapshot(name_.repo, commit_);
        return out;
    }

private:
    // Names and checksums become names of files here.
    void check(const std::vector<HubFile>& files) const {
        for (const HubFile& file : files) {
            if (!is_safe_path(file.path)) {
                throw Error(settings_.endpoint + " lists a file of " + name_.repo + " as '" + file.path.substr(0, 100) +
                            "', which would not lie in the cache; nothing was fetched");
            }
            if (!is_oid(file.oid) || file.size < 0 || file.size > kMostBytes) {
                throw Error(settings_.endpoint + " lists " + name_.repo + "/" + file.path +
                            " without a size and a checksum, so it could not be checked; nothing was fetched");
            }
        }
    }

    // Bytes that are to come. Errors: there is no room for them.
    std::int64_t check_room(const ModelFiles& model) const {
        std::int64_t missing = 0;
        std::set<std::string> seen;
        for (const HubFile& file : model.files) {
            if (!seen.insert(file.oid).second || cache_.has(name_.repo, file)) continue;
            missing += file.size - cache_.arrived(name_.repo, file);
        }
        const std::int64_t free = cache_.free_bytes();
        if (missing > 0 && missing + kRoom > free) {
            throw Error(name_.text() + " needs " + std::to_string((missing + kRoom) >> 20) + " MiB, and " +
                        settings_.cache.string() + " has room for " + std::to_string(free >> 20) +
                        " MiB; make room, or name another folder with HF_HUB_CACHE");
        }
        return missing;
    }

    void fetch(const HubFile& file) {
        const auto progress = [&](std::int64_t here) { observer_.progress(done_ + here, all_); };
        if (!cache_.has(name_.repo, file)) {
            bool said = false;
            const BlobLock lock(cache_, name_.repo, file.oid, [&] {
                client_.check_cancelled();
                if (!std::exchange(said, true)) {
                    observer_.note("another program is fetching " + name_.repo + "/" + file.path + "; waiting for it");
                }
                progress(cache_.arrived(name_.repo, file));
            });
            if (!cache_.has(name_.repo, file)) {  // the other program may have brought it
                const std::int64_t before = cache_.arrived(name_.repo, file);
                const fs::path path = cache_.blob(name_.repo, file.oid + ".incomplete");
                download(client_, commit_, file, path, progress);
                cache_.keep(name_.repo, file);
                fetched_ += file.size - before;
            }
        }
        done_ += file.size;
        observer_.progress(done_, all_);
    }

    const Settings& settings_;
    const ModelName& name_;
    Observer& observer_;
    Client client_;
    const Cache cache_;
    std::string commit_;
    std::int64_t done_ = 0, all_ = 0, fetched_ = 0;
};

PulledModel find_offline(const Settings& settings, const ModelName& name) {
    const Cache cache(settings.cache);
    const auto commit = cache.commit_of(name.repo, name.revision);
    const auto path = find_model(cache, name);
    if (!commit || !path) {
        throw Error("HF_HUB_OFFLINE is set, and " + name.text() + " is not complete in " + settings.cache.string() +
                    "; unset it to fetch the model, or choose one that `foresay list` shows");
    }
    PulledModel out;
    out.path = *path;
    out.commit = *commit;
    const fs::path folder = cache.snapshot(name.repo, *commit);
    const std::string inside = *path == folder ? "" : path->lexically_relative(folder).generic_string();
    for (ModelFiles& model : complete_models(cache, name.repo, *commit)) {
        if (model.path == inside) out.model = std::move(model);
    }
    return out;
}

}  // namespace

Listing list_files(Client& client) {
    const std::string& endpoint = client.settings().endpoint;
    const std::string base = endpoint + "/api/models/" + client.name().repo;
    const std::string about = base + "/revision/" + url_encoded(client.name().revision);
    Listing listing;
    listing.commit = text_of(parse(client.get(about), about), "sha");
    if (!is_commit(listing.commit)) {
        throw Error(endpoint + " does not say which commit " + client.name().repo + "@" + client.name().revision +
                    " is; check HF_ENDPOINT, which may be no hub");
    }
    std::string url = base + "/tree/" + listing.commit + "?recursive=1";
    for (int pages = 0; !url.empty(); ++pages) {
        const Client::Answer answer = client.get(url);
        const json entries = parse(answer, url);
        if (!entries.is_array()) {
            throw Error(endpoint + " does not list the files of " + client.name().repo +
                        "; check HF_ENDPOINT, which may " + "be no hub");
        }
        for (const json& entry : entries) {
            if (auto file = file_of(entry)) listing.files.push_back(std::move(*file));
        }
        if (pages == kMostPages || listing.files.size() > kMostFiles) {
            throw Error(endpoint + " lists files of " + client.name().repo + " without end; check HF_ENDPOINT");
        }
        url = next_page(answer.response, endpoint);
    }
    return listing;
}

PulledModel pull(const Settings& settings, const ModelName& name, Observer& observer) {
    if (settings.offline) return find_offline(settings, name);
    return Puller(settings, name, observer).run();
}

}  // namespace foresay::hub
