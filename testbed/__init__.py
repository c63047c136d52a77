"""The command line: proves, measures, predicts and shows with the packages below it."""

__version__ = "0.1.0"
