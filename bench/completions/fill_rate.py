#!/usr/bin/env python3
"""How well the bundled pair fills holes: inserts what /fim prints into small Python files (holes.py).

    bench/completions/fill_rate.py build/release/app/foresay --seeds 0:4
    bench/completions/fill_rate.py build/release/app/foresay --set chat.fim_order=psm

One `foresay chat` process fills every hole with every seed. Times play no part, and texts are the same on every run on
one instruction set. Needs Python 3.11 and nothing else.
"""

import argparse
import collections
import json
import os
import sys
import tempfile

import holes
import parse_rate


def significant(text):
    return [line.strip() for line in text.split("\n") if len(line.strip()) > 3]


def repeats_what_follows(answer, suffix):
    """Whether the answer has the next line of the file, or ends with the rest of the line that the hole is in."""
    rest = suffix.split("\n")[0].strip()
    if rest:
        return len(rest) > 1 and answer.rstrip().endswith(rest)
    following = significant(suffix)[:1]
    return bool(following) and following[0] in significant(answer)


def same(answer, middle):
    return [line.rstrip() for line in answer.strip("\n").split("\n")] == \
        [line.rstrip() for line in middle.strip("\n").split("\n")]


def fill(program, path, prefix, suffix, seeds):
    """The text that /fim inserts between `prefix` and `suffix`, for each seed."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(prefix + suffix)
    line = prefix.count("\n") + 1
    column = len(prefix) - (prefix.rfind("\n") + 1) + 1
    program.ask("/clear")
    first, *others = seeds
    program.ask(f"/set sampling.seed {first}")
    answers = [program.ask(f"/fim {path}:{line}:{column}")]
    answers += [program.ask(f"/retry {seed}") for seed in others]
    return [answer[:-1] for answer in answers]  # a newline ends each


def measure(program, path, seeds):
    counts = {kind: collections.Counter() for kind in ("lines", "part")}
    texts = {}
    for name, kind, prefix, middle, suffix in holes.holes():
        answers = fill(program, path, prefix, suffix, seeds)
        texts[name] = answers
        for answer in answers:
            # A pipe gets one newline after each answer, which the text of whole lines already has.
            candidates = [answer, answer + "\n"] if kind == "lines" else [answer]
            count = counts[kind]
            count["answers"] += 1
            count["exact"] += same(answer, middle)
            count["parses"] += any(parse_rate.parses(prefix + text + suffix) for text in candidates)
            count["useful"] += answer.strip() != "" and any(
                parse_rate.parses(prefix + text + suffix) for text in candidates)
            count["repeats"] += repeats_what_follows(answer, suffix)
            count["empty"] += answer.strip() == ""
    return counts, texts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="foresay")
    parser.add_argument("--seeds", default="0:4", help="FIRST:END")
    parser.add_argument("--tokens", type=int, default=96, help="per answer")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the configuration (repeatable)")
    parser.add_argument("--texts", help="JSON file for the answers")
    arguments = parser.parse_args()
    seeds = range(*map(int, arguments.seeds.split(":")))
    program = parse_rate.Program(arguments.program, arguments.tokens, True)
    for assignment in arguments.set:
        key, value = assignment.split("=", 1)
        program.ask(f"/set {key} {value}")
    with tempfile.TemporaryDirectory() as folder:
        counts, texts = measure(program, os.path.join(folder, "hole.py"), seeds)
    program.close()
    print("kind   answers  exact parses useful repeats  empty")
    for kind, count in counts.items():
        print(f"{kind:6} {count['answers']:7} {count['exact']:6} {count['parses']:6} {count['useful']:6} "
              f"{count['repeats']:7} {count['empty']:6}")
    if arguments.texts:
        with open(arguments.texts, "w", encoding="utf-8") as file:
            json.dump(texts, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
