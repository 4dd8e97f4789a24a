#include "tests/house/tree.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

namespace foresay::house {

namespace {

namespace fs = std::filesystem;

bool any_of(std::string_view value, std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

bool is_text(const fs::path& path) {
    const std::string extension = path.extension().string();
    const std::string name = path.filename().string();
    return is_source(name) || any_of(extension, {".md", ".txt", ".cmake", ".toml", ".sh", ".in"}) ||
           any_of(name, {"run", "CMakePresets.json", ".clang-format", ".gitignore"});
}

bool is_left_out(const fs::path& folder) {
    const std::string name = folder.filename().string();
    return (name.starts_with('.') && name != ".ci") || name.starts_with("build") || any_of(name, {"golden", "corpus"});
}

std::vector<File> read_project() {
    const fs::path root = FORESAY_SOURCE_DIR;
    std::vector<File> files;
    for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
        if (it->is_directory() && is_left_out(it->path())) it.disable_recursion_pending();
        if (!it->is_regular_file() || !is_text(it->path())) continue;
        std::ifstream stream(it->path(), std::ios::binary);
        files.push_back({it->path().lexically_relative(root).generic_string(),
                         {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()}});
    }
    std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.path < b.path; });
    return files;
}

// The room a path lies in: its first folder, and for plugins the second.
std::string room_of(std::string_view path) {
    const std::size_t slash = path.find('/');
    if (slash == path.npos) return "";
    const std::string first(path.substr(0, slash));
    if (first != "plugins") return first;
    return path.starts_with("plugins/host/") ? "plugins/host" : "plugins";
}

// Who may be included by whom, directly or through other headers; a room may always include itself. An entry with a dot
// or a slash is a path prefix.
struct Room {
    std::string_view name;
    std::vector<std::string_view> may_include;
};

const std::vector<Room>& rooms() {
    static const std::vector<Room> table = {
        {"base", {}},
        {"kernels", {"base/"}},
        // Knows nothing of models, tokenizers and samplers: a vocabulary is ids and bytes.
        {"grammar", {"base/"}},
        {"core", {"base/", "kernels/"}},
        // Of kernels, sampling alone: plain data and arithmetic, shared by host and device.
        {"samplers",
         {"base/", "grammar/", "kernels/sampling.h", "kernels/sampled_token.h", "kernels/sampling_plan.h",
          "kernels/sampling_steps.h", "kernels/noise.h", "kernels/math.h", "kernels/host_device.h"}},
        {"speculative", {"base/", "kernels/", "core/", "samplers/"}},
        {"plugins/host", {"base/", "samplers/"}},
        {"plugins", {"samplers/sdk/"}},
        {"engine", {"base/", "kernels/", "core/", "samplers/", "speculative/", "plugins/host/"}},
        {"server", {"base/", "kernels/", "core/", "samplers/", "speculative/", "plugins/host/", "engine/"}},
        // Knows nothing of models but the names of their files.
        {"hub", {"base/"}},
        {"app",
         {"base/", "kernels/", "grammar/", "core/", "samplers/", "speculative/", "plugins/host/", "engine/", "server/",
          "hub/"}},
        {"bench", {"base/", "kernels/", "grammar/", "core/", "samplers/", "speculative/", "plugins/host/", "engine/"}},
        {"examples", {"base/", "kernels/", "core/", "samplers/", "speculative/", "plugins/host/", "engine/"}},
        {"tests", {""}},
    };
    return table;
}

const Room* find_room(const std::string& name) {
    const auto room = std::find_if(rooms().begin(), rooms().end(), [&](const Room& r) { return r.name == name; });
    return room == rooms().end() ? nullptr : &*room;
}

// A name without a folder is a neighbour; a plugin is also built outside this tree and names the SDK's header so.
std::string included_path(const File& file, const Include& include) {
    const std::string folder = file.path.substr(0, file.path.rfind('/') + 1);
    return include.name.find('/') == include.name.npos ? folder + include.name : include.name;
}

