#!/usr/bin/env python3
"""Writes cases.json: templates, and what Jinja2 makes of them when set up as the transformers library does.

Needs Debian's python3-jinja2 (3.1.2). Run it in this folder after adding a template.
"""
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = datetime.datetime(2024, 7, 26, 12, 0, 0).strftime

VARIABLES = {"a":5,"b":2,"neg":-7,"f":2.5,"g":1e20,"h":1e-5,"t":True,"n":None,"s":"Héllo, World","e":"","l":[3,1,2],"ls":["b","A","c"],"d":{"x":1,"y":[1,2],"z":{"k":"v"}},"m":[{"r":"u","c":"one","k":2},{"r":"a","c":"two","k":1},{"r":"u","c":"three","k":3}],"q":"it's","dq":"say \"hi\" 'x'","sp":"  a b  c \n","html":"<b>&'\"","nl":"l1\nl2\r\nl3\n\nx","emoji":"a😀b\u00a0c\u200b","i":["x"],"deep":[[1,[2,[3]]],{"a":{"b":[None,True,1.0]}}]}
TEMPLATES = r'''
{{ a + b }} {{ a - b }} {{ a * b }} {{ a / b }} {{ a // b }} {{ a % b }} {{ a ** b }} {{ neg // 2 }} {{ neg % 3 }} {{ -neg }} {{ +a }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2**3**2 }}
{{ 1/3 }} {{ 1e16 }} {{ 123456789012345678.0 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ g }} {{ h }} {{ 1e-4 }} {{ 100.0 }} {{ f }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ true }} {{ True }} {{ none }} {{ None }} {{ t and n }} {{ t or n }} {{ n or e or 'z' }} {{ not t }} {{ t + 1 }}
{{ a > b }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ a == 5.0 }} {{ 1 == true }} {{ 'x' in d }} {{ 9 not in l }} {{ 'World' in s }} {{ 1 != 2 }}
{{ 1 in [1.0] }} {{ none == false }} {{ none is none }} {{ () }} {{ (1,) }} {{ (1,2) }} {{ 1,2 }} {{ [] }} {{ {} }} {{ {'a':1, 2:'b', none: [1]} }}
{{ l }} {{ d }} {{ deep }} {{ [q, dq, html, nl, emoji, sp] }} {{ [1.0, true, none] }}
{{ a if t else b }} {{ a if e }}| {{ 'x' if e else 'y' if n else 'z' }}
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[:-2] }} {{ s[::2] }} {{ s[10:100] }} {{ s[5:1:-1] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ (1,2,3)[1:] }} {{ s[100] }}| {{ l[99] is defined }}
{{ d.x }} {{ d['y'][0] }} {{ d.z.k }} {{ d.nope is defined }} {{ d.items()|list }} {{ d.get('x') }} {{ d.get('w', 'dd') }} {{ d.get('w') }} {{ d.keys()|list }} {{ d.values()|list }} {{ m.0.r }} {{ m[0]['c'] }}
{{ undefinedvar }}| {{ undefinedvar is undefined }} {{ undefinedvar|default('D') }} {{ e|default('D', true) }} {{ d.foo|default }}| {{ n|default('x') }} {{ undefinedvar|length }} {{ undefinedvar|list }}
{{ undefinedvar.x }}
{{ d.foo.bar }}
{{ undefinedvar + 1 }}
{{ undefinedvar ~ 'x' }} {{ undefinedvar == undefinedvar2 }} {{ undefinedvar or 'r' }} {{ [undefinedvar] }}
{% for x in undefinedvar %}x{% else %}none{% endfor %}
{{ s|upper }} {{ s|lower }} {{ s|title }} {{ s|capitalize }} {{ 'ß'|lower }} {{ 'ÀÉ'|lower }} {{ 'жук'|upper }} {{ "they're bill's"|title }} {{ "hello-world (foo"|title }}
{{ s|length }} {{ emoji|length }} {{ l|length }} {{ d|count }} {{ sp|trim }}| {{ 'xxaxx'|trim('x') }} {{ s|replace('l','L') }} {{ s|replace('l','L',1) }} {{ 'aaa'|replace('','-') }}
{{ l|sort }} {{ l|sort(reverse=true) }} {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ m|sort(attribute='k')|map(attribute='c')|join(',') }} {{ m|sort(attribute='r,k')|map(attribute='c')|list }}
{{ l|max }} {{ l|min }} {{ l|sum }} {{ m|sum(attribute='k') }} {{ ls|max }} {{ m|max(attribute='k') }} {{ []|max is defined }} {{ l|first }} {{ l|last }} {{ []|first is defined }} {{ s|first }} {{ 'ab'|last }}
{{ l|join }} {{ l|join('-') }} {{ ls|join(', ') }} {{ m|join('/', attribute='c') }} {{ [1,none,true]|join(' ') }} {{ 'abc'|join('.') }}
{{ l|map('string')|list }} {{ ls|map('upper')|join }} {{ m|map(attribute='nope', default='q')|list }} {{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ m|selectattr('r','equalto','u')|map(attribute='c')|list }} {{ m|rejectattr('r','eq','u')|list|length }} {{ m|selectattr('k','gt',1)|list|length }} {{ ['',1,none]|select|list }} {{ m|selectattr('c')|list|length }}
{{ l|reverse|list }} {{ s|reverse }} {{ ls|unique|list }} {{ ['a','A','b']|unique|list }} {{ ['a','A']|unique(true)|list }} {{ d|dictsort }} {{ {'b':1,'A':2}|dictsort }} {{ {'b':1,'A':2}|dictsort(true) }} {{ {'b':1,'A':2}|dictsort(by='value', reverse=true) }}
{{ d|items|list }} {{ l|batch(2)|list }} {{ l|batch(2,'x')|list }} {{ l|slice(2)|list }} {{ [1,2,3,4,5]|slice(3,'f')|list }} {{ m|groupby('r')|list|length }} {% for g, items in m|groupby('r') %}{{ g }}:{{ items|map(attribute='c')|join('+') }};{% endfor %}
{{ d|tojson }} {{ s|tojson }} {{ html|tojson }} {{ [1.0,none,true,"é\u2028"]|tojson }} {{ d|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ []|tojson }} {{ deep|tojson(indent=4) }} {{ d|tojson(separators=(',',':')) }} {{ {'b':1,'a':2}|tojson(sort_keys=true) }} {{ emoji|tojson(ensure_ascii=true) }} {{ 1e20|tojson }} {{ {1:2, none:3, true:4, 1.5:5}|tojson }}
{{ '1'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.9'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ '0x1f'|int(0,16) }} {{ 'ff'|int(0,16) }} {{ '1.5'|float }} {{ 'x'|float }} {{ 2|float }} {{ ' 42 '|int }} {{ none|int }} {{ true|int }}
{{ 2.567|round }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.1|round(0,'ceil') }} {{ 2.9|round(method='floor') }} {{ 5|round }} {{ 1234|round(-2) }} {{ -3|abs }} {{ -2.5|abs }}
{{ 'a\nb\n\nc'|indent }}| {{ 'a\nb'|indent(2, true) }}| {{ 'a\n\nb'|indent(2, blank=true) }}| {{ 'a\nb\n'|indent('>>') }}| {{ ''|indent(first=true) }}|
{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, False, '...', 0) }} {{ 'foo bar'|wordcount }} {{ 'ab'|center(7) }}| {{ 'abc'|center(8) }}|
{{ '%s is %d and %.2f' % ('a', 3, 2.345) }} {{ '%s'|format('x') }} {{ '%5d|%-5d|%05d'|format(3,4,5) }} {{ '%%'|format }} {{ '%s' % 5 }} {{ '%r' % 'x' }} {{ '{} {}'.format(1,'b') }} {{ '{1}{0}{x}'.format('a','b',x='c') }} {{ '{{}}'.format() }}
{{ s.split(', ') }} {{ sp.split() }} {{ 'a,b,c'.split(',',1) }} {{ 'a,b,c'.rsplit(',',1) }} {{ ' a b '.split(none, 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ nl.splitlines() }} {{ nl.splitlines(true) }}
{{ sp.strip() }}|{{ sp.lstrip() }}|{{ sp.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'abcab'.lstrip('ab') }} {{ s.startswith('Hé') }} {{ s.endswith(('x','ld')) }} {{ s.replace('l','',2) }} {{ s.find('W') }} {{ s.find('z') }} {{ s.rfind('l') }} {{ s.index('o') }} {{ s.count('l') }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ "they're".title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'A'.isupper() }} {{ 'a'.islower() }} {{ '5'.zfill is defined }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3,'*') }} {{ 'a'.center(4,'-') }} {{ ','.join(['a','b']) }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'a'.partition('=') }}
{{ l.index(1) }} {{ l.count(3) }} {{ l.append(4) }}
{{ d.pop('x') }}
{{ d.update({}) }}
{{ 5 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ a is number }} {{ a is integer }} {{ f is float }} {{ t is boolean }} {{ t is number }} {{ t is integer }} {{ s is string }} {{ l is sequence }} {{ d is mapping }} {{ s is iterable }} {{ a is iterable }} {{ n is none }} {{ t is true }} {{ 1 is true }} {{ false is false }} {{ a is eq 5 }} {{ a is ge 5 }} {{ a is in [5] }} {{ a is not none }} {{ a is sameas 5 }} {{ s is upper }} {{ 'abc' is lower }} {{ range is callable }} {{ l|select is sequence }} {{ l|map('abs') is iterable }} {{ 'trim' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ () is sequence }} {{ d is sequence }} {{ undefinedvar is sequence }} {{ undefinedvar is string }} {{ none is iterable }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.cycle('a','b') }}{{ loop.changed(x) }};{% endfor %}
{% for k in d %}{{ k }}{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for c in 'aé😀' %}{{ c }}.{% endfor %}{% for x in l if x > 1 %}{{ x }}/{{ loop.length }}{% else %}E{% endfor %}{% for x in [] %}{% else %}E{% endfor %}{% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}{% for x in range(3) %}{{ x }}{% endfor %}{{ range(5,1,-2)|list }} {{ range(2)|length }}
{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}{% set ns = namespace(c=0, z=[]) %}{% for i in l %}{% set ns.c = ns.c + i %}{% set ns.z = ns.z + [i] %}{% endfor %}{{ ns.c }}{{ ns.z }}{{ ns.nope is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set x %}  blk {{ a }} {% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]
{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c='z') }} {{ f(a=3, b=4) }} {{ f() }}|{% macro g() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ g(1,2,k=3) }} {{ f.name }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1,2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}
{% macro outer(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) outer(5) %}[{{ y }}{{ s }}]{% endcall %}{% macro o2() %}{{ caller() }}!{% endmacro %}{% call o2() %}in{% endcall %}
{% macro fact(n) %}{{ 1 if n < 2 else n * (fact(n - 1)|int) }}{% endmacro %}{{ fact(10) }} {% for item in [{'n':1,'c':[{'n':2,'c':[]}]}] recursive %}{{ item.n }}{{ loop.depth }}{{ loop(item.c) }}{% endfor %}
{% filter upper %}abc {{ s }}{% endfilter %}{% filter trim|replace('a','b') %} aaa {% endfilter %}{% with q = 1, z = 2 %}{{ q }}{{ z }}{% endwith %}{{ q }}{% generation %}gen{{ s }}{% endgeneration %}
{% raw %}{{ not }} {% x %}{% endraw %}|{%- raw -%}  x  {%- endraw -%}|{# comment #}|{#- c -#} |
a  {%- if t -%}  b  {%- endif -%}  c  {{- 'd' -}}  e
   {% if t %}
  x
   {% endif %}
y
 {%+ if t %} x{% endif +%}
z
line {% if t %}
 in
{% endif %}  end
{{ "a" "b" 'c' }} {{ 'it\'s' }} {{ "\n\t\\x\x41\u00e9" }}| {{ 'a\qb' }} {{ 1_000 }} {{ "}}" }} {{ '%}' }} {{ {'a':{'b':1}} }} {{ {'a':{'b':{'c':1}}}['a']['b']['c'] }}
{{ [1,2]+[3] }} {{ 'a' * 3 }} {{ [0] * 3 }} {{ (1,) + (2,) }} {{ 'a' ~ 1 ~ none ~ true ~ 1.0 }} {{ 1 ~ 2 }} {{ 3 * 'ab' }} {{ 'a' + 1 }}
{{ {} + {} }}
{{ 1 + 'a' }}
{{ none + 'a' }}
{{ 1 < 'a' }}
{{ foo() }}
{{ s() }}
{{ s.nope() }}
{{ l[0].foo.bar }}
{{ raise_exception('boom') }}
{{ strftime_now('%d %b %Y %H:%M') }} {{ strftime_now('%Y-%m-%d') }}
{{ 'a'|nope }}
{{ 1 is nope }}
{% if %}x{% endif %}
{% for x in %}{% endfor %}
{% for %}{% endfor %}
{{ 1 + }}
{{ (1 }}
{{ [1,2 }}
{% set x %}
{% endif %}
{% if t %}
{{ 'abc }}
{% unknown %}
{{ a b }}
{% include 'x' %}
{{ 1 // 0 }}
{{ l['a'] is defined }} {{ s['upper']() }} {{ d['items'] is defined }} {{ d.items is defined }}
{{ s|attr('upper') is defined }} {{ (s|attr('lower'))() }} {{ d|attr('x') is defined }}
{{ "a\
b" }}
{{ 5|string + 'x' }} {{ [1]|string }} {{ none|string }} {{ html|e }} {{ html|escape }} {{ html|safe }} {{ ('<b>'|safe) + '<i>' }} {{ '<i>' + ('<b>'|safe) }} {{ ('<b>'|safe) ~ '<i>' }} {{ ('<b>'|e) + html }}
{{ dict(a=1, b=2) }} {{ dict({'x':1}, y=2) }} {{ dict([('k','v')]) }} {{ namespace is defined }} {{ l is sameas l }} {{ [] is sameas [] }}
{{ [1,2,3]|select('in',[1,2])|list }} {{ ['a','b']|select('equalto','a')|first }} {% if [1]|select('odd') %}T{% else %}F{% endif %}{% set gg = l|map('string') %}{{ gg|join }}-{{ gg|join }}|
{{ l|map('abs')|length }}
{{ (l|map('abs'))[0] }}
{{ m|map(attribute='c')|tojson }}
{{ -1|abs }} {{ -(1|abs) }} {{ not 1 == 2 }} {{ 1 + 2 * 3 - 4 / 2 }} {{ 2 * 3 % 4 }} {{ 1 ~ 2 + 3 }} {{ 'a' in 'abc' and 'd' not in 'abc' }} {{ not 'a' in 'b' }} {{ 1 if not t else 2 }} {{ (1 if t else 2) + 1 }} {{ a is defined and b is defined }} {{ a is not defined or b }}
{{ s.upper().lower()[0:2]|upper }} {{ m[-1].c|upper|lower|replace('t','T') }} {{ m|selectattr('r', '==', 'a')|list }}
{{ l | join ( ',' ) }} {{ d . x }} {{ l [ 0 ] }} {{ [ 1 , 2 , ] }} {{ { 'a' : 1 , } }} {{ ( 1 , 2 , ) }}
{% for x in 1,2,3 %}{{ x }}{% endfor %} {% for x in (1,2) if x %}{{ x }}{% endfor %} {% set y = 1, 2 %}{{ y }} {% if 1, %}t{% endif %}
{% set loop = 3 %}{{ loop }}
{% for i in l %}{% set loop = 1 %}{% endfor %}
{%- for i in [1,2] -%}
 {{- i -}} 
{%- endfor %}
{{ 'x' if false }}{{ ('x' if false) is undefined }} {{ ['a','b'][1] }} {{ ('a','b')[0] }} {{ 'ab'[1] }} {{ 10|string|length }} {{ 'a,b'|replace(',', '\n') }}
{% macro m1() %}{% set inner = 5 %}{{ inner }}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m1() }}{{ inner is defined }} {% macro m2() %}{{ m3() }}{% endmacro %}{% macro m3() %}three{% endmacro %}{{ m2() }}
{% set x = 'outer' %}{% for i in [1] %}{{ x }}{% for j in [1] %}{% set x = 'inner' %}{{ x }}{% endfor %}{{ x }}{% endfor %}{{ x }} {% for i in [1,2] %}{% if i == 1 %}{% set seen = true %}{% endif %}{{ seen is defined }}{% endfor %}
{% set content = none %}{{ content is string }} {{ content|length if content else 0 }} {{ (content or '')|trim }}| {{ content is none or content == '' }} {{ 'think' in (content or '') }}
{{ ' x '|trim|length }} {{ 'a' 'b'|upper }} {{ ('a' ~ 'b')|upper }} {{ 'a' ~ 'b'|upper }} {{ 3|float / 2 }} {{ 7|int // 2 }} {{ '%02d'|format(7) }} {{ true|tojson }} {{ none|tojson }} {{ 'é'|tojson }}
'''
WHITESPACE = ["a\n{% if t %}\n b\n{% endif %}\nc\n","  {% for x in l %}\n    {{ x }}\n  {% endfor %}\n","{{ s }}\n\n","x\r\ny\rz\n","\n{% set a = 1 %}\n\n{{ a }}\n","{# c #}\nx","  {# c #}  \nx","a {# c #}\nx","{% raw %}\n x\n{% endraw %}\ny","   {%- if t %}\n x {%+ endif %}\n","{{ '{{' }}{ {% if t %}}{% endif %}","{","{{","{%","a{b}c","{{ s }}}","{{ {'a':1} }}","{% if t %}a{% elif n %}b{% else %}c{% endif %}\n\n\n","x\n    {% if t -%}\n    y\n    {%- endif %}\n  z","\t{% if t %}\tq\n\t{% endif %}\tw","{{- s -}} \n\n x","{{ a }}{%- set q = 3 %}\n\n{{ q }}","{%-if t-%}x{%-endif-%}","{{a}}{{b}}{{-a-}}", "{% for m in m %}{{ m.c }}{% endfor %}{{ m|length }}","{{ a\n+\nb }}","{% if a == 5\n and b %}ok{% endif %}"]

cases = []
for template in TEMPLATES.strip("\n").split("\n") + WHITESPACE:
    try:
        cases.append({"template": template, "text": environment.from_string(template).render(**VARIABLES)})
    except Exception as problem:  # whatever it refuses, so must we
        cases.append({"template": template, "refused": type(problem).__name__})
with open("cases.json", "w") as file:
    json.dump({"variables": VARIABLES, "cases": cases}, file, indent=1, ensure_ascii=False)
    file.write("\n")
