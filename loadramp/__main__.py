"""``python -m loadramp``.

``--arguments-from-stdin`` alone reads the arguments from stdin, a JSON list: addresses and headers may hold secrets,
and every user of a machine can read its command lines.
"""

import json
import sys

from loadramp.cli import main

if __name__ == "__main__":
    if sys.argv[1:] == ["--arguments-from-stdin"]:
        sys.argv[1:] = json.loads(sys.stdin.buffer.read())
    main(sys.argv[1:])
