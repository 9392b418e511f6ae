-- Lmod: `module load penstock`. Finds the tree that it lies in. Sets no LD_PRELOAD, which would enter every program of the
-- shell: `penstock run` does that for the ranks alone.
local root = myFileName():gsub("/share/lmod/penstock/[^/]*$", "")

help([[Penstock @VERSION@: MPI-IO and files over many servers, for programs as they are. See: man penstock]])
whatis("Penstock @VERSION@, a parallel I/O stack")
conflict("penstock")

prepend_path("PATH", root .. "/bin")
prepend_path("MANPATH", root .. "/share/man")
prepend_path("PKG_CONFIG_PATH", root .. "/@LIBDIR@/pkgconfig")
setenv("PENSTOCK_LIBRARY", root .. "/lib/penstock/libpenstock.so")
