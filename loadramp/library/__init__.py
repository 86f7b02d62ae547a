"""What notebooks and scripts import: read a run, make one, judge records of other tools. docs/library.md.

``import loadramp`` reaches these names without importing anything heavy before one of them is used.
"""
