! Parallel HDF5 from Fortran: a field of all ranks, collective, and one chunked record a step, independent.
!
!   mpifort.mpich -I/usr/include/hdf5/mpich hdf5_fortran.f90 -L/usr/lib/x86_64-linux-gnu/hdf5/mpich -lhdf5_fortran -lhdf5
program hdf5_fortran
   use mpi
   use hdf5
   implicit none
   integer, parameter :: rows = 40, steps = 3
   integer :: error, ranks, rank, i, step, major, minor, release
   integer(hid_t) :: access, file, together, alone, creation, space, part, set
   integer(hsize_t) :: whole(2), start(2), mine(2), most(2)
   double precision :: field(rows, 1), found(rows, 1)
   integer :: wrong, all_wrong
   character(len=1024) :: path

   call MPI_Init(error)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
   call get_command_argument(1, path)
   call h5open_f(error)
   call h5pcreate_f(H5P_FILE_ACCESS_F, access, error)
   call h5pset_fapl_mpio_f(access, MPI_COMM_WORLD, MPI_INFO_NULL, error)
   call h5pcreate_f(H5P_DATASET_XFER_F, together, error)
   call h5pset_dxpl_mpio_f(together, H5FD_MPIO_COLLECTIVE_F, error)
   call h5pcreate_f(H5P_DATASET_XFER_F, alone, error)
   call h5pset_dxpl_mpio_f(alone, H5FD_MPIO_INDEPENDENT_F, error)

   call h5fcreate_f(trim(path), H5F_ACC_TRUNC_F, file, error, access_prp=access)
   call must(error, 'h5fcreate_f')
   mine = [rows, 1]
   start = [0, rank]
   field(:, 1) = [(dble(rank*rows + i), i=1, rows)]

   whole = [rows, ranks]
   call h5screate_simple_f(2, whole, space, error)
   call h5dcreate_f(file, 'field', H5T_NATIVE_DOUBLE, space, set, error)
   call must(error, 'h5dcreate_f field')
   call h5screate_simple_f(2, mine, part, error)
   call h5sselect_hyperslab_f(space, H5S_SELECT_SET_F, start, mine, error)
   call h5dwrite_f(set, H5T_NATIVE_DOUBLE, field, mine, error, part, space, together)
   call must(error, 'h5dwrite_f field')
   call h5sclose_f(space, error)
   call h5dclose_f(set, error)

   most = [int(rows, hsize_t), H5S_UNLIMITED_F]
   whole = [rows, 0]
   call h5pcreate_f(H5P_DATASET_CREATE_F, creation, error)
   call h5pset_chunk_f(creation, 2, int([16, 2], hsize_t), error)
   call h5screate_simple_f(2, whole, space, error, most)
   call h5dcreate_f(file, 'steps', H5T_NATIVE_DOUBLE, space, set, error, creation)
   call must(error, 'h5dcreate_f steps')
   call h5sclose_f(space, error)
   do step = 1, steps
      whole = [rows, step*ranks]
      call h5dset_extent_f(set, whole, error)
      call must(error, 'h5dset_extent_f')
      call h5dget_space_f(set, space, error)
      start = [0, (step - 1)*ranks + rank]
      call h5sselect_hyperslab_f(space, H5S_SELECT_SET_F, start, mine, error)
      call h5dwrite_f(set, H5T_NATIVE_DOUBLE, field + 1000*step, mine, error, part, space, alone)
      call must(error, 'h5dwrite_f steps')
      call h5sclose_f(space, error)
   end do
   call h5dclose_f(set, error)
   call h5fclose_f(file, error)
   call must(error, 'h5fclose_f')

   ! Each rank reads what its neighbour wrote.
   wrong = 0
   rank = mod(rank + 1, ranks)
   field(:, 1) = [(dble(rank*rows + i), i=1, rows)]
   call h5fopen_f(trim(path), H5F_ACC_RDONLY_F, file, error, access)
   call must(error, 'h5fopen_f')
   do step = 0, steps
      start = [0, rank]
      if (step == 0) call h5dopen_f(file, 'field', set, error)
      if (step > 0) then
         call h5dopen_f(file, 'steps', set, error)
         start(2) = (step - 1)*ranks + rank
      end if
      call must(error, 'h5dopen_f')
      call h5dget_space_f(set, space, error)
      call h5sselect_hyperslab_f(space, H5S_SELECT_SET_F, start, mine, error)
      call h5dread_f(set, H5T_NATIVE_DOUBLE, found, mine, error, part, space, together)
      call must(error, 'h5dread_f')
      wrong = wrong + count(found /= field + 1000*step)
      call h5sclose_f(space, error)
      call h5dclose_f(set, error)
   end do
   call h5fclose_f(file, error)

   call MPI_Reduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
   call h5get_libversion_f(major, minor, release, error)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
   if (rank == 0) print '(a,i0,a,i0,a,i0,a,i0,a,i0,a)', '{"case":"hdf5_fortran","library":"HDF5 ', major, '.', minor, &
      '.', release, '","ranks":', ranks, ',"values_wrong":', all_wrong, '}'
   call MPI_Finalize(error)

contains

   subroutine must(code, what)
      integer, intent(in) :: code
      character(*), intent(in) :: what
      integer :: ignored
      if (code >= 0) return
      print *, what, ' failed'
      call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
   end subroutine
end program
