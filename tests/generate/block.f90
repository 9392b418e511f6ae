! A contiguous block, as block.c has it: rank r has columns 3 r + 1 to 3 r + 3, whole.
program block
#use_io
    implicit none
    character(len=256) :: path
    integer :: rank, ranks, bad
    integer, parameter :: nx = 7, columns = 3
    real(real64) :: u(nx, columns)
    integer :: x, y
    call get_command_argument(1, path)
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    bad = 0
    u = -1
    if (@WRITES@) then
        do y = 1, columns
            do x = 1, nx
                u(x, y) = real((rank * columns + y - 1) * nx + x - 1, real64) + 0.5_real64
            end do
        end do
    end if
    #begin_file
    out: trim(path), @MODE@;
    #end_file
    #begin_dimensions
    x: nx;
    y: columns * ranks;
    #end_dimensions
    #begin_variables
    u: double, 2, x, y;
    #end_variables
    #begin_access
    u: @WAY@, start(1, rank * columns + 1), count(nx, columns), memory(u);
    #end_access
    #close_file out;
    do y = 1, columns
        do x = 1, nx
            if (abs(u(x, y) - real((rank * columns + y - 1) * nx + x - 1, real64) - 0.5_real64) > 0) bad = bad + 1
        end do
    end do
    if (bad > 0) write (*, *) 'rank', rank, ':', bad, 'values are wrong'
    call MPI_Finalize()
    if (bad > 0) error stop 1
end program block
