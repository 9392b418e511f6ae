! S3D-IO checkpoint as a template for `penstock generate`: what examples/generate/s3d_by_hand.f90 writes.
!
!     penstock generate --level pnetcdf examples/generate/s3d.f90 -o s3d_io.f90
!     mpiexec -n 8 ./s3d_io FILE POINTS REPETITIONS       POINTS in each direction of a rank
!
! Mass fractions of 11 species, 3 velocities, pressure and temperature: double precision, block-block-block. A checkpoint is
! a new file. Source: S3D-IO, after J. H. Chen and others, Terascale direct numerical simulations (2009).
program s3d
#use_io
    implicit none
    integer, parameter :: species = 11, directions = 3
    real(real64), allocatable :: yspecies(:, :, :, :), u(:, :, :, :), pressure(:, :, :), temp(:, :, :)
    integer :: rank, ranks, px, py, pz, ix, iy, iz, nx, x, y, z, s, r, repetitions
    character(len=512) :: path, word
    real(real64) :: start, seconds, slowest
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
        #begin_file
        checkpoint: trim(path), create;
        #end_file
        #begin_dimensions
        x: nx * px;
        y: nx * py;
        z: nx * pz;
        species: species;
        direction: directions;
        #end_dimensions
        #begin_variables
        yspecies: double, 4, x, y, z, species;
        u: double, 4, x, y, z, direction;
        pressure: double, 3, x, y, z;
        temp: double, 3, x, y, z;
        #end_variables
        #begin_access
        yspecies: write, start(ix * nx + 1, iy * nx + 1, iz * nx + 1, 1), count(nx, nx, nx, species), memory(yspecies);
        u: write, start(ix * nx + 1, iy * nx + 1, iz * nx + 1, 1), count(nx, nx, nx, directions), memory(u);
        pressure: write, start(ix * nx + 1, iy * nx + 1, iz * nx + 1), count(nx, nx, nx), memory(pressure);
        temp: write, start(ix * nx + 1, iy * nx + 1, iz * nx + 1), count(nx, nx, nx), memory(temp);
        #end_access
        #close_file checkpoint;
        seconds = MPI_Wtime() - start
        call MPI_Allreduce(seconds, slowest, 1, MPI_REAL8, MPI_MAX, MPI_COMM_WORLD)
    end do
    if (rank == 0) write (*, '(a,i0,a,f0.6,a)') '{"case":"s3d","ranks":', ranks, ',"write_seconds":0', slowest, '}'
    call MPI_Finalize()
end program s3d
