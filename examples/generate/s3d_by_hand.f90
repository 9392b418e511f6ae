! S3D-IO checkpoint, its I/O written by hand with PnetCDF: what examples/generate/s3d.f90 asks for by annotations.
!
!     mpiexec -n 8 ./s3d_by_hand FILE POINTS REPETITIONS       POINTS in each direction of a rank
program s3d_by_hand
    use, intrinsic :: iso_fortran_env, only: real64
    use mpi_f08
    use pnetcdf
    implicit none
    integer, parameter :: species = 11, directions = 3
    real(real64), allocatable :: yspecies(:, :, :, :), u(:, :, :, :), pressure(:, :, :), temp(:, :, :)
    integer :: rank, ranks, px, py, pz, ix, iy, iz, nx, x, y, z, s, r, repetitions
    character(len=512) :: path, word
    real(real64) :: start, seconds, slowest
    integer :: file, dims(5), ids(4), request(4), status(4)
    integer(MPI_OFFSET_KIND) :: first(4), many(4)
    type(MPI_Info) :: info
    call get_command_argument(1, path)
    call get_command_argument(2, word)
    read (word, *) nx
    call get_command_argument(3, word)
    read (word, *) repetitions
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    ! Ranks stand in a grid of px x py x pz; each has nx x nx x nx points.
    px = merge(2, 1, mod(ranks, 2) == 0)
    py = merge(2, 1, mod(ranks / px, 2) == 0)
    pz = ranks / px / py
    ix = mod(rank, px)
    iy = mod(rank / px, py)
    iz = rank / px / py
    allocate (yspecies(nx, nx, nx, species), u(nx, nx, nx, directions), pressure(nx, nx, nx), temp(nx, nx, nx))
    do z = 1, nx
        do y = 1, nx
            do x = 1, nx
                temp(x, y, z) = real(x + ix * nx, real64) + 1e3_real64 * real(y + iy * nx, real64) &
                    + 1e6_real64 * real(z + iz * nx, real64)
            end do
        end do
    end do
    pressure = -temp
    do s = 1, species
        yspecies(:, :, :, s) = temp + real(s, real64) * 1e-3_real64
    end do
    do s = 1, directions
        u(:, :, :, s) = -temp - real(s, real64) * 1e-3_real64
    end do
    slowest = 0
    do r = 1, repetitions
        call MPI_Barrier(MPI_COMM_WORLD)
        start = MPI_Wtime()
        call MPI_Info_create(info)
        call MPI_Info_set(info, 'romio_cb_write', 'enable')
        call check(nf90mpi_create(MPI_COMM_WORLD%MPI_VAL, trim(path), ior(NF90_CLOBBER, NF90_64BIT_DATA), info%MPI_VAL, file))
        call MPI_Info_free(info)
        call check(nf90mpi_def_dim(file, 'x', int(nx * px, MPI_OFFSET_KIND), dims(1)))
        call check(nf90mpi_def_dim(file, 'y', int(nx * py, MPI_OFFSET_KIND), dims(2)))
        call check(nf90mpi_def_dim(file, 'z', int(nx * pz, MPI_OFFSET_KIND), dims(3)))
        call check(nf90mpi_def_dim(file, 'species', int(species, MPI_OFFSET_KIND), dims(4)))
        call check(nf90mpi_def_dim(file, 'direction', int(directions, MPI_OFFSET_KIND), dims(5)))
        call check(nf90mpi_def_var(file, 'yspecies', NF90_DOUBLE, dims(1:4), ids(1)))
        call check(nf90mpi_def_var(file, 'u', NF90_DOUBLE, [dims(1:3), dims(5)], ids(2)))
        call check(nf90mpi_def_var(file, 'pressure', NF90_DOUBLE, dims(1:3), ids(3)))
        call check(nf90mpi_def_var(file, 'temp', NF90_DOUBLE, dims(1:3), ids(4)))
        call check(nf90mpi_enddef(file))
        first = [integer(MPI_OFFSET_KIND) :: ix * nx + 1, iy * nx + 1, iz * nx + 1, 1]
        many = [integer(MPI_OFFSET_KIND) :: nx, nx, nx, species]
        call check(nfmpi_iput_vara_double(file, ids(1), first, many, yspecies, request(1)))
        many(4) = directions
        call check(nfmpi_iput_vara_double(file, ids(2), first, many, u, request(2)))
        call check(nfmpi_iput_vara_double(file, ids(3), first, many, pressure, request(3)))
        call check(nfmpi_iput_vara_double(file, ids(4), first, many, temp, request(4)))
        call check(nfmpi_wait_all(file, 4, request, status))
        do s = 1, 4
            call check(status(s))
        end do
        call check(nf90mpi_close(file))
        seconds = MPI_Wtime() - start
        call MPI_Allreduce(seconds, slowest, 1, MPI_REAL8, MPI_MAX, MPI_COMM_WORLD)
    end do
    if (rank == 0) write (*, '(a,i0,a,f0.6,a)') '{"case":"s3d","ranks":', ranks, ',"write_seconds":0', slowest, '}'
    call MPI_Finalize()
contains
    subroutine check(code)
        integer, intent(in) :: code
        if (code == NF90_NOERR) return
        write (*, *) 'rank', rank, ': ', trim(nf90mpi_strerror(code))
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine check
end program s3d_by_hand
