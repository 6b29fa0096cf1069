"""Prints the order of functions in a release. Started by deploy/release.

The functions that are executed at the start of the program or often come first, the most frequent ones at the top, so that the
memory pages with code that the program needs are few. Reads two outputs of `llvm-profdata show --all-functions --counts`.
"""

import argparse
import pathlib

# Functions whose blocks are executed at least so often in the training are placed next to those of the start.
OFTEN = 1_000


def read_counts(file):
    """Returns the largest count of each function, by its symbol."""
    counts, symbol = {}, None
    for line in file.read_text().splitlines():
        if line.startswith("  ") and not line.startswith("   ") and line.endswith(":"):
            # The name of a function that other crates do not see has the name of its file in front.
            symbol = line.strip().removesuffix(":").rpartition(";")[2]
        elif line.startswith("    Block counts: ["):
            blocks = line.removeprefix("    Block counts: [").removesuffix("]")
            counts[symbol] = max(counts.get(symbol, 0), *map(int, blocks.split(", ")), 0)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", type=pathlib.Path, help="counts of the start of the program")
    parser.add_argument("all", type=pathlib.Path, help="counts of the training")
    arguments = parser.parse_args()
    start, counts = read_counts(arguments.start), read_counts(arguments.all)
    chosen = [symbol for symbol, count in counts.items() if count >= OFTEN or start.get(symbol)]
    print("\n".join(sorted(chosen, key=lambda symbol: -counts[symbol])))


if __name__ == "__main__":
    main()
