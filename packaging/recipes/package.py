# Spack: put this file into a repository's packages/penstock/, then `spack install penstock`.
# The tarball is that of `make dist-src`, which has its crates; packaging/files.txt says what is installed.
# Untested: written after Spack's packaging guide, never run.
from spack.package import *


class Penstock(MakefilePackage):
    """A parallel I/O stack: MPI-IO for unmodified programs, and a parallel file system that a user starts."""

    homepage = "https://example.org/penstock"
    # Where your site keeps the tarball.
    url = "file:///srv/tarballs/penstock-@VERSION@-src.tar.gz"

    license("Apache-2.0")

    version("@VERSION@", sha256="@SHA256@")

    depends_on("c", type="build")
    depends_on("rust@1.90:", type="build")
    depends_on("gmake", type="build")
    # Headers alone are used; one build serves every version of an ABI.
    depends_on("mpich@4:", type="build")
    depends_on("openmpi@4:", type="build")

    def setup_build_environment(self, env):
        env.set("MPICH_INC", self.spec["mpich"].prefix.include)
        env.set("OPENMPI_INC", self.spec["openmpi"].prefix.include)
        # An empty one leaves the standard ABI out; its headers come with MPICH 5.
        env.set("STANDARD_INC", "")

    def build(self, spec, prefix):
        make("packages")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}")

    def setup_run_environment(self, env):
        env.set("PENSTOCK_LIBRARY", self.prefix.lib.penstock.join("libpenstock.so"))
