"""mpi4py: its own way to look up functions, large counts, Python error handlers, buffers of NumPy."""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
directory = sys.argv[1]
mode = MPI.MODE_CREATE | MPI.MODE_RDWR

f = MPI.File.Open(comm, f"{directory}/caller", mode)
assert f.Get_amode() == mode
assert f.Get_group().Get_size() == comm.size
part = np.arange(1000, dtype="f8") + 1e4 * comm.rank
f.Write_at_all(comm.rank * part.nbytes, part)
seen = np.empty_like(part)
request = f.Iread_at(comm.rank * part.nbytes, seen)
status = MPI.Status()
request.Wait(status)
assert status.Get_count(MPI.DOUBLE) == 1000
assert (seen == part).all()
columns = MPI.DOUBLE.Create_subarray([100, 10 * comm.size], [100, 10], [0, 10 * comm.rank]).Commit()
f.Set_view(0, MPI.DOUBLE, columns)
disp, etype, filetype, datarep = f.Get_view()
assert disp == 0 and datarep == "native" and etype == MPI.DOUBLE
filetype.Free()
f.Write_all(part)
f.Seek(0)
seen[:] = 0
f.Read_all([seen, MPI.DOUBLE])
assert (seen == part).all()
f.Set_view(0, MPI.BYTE, MPI.BYTE)
comm.Barrier()
f.Seek(0, MPI.SEEK_END)
assert f.Get_position() == 8000 * comm.size
f.Set_atomicity(True)
assert f.Get_atomicity()
f.Write_ordered(bytes([65 + comm.rank]))
info = f.Get_info()
info.Free()
columns.Free()
assert MPI.File.f2py(f.py2f()) == f
comm.Barrier()
f.Close()

try:
    MPI.File.Open(comm, f"{directory}/nobody", MPI.MODE_RDONLY)
    raise AssertionError("opened a file that does not exist")
except MPI.Exception as e:
    assert e.Get_error_class() == MPI.ERR_NO_SUCH_FILE, e
    assert e.Get_error_string()

heard = []
handler = MPI.File.Create_errhandler(lambda file, code: heard.append((file == f, code)))
f = MPI.File.Open(comm, f"{directory}/handler", mode)
f.Set_errhandler(handler)
f.Call_errhandler(MPI.ERR_IO)
assert heard == [(True, MPI.ERR_IO)], heard
f.Close()
handler.Free()
comm.Barrier()
if comm.rank == 0:
    MPI.File.Delete(f"{directory}/caller")
    print("ok caller.py")
