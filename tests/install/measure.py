"""By hand: `pip install .` in an empty environment, with the index. What it brings, its size, its import times.

`python tests/install/measure.py [extra ...]`
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from install.environments import Environment, build_wheel, costs


def main() -> None:
    """Print what somebody gets who installs idem with these extras."""
    extras = f"[{','.join(sys.argv[1:])}]" if sys.argv[1:] else ""
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder) / "wheel")
        venv.create(Path(folder) / "venv", symlinks=True, with_pip=True)
        environment = Environment(Path(folder) / "venv")
        bare = set(environment.sizes())
        subprocess.run([environment.python, "-m", "pip", "install", "--quiet", f"{wheel}{extras}"], check=True)
        sys.stdout.write(f"{wheel.stat().st_size / 1e6:7.2f} MB  {wheel.name}, packed\n")
        sys.stdout.writelines(f"{line}\n" for line in costs(environment, but=bare))


if __name__ == "__main__":
    main()
