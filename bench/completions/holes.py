"""Small Python files with holes to fill: what stands between « and » is missing, one hole at a time.

An empty line or a body may hold several lines. No file is taken from anywhere; all were written for this measurement.
"""

FILES = {
    "average": '''\
def average(values):
    """Return the arithmetic mean of a list of numbers."""
«    if not values:
        return 0.0
»    total = «sum(values)»
«    return total / len(values)
»

def spread(values):
    return max(values) - «min(values)»
''',
    "read_lines": '''\
import os


def read_lines(path):
    """Return the lines of a text file without their line ends."""
    with open(path, encoding="utf-8") as stream:
«        return [line.rstrip("\\n") for line in stream]
»

def file_size(path):
    return «os.path.getsize(path)»
''',
    "stack": '''\
class Stack:
    """A last-in, first-out container."""

    def __init__(self):
«        self.items = []
»
    def push(self, item):
«        self.items.append(item)
»
    def pop(self):
        if not self.items:
            «raise IndexError("pop from an empty stack")»
        return self.items.pop()

    def __len__(self):
        return «len(self.items)»
''',
    "fibonacci": '''\
def fibonacci(n):
    """Return the first n Fibonacci numbers."""
    numbers = []
    a, b = 0, 1
    for _ in range(«n»):
«        numbers.append(a)
»        a, b = «b, a + b»
    return numbers


print(fibonacci(10))
''',
    "word_count": '''\
from collections import Counter


def count_words(text):
    words = text.lower().split()
«    return Counter(words)
»

def most_common(text, n=10):
    """Return the n most common words of a text."""
    counts = «count_words(text)»
    return counts.most_common(«n»)
''',
    "primes": '''\
def is_prime(n):
    if n < 2:
        «return False»
    i = 2
    while i * i <= n:
«        if n % i == 0:
            return False
»        i += 1
    return True


def primes_below(limit):
    return [n for n in range(limit) if «is_prime(n)»]
''',
    "point": '''\
import math


class Point:
    def __init__(self, x, y):
        self.x = x
«        self.y = y
»
    def distance(self, other):
        """Return the distance to another point."""
        dx = self.x - other.x
«        dy = self.y - other.y
»        return «math.sqrt(dx * dx + dy * dy)»

    def __repr__(self):
        return f"Point({self.x}, {self.y})"
''',
    "config": '''\
import json


def load_config(path, defaults=None):
    config = dict(defaults or {})
    try:
        with open(path) as stream:
«            config.update(json.load(stream))
»    except «FileNotFoundError»:
        pass
    return config


def save_config(path, config):
    with open(path, "w") as stream:
«        json.dump(config, stream, indent=2)
»''',
    "celsius": '''\
def celsius_to_fahrenheit(celsius):
    return celsius * 9 / 5 + 32


def fahrenheit_to_celsius(fahrenheit):
    return «(fahrenheit - 32) * 5 / 9»


def convert(value, unit):
    if unit == "C":
        return celsius_to_fahrenheit(value)
«    if unit == "F":
        return fahrenheit_to_celsius(value)
»    raise ValueError("unknown unit: " + unit)
''',
    "binary_search": '''\
def binary_search(items, wanted):
    """Return the index of wanted in the sorted list items, or -1."""
    low = 0
    high = «len(items) - 1»
    while low <= high:
«        middle = (low + high) // 2
»        if items[middle] == wanted:
            «return middle»
        if items[middle] < wanted:
            low = middle + 1
        else:
«            high = middle - 1
»    return -1
''',
    "arguments": '''\
import argparse


def parse_arguments():
    parser = argparse.ArgumentParser(description="Sort the lines of a file.")
    parser.add_argument("path", help="the file to sort")
«    parser.add_argument("--reverse", action="store_true", help="sort in descending order")
»    return «parser.parse_args()»


def main():
    arguments = parse_arguments()
    with open(arguments.path) as stream:
        lines = «stream.readlines()»
    lines.sort(reverse=arguments.reverse)
    print("".join(lines), end="")


if __name__ == "__main__":
«    main()
»''',
    "account": '''\
class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("the amount must be positive")
«        self.balance += amount
»
    def withdraw(self, amount):
        if amount > self.balance:
            «raise ValueError("not enough money")»
«        self.balance -= amount
»
    def __str__(self):
        return f"{self.owner}: {self.balance}"
''',
    "flatten": '''\
def flatten(nested):
    """Return the items of nested lists as one list."""
    result = []
    for item in nested:
        if isinstance(item, «list»):
«            result.extend(flatten(item))
»        else:
«            result.append(item)
»    return result
''',
    "retry": '''\
import time


def retry(function, attempts=3, delay=1.0):
    """Call function until it succeeds, at most attempts times."""
    for attempt in range(attempts):
        try:
«            return function()
»        except Exception:
            if attempt == attempts - 1:
                «raise»
«            time.sleep(delay)
»''',
    "matrix": '''\
def transpose(matrix):
    return [list(row) for row in zip(*matrix)]


def multiply(a, b):
    columns = transpose(b)
    result = []
    for row in a:
        result.append([sum(x * y for x, y in zip(row, column)) for column in «columns»])
«    return result
»

def identity(n):
    return [[1 if i == j else 0 for j in range(n)] for i in «range(n)»]
''',
    "cache": '''\
class Cache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.values = {}

    def get(self, key, default=None):
«        return self.values.get(key, default)
»
    def put(self, key, value):
        if len(self.values) >= self.capacity:
            oldest = next(iter(self.values))
«            del self.values[oldest]
»        self.values[key] = «value»
''',
}


def holes():
    """(name, kind, prefix, middle, suffix) of every hole. A hole of whole lines is a body, any other a part of a line."""
    found = []
    for name, text in FILES.items():
        parts = text.replace("»", "«").split("«")
        for number in range(1, len(parts), 2):
            prefix = "".join(parts[:number])
            middle = parts[number]
            suffix = "".join(parts[number + 1:])
            kind = "lines" if middle.endswith("\n") else "part"
            found.append((f"{name}.{number // 2}", kind, prefix, middle, suffix))
    return found