bool may_include(const File& file, const std::string& path) {
    const std::string own = room_of(file.path);
    if (own == "plugins") {  // a plugin sees its own folder, not other plugins
        if (path.starts_with(file.path.substr(0, file.path.rfind('/') + 1))) return true;
    } else if (room_of(path) == own) {
        return true;
    }
    const std::vector<std::string_view>& allowed = find_room(own)->may_include;
    return std::any_of(allowed.begin(), allowed.end(),
                       [&](std::string_view prefix) { return path.starts_with(prefix); });
}

// What a file may see through other headers: what its room may include, and what those rooms see that it may include
// as a whole.
bool may_see(const File& file, const std::string& path) {
    if (may_include(file, path)) return true;
    const std::vector<std::string_view>& allowed = find_room(room_of(file.path))->may_include;
    return std::any_of(allowed.begin(), allowed.end(), [&](std::string_view prefix) {
        const Room* room =
            prefix.ends_with('/') ? find_room(std::string(prefix.substr(0, prefix.size() - 1))) : nullptr;
        return room != nullptr && std::any_of(room->may_include.begin(), room->may_include.end(),
                                              [&](std::string_view own) { return path.starts_with(own); });
    });
}

// A third-party library: how its headers begin, and the places whose .cpp files may include them.
struct Library {
    std::string_view prefix;
    std::vector<std::string_view> places;
};

const std::vector<Library>& libraries() {
    static const std::vector<Library> table = {
        {"toml++/", {"core/config/"}},
        {"nlohmann/", {"core/", "server/", "app/", "bench/", "hub/"}},
        {"boost/", {"plugins/host/", "server/http/", "app/"}},
        {"CLI/", {"app/"}},
        {"spdlog/", {"core/", "speculative/", "plugins/host/", "app/"}},
        {"fmt/", {"core/", "speculative/", "plugins/host/", "app/"}},
        {"pcre2", {"core/text/"}},
        {"xxhash", {"core/weights/", "core/cache/"}},
        {"openssl/", {"server/", "app/", "hub/"}},
        {"curl/", {}},
        {"utf8proc", {"core/text/", "app/"}},
        {"histedit", {"app/"}},
        {"editline/", {"app/"}},
    };
    return table;
}

// The .cpp file that a header says it is private to, by its path; empty for a public header.
std::string owner_of(const File& file) {
    constexpr std::string_view mark = "\n// Private to ";
    const std::size_t place = file.text.find(mark);
    if (!is_header(file.path) || place == file.text.npos) return "";
    const std::size_t begin = place + mark.size();
    const std::size_t end = file.text.find(".cpp", begin);
    if (end == file.text.npos || end - begin > 60) return "";
    return file.path.substr(0, file.path.rfind('/') + 1) + file.text.substr(begin, end - begin) + ".cpp";
}

std::string at(const File& file, int line) { return file.path + ":" + std::to_string(line) + ": "; }

}  // namespace

bool is_header(std::string_view path) {
    return path.ends_with(".h") || path.ends_with(".hpp") || path.ends_with(".cuh");
}

bool is_source(std::string_view path) {
    return is_header(path) || path.ends_with(".cpp") || path.ends_with(".c") || path.ends_with(".cu") ||
           path.ends_with(".inc");
}

const std::vector<File>& project_files() {
    static const std::vector<File> files = read_project();
    return files;
}

std::vector<Include> includes_of(std::string_view text) {
    std::vector<Include> includes;
    std::istringstream stream{std::string(text)};
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
        const std::size_t hash = line.find_first_not_of(" \t");
        if (hash == line.npos || line[hash] != '#') continue;
        const std::size_t word = line.find_first_not_of(" \t", hash + 1);
        if (word == line.npos || line.compare(word, 7, "include") != 0) continue;
        const std::size_t open = line.find_first_of("\"<", word);
        if (open == line.npos) continue;
        const std::size_t close = line.find(line[open] == '<' ? '>' : '"', open + 1);
        if (close == line.npos) continue;
        includes.push_back({line.substr(open + 1, close - open - 1), line[open] == '<', number});
    }
    return includes;
}

