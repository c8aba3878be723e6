"""The prompts of the rows: random tokens, the same in every run."""

import random

import model

FIRST_TOKEN = 3  # those before it are the models' special tokens


def tokens(name, count):
    """Returns tokens that depend on the name and the place only."""
    numbers = random.Random(name)
    return [numbers.randrange(FIRST_TOKEN, model.VOCABULARY) for _ in range(count)]


# Lengths are on both sides of blocks of 16 and 32 tokens and of the window of 128.
SEPARATE = [
    tokens("a", 200),
    tokens("b", 160),
    tokens("c", 1000),
    tokens("d", 513),
    tokens("e", 129),
    tokens("f", 33),
    tokens("g", 15),
]
# Each begins as one of SEPARATE does, and goes on otherwise.
SHARED = [
    tokens("a", 96) + tokens("h", 120),
    tokens("c", 608) + tokens("i", 97),
    tokens("c", 1000) + tokens("j", 300),
    tokens("d", 300),
    tokens("d", 512) + tokens("k", 64),
]
# They end alike: their outputs differ by what is in front of that.
ALIKE = [tokens("l", 96) + tokens("m", 40), tokens("n", 96) + tokens("m", 40)]
ALL = SEPARATE + SHARED + ALIKE
FEW = [SEPARATE[0], SEPARATE[3], SHARED[0]]
CASES = SEPARATE[:4]
# More than the engine of the scenario cases has blocks for, once some hundred tokens are generated for each.
LONG = [tokens(f"long {i}", 400) for i in range(8)]
MANY = [tokens(f"many {i % 30}", 60 + 23 * (i % 30)) for i in range(100)]
