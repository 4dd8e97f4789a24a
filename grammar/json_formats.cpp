#include "grammar/json_formats.h"

#include <map>

namespace foresay::grammar {
namespace {

std::string group(const std::string& a) { return "(" + a + ")"; }

// RFC 3339, with the lengths of months and leap years. Not the year 0, which other libraries refuse.
std::string date() {
    const std::string year = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})";
    const std::string four = "(0[48]|[2468][048]|[13579][26])";
    const std::string leap = "([0-9]{2}" + four + "|(0[48]|[2468][048]|[13579][26])00)";
    return "(" + year +
           "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|" +
           leap + "-02-29)";
}

// A second of 60 only where it is 23:59 in UTC: with offsets of whole and half hours.
std::string time() {
    const auto two = [](int n) {
        return std::string{static_cast<char>('0' + n / 10), static_cast<char>('0' + n % 10)};
    };
    const std::string fraction = "(\\.[0-9]+)?";
    std::string leap = "23:59:60" + fraction + "[zZ]";
    for (int hour = 0; hour < 24; ++hour) {
        leap += "|" + two((23 + hour) % 24) + ":59:60" + fraction + "\\+" + two(hour) + ":00";
        leap += "|" + two(hour) + ":29:60" + fraction + "\\+" + two(hour) + ":30";
        leap += "|" + two(23 - hour) + ":59:60" + fraction + "-" + two(hour) + ":00";
        leap += "|" + two(23 - hour) + ":29:60" + fraction + "-" + two(hour) + ":30";
    }
    return "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" + fraction + "([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])|" + leap +
           ")";
}

std::string duration() {
    const std::string time = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";
    const std::string date = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)";
    return "P(" + date + group(time) + "?|" + time + "|[0-9]+W)";
}

// Labels with hyphens in the third and fourth place are encoded Unicode (RFC 5890), which would have to be decoded to
// be judged; they are left out.
std::string label() {
    const std::string a = "[a-zA-Z0-9]";
    const std::string x = "[a-zA-Z0-9-]";
    return a + "(" + a + "|" + x + a + "|" + x + x + a + "|" + x + "(" + a + x + "|-" + a + ")" + x + "{0,58}" + a +
           ")?";
}

std::string hostname() { return "(" + label() + ")(\\.(" + label() + "))*"; }

std::string ipv4() {
    const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    return octet + "(\\." + octet + "){3}";
}

std::string ipv6() {
    const std::string h = "[0-9a-fA-F]{1,4}";
    const std::string last = "(" + h + ":" + h + "|" + ipv4() + ")";
    std::string all = "((" + h + ":){6}" + last + "|::(" + h + ":){5}" + last;
    const auto before = [&](int n) {
        return n == 0 ? "(" + h + ")?" : "((" + h + ":){0," + std::to_string(n) + "}" + h + ")?";
    };
    for (int n = 0; n < 5; ++n) all += "|" + before(n) + "::(" + h + ":){" + std::to_string(4 - n) + "}" + last;
    return all + "|" + before(5) + "::" + h + "|" + before(6) + "::)";
}

std::string email() {
    const std::string atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
    const std::string quoted = "\"([\\x20\\x21\\x23-\\x5B\\x5D-\\x7E]|\\\\[\\x20-\\x7E])*\"";
    return "(" + atom + "(\\." + atom + ")*|" + quoted + ")@(" + hostname() + "|\\[(" + ipv4() + "|IPv6:" + ipv6() +
           ")\\])";
}

// RFC 3986.
std::string uri() {
    const std::string plain = "[a-zA-Z0-9._~!$&'()*+,;=-]";
    const std::string escape = "%[0-9a-fA-F]{2}";
    const std::string pchar = "([a-zA-Z0-9._~!$&'()*+,;=:@-]|" + escape + ")";
    const std::string user = "(([a-zA-Z0-9._~!$&'()*+,;=:-]|" + escape + ")*@)?";
    const std::string host =
        "(\\[(" + ipv6() + "|[vV][0-9a-fA-F]+\\.[a-zA-Z0-9._~!$&'()*+,;=:-]+)\\]|(" + plain + "|" + escape + ")*)";
    const std::string path = "(/" + pchar + "*)*";
    const std::string hier =
        "(//" + user + host + "(:[0-9]*)?" + path + "|/(" + pchar + "+" + path + ")?|" + pchar + "+" + path + ")?";
    const std::string tail = "(" + pchar + "|[/?])*";
    return "[a-zA-Z][a-zA-Z0-9+.-]*:" + hier + "(\\?" + tail + ")?(#" + tail + ")?";
}

}  // namespace

FormatKind find_format(std::string_view name, std::string& pattern) {
    static const std::map<std::string_view, std::string> patterns = {
        {"date", date()},
        {"time", time()},
        {"date-time", date() + "[tT]" + time()},
        {"duration", duration()},
        {"email", email()},
        {"hostname", hostname()},
        {"ipv4", ipv4()},
        {"ipv6", ipv6()},
        {"uuid", "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"},
        {"uri", uri()}};
    if (const auto found = patterns.find(name); found != patterns.end()) {
        pattern = found->second;
        return FormatKind::pattern;
    }
    for (const std::string_view known :
         {"idn-email", "idn-hostname", "uri-reference", "iri", "iri-reference", "uri-template", "json-pointer",
          "relative-json-pointer", "regex", "ip-address", "host-name", "color"}) {
        if (name == known) return FormatKind::unsupported;
    }
    return FormatKind::unknown;
}

}  // namespace foresay::grammar
