"""The command `zro`, also as `python -m zro`: `zro run -n 4 python train.py` starts ranks, and Group() joins them."""
import os
import sys


def main() -> None:
    """Becomes the command that the wheel carries."""
    command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "zro")
    if not os.path.exists(command):
        sys.exit("python -m zro: this package was not installed from a wheel, so it has no command; use the one of the build, bin/zro")
    os.execv(command, ["zro", *sys.argv[1:]])


if __name__ == "__main__":
    main()
