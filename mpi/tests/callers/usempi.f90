! Fortran through the mpi module: arrays of more than one dimension, subarrays, shared and ordered accesses.
program usempi
  use mpi
  implicit none
  integer :: ierr, rank, size, file, block, info, request, n
  integer :: status(MPI_STATUS_SIZE)
  double precision :: field(6, 4), back(6, 4)
  integer(kind=MPI_OFFSET_KIND) :: zero, bytes, at
  integer(kind=MPI_ADDRESS_KIND) :: extent
  character(len=512) :: directory
  character(len=MPI_MAX_INFO_VAL) :: value
  logical :: flag

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call get_command_argument(1, directory)
  call MPI_Info_create(info, ierr)
  call MPI_Info_set(info, 'cb_buffer_size', '1048576', ierr)
  call MPI_File_open(MPI_COMM_WORLD, trim(directory)//'/usempi', MPI_MODE_CREATE + MPI_MODE_RDWR, info, file, ierr)
  call check(ierr == MPI_SUCCESS, 'open')
  call MPI_Info_free(info, ierr)
  call MPI_File_get_info(file, info, ierr)
  call MPI_Info_get(info, 'cb_buffer_size', MPI_MAX_INFO_VAL - 1, value, flag, ierr)
  call check(.not. flag .or. value == '1048576', 'info')
  call MPI_Info_free(info, ierr)

  ! Columns of a global array of 6 x 4 size.
  call MPI_Type_create_subarray(2, [6, 4 * size], [6, 4], [0, 4 * rank], MPI_ORDER_FORTRAN, MPI_DOUBLE_PRECISION, block, ierr)
  call MPI_Type_commit(block, ierr)
  zero = 0
  call MPI_File_set_view(file, zero, MPI_DOUBLE_PRECISION, block, 'native', MPI_INFO_NULL, ierr)
  field = rank + 0.25d0
  field(2, 3) = -1
  call MPI_File_write_all(file, field, 24, MPI_DOUBLE_PRECISION, status, ierr)
  call check(ierr == MPI_SUCCESS, 'write_all')
  call MPI_File_iread_at(file, zero, back, 24, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, status, ierr)
  call check(all(back == field), 'iread_at')
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_File_get_size(file, bytes, ierr)
  call check(bytes == 192 * size, 'size')
  call MPI_File_get_type_extent(file, MPI_DOUBLE_PRECISION, extent, ierr)
  call check(extent == 8, 'type_extent')
  call MPI_File_set_view(file, bytes, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, ierr)
  call MPI_File_write_ordered(file, [rank], 1, MPI_INTEGER, status, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_File_get_position_shared(file, at, ierr)
  call check(at == size, 'shared position')
  n = -1
  at = rank
  call MPI_File_read_at_all(file, at, n, 1, MPI_INTEGER, status, ierr)
  call check(n == rank, 'ordered')
  call MPI_Type_free(block, ierr)
  call MPI_File_close(file, ierr)
  if (rank == 0) print '(a)', 'ok usempi'
  call MPI_Finalize(ierr)

contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    integer :: e
    if (.not. good) then
      print '(a,i0,2a)', 'rank ', rank, ': failed: ', what
      call MPI_Abort(MPI_COMM_WORLD, 1, e)
    end if
  end subroutine
end program
