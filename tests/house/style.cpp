#include "tests/house/style.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <sstream>

namespace foresay::house {

namespace {

std::string shell(const std::string& command) {
    std::string out;
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((command + " 2>&1").c_str(), "r"), ::pclose);
    std::array<char, 4096> chunk{};
    while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe.get())) out.append(chunk.data(), got);
    return out;
}

std::ptrdiff_t columns_of(std::string_view line) {  // characters of UTF-8
    return std::count_if(line.begin(), line.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

bool may_be_long(std::string_view path, std::string_view line) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos) return false;
    if (path.ends_with(".md") && line[begin] == '|') return true;
    return line.find("://") != line.npos || line.find(' ', begin) == line.npos;
}

}  // namespace

Complaints check_columns(const File& file) {
    Complaints complaints;
    std::istringstream stream(file.text);
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
        if (number == 1 && line.find("generated") != line.npos) return {};
        const std::ptrdiff_t columns = columns_of(line);
        if (columns > 120 && !may_be_long(file.path, line))
            complaints.push_back(file.path + ":" + std::to_string(number) + ": " + std::to_string(columns) +
                                 " columns");
    }
    return complaints;
}

std::string clang_format() {
    for (const std::string command : {"clang-format-14", "clang-format"}) {
        if (shell(command + " --version").find("version 14.") != std::string::npos) return command;
    }
    return "";
}

Complaints check_format(const std::string& command, const std::vector<File>& files) {
    std::string line = "cd '" FORESAY_SOURCE_DIR "' && " + command + " --dry-run --ferror-limit=1";
    for (const File& file : files) {
        if (is_source(file.path)) line += " '" + file.path + "'";
    }
    Complaints complaints;
    std::istringstream stream(shell(line));
    for (std::string said; std::getline(stream, said);) {
        if (said.find("[-Wclang-format-violations]") == said.npos) continue;
        const std::string file = said.substr(0, said.find(": "));
        const std::string path = file.substr(0, file.find(':'));
        if (complaints.empty() || !complaints.back().starts_with(path + ":")) complaints.push_back(file);
    }
    return complaints;
}

}  // namespace foresay::house
