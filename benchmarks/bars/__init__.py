"""The bars of each issue: `python -m benchmarks.bars ISSUE`, or one alone: `python -m benchmarks.bars.ISSUE.NAME`."""
