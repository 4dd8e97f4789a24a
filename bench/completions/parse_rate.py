#!/usr/bin/env python3
"""How often what the bundled pair writes is Python: completes beginnings of functions under many sampler settings.

    bench/completions/parse_rate.py build/release/app/foresay --record docs/experiments/completions.json
    bench/completions/parse_rate.py build/release/app/foresay --set CONFIRM --seeds 10:20 \\
        --settings '{"temperature": 0.4}'

One `foresay chat` process answers everything: for each setting and beginning, seed 0 and then `/retry SEED`. Times play
no part, and texts are the same on every run on one instruction set. Needs Python 3.11 and nothing else.
"""

import argparse
import ast
import collections
import io
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import tokenize

import beginnings

DEFAULTS = {"temperature": 0.6, "top_k": 40, "top_p": 0.95, "min_p": 0.0, "repeat": 1.0}
KEYS = {
    "temperature": "sampling.temperature.value",
    "top_k": "sampling.top_k.k",
    "top_p": "sampling.top_p.p",
    "min_p": "sampling.min_p.p",
    "repeat": "sampling.penalties.repeat",
}
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat": 1.0}
STAGES = {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "repeat": "penalties"}
ORDER = ["penalties", "top_k", "top_p", "min_p"]
INCOMPLETE = 0x4000 | 0x200  # PyCF_ALLOW_INCOMPLETE_INPUT, PyCF_DONT_IMPLY_DEDENT, as in codeop.py
MOST_REPEATS = 3


def grid():
    """The settings to try: what differs from DEFAULTS."""
    settings = [{"temperature": t} for t in (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)]
    settings += [{"temperature": t, "top_p": p} for t in (0.4, 0.6, 0.8) for p in (0.8, 0.9)]
    settings += [{"temperature": t, "top_p": 1.0, "min_p": p} for t in (0.4, 0.6, 0.8) for p in (0.05, 0.1, 0.2)]
    settings += [{"temperature": t, "top_k": k} for t in (0.4, 0.6) for k in (5, 10)]
    settings += [{"temperature": 0.4, "repeat": r} for r in (1.02, 1.05, 1.1)]
    return settings


