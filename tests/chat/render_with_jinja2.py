#!/usr/bin/env python3
"""Renders templates with Jinja2 as the transformers library sets it up, for templates_of_others_test.cpp.

Reads {"templates": {name: source}, "cases": {name: variables}} from the file that it is given, and writes
{template: {case: {"text": ...} or {"refused": ...}}} to the second. Needs Debian's python3-jinja2.
"""
import datetime
import json
import sys

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
environment.globals["strftime_now"] = datetime.datetime(2024, 7, 26, 0, 0, 0).strftime

with open(sys.argv[1]) as file:
    asked = json.load(file)
answers = {}
for name, source in asked["templates"].items():
    answers[name] = {}
    try:
        template = environment.from_string(source)
    except Exception as problem:
        answers[name] = {case: {"refused": str(problem)} for case in asked["cases"]}
        continue
    for case, variables in asked["cases"].items():
        try:
            text = template.render(**variables)
            text.encode()
            answers[name][case] = {"text": text}
        except Exception as problem:  # whatever it refuses, so must we
            answers[name][case] = {"refused": f"{type(problem).__name__}: {problem}"}
with open(sys.argv[2], "w") as file:
    json.dump(answers, file)
