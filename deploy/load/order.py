"""Prints the order of functions in a release. Started by deploy/release.

Functions that a process executes when it starts, and then those that calls execute, come first, so that a process needs few memory
pages of code. Reads outputs of `llvm-profdata show --all-functions --counts`.
"""

import argparse
import pathlib


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
    parser.add_argument("training", type=pathlib.Path, help="counts of all calls")
    parser.add_argument("starts", type=pathlib.Path, nargs="+", help="counts of the start of each process")
    arguments = parser.parse_args()
    counts, starts = read_counts(arguments.training), [read_counts(file) for file in arguments.starts]
    # Functions that the same processes execute are adjacent, and those of most processes come first. Of the others, those that
    # calls execute most often come first.
    keys = {}
    for symbol, count in counts.items():
        users = tuple(at for at, start in enumerate(starts) if start.get(symbol))
        if users or count:
            keys[symbol] = (-len(users), users, -count)
    print("\n".join(sorted(keys, key=keys.get)))


if __name__ == "__main__":
    main()
