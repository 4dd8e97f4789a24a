// The words of check_english() and the phrases in which they are right.
#include <algorithm>
#include <cctype>

#include "tests/house/style.h"

namespace foresay::house {

namespace {

struct Word {
    std::string_view word;
    std::string_view instead;
    std::vector<std::string_view> right;  // phrases, in lower case; add one where the word is plain English
};

const std::vector<Word>& words() {
    static const std::vector<Word> table = {
        {"behind",
         "after, past, at the end of",
         {"behind nat", "behind a lock", "behind the scenes", "behind an interface", "behind one interface",
          "behind our back", "behind its back", "behind the caller's back", "fall behind", "falls behind",
          "leave behind", "leaves behind", "left behind"}},
        {"nobody", "no thread, no caller, nothing; only for people", {}},
        {"nobody's", "no one owns it: say who does not", {}},
        {"whoever", "who, the one that; only for people", {}},
        {"anew", "again, from the start", {}},
        {"of late", "recently", {}},
        {"what is more", "also", {}},
        {"hitherto", "so far", {}},
        {"thereof", "of it", {}},
        {"herein", "here", {}},
        {"therein", "there, in it", {}},
        {"thereby", "so", {}},
        {"thereafter", "then", {}},
        {"whereby", "by which", {}},
        {"wherein", "in which", {}},
        {"whence", "from where", {}},
        {"henceforth", "from now on", {}},
        {"whilst", "while", {}},
        {"upon", "on", {}},
        {"albeit", "though", {}},
        {"lest", "so that ... not", {}},
        {"prior to", "before", {}},
        {"in order to", "to", {}},
        {"utilise", "use", {}},
        {"utilize", "use", {}},
        {"comes to an end", "ends", {}},
        {"is not seen", "who does not see what", {}},
    };
    return table;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '\''; }

// How far the comment, string or character that begins at `begin` goes; `begin` where none does.
std::size_t end_of_prose(std::string_view text, std::size_t begin) {
    const auto after = [&](std::string_view mark, std::size_t from) {
        const std::size_t found = text.find(mark, from);
        return found == text.npos ? text.size() : found + mark.size();
    };
    const std::string_view rest = text.substr(begin);
    if (rest.starts_with("//")) return after("\n", begin);
    if (rest.starts_with("/*")) return after("*/", begin + 2);
    if (rest.starts_with("R\"") && (begin == 0 || !is_word(text[begin - 1]))) {
        const std::size_t open = text.find('(', begin);
        if (open == text.npos) return text.size();
        return after(")" + std::string(text.substr(begin + 2, open - begin - 2)) + "\"", open);
    }
    const bool separator = rest[0] == '\'' && begin > 0 && is_word(text[begin - 1]);  // 1'000
    if ((rest[0] != '"' && rest[0] != '\'') || separator) return begin;
    std::size_t end = begin + 1;
    while (end < text.size() && text[end] != rest[0] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
    return std::min(end + 1, text.size());
}

}  // namespace

std::string prose_of(const File& file) {
    if (!is_source(file.path)) return file.text;
    std::string prose = file.text;
    for (std::size_t i = 0; i < file.text.size();) {
        const std::size_t end = end_of_prose(file.text, i);
        if (end == i && file.text[i] != '\n') prose[i] = ' ';
        i = std::max(end, i + 1);
    }
    return prose;
}

Complaints check_english(const File& file) {
    if (file.path.starts_with("tests/house/")) return {};  // shows what is wrong
    std::string text = prose_of(file);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    Complaints complaints;
    for (const Word& word : words()) {
        for (std::size_t at = text.find(word.word); at != text.npos; at = text.find(word.word, at + 1)) {
            const std::size_t end = at + word.word.size();
            if ((at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) continue;
            const bool right = std::any_of(word.right.begin(), word.right.end(), [&](std::string_view phrase) {
                const std::size_t place = phrase.find(word.word);
                return at >= place && text.compare(at - place, phrase.size(), phrase) == 0;
            });
            if (right) continue;
            const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
            complaints.push_back(file.path + ":" + std::to_string(line) + ": \"" + std::string(word.word) + "\"; say " +
                                 std::string(word.instead));
        }
    }
    return complaints;
}

}  // namespace foresay::house