class Program:
    """`foresay chat` in pipes."""

    MARK = "seed of the sampler's noise"

    def __init__(self, program, tokens, newline):
        self.home = tempfile.TemporaryDirectory()
        environment = {**os.environ, "FORESAY_LOG": "error"}
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_CACHE_HOME"):
            environment[name] = self.home.name
        command = [program, "chat", "--lines", "--no-save", "--device", "cpu", "--threads", "1", "-n", str(tokens),
                   "--set", "chat.newline=" + ("true" if newline else "false")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        os.set_blocking(self.process.stdout.fileno(), False)
        os.set_blocking(self.process.stderr.fileno(), False)
        self.messages = b""
        self.newline = newline

    def ask(self, entry):
        """Sends an entry and returns what it wrote to standard output, once the next command has answered."""
        self.process.stdin.write(entry.encode() + b"\n/show sampling.branch\n")
        self.process.stdin.flush()
        out = b""
        streams = [self.process.stdout, self.process.stderr]
        while True:
            ready, _, _ = select.select(streams, [], [], 120)
            if not ready:
                raise SystemExit(f"the program does not answer: {entry!r}")
            if self.process.stderr in ready:
                more = self.process.stderr.read()
                if not more:
                    raise SystemExit(f"the program has ended: {self.messages.decode()}")
                self.messages += more
            out += self.process.stdout.read() or b""
            if re.search(rb"sampling\.branch = .*\n", self.messages):
                complaint = self.messages.split(b"sampling.branch =")[0]
                self.messages = b""
                if b"foresay:" in complaint or b"/set" in complaint:
                    raise SystemExit(complaint.decode())
                return (out + (self.process.stdout.read() or b"")).decode()

    def set(self, setting):
        values = {**DEFAULTS, **setting}
        stages = [stage for stage in ORDER
                  if any(STAGES.get(name) == stage and values[name] != OFF[name] for name in OFF)]
        chain = ["wordlist"] + stages + ["temperature"]
        self.ask("/set sampling.chain " + json.dumps(chain))
        for name, value in values.items():
            if name == "temperature" or STAGES[name] in stages:
                self.ask(f"/set {KEYS[name]} {value}")

    def complete(self, beginning, seeds):
        self.ask("/clear")
        first, *others = seeds
        self.ask(f"/set sampling.seed {first}")
        answers = [self.ask(f'""""\n{beginning}\n""""')]
        answers += [self.ask(f"/retry {seed}") for seed in others]
        return [answer[:-1] for answer in answers]  # a newline ends each

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def parses(source):
    try:
        ast.parse(source)
        return True
    except (SyntaxError, ValueError):
        return False


def may_go_on(source):
    """Whether the source is Python so far: nothing is wrong but that it stops."""
    if parses(source):
        return True
    try:
        compile(source, "", "exec", flags=ast.PyCF_ONLY_AST | INCOMPLETE)
        return True
    except SyntaxError as problem:
        return "incomplete input" in str(problem)
    except ValueError:
        return False


def is_open(source):
    """Whether the source ends within brackets or a string, where a line may begin anywhere."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO(source).readline):
            pass
    except tokenize.TokenError as problem:
        return "EOF in multi-line" in str(problem)
    except SyntaxError:  # a dedent to nowhere
        pass
    return False


def indentation(line):
    return len(line) - len(line.lstrip())


def cut(beginning, answer):
    """The source up to where a completer would stop, and whether it is the end of the function.

    That is before the first line that is indented no deeper than the function's `def`, outside of brackets and strings.
    Without such a line, the source ends with its last whole line.
    """
    definition = [line for line in beginning.split("\n") if re.match(r"\s*(async )?def ", line)][-1]
    depth = indentation(definition)
    known = beginning.count("\n")  # the line that the answer continues
    lines = (beginning + answer).split("\n")
    for i in range(known + 1, len(lines)):
        line = lines[i]
        if not line.strip() or line.lstrip().startswith("#") or indentation(line) > depth:
            continue
        before = "\n".join(lines[:i]) + "\n"
        if is_open(before):
            continue
        return before, True
    return "\n".join(lines[:-1]) + "\n", False


def repeats(answer):
    """Whether the answer runs in circles: a line that is there more than MOST_REPEATS times in a row, or a block."""
    lines = [line.strip() for line in answer.split("\n") if line.strip()]
    for length in (1, 2, 3):
        for i in range(len(lines) - length * MOST_REPEATS):
            block = lines[i:i + length]
            if all(lines[i + k * length:i + (k + 1) * length] == block for k in range(1, MOST_REPEATS + 1)):
                return True
    return False


def ends_line(beginning):
    """What chat.newline adds (app/conversation/prompt.cpp)."""
    return "" if beginning.endswith("\n") else "\n"


def measure(program, setting, prompts, seeds):
    """Counts the answers that are Python, and those that are useless all the same.

    whole: parses to the last byte. cut: parses up to where a completer stops; if the token limit came first, is right
    so far. ended: the function ended before the limit. distinct: different answers to one beginning, summed.
    """
    program.set(setting)
    counts = collections.Counter()
    by_beginning = {}
    for name, beginning in prompts.items():
        answers = program.complete(beginning, seeds)
        if program.newline:
            beginning += ends_line(beginning)
        counts["distinct"] += len(set(answers))
        good = 0
        for answer in answers:
            source, ended = cut(beginning, answer)
            whole = parses(beginning + answer)
            right = parses(source) if ended else may_go_on(source)
            good += right
            counts["answers"] += 1
            counts["whole"] += whole
            counts["cut"] += right
            counts["ended"] += ended
            counts["ended_and_parses"] += ended and right
            counts["repeats"] += repeats(answer)
        by_beginning[name] = good
    total = counts.pop("answers")
    return {"setting": setting, "answers": total, **{name: counts[name] for name in
            ("whole", "cut", "ended", "ended_and_parses", "distinct", "repeats")}, "by_beginning": by_beginning}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="foresay")
    parser.add_argument("--set", default="CHOOSE", choices=["CHOOSE", "CONFIRM"], help="which beginnings")
    parser.add_argument("--seeds", default="0:10", help="FIRST:END")
    parser.add_argument("--newline", action="store_true", help="with chat.newline, as the bundled pair has it")
    parser.add_argument("--tokens", type=int, default=128, help="per answer")
    parser.add_argument("--settings", action="append", help="JSON, what differs from the defaults (repeatable)")
    parser.add_argument("--record", help="JSON file to write")
    arguments = parser.parse_args()
    first, end = map(int, arguments.seeds.split(":"))
    settings = [json.loads(text) for text in arguments.settings] if arguments.settings else grid()
    prompts = getattr(beginnings, arguments.set)
    program = Program(arguments.program, arguments.tokens, arguments.newline)
    results = []
    print("  cut whole ended distinct repeats  setting")
    for setting in settings:
        result = measure(program, setting, prompts, range(first, end))
        results.append(result)
        print("{cut:5} {whole:5} {ended:5} {distinct:8} {repeats:7}".format(**result) +
              "  " + json.dumps(setting), flush=True)
        if arguments.record:
            record(arguments, results)
    program.close()


def record(arguments, results):
    head = {"beginnings": arguments.set, "newline": arguments.newline, "seeds": arguments.seeds,
            "tokens": arguments.tokens, "defaults": DEFAULTS}
    rows = ",\n".join("  " + json.dumps(result) for result in results)
    with open(arguments.record, "w") as file:
        file.write(json.dumps(head)[:-1] + ', "results": [\n' + rows + "\n]}\n")


if __name__ == "__main__":
    sys.exit(main())
