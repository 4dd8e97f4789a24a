#include "hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "hub/digest.h"

namespace foresay::hub {

namespace fs = std::filesystem;

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPoll{100};
constexpr std::size_t kPiece = std::size_t{1} << 20;  // that is read back at once

class IncompleteFile {
public:
    explicit IncompleteFile(const fs::path& path) : path_(path) {
        descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        struct stat status {};
        if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) fail(errno);
        if (!S_ISREG(status.st_mode)) throw Error(path.string() + " is not a file; remove it");
        size_ = status.st_size;
    }
    ~IncompleteFile() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    IncompleteFile(const IncompleteFile&) = delete;
    IncompleteFile& operator=(const IncompleteFile&) = delete;

    std::int64_t size() const { return size_; }
    void clear() {
        if (::ftruncate(descriptor_, 0) != 0) fail(errno);
        size_ = 0;
    }
    void append(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t wrote = ::pwrite(descriptor_, bytes.data(), bytes.size(), size_);
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote < 0) fail(errno);
            size_ += wrote;
            bytes.remove_prefix(static_cast<std::size_t>(wrote));
        }
    }
    std::string_view read(std::int64_t begin, std::vector<char>& buffer) const {
        for (;;) {
            const ssize_t got = ::pread(descriptor_, buffer.data(), buffer.size(), begin);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail(errno);
            return {buffer.data(), static_cast<std::size_t>(got)};
        }
    }

private:
    [[noreturn]] void fail(int problem) const {
        if (problem == ENOSPC || problem == EDQUOT || problem == EFBIG) {
            throw Error("cannot write " + path_.string() + ": " + std::strerror(problem) +
                        "; make room and pull again, what has arrived is kept");
        }
        throw Error("cannot write " + path_.string() + ": " + std::strerror(problem) +
                    "; HF_HUB_CACHE names another folder");
    }

    const fs::path path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;
};

// "bytes 100-199/5000"; false for anything else.
bool read_range(std::string_view text, std::int64_t& begin, std::int64_t& last, std::int64_t& all) {
    constexpr std::string_view unit = "bytes ";
    if (!text.starts_with(unit)) return false;
    text.remove_prefix(unit.size());
    const auto number = [&](std::int64_t& value) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        return error == std::errc();
    };
    const auto mark = [&](char wanted) {
        if (!text.starts_with(wanted)) return false;
        text.remove_prefix(1);
        return true;
    };
    if (!number(begin) || !mark('-') || !number(last) || !mark('/')) return false;
    return text == "*" ? (all = -1, true) : number(all) && text.empty();
}

// An ETag without its marks.
std::string_view bare_tag(std::string_view tag) {
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"') tag = tag.substr(1, tag.size() - 2);
    return tag;
}

bool is_redirect(int status) { return status >= 301 && status <= 308 && status != 304; }

class Download {
public:
    Download(Client& client, const std::string& commit, const HubFile& file, const fs::path& incomplete,
             const std::function<void(std::int64_t)>& progress)
        : client_(client),
          commit_(commit),
          file_(file),
          progress_(progress),
          url_(client.settings().endpoint + "/" + client.name().repo + "/resolve/" + commit + "/" +
               url_encoded(file.path, "/")),
          out_(incomplete),
          digest_(file.oid, file.size) {}
    ~Download() { stop_all(); }
    Download(const Download&) = delete;
    Download& operator=(const Download&) = delete;

    void run() {
        if (out_.size() > file_.size) out_.clear();
        read_back();
        bool resumed = out_.size() > 0;
        for (;;) {
            next_ = out_.size();
            fetch();
            if (digest_.finish() == file_.oid) return;
            out_.clear();
            if (!std::exchange(resumed, false)) {
                throw Error(place() + " came with another checksum than " + client_.settings().endpoint +
                            " lists for it, so it was thrown away; try again, and if it happens again, the hub or " +
                            "something on the way damages files");
            }
            client_.observer().note("the part of " + file_.path + " that was here is damaged; fetching it again");
            restart();
        }
    }

private:
    struct Segment {
        std::int64_t next = 0, end = 0;  // what is still to come
        std::string waiting;             // arrived, not yet written
        std::string url;                 // of the request
        int id = 0;                      // of the transfer; 0: none
        bool accepted = false;           // the answer has what was asked for
        int redirects = 0, tries = 0;
        std::int64_t next_at_try = -1;
        steady_clock::time_point not_before{};
    };

    std::string place() const { return client_.name().repo + "/" + file_.path; }

