"""The solver cvc5 as a program, from its Python package: cvc5 [--lang smt] [--NAME=VALUE]…

It reads SMT-LIB commands from the standard input, each of which begins on a line of its own, and prints what they return. The
package contains the library of the solver and no program.
"""

import re
import sys

import cvc5


def new_solver() -> tuple[cvc5.Solver, cvc5.SymbolManager]:
    solver = cvc5.Solver()
    for argument in sys.argv[1:]:
        name, _, value = argument.removeprefix("--").partition("=")
        if value:
            solver.setOption(name, value)
    return solver, cvc5.SymbolManager(solver)


# Parts of a command that can contain parentheses of their own: strings, quoted symbols and comments.
OPAQUE = re.compile(r'"[^"]*"|\|[^|]*\||;[^\n]*')


def is_complete(command: str) -> bool:
    structure = OPAQUE.sub("", command)
    return structure.count("(") == structure.count(")")


def main() -> None:
    if "--version" in sys.argv:
        print("This is cvc5 version", cvc5.__version__)
        return
    solver, symbols = new_solver()
    text = ""
    for line in sys.stdin:
        text += line
        if not is_complete(text):
            continue
        if text.strip() == "(reset)":
            # The command itself would keep the logic that was declared.
            solver, symbols = new_solver()
            text = ""
            continue
        parser = cvc5.InputParser(solver, symbols)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "stdin")
        text = ""
        while not (command := parser.nextCommand()).isNull():
            sys.stdout.write(command.invoke(solver, symbols))
            sys.stdout.flush()


main()
