! A 3-D block with guard cells, as guards.c has it.
program guards
#use_io
    implicit none
    character(len=256) :: path
    integer :: rank, ranks, bad
    integer, parameter :: nx = 5, ny = 4, nz = 3, g = 2
    real(real64), allocatable :: u(:, :, :)
    integer :: x, y, z, first_y, first_z
    call get_command_argument(1, path)
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    bad = 0
    allocate (u(1 - g:nx + g, 1 - g:ny + g, 1 - g:nz + g))
    u = -1
    first_y = mod(rank, 2) * ny
    first_z = rank / 2 * nz
    if (@WRITES@) then
        do z = 1, nz
            do y = 1, ny
                do x = 1, nx
                    u(x, y, z) = wanted(x, y, z)
                end do
            end do
        end do
    end if
    #begin_file
    out: trim(path), @MODE@;
    #end_file
    #begin_dimensions
    x: nx;
    y: ny * 2;
    z: nz * (ranks / 2);
    #end_dimensions
    #begin_variables
    u: double, 3, x, y, z;
    #end_variables
    #begin_access
    u: @WAY@, start(1, first_y + 1, first_z + 1), count(nx, ny, nz),
        memory(u, nx + 2 * g guard g, ny + 2 * g guard g, nz + 2 * g guard g), collective;
    #end_access
    #close_file out;
    do z = 1, nz
        do y = 1, ny
            do x = 1, nx
                if (abs(u(x, y, z) - wanted(x, y, z)) > 0) bad = bad + 1
                u(x, y, z) = -1
            end do
        end do
    end do
    bad = bad + count(abs(u + 1) > 0)
    if (bad > 0) write (*, *) 'rank', rank, ':', bad, 'values are wrong'
    call MPI_Finalize()
    if (bad > 0) error stop 1
contains
    real(real64) function wanted(x, y, z)
        integer, intent(in) :: x, y, z
        wanted = real(((first_z + z - 1) * 2 * ny + first_y + y - 1) * nx + x - 1, real64) + 0.5_real64
    end function wanted
end program guards
