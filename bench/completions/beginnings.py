"""Beginnings of Python functions, as someone types them into a completer.

CHOOSE are for choosing settings, CONFIRM for checking the choice on text that had no part in it.
"""

CHOOSE = {
    "docstring": '''def word_count(path):
    """Return how often each word occurs in a text file.

    Words are compared in lower case.
    """''',
    "method": '''class Stack:
    """A last-in, first-out container."""

    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):''',
    "loop": '''def moving_average(values, size):
    averages = []
    for i in range(''',
    "file": '''import csv


def read_rows(path):
    """Read a CSV file and return its rows as dictionaries."""
    with open(path) as f:''',
    "argparse": '''import argparse


def parse_args():
    parser = argparse.ArgumentParser(description="Resize images")''',
    "regex": '''import re

LOG_LINE = re.compile(r"(\\d+-\\d+-\\d+) (\\w+) (.*)")


def parse_line(line):''',
    "recursion": "def fibonacci(n):",
    "comprehension": '''def flatten(lists):
    """Turn a list of lists into one list."""
    return [''',
    "errors": '''import json
import logging

logger = logging.getLogger(__name__)


def load_config(path):
    try:''',
    "test": '''import unittest

from shapes import Rectangle


class RectangleTest(unittest.TestCase):
    def test_area(self):''',
}

CONFIRM = {
    "typed": '''from typing import Dict, List, Optional


def find_user(users: List[Dict[str, str]], name: str) -> Optional[Dict[str, str]]:''',
    "property": '''class Circle:
    def __init__(self, radius):
        self.radius = radius

    @property
    def area(self):''',
    "search": '''def binary_search(items, target):
    low = 0
    high = len(items) - 1
    while low <= high:''',
    "walk": '''import os


def find_files(root, suffix):
    """Yield the paths of all files below root that end in suffix."""
    for folder, folders, files in os.walk(root):''',
    "request": '''import urllib.request


def download(url, path, timeout=10):
    """Download a file and return the number of bytes written."""''',
    "context": '''import contextlib
import time


@contextlib.contextmanager
def timed(label):''',
    "dates": '''import datetime


def days_between(start, end):''',
    "dataclass": '''from dataclasses import dataclass, field


@dataclass
class Order:
    number: int
    items: list = field(default_factory=list)

    def total(self):''',
    "gcd": '''def gcd(a, b):
    """Return the greatest common divisor of a and b."""''',
    "main": '''import sys


def main(argv=None):
    if argv is None:
        argv = sys.argv[1:]''',
}
