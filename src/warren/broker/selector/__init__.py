"""Message selectors: a condition over a message's headers and properties, as SQL-92, JMS and Qpid write it.

    priority > 3 AND region = 'eu' AND (size BETWEEN 1 AND 10 OR "x-kind" LIKE 'order.%')

A selector is compiled once and evaluated for every message. `lexer` cuts the text into tokens, `parser` makes
a tree of them and defines the grammar, `compiler` turns the tree into closures. `names` says what a name
stands for, `values` how values compare and calculate, `like` how patterns match. Nothing of the text is ever
run as code; its length, the number of tokens and the depth of parentheses are bounded.
"""

from warren.broker.selector.compiler import Selector, compile_selector
from warren.broker.selector.lexer import SelectorError

__all__ = ["Selector", "SelectorError", "compile_selector"]
