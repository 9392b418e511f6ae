! FLASH blocks, as flash.c has them.
program flash
#use_io
    implicit none
    character(len=256) :: path
    integer :: rank, ranks, bad
    integer, parameter :: blocks = 3, variables = 5, interior = 4, guard = 2, edge = interior + 2 * guard
    real(real64), allocatable :: unk(:, :, :, :, :)
    integer :: v, b, x, y, z
    call get_command_argument(1, path)
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    bad = 0
    allocate (unk(variables, edge, edge, edge, blocks))
    unk = -1
    if (@WRITES@) then
        do b = 1, blocks
            do z = 1, interior
                do y = 1, interior
                    do x = 1, interior
                        do v = 1, variables
                            unk(v, x + guard, y + guard, z + guard, b) = wanted(v, b, x, y, z)
                        end do
                    end do
                end do
            end do
        end do
    end if
    #begin_file
    out: trim(path), @MODE@;
    #end_file
    #begin_dimensions
    x: interior;
    y: interior;
    z: interior;
    block: blocks * ranks;
    variable: variables;
    #end_dimensions
    #begin_variables
    unk: double, 5, x, y, z, block, variable;
    #end_variables
    #begin_access
    unk: @WAY@, start(1, 1, 1, rank * blocks + 1, 1), count(interior, interior, interior, blocks, variables),
        memory(unk, variable: variables, x: edge guard guard, y: edge guard guard, z: edge guard guard, block: blocks);
    #end_access
    #close_file out;
    do b = 1, blocks
        do z = 1, interior
            do y = 1, interior
                do x = 1, interior
                    do v = 1, variables
                        if (abs(unk(v, x + guard, y + guard, z + guard, b) - wanted(v, b, x, y, z)) > 0) bad = bad + 1
                        unk(v, x + guard, y + guard, z + guard, b) = -1
                    end do
                end do
            end do
        end do
    end do
    bad = bad + count(abs(unk + 1) > 0)
    if (bad > 0) write (*, *) 'rank', rank, ':', bad, 'values are wrong'
    call MPI_Finalize()
    if (bad > 0) error stop 1
contains
    real(real64) function wanted(v, b, x, y, z)
        integer, intent(in) :: v, b, x, y, z
        wanted = real(((((v - 1) * blocks * ranks + rank * blocks + b - 1) * interior + z - 1) &
            * interior + y - 1) * interior + x - 1, real64) + 0.5_real64
    end function wanted
end program flash