    // The checksum of what is here already.
    void read_back() {
        std::vector<char> buffer(kPiece);
        for (std::int64_t at = 0; at < out_.size();) {
            client_.check_cancelled();
            const std::string_view piece = out_.read(at, buffer);
            if (piece.empty()) break;
            digest_.add(piece);
            at += static_cast<std::int64_t>(piece.size());
            progress_(at);
        }
    }

    void stop_all() {
        for (Segment& segment : segments_) {
            if (segment.id != 0) client_.http().stop(std::exchange(segment.id, 0));
        }
    }

    void restart() {
        stop_all();
        segments_.clear();
        out_.clear();
        digest_ = Digest(file_.oid, file_.size);
        next_ = 0;
    }

    void fetch() {
        while (out_.size() < file_.size) {
            client_.check_cancelled();
            start();
            for (Finished& finished : client_.http().poll(kPoll)) finish(finished);
            write();
        }
    }

    // The end of a segment that begins at `begin`.
    std::int64_t segment_end(std::int64_t begin) const {
        return ranges_ ? std::min(begin + client_.settings().segment, file_.size) : file_.size;
    }

    void start() {
        // The first answer says whether there are ranges, and where they are.
        const auto connections = static_cast<std::size_t>(known_ && ranges_ ? client_.settings().connections : 1);
        while (segments_.size() < (known_ ? 2 * connections : 1) && next_ < file_.size) {
            Segment& segment = segments_.emplace_back();
            segment.next = next_;
            segment.end = next_ = segment_end(next_);
        }
        std::size_t running = 0;
        for (const Segment& segment : segments_) running += segment.id != 0 ? 1 : 0;
        const auto now = steady_clock::now();
        for (Segment& segment : segments_) {
            if (running >= connections) break;
            if (segment.id != 0 || segment.next == segment.end || now < segment.not_before) continue;
            if (segment.url.empty()) segment.url = location_.empty() ? url_ : location_;
            request(segment);
            ++running;
        }
    }

    void request(Segment& segment) {
        Request request{segment.url, client_.headers_for(segment.url), {}, {}};
        const bool whole = segment.next == 0 && segment.end == file_.size;
        if (!whole) {
            request.headers.push_back("Range: bytes=" + std::to_string(segment.next) + "-" +
                                      std::to_string(segment.end - 1));
            // The name of a blob is the hub's own tag. Elsewhere the first answer tells.
            const std::string tag = client_.is_hub(segment.url) ? "\"" + file_.oid + "\"" : tag_;
            if (!tag.empty()) request.headers.push_back("If-Range: " + tag);
        }
        segment.accepted = false;
        request.begin = [this, &segment](const Response& response) { begin(segment, response); };
        request.body = [this, &segment](std::string_view bytes) { take(segment, bytes); };
        segment.id = client_.http().start(std::move(request));
    }

    // Refuses an answer that contradicts what the hub has listed.
    void begin(Segment& segment, const Response& response) {
        if (client_.is_hub(segment.url) && response.status < 400) check_listed(response);
        if (response.status != 200 && response.status != 206) return;
        if (response.header("content-type").starts_with("text/html") && !file_.path.ends_with(".html")) {
            throw Error(origin_of(segment.url) + " answers with a web page instead of " + place() +
                        "; a proxy or the login page of a network may be in the way");
        }
        if (response.status == 206) {
            std::int64_t from = -1, last = -1, all = -1;
            const bool fine = read_range(response.header("content-range"), from, last, all) && from == segment.next &&
                              last < segment.end && (all < 0 || all == file_.size);
            if (!fine) wrong_length(response.header("content-range"));
        } else {
            const std::string_view length = response.header("content-length");
            if (!length.empty() && length != std::to_string(file_.size)) wrong_length(length);
            if (known_ && ranges_) {
                throw Error(place() + " changed while it was fetched; pull it again");
            }
            // No ranges there, or the part that is here is of another file: from the start, in one piece.
            ranges_ = false;
            if (out_.size() > 0) {
                out_.clear();
                digest_ = Digest(file_.oid, file_.size);
            }
            segment.waiting.clear();
            segment.next = 0;
            segment.end = next_ = file_.size;
        }
        known_ = segment.accepted = true;
        location_ = segment.url;
        const std::string_view tag = response.header("etag");
        tag_ = tag.starts_with("\"") ? tag : "";  // a weak one does not name bytes
    }

