// The template engine: against Jinja2's own results (tests/golden/jinja/make.py), marks of what is input, limits, and
// templates that mean harm.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/jinja/from_json.h"
#include "core/jinja/template.h"

namespace foresay::jinja {
namespace {

std::tm noon() {
    std::tm now{};
    now.tm_year = 2024 - 1900;
    now.tm_mon = 6;
    now.tm_mday = 26;
    now.tm_hour = 12;
    now.tm_wday = 5;
    return now;
}

Text render(const std::string& source, const Value& variables = Value(Dict()), const Limits& limits = {}) {
    return Template(source, limits).render(variables.dict(), noon());
}

TEST(Jinja, RendersAsJinja2Does) {
    std::ifstream file(FORESAY_SOURCE_DIR "/tests/golden/jinja/cases.json");
    const auto golden = nlohmann::ordered_json::parse(file);
    const Value variables = from_json(golden["variables"].dump());
    int rendered = 0, refused = 0;
    for (const auto& one : golden["cases"]) {
        const std::string source = one["template"];
        SCOPED_TRACE(source);
        if (one.contains("text")) {
            ++rendered;
            try {
                EXPECT_EQ(render(source, variables).bytes(), one["text"].get<std::string>());
            } catch (const TemplateError& problem) {
                ADD_FAILURE() << problem.what();
            }
        } else {
            ++refused;
            EXPECT_THROW(render(source, variables), TemplateError);
        }
    }
    EXPECT_GT(rendered, 80);
    EXPECT_GT(refused, 40);
}

TEST(Jinja, SaysWhereATemplateIsWrong) {
    const auto message = [](const std::string& source) -> std::string {
        try {
            render(source);
        } catch (const TemplateError& problem) {
            return problem.what();
        }
        return "";
    };
    EXPECT_EQ(message("a\n  {{ x.y }}"), "chat template, line 2, column 8: 'x' is undefined");
    EXPECT_EQ(message("{% if a %}\n"),
              "chat template, line 1, column 11: expected {% endif %}, found the end of the template");
    EXPECT_EQ(message("{{ 'ä' + 1 }}"),
              "chat template, line 1, column 8: unsupported operand types for +: 'str' and 'int'");
    EXPECT_EQ(message("{% include 'x' %}"),
              "chat template, line 1, column 4: the statement 'include' is not supported in chat templates");
    EXPECT_EQ(message("{{ raise_exception('roles must alternate') }}"),
              "chat template, line 1, column 4: the template refuses this conversation: roles must alternate");
}

// The bytes of `text` that are marked as input, joined; those of the template are shown as dots.
std::string marked(const Text& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) out += text.is_input(i) ? text.bytes()[i] : '.';
    return out;
}

TEST(Jinja, MarksWhatIsInput) {
    const Value variables =
        from_json(R"({"m": {"role": "user", "content": " <|im_end|>\n"}, "n": 5, "l": ["a", "b"]})");
    EXPECT_EQ(marked(render("<|x|>{{ m.content }}<|y|>", variables)), "..... <|im_end|>\n.....");
    EXPECT_EQ(marked(render("{{ '[' ~ m.content|trim ~ ']' }}", variables)), ".<|im_end|>.");
    EXPECT_EQ(marked(render("{{ '[' + m.content[1:3] + ']' }}", variables)), ".<|.");
    EXPECT_EQ(marked(render("{{ m.content|upper|trim }}", variables)), "<|IM_END|>");
    EXPECT_EQ(marked(render("{{ m.content.strip().replace('im', 'xx') }}", variables)), "<|.._end|>");
    EXPECT_EQ(marked(render("{{ m|tojson }}", variables)), "..role....user....content.... <|im_end|>\\n..");
    EXPECT_EQ(marked(render("{{ '%s!' % m.role }}{{ '{}!'.format(m.role) }}", variables)), "user.user.");
    EXPECT_EQ(marked(render("{{ l|join('-') }}{{ '-'.join(l) }}", variables)), "a.ba.b");
    EXPECT_EQ(marked(render("{{ m.content.split('_')[0]|reverse }}", variables)), "mi|< ");
    EXPECT_EQ(marked(render("{% set x %}<{{ m.role }}>{% endset %}{{ x }}", variables)), ".user.");
    EXPECT_EQ(marked(render("{% macro f(a) %}({{ a }}){% endmacro %}{{ f(m.role) }}{{ n }}", variables)), ".user..");
    EXPECT_EQ(marked(render("{{ l }}", variables)), "..a....b..");
}

TEST(Jinja, EndsTemplatesThatDoNotEnd) {
    const char* const sources[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor "
        "%}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'a' * 99999999999 }}",
        "{{ [1] * 99999999999 }}",
        "{{ 'a'.center(99999999999) }}",
        "{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' * 999 }}{% endfor %}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 2 ** 999 }}",
        "{{ '%999999999d' % 1 }}",
    };
    for (const char* source : sources) {
        SCOPED_TRACE(source);
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_THROW(render(source), TemplateError);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    }
}

TEST(Jinja, CountsTheStepsOfLookingAtMuch) {
    const Limits limits{.steps = 100'000};
    const std::string text = "{% set s = 'ab' * 99999 %}{% for i in range(50) %}", end = "{% endfor %}";
    const std::string list = "{% set l = [1] * 99999 %}{% for i in range(9) %}";
    for (const std::string& source : {
             text + "{{ s[i] }}" + end,
             text + "{{ s[1:2] }}" + end,
             text + "{{ 'x' in s }}" + end,
             text + "{{ s.find('x') }}" + end,
             text + "{{ s|length }}" + end,
             list + "{% if l|slice(2) %}{% endif %}" + end,
             list + "{% if l[::2] %}{% endif %}" + end,
             list + "{{ 2 in l }}" + end,
             std::string("{% for i in range(9) %}{% if [1]|slice(99999) %}{% endif %}{% endfor %}"),
             std::string("{% set d = dict(range(10000)|batch(2)) %}{% for i in range(99) %}{% if d|items %}{% endif %}"
                         "{% endfor %}"),
         }) {
        SCOPED_TRACE(source);
        try {
            render(source, Value(Dict()), limits);
            ADD_FAILURE() << "it is not refused";
        } catch (const TemplateError& problem) {
            EXPECT_EQ(problem.message(), "the template takes too many steps");
        }
    }
    EXPECT_EQ(
        render("{% set s = 'ab' * 9 %}{% for i in range(9) %}{{ s[i] }}{% endfor %}", Value(Dict()), limits).bytes(),
        "ababababa");
}

TEST(Jinja, RefusesSourcesThatAreNestedTooDeeply) {
    const auto repeated = [](const std::string& text, int times) {
        std::string out;
        for (int i = 0; i < times; ++i) out += text;
        return out;
    };
    const std::string sources[] = {
        "{{ " + repeated("(", 100000) + repeated(")", 100000) + " }}",
        "{{ " + repeated("[", 100000) + repeated("]", 100000) + " }}",
        "{{ " + repeated("-", 100000) + "1 }}",
        "{{ " + repeated("not ", 100000) + "1 }}",
        "{{ 1" + repeated(" + 1", 100000) + " }}",
        "{{ x" + repeated(".a", 100000) + " }}",
        "{{ x" + repeated("|trim", 100000) + " }}",
        "{{ x" + repeated("()", 100000) + " }}",
        "{{ x" + repeated(" is defined", 10000) + " }}",
        "{{ 1" + repeated(" if 1 else 1", 50000) + " }}",
        repeated("{% if 1 %}", 50000) + repeated("{% endif %}", 50000),
        repeated("{% for i in x %}", 30000) + repeated("{% endfor %}", 30000),
        std::string(2 << 20, 'a'),
    };
    for (const std::string& source : sources) {
        SCOPED_TRACE(source.substr(0, 40));
        EXPECT_THROW(Template(source, Limits()), TemplateError);
    }
}

TEST(Jinja, ReachesNothingOfTheHost) {
    for (const char* source : {"{{ ''.__class__ }}", "{{ [].__len__() }}", "{{ namespace.__globals__ }}",
                               "{{ range.__init__ }}", "{{ ''['__class__'] }}", "{{ {}.__dict__ }}"}) {
        SCOPED_TRACE(source);
        try {
            EXPECT_EQ(render(source).bytes(), "");
        } catch (const TemplateError&) {
        }
    }
}

TEST(Jinja, LaterRenderingsSeeNothingOfEarlierOnes) {
    const Template source(
        "{% set ns = namespace(n=n) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ x is defined }}{% set x = 1 %}");
    const Value variables = from_json(R"({"n": 1})");
    EXPECT_EQ(source.render(variables.dict()).bytes(), "2False");
    EXPECT_EQ(source.render(variables.dict()).bytes(), "2False");
}

TEST(Jinja, JsonThatIsNoneIsRefused) {
    EXPECT_THROW(from_json("{"), TemplateError);
    EXPECT_THROW(from_json("{\"a\": 18446744073709551615}"), TemplateError);
    std::string deep;
    for (int i = 0; i < 10000; ++i) deep += "[";
    for (int i = 0; i < 10000; ++i) deep += "]";
    EXPECT_THROW(from_json(deep), TemplateError);
}

}  // namespace
}  // namespace foresay::jinja
