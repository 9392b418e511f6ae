! Fortran through mpif.h: the oldest interface, handles are integers.
module heard_mpifh
  integer :: heard = 0, heard_file = 0, heard_code = 0
end module

subroutine handler(file, code)
  use heard_mpifh
  integer :: file, code
  heard = heard + 1
  heard_file = file
  heard_code = code
end subroutine

program mpifh
  use heard_mpifh
  implicit none
  include 'mpif.h'
  external :: handler
  integer :: ierr, rank, size, file, filetype, etype, seen, request, n, i, errhandler, info, group, amode
  integer :: status(MPI_STATUS_SIZE), out(20), in(20)
  integer(kind=MPI_OFFSET_KIND) :: disp, at
  character(len=512) :: directory
  character(len=MPI_MAX_DATAREP_STRING) :: datarep
  character(len=MPI_MAX_ERROR_STRING) :: text
  logical :: flag

  call MPI_INIT(ierr)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierr)
  call get_command_argument(1, directory)
  call MPI_FILE_OPEN(MPI_COMM_WORLD, trim(directory)//'/mpifh', ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, file, ierr)
  call check(ierr == MPI_SUCCESS, 'open')
  call MPI_FILE_GET_AMODE(file, amode, ierr)
  call check(amode == ior(MPI_MODE_CREATE, MPI_MODE_RDWR), 'amode')

  call MPI_TYPE_VECTOR(10, 2, 2 * size, MPI_INTEGER, filetype, ierr)
  call MPI_TYPE_COMMIT(filetype, ierr)
  disp = 8 * rank
  call MPI_FILE_SET_VIEW(file, disp, MPI_INTEGER, filetype, 'native', MPI_INFO_NULL, ierr)
  call check(ierr == MPI_SUCCESS, 'set_view')
  call MPI_FILE_GET_VIEW(file, at, etype, seen, datarep, ierr)
  call check(at == disp .and. etype == MPI_INTEGER .and. datarep == 'native', 'get_view')
  call MPI_TYPE_FREE(seen, ierr)
  do i = 1, 20
    out(i) = 100 * rank + i
  end do
  call MPI_FILE_WRITE_ALL(file, out, 20, MPI_INTEGER, status, ierr)
  call check(ierr == MPI_SUCCESS, 'write_all')
  call MPI_GET_COUNT(status, MPI_INTEGER, n, ierr)
  call check(n == 20, 'count')
  call MPI_FILE_SYNC(file, ierr)
  at = 0
  in = 0
  call MPI_FILE_IREAD_AT(file, at, in, 20, MPI_INTEGER, request, ierr)
  call MPI_WAIT(request, status, ierr)
  call MPI_GET_COUNT(status, MPI_INTEGER, n, ierr)
  call check(n == 20 .and. all(in == out), 'iread_at')
  in = 0
  call MPI_FILE_READ_AT_ALL_BEGIN(file, at, in, 20, MPI_INTEGER, ierr)
  call MPI_FILE_READ_AT_ALL_END(file, in, status, ierr)
  call check(all(in == out), 'read_at_all_end')
  call MPI_FILE_READ_AT(file, at, in, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call check(ierr == MPI_SUCCESS, 'status ignore')
  call MPI_FILE_WRITE_SHARED(file, out, 1, MPI_INTEGER, status, ierr)
  call check(ierr == MPI_SUCCESS, 'write_shared')
  call MPI_FILE_SEEK(file, at, MPI_SEEK_END, ierr)
  call MPI_FILE_GET_POSITION(file, at, ierr)
  call check(ierr == MPI_SUCCESS .and. at > 0, 'get_position')
  call MPI_FILE_SET_ATOMICITY(file, .true., ierr)
  call MPI_FILE_GET_ATOMICITY(file, flag, ierr)
  call check(flag, 'atomicity')
  call MPI_FILE_GET_INFO(file, info, ierr)
  call MPI_INFO_FREE(info, ierr)
  call MPI_FILE_GET_GROUP(file, group, ierr)
  call MPI_GROUP_FREE(group, ierr)

  call MPI_FILE_CREATE_ERRHANDLER(handler, errhandler, ierr)
  call check(ierr == MPI_SUCCESS, 'create_errhandler')
  call MPI_FILE_SET_ERRHANDLER(file, errhandler, ierr)
  call MPI_FILE_WRITE(file, out, -1, MPI_INTEGER, status, ierr)
  call check(ierr /= MPI_SUCCESS .and. heard == 1 .and. heard_file == file .and. heard_code == ierr, 'handler')
  call MPI_ERROR_STRING(ierr, text, n, ierr)
  call check(n > 0 .and. index(text, '-1') > 0, 'error_string')
  call MPI_ERRHANDLER_FREE(errhandler, ierr)

  call MPI_FILE_CLOSE(file, ierr)
  call check(ierr == MPI_SUCCESS .and. file == MPI_FILE_NULL, 'close')
  call MPI_BARRIER(MPI_COMM_WORLD, ierr)
  if (rank == 0) then
    call MPI_FILE_DELETE(trim(directory)//'/mpifh', MPI_INFO_NULL, ierr)
    call check(ierr == MPI_SUCCESS, 'delete')
    print '(a)', 'ok mpifh'
  end if
  call MPI_TYPE_FREE(filetype, ierr)
  call MPI_FINALIZE(ierr)

contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    integer :: e
    if (.not. good) then
      print '(a,i0,2a)', 'rank ', rank, ': failed: ', what
      call MPI_ABORT(MPI_COMM_WORLD, 1, e)
    end if
  end subroutine
end program