Complaints check_rooms(const File& file) {
    Complaints complaints;
    const std::string own = room_of(file.path);
    if (find_room(own) == nullptr) return {file.path + ": lies in no room of the house"};
    for (const Include& include : includes_of(file.text)) {
        if (include.angled) continue;
        if (!may_include(file, included_path(file, include)))
            complaints.push_back(at(file, include.line) + own + " may not include " + include.name);
    }
    return complaints;
}

Complaints check_reach(const std::vector<File>& files) {
    std::map<std::string, const File*> by_path;
    for (const File& file : files) by_path[file.path] = &file;
    // A room, the header that its files must not see, and the last file before it: one fault, however many files reach
    // it.
    struct Fault {
        std::string chain;
        int links = 0;
        int others = 0;
    };
    std::map<std::string, Fault> faults;
    for (const File& start : files) {
        if (!is_source(start.path) || find_room(room_of(start.path)) == nullptr) continue;
        // Breadth first, so that the shortest chain is shown.
        struct Visit {
            const File* file;
            std::string chain;
            int links;
        };
        std::set<std::string> seen = {start.path};
        std::deque<Visit> queue = {{&start, "", 0}};
        while (!queue.empty()) {
            const Visit visit = queue.front();
            queue.pop_front();
            for (const Include& include : includes_of(visit.file->text)) {
                if (include.angled) continue;
                const std::string path = included_path(*visit.file, include);
                const auto found = by_path.find(path);
                if (found == by_path.end() || !seen.insert(path).second) continue;
                const std::string chain = visit.chain + visit.file->path + ":" + std::to_string(include.line) + " -> ";
                if (may_see(start, path)) {
                    queue.push_back({found->second, chain, visit.links + 1});
                    continue;
                }
                if (visit.links == 0) continue;  // check_rooms() reports it
                const std::string what = room_of(start.path) + " sees " + path + " through " + visit.file->path;
                const auto [place, first] = faults.try_emplace(what, Fault{chain + path, visit.links, 0});
                if (first) continue;
                ++place->second.others;
                if (visit.links >= place->second.links) continue;
                place->second.chain = chain + path;
                place->second.links = visit.links;
            }
        }
    }
    Complaints complaints;
    for (const auto& [what, fault] : faults) {
        complaints.push_back(what + ": " + fault.chain +
                             (fault.others > 0 ? " (and from " + std::to_string(fault.others) + " more files)" : ""));
    }
    return complaints;
}

Complaints check_third_party(const File& file) {
    Complaints complaints;
    const bool is_test = file.path.starts_with("tests/");
    for (const Include& include : includes_of(file.text)) {
        for (const Library& library : libraries()) {
            if (!include.name.starts_with(library.prefix) || is_test) continue;
            if (is_header(file.path) && owner_of(file).empty())
                complaints.push_back(at(file, include.line) + include.name + " in a header");
            else if (std::none_of(library.places.begin(), library.places.end(),
                                  [&](std::string_view place) { return file.path.starts_with(place); }))
                complaints.push_back(at(file, include.line) + include.name + " does not belong in this room");
        }
    }
    return complaints;
}

Complaints check_private_headers(const File& file) {
    Complaints complaints;
    const std::string owner = owner_of(file);
    if (owner.empty()) return {};
    const std::string own = file.path.substr(0, file.path.rfind('.')) + ".cpp";
    for (const File& other : project_files()) {
        if (other.path == owner || other.path == own || other.path.starts_with("tests/") || !is_source(other.path))
            continue;
        for (const Include& include : includes_of(other.text)) {
            if (include.name == file.path) complaints.push_back(at(other, include.line) + "only for " + owner);
        }
    }
    return complaints;
}

