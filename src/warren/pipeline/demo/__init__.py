"""`warren pipeline demo`: an imaginary shop on a broker of its own, and the jobs over what it recorded."""

from warren.pipeline.demo.demo import ABOUT, add_arguments, check, run

__all__ = ["ABOUT", "add_arguments", "check", "run"]
