// Turns the declarations of the commands into CLI11 options and descriptions.
#include "app/command_line/parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::size_t kShown = 64;  // bytes of a wrong value in a message

// Checks numbers as text before CLI11 converts them, because it clamps integers that are too large.
CLI::Validator integer_check(std::int64_t least, std::int64_t most) {
    const auto check = [least, most](const std::string& text) -> std::string {
        std::int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= least && value <= most) return "";
        const bool huge = stop == end && error == std::errc::result_out_of_range;
        std::string range;
        if (huge && text[0] != '-') {
            range = " of at most " + std::to_string(most);
        } else if (huge) {
            range = " of at least " + std::to_string(least);
        } else if (most != std::numeric_limits<std::int64_t>::max()) {
            range = " from " + std::to_string(least) + " to " + std::to_string(most);
        } else if (least != kAnyInteger) {
            range = " of at least " + std::to_string(least);
        }
        return "must be an integer" + range + ", not '" + text.substr(0, kShown) + "'";
    };
    return CLI::Validator(check, "");
}

std::string check_number(const std::string& text) {
    char* stop = nullptr;
    std::strtod(text.c_str(), &stop);
    const bool whole = !text.empty() && stop == text.c_str() + text.size();
    return whole ? "" : "must be a number, not '" + text.substr(0, kShown) + "'";
}

}  // namespace

template <typename T>
CLI::Option* OptionParser::add(const std::string& names, T& value, const OptionText& text) {
    CLI::Option* option = app_.add_option(names, value, text.doc);
    if (!text.old_name.empty()) {
        app_.add_option(text.old_name, value, text.doc)->take_last()->group("");
        exclude(names, text.old_name);
    }
    describe(option, text);
    return option;
}

CLI::Option* OptionParser::add_take(const std::string& names, Take take, const OptionText& text) {
    CLI::Option* option = app_.add_option_function<std::string>(names, std::move(take), text.doc)->take_last();
    describe(option, text);
    return option;
}

void OptionParser::option(const std::string& names, std::string& value, OptionText text) {
    add(names, value, text)->take_last();
}
void OptionParser::option(const std::string& names, std::optional<std::string>& value, OptionText text) {
    add(names, value, text)->take_last();
}
void OptionParser::option(const std::string& names, int& value, OptionText text) {
    add(names, value, text)->take_last()->check(integer_check(text.least, text.most));
}
void OptionParser::option(const std::string& names, std::optional<std::int64_t>& value, OptionText text) {
    add(names, value, text)->take_last()->check(integer_check(text.least, text.most));
}
void OptionParser::option(const std::string& names, Take take, OptionText text) {
    add_take(names, std::move(take), text);
}
void OptionParser::integer_option(const std::string& names, Take take, OptionText text) {
    add_take(names, std::move(take), text)->check(integer_check(text.least, text.most));
}
void OptionParser::number_option(const std::string& names, Take take, OptionText text) {
    add_take(names, std::move(take), text)->check(check_number);
}

void OptionParser::option_list(const std::string& names, std::vector<std::string>& values, OptionText text) {
    add(names, values, text)->allow_extra_args(false);
}
void OptionParser::option_list(const std::string& names, std::vector<double>& values, OptionText text) {
    add(names, values, text)->allow_extra_args(false)->check(check_number);
}
void OptionParser::option_list(const std::string& names, TakeAll take, OptionText text) {
    CLI::Option* option = app_.add_option_function<std::vector<std::string>>(names, std::move(take), text.doc);
    describe(option->allow_extra_args(false), text);
}

void OptionParser::flag(const std::string& names, bool& value, const std::string& doc) {
    describe(app_.add_flag(names, value, doc)->disable_flag_override(), {.value = "", .doc = doc});
}
void OptionParser::flag(const std::string& names, std::function<void()> take, const std::string& doc) {
    describe(app_.add_flag_callback(names, std::move(take), doc)->disable_flag_override(), {.value = "", .doc = doc});
}

namespace {

// CLI11 takes a name without spaces; the description has the rest, such as PLUGIN [KEY=VALUE...].
std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

}  // namespace

void OptionParser::argument(std::string& value, OptionText text) {
    CLI::Option* option = app_.add_option(first_word(text.value), value, text.doc);
    describe(option, text, true);
}

void OptionParser::argument_list(std::vector<std::string>& values, OptionText text, int least, int most) {
    CLI::Option* option = app_.add_option(first_word(text.value), values, text.doc);
    if (most != kUnbounded) option->expected(least, most);
    describe(option, text, true);
    description_.options.back().repeatable = most == kUnbounded;
}

void OptionParser::exclude(const std::string& first, const std::string& second) {
    after_parsing([this, first, second] {
        if (app_.count(first) == 0 || app_.count(second) == 0) return;
        throw UsageError(first + " and " + second + " cannot be used together");
    });
}

void OptionParser::refuse_twice(const std::string& name) {
    after_parsing([this, name] {
        const std::size_t times = app_.count(name);
        if (times > 1) throw UsageError(name + " is given " + std::to_string(times) + " times; give it once");
    });
}

void OptionParser::finish() const {
    for (const auto& check : checks_) check();
}

void OptionParser::describe(CLI::Option* option, const OptionText& text, bool argument) {
    option->required(text.required);
    OptionDescription out;
    for (const std::string& name : option->get_snames()) out.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) out.names.push_back("--" + name);
    if (text.any_text) any_text_names_.insert(any_text_names_.end(), out.names.begin(), out.names.end());
    out.value = text.value;
    out.doc = text.doc;
    if (text.once) refuse_twice(out.names.front());
    out.shared = common_;
    out.required = argument && text.required;
    out.repeatable = option->get_items_expected_max() > 1;
    out.hint = text.words.empty() ? text.hint : ValueHint::words;
    out.words = text.words;
    std::vector<OptionDescription>& all = description_.options;
    const auto place =
        argument ? all.end() : std::find_if(all.begin(), all.end(), [](const auto& o) { return o.names.empty(); });
    all.insert(place, std::move(out));
}

}  // namespace foresay::app