Complaints check_header_opening(const File& file) {
    Complaints complaints;
    const std::string first = file.text.substr(0, file.text.find('\n'));
    if (first.starts_with("// generated")) return {};
    for (const std::string_view comment : {"// ", "/* "}) {
        if (first.starts_with(std::string(comment) + file.path + ": ")) {
            const bool guarded =
                file.text.find("#pragma once") != file.text.npos || file.text.find("#ifndef ") != file.text.npos;
            return guarded ? Complaints{} : Complaints{file.path + ": has no include guard"};
        }
    }
    return {file.path + ":1: should begin with `// " + file.path + ": purpose.`"};
}

Complaints check_length(const File& file) {
    const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
    const auto most = file.path.starts_with("docs/decisions/") ? 32 : 800;  // half a page
    if (lines <= most || file.text.substr(0, file.text.find('\n')).find("generated") != file.text.npos) return {};
    return {file.path + ": " + std::to_string(lines) + " lines; at most " + std::to_string(most)};
}

Complaints check_words(const File& file) {
    // Spelled in two parts, so that this file keeps its own rule.
    static const std::vector<std::string> unwanted = {
        "/wo"
        "rk/",
        "/ro"
        "ot/",
        "/ho"
        "me/",
        "// TO"
        "DO",
        "// FIX"
        "ME",
        "# TO"
        "DO"};
    Complaints complaints;
    for (const std::string& word : unwanted) {
        const std::size_t place = file.text.find(word);
        if (place == file.text.npos) continue;
        const auto line =
            1 + std::count(file.text.begin(), file.text.begin() + static_cast<std::ptrdiff_t>(place), '\n');
        complaints.push_back(at(file, static_cast<int>(line)) + "contains " + word);
    }
    return complaints;
}

namespace {

// What the pages that show Markdown call the headings of a text in links: "The KV cache" is "the-kv-cache".
std::set<std::string> anchors_of(const std::string& text) {
    std::set<std::string> anchors;
    std::istringstream lines(text);
    bool code = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("```")) code = !code;
        const std::size_t begin = line.find_first_not_of('#');
        if (code || begin == 0 || begin == line.npos || line[begin] != ' ') continue;
        std::string anchor;
        for (const char c : line.substr(begin + 1)) {
            const auto byte = static_cast<unsigned char>(c);
            if (c == ' ') anchor += '-';
            if (std::isalnum(byte) != 0 || byte >= 0x80 || c == '-' || c == '_') {
                anchor += static_cast<char>(std::tolower(byte));
            }
        }
        anchors.insert(anchor);
    }
    return anchors;
}

}  // namespace

Complaints check_links(const File& file) {
    Complaints complaints;
    const fs::path folder = (fs::path(FORESAY_SOURCE_DIR) / file.path).parent_path();
    for (std::size_t place = file.text.find("]("); place != file.text.npos; place = file.text.find("](", place + 2)) {
        const std::size_t end = file.text.find(')', place);
        if (end == file.text.npos) break;
        std::string target = file.text.substr(place + 2, end - place - 2);
        if (target.find("://") != target.npos) continue;
        const std::size_t mark = target.find('#');
        const std::string anchor = mark == target.npos ? "" : target.substr(mark + 1);
        target.resize(std::min(mark, target.size()));
        if (!fs::exists(folder / target)) complaints.push_back(file.path + ": nothing at " + target);
        if (anchor.empty() || (!target.empty() && !target.ends_with(".md"))) continue;
        std::string text = file.text;
        if (!target.empty()) {
            std::ifstream other(folder / target, std::ios::binary);
            text.assign(std::istreambuf_iterator<char>(other), {});
        }
        if (!anchors_of(text).contains(anchor)) {
            complaints.push_back(file.path + ": no heading #" + anchor + (target.empty() ? "" : " in " + target));
        }
    }
    return complaints;
}

}  // namespace foresay::house
