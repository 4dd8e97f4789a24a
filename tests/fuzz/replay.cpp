// In place of libFuzzer's main: gives the target every file of the folders and files named, once. So the corpora are
// also tried in builds of any compiler, and under the sanitizer of the build. A finding ends the program, after the
// file's name.
//
// -mutations=N [-seed=S] [-first=BYTES] FILES: N inputs more, made of those files by changes, cuts and joins, without
// looking at what they reach: a poor man's fuzzer for where there is no clang. Only files that begin with one of BYTES
// count. The input at hand is written to mutated.input when the program is aborted.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

const Bytes* at_hand = nullptr;

extern "C" void keep_input(int signal) {
    if (at_hand != nullptr) {
        if (std::FILE* file = std::fopen("mutated.input", "wb")) {
            std::fwrite(at_hand->data(), 1, at_hand->size(), file);
            std::fclose(file);
        }
    }
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

// The first two bytes often say what the rest is, so they stay most of the time.
Bytes mutated(const std::vector<Bytes>& seeds, std::mt19937_64& random) {
    const auto below = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
    Bytes data = seeds[below(seeds.size())];
    static const char kMarks[] = "{}[]<>\":,\\/|=_-\n \0\xff\xc3\xef";
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) {
        const std::size_t from = std::min<std::size_t>(below(16) == 0 ? 0 : 2, data.size());
        const std::size_t at = from + below(data.size() - from + 1);
        const std::size_t count = std::min(data.size() - at, below(12) == 0 ? below(200) : 1 + below(4));
        switch (below(6)) {
            case 0:
                if (at < data.size()) data[at] = static_cast<std::uint8_t>(random());
                break;
            case 1:
                data.insert(data.begin() + static_cast<std::ptrdiff_t>(at),
                            static_cast<std::uint8_t>(kMarks[below(sizeof kMarks - 1)]));
                break;
            case 2:
                data.erase(data.begin() + static_cast<std::ptrdiff_t>(at),
                           data.begin() + static_cast<std::ptrdiff_t>(at + count));
                break;
            case 3: {  // a piece again
                const Bytes piece(data.begin() + static_cast<std::ptrdiff_t>(at),
                                  data.begin() + static_cast<std::ptrdiff_t>(at + count));
                const std::size_t to = from + below(data.size() - from + 1);
                data.insert(data.begin() + static_cast<std::ptrdiff_t>(to), piece.begin(), piece.end());
                break;
            }
            case 4: {  // a piece of another seed
                const Bytes& other = seeds[below(seeds.size())];
                const std::size_t begin = below(other.size() + 1);
                const std::size_t size = std::min(other.size() - begin, 1 + below(60));
                data.insert(data.begin() + static_cast<std::ptrdiff_t>(at),
                            other.begin() + static_cast<std::ptrdiff_t>(begin),
                            other.begin() + static_cast<std::ptrdiff_t>(begin + size));
                break;
            }
            default:
                if (below(4) == 0) data.resize(at);
        }
        if (data.size() > 4096) data.resize(4096);
    }
    return data;
}

void try_mutations(const std::vector<Bytes>& seeds, std::uint64_t count, std::uint64_t seed) {
    std::signal(SIGABRT, keep_input);
    std::signal(SIGSEGV, keep_input);
    std::mt19937_64 random(seed);
    for (std::uint64_t i = 0; i < count; ++i) {
        const Bytes data = mutated(seeds, random);
        at_hand = &data;
        LLVMFuzzerTestOneInput(data.data(), data.size());
        at_hand = nullptr;
        if ((i + 1) % 1'000'000 == 0) std::fprintf(stderr, "%llu\n", static_cast<unsigned long long>(i + 1));
    }
    std::printf("%llu mutations of %zu files\n", static_cast<unsigned long long>(count), seeds.size());
}

}  // namespace

int main(int argc, char** argv) {
    namespace fs = std::filesystem;
    std::vector<fs::path> files;
    std::uint64_t mutations = 0, seed = 1;
    std::string first;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const auto value = [&](const char* name) {
            return argument.starts_with(name) ? argument.substr(std::strlen(name)) : std::string();
        };
        if (const std::string text = value("-mutations="); !text.empty()) {
            mutations = std::stoull(text);
            continue;
        }
        if (const std::string text = value("-seed="); !text.empty()) {
            seed = std::stoull(text);
            continue;
        }
        if (const std::string text = value("-first="); !text.empty()) {
            first = text;
            continue;
        }
        if (!fs::is_directory(argv[i])) {
            files.emplace_back(argv[i]);
            continue;
        }
        for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
            if (entry.is_regular_file()) files.push_back(entry.path());
        }
    }
    std::sort(files.begin(), files.end());
    LLVMFuzzerTestOneInput(nullptr, 0);
    std::vector<Bytes> seeds;
    for (const fs::path& file : files) {
        if (mutations == 0) std::fprintf(stderr, "%s\n", file.c_str());
        std::ifstream stream(file, std::ios::binary);
        const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
        if (!stream && !stream.eof()) {
            std::fprintf(stderr, "cannot be read\n");
            return 1;
        }
        // Of its own size, so that AddressSanitizer sees a read past its end.
        const std::vector<std::uint8_t> data(bytes.begin(), bytes.end());
        if (mutations > 0) {
            if (!data.empty() && (first.empty() || first.find(static_cast<char>(data[0])) != std::string::npos))
                seeds.push_back(data);
            continue;
        }
        LLVMFuzzerTestOneInput(data.data(), data.size());
    }
    if (mutations > 0 && !seeds.empty()) {
        try_mutations(seeds, mutations, seed);
        return 0;
    }
    std::printf("%zu files\n", files.size());
    if (files.empty()) std::fprintf(stderr, "no file to try: name a folder of the corpus\n");
    return files.empty() ? 1 : 0;
}
