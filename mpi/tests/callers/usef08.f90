! Fortran 2008: typed handles, optional error arguments, array sections.
module heard_usef08
  use mpi_f08
  integer :: heard = 0
contains
  subroutine handler(file, code)
    type(MPI_File) :: file
    integer :: code
    heard = heard + 1
  end subroutine
end module

program usef08
  use mpi_f08
  use heard_usef08
  implicit none
  integer :: rank, size, n, ierr, i
  type(MPI_File) :: file
  type(MPI_Status) :: status
  type(MPI_Request) :: requests(2)
  type(MPI_Errhandler) :: errhandler
  integer :: out(10), in(10)
  integer(kind=MPI_OFFSET_KIND) :: at
  character(len=512) :: directory

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  call get_command_argument(1, directory)
  call MPI_File_open(MPI_COMM_WORLD, trim(directory)//'/usef08', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file)
  out = [(100 * rank + i, i = 1, 10)]
  at = 40 * rank
  call MPI_File_write_at_all(file, at, out, 10, MPI_INTEGER, status)
  call MPI_Get_count(status, MPI_INTEGER, n)
  call check(n == 10, 'write_at_all')
  in = 0
  call MPI_File_iread_at(file, at, in(1:5), 5, MPI_INTEGER, requests(1))
  call MPI_File_iread_at(file, at + 20, in(6:10), 5, MPI_INTEGER, requests(2))
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  call check(all(in == out), 'iread_at')
  call MPI_File_seek(file, at, MPI_SEEK_SET)
  call MPI_File_read(file, in, 10, MPI_INTEGER, MPI_STATUS_IGNORE)
  call MPI_File_get_position(file, at)
  call check(at == 40 * (rank + 1), 'get_position')
  call MPI_File_create_errhandler(handler, errhandler)
  call MPI_File_set_errhandler(file, errhandler)
  call MPI_File_call_errhandler(file, MPI_ERR_IO)
  call check(heard == 1, 'errhandler')
  call MPI_Errhandler_free(errhandler)
  at = -3
  call MPI_File_read_at(file, at, in, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call check(ierr /= MPI_SUCCESS .and. heard == 2, 'error')
  call MPI_File_close(file)
  call check(file == MPI_FILE_NULL, 'close')
  if (rank == 0) print '(a)', 'ok usef08'
  call MPI_Finalize()

contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (.not. good) then
      print '(a,i0,2a)', 'rank ', rank, ': failed: ', what
      call MPI_Abort(MPI_COMM_WORLD, 1)
    end if
  end subroutine
end program
