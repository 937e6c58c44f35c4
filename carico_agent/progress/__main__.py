"""run a Python script whose tqdm bars report their progress, without a change of the script

The script gets the arguments that follow its name. `-m MODULE` runs a module, as with python itself. Where tqdm is not
installed the script runs as it would alone.

examples:
  python -m carico_agent.progress train.py --epochs 3
  python -m carico_agent.progress -m package.train
"""

import os
import runpy
import sys


def main(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help") or (words[0] == "-m" and len(words) == 1):
        usage = f"usage: python -m carico_agent.progress (SCRIPT | -m MODULE) [ARGUMENT …]\n\n{__doc__}"
        asked = words[:1] in (["-h"], ["--help"])
        (sys.stdout if asked else sys.stderr).write(usage)
        sys.exit(0 if asked else 2)
    try:
        from carico_agent.progress.callbacks import tqdm
    except ImportError:
        pass
    else:
        tqdm.install()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
