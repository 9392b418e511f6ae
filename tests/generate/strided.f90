! Strided, as strided.c has it.
program strided
#use_io
    implicit none
    character(len=256) :: path
    integer :: rank, ranks, bad
    integer, parameter :: mine = 11
    real(real64) :: u(mine)
    integer :: x
    call get_command_argument(1, path)
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    bad = 0
    u = -1
    if (@WRITES@) u = [(real((x - 1) * ranks + rank, real64) + 0.5_real64, x=1, mine)]
    #begin_file
    out: trim(path), @MODE@;
    #end_file
    #begin_dimensions
    x: mine * ranks;
    #end_dimensions
    #begin_variables
    u: double, 1, x;
    #end_variables
    #begin_access
    u: @WAY@, start(rank + 1), count(mine), stride(ranks), memory(u);
    #end_access
    #close_file out;
    do x = 1, mine
        if (abs(u(x) - real((x - 1) * ranks + rank, real64) - 0.5_real64) > 0) bad = bad + 1
    end do
    if (bad > 0) write (*, *) 'rank', rank, ':', bad, 'values are wrong'
    call MPI_Finalize()
    if (bad > 0) error stop 1
end program strided
