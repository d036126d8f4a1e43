"""``vitals-train``, also as ``python -m trainer``: says what to install when torch is missing."""

import sys


def main() -> int:
    """The command; returns its exit code."""
    try:
        from trainer import cli
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "trainer":
            raise
        print(f"vitals-train: the package {error.name!r} is not installed; run: pip install 'rlvitals[trainer]'", file=sys.stderr)
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