    void check_listed(const Response& response) const {
        const std::string_view size = response.header("x-linked-size");
        if (!size.empty() && size != std::to_string(file_.size)) wrong_length(size);
        const std::string_view tag = bare_tag(response.header("x-linked-etag"));
        const std::string_view commit = response.header("x-repo-commit");
        if ((!tag.empty() && tag != file_.oid) || (!commit.empty() && commit != commit_)) {
            throw Error(client_.settings().endpoint + " contradicts itself about " + place() +
                        ": it lists one version and offers another; pull it again");
        }
    }

    [[noreturn]] void wrong_length(std::string_view offered) const {
        throw Error(client_.settings().endpoint + " lists " + place() + " with " + std::to_string(file_.size) +
                    " bytes and offers '" + std::string(offered.substr(0, 64)) + "'; try again later");
    }

    void take(Segment& segment, std::string_view bytes) {
        if (!segment.accepted) return;  // of a redirect or a refusal
        if (static_cast<std::int64_t>(bytes.size()) > segment.end - segment.next) {
            throw Error(origin_of(segment.url) + " sends more of " + place() + " than it lists; try again later");
        }
        segment.waiting += bytes;
        segment.next += static_cast<std::int64_t>(bytes.size());
    }

    void finish(const Finished& finished) {
        const auto found = std::find_if(segments_.begin(), segments_.end(),
                                        [&](const Segment& segment) { return segment.id == finished.id; });
        if (found == segments_.end()) return;
        Segment& segment = *found;
        segment.id = 0;
        const std::string url = std::exchange(segment.url, "");
        const int status = finished.response.status;
        if (segment.accepted && segment.next == segment.end) return;
        if (finished.problem == Problem::none && is_redirect(status)) {
            if (++segment.redirects > Client::kMostRedirects) {
                throw Error(origin_of(url_) + " redirects without end for " + place() + "; try again later");
            }
            segment.url = client_.redirected(url, finished.response);
            return;
        }
        segment.redirects = 0;
        if (finished.problem == Problem::none && !segment.accepted) {
            const Error refusal = client_.refusal(finished.response, url);
            if (status == 416) wrong_length("fewer");
            // An address elsewhere is good for some minutes only; the hub makes another.
            if (!client_.is_hub(url)) location_.clear();
            if (client_.is_hub(url) && !Client::may_pass(finished.response)) throw refusal;
            return repeat(segment, finished, refusal);
        }
        const bool lost = finished.problem == Problem::none || finished.problem == Problem::broken ||
                          finished.problem == Problem::unreachable;
        Finished ended = finished;
        if (finished.problem == Problem::none) {
            ended.problem = Problem::broken;
            ended.text = "the answer ended early";
        }
        const Error failure = client_.failure(ended, url);
        if (!lost) throw failure;
        repeat(segment, ended, failure);
    }

    void repeat(Segment& segment, const Finished& finished, const Error& problem) {
        if (segment.next > segment.next_at_try) segment.tries = 0;
        segment.next_at_try = segment.next;
        if (++segment.tries >= client_.settings().tries) throw problem;
        if (segment.tries > 1) location_.clear();
        const milliseconds delay = client_.delay(segment.tries, finished.response);
        segment.not_before = steady_clock::now() + delay;
        const std::string what = problem.what();
        client_.note_repetition(what.substr(0, what.find(';')), delay);
    }

    // Writes what has arrived without a gap.
    void write() {
        std::int64_t arrived = out_.size();
        while (!segments_.empty()) {
            Segment& first = segments_.front();
            out_.append(first.waiting);
            digest_.add(first.waiting);
            first.waiting.clear();
            if (first.id != 0 || first.next < first.end) break;
            segments_.pop_front();
        }
        arrived = out_.size();
        for (const Segment& segment : segments_) arrived += static_cast<std::int64_t>(segment.waiting.size());
        progress_(arrived);
    }

    Client& client_;
    const std::string& commit_;
    const HubFile& file_;
    const std::function<void(std::int64_t)>& progress_;
    const std::string url_;
    IncompleteFile out_;
    Digest digest_;
    std::deque<Segment> segments_;  // in order, from the first byte that is not written
    std::int64_t next_ = 0;         // the first byte of no segment
    bool known_ = false;            // whether an answer has been accepted
    bool ranges_ = true;
    std::string location_;  // where redirects have led; empty: ask the hub
    std::string tag_;       // of the file there
};

}  // namespace

void download(Client& client, const std::string& commit, const HubFile& file, const fs::path& incomplete,
              const std::function<void(std::int64_t)>& progress) {
    Download(client, commit, file, incomplete, progress).run();
}

}  // namespace foresay::hub
