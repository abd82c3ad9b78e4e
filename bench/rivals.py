"""The rivals with an MPI that comparisons build and start: those of the system, and those of scripts/venv.

Programs and libraries that were built with them lie in build/rivals.
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "build", "rivals")
LIBRARY = os.path.join(ROOT, "build", "lib", "libzro.so")
RANKS = 2


class Missing(Exception):
    """Why a rival cannot take part."""


def python_of(name):
    """The interpreter of an environment of scripts/venv, which is made if need be."""
    made = subprocess.run([os.path.join(ROOT, "scripts", "venv"), name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Missing(made.stderr.strip())
    return made.stdout.strip()


class Rival:
    """An MPI: how to compile with it and how to start ranks."""

    def __init__(self, name, environment=None, compiler="cc", launcher=(), settings=None, sources=(), libraries=()):
        self.name, self.environment, self.compiler, self.launcher = name, environment, compiler, list(launcher)
        self.settings, self.sources, self.libraries, self.folder = settings or {}, list(sources), list(libraries), None

    def prepare(self):
        if self.environment is not None:
            self.folder = os.path.dirname(os.path.dirname(python_of(self.environment)))
        for program in (self.compiler, self.launcher[0]):
            if shutil.which(self.path(program)) is None:
                raise Missing(f"{self.name}: there is no {program}")

    def path(self, program):
        inside = os.path.join(self.folder, "bin", program) if self.folder else ""
        return inside if os.path.exists(inside) else program

    def build(self, output, sources, *flags, last=()):
        os.makedirs(OUT, exist_ok=True)
        output = os.path.join(OUT, output)
        command = [self.compiler, *flags, "-O3", "-o", output, *sources, *(os.path.join(ROOT, "bench", s) for s in self.sources)]
        if self.folder is not None:
            lib = os.path.join(self.folder, "lib")
            command += [f"-I{self.folder}/include", f"-L{lib}", f"-Wl,-rpath,{lib}", *self.libraries, "-lmpi"]
        made = subprocess.run([*command, *last, "-lm"], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise Missing(f"{self.name}: {made.stderr.strip()}")
        return output

    def full_name(self, version):
        """Its name with the number in what MPI_Get_library_version says."""
        number = re.search(r"\d+(\.\d+)+", version)
        return f"{self.name} {number.group()}" if number else self.name

    def start(self, command, timeout):
        """Runs a command on all ranks and returns what it printed."""
        settings = {name: value.format(folder=self.folder) for name, value in self.settings.items()}
        return finish(subprocess.Popen([self.path(self.launcher[0]), *self.launcher[1:], "-n", str(RANKS), *command],
                                       env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True), self.name, timeout)


def finish(process, name, timeout):
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
        raise Missing(f"{name}: no end after {timeout} s") from None
    if process.returncode != 0:
        raise Missing(f"{name}: status {process.returncode}")
    return output


OPEN_MPI = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
INTEL = ("mpiexec.hydra", "-bootstrap", "fork")
INTEL_SETTINGS = {"I_MPI_ROOT": "{folder}", "LD_LIBRARY_PATH": "{folder}/lib", "I_MPI_FABRICS": "shm"}

RIVALS = {
    "openmpi": Rival("Open MPI", None, "mpicc.openmpi", ("mpirun.openmpi", *OPEN_MPI[1:])),
    "mpich": Rival("MPICH", None, "mpicc.mpich", ("mpirun.mpich",)),
    "openmpi5": Rival("Open MPI", "openmpi", launcher=OPEN_MPI, settings={"OPAL_PREFIX": "{folder}"}),
    "mpich5": Rival("MPICH", "mpich", launcher=("mpiexec.hydra",)),
    "impi": Rival("Intel MPI", "impi", launcher=INTEL, settings=INTEL_SETTINGS),
    "oneccl": Rival("oneCCL", "oneccl", launcher=INTEL, sources=["ccl.cpp"],
                    settings={**INTEL_SETTINGS, "CCL_ROOT": "{folder}", "CCL_LOG_LEVEL": "error"},  # warnings would stand in the JSON
                    libraries=["-lccl", "-lstdc++"]),
}


def build_library():
    """libzro.so, with what cmake finds."""
    made = subprocess.run([os.path.join(ROOT, "scripts", "build"), os.path.join(ROOT, "build")], capture_output=True, text=True,
                          check=False)
    if made.returncode != 0:
        sys.exit(made.stdout + made.stderr)
