"""Fortran procedures of the module that generated code uses."""

# Procedures of the module; each is written only where something needs it. name: (names that it needs, text)
HELPERS = {
    "io_stop": (
        [],
        """\
! Ends all ranks: one that went on alone would leave the others waiting.
subroutine io_stop(call, what, why)
    character(len=*), intent(in) :: call, what, why
    integer :: rank
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    write (error_unit, '(a,i0,6a)') 'rank ', rank, ': ', what, ': ', call, ': ', why
    call MPI_Abort(MPI_COMM_WORLD, 1)
end subroutine io_stop
""",
    ),
    "io_mpi": (
        ["io_stop"],
        """\
subroutine io_mpi(code, call, what)
    integer, intent(in) :: code
    character(len=*), intent(in) :: call, what
    character(len=MPI_MAX_ERROR_STRING) :: why
    integer :: length
    if (code == MPI_SUCCESS) return
    call MPI_Error_string(code, why, length)
    call io_stop(call, what, why(:length))
end subroutine io_mpi
""",
    ),
    "io_nc": (
        ["io_stop"],
        """\
subroutine io_nc(code, call, what)
    integer, intent(in) :: code
    character(len=*), intent(in) :: call, what
    if (code /= NF90_NOERR) call io_stop(call, what, trim(nf90mpi_strerror(code)))
end subroutine io_nc
""",
    ),
    "io_h5": (
        ["io_stop"],
        """\
! HDF5 has written down its own reasons by then.
subroutine io_h5(code, call, what)
    integer, intent(in) :: code
    character(len=*), intent(in) :: call, what
    if (code < 0) call io_stop(call, what, 'failed')
end subroutine io_h5
""",
    ),
    "io_fits": (
        ["io_stop"],
        """\
! Stops unless first (from 0), count and stride stay within sizes (negative: unlimited).
subroutine io_fits(what, first, count, stride, sizes)
    character(len=*), intent(in) :: what
    integer(MPI_OFFSET_KIND), intent(in) :: first(:), count(:), stride(:), sizes(:)
    character(len=200) :: why
    integer :: k
    logical :: bad
    do k = 1, size(first)
        bad = first(k) < 0 .or. count(k) < 0 .or. stride(k) < 1
        if (.not. bad .and. sizes(k) >= 0) then
            bad = first(k) > sizes(k)
            if (.not. bad .and. count(k) > 0) then
                bad = first(k) == sizes(k)
                if (.not. bad) bad = count(k) - 1 > (sizes(k) - 1 - first(k)) / stride(k)
            end if
        end if
        if (bad) then
            write (why, '(5(a,i0))') 'dimension ', k, ': start ', first(k) + 1, ', count ', count(k), ', stride ', &
                stride(k), '; size ', sizes(k)
            call io_stop('sizes', what, trim(why))
        end if
    end do
end subroutine io_fits
""",
    ),
    "io_steps": (
        ["io_stop"],
        """\
! Bytes from an index to the next in each dimension of an array, and the bytes of all of it.
subroutine io_steps(what, sizes, element, step, bytes)
    character(len=*), intent(in) :: what
    integer(MPI_OFFSET_KIND), intent(in) :: sizes(:), element
    integer(MPI_OFFSET_KIND), intent(out) :: step(:), bytes
    integer :: k
    bytes = element
    do k = 1, size(sizes)
        step(k) = bytes
        if (sizes(k) > 0) then
            if (bytes > huge(bytes) / sizes(k)) call io_stop('sizes', what, 'more than 2^63 bytes')
            bytes = bytes * sizes(k)
        end if
    end do
end subroutine io_steps
""",
    ),
    "io_box": (
        ["io_mpi", "io_stop"],
        """\
! A datatype of count(1) x count(2) x ... elements, step bytes apart, the first one `at` bytes from its beginning.
! Of none: one element.
subroutine io_box(what, count, step, at, element, type)
    character(len=*), intent(in) :: what
    integer(MPI_OFFSET_KIND), intent(in) :: count(:), step(:), at
    type(MPI_Datatype), intent(in) :: element
    type(MPI_Datatype), intent(out) :: type
    type(MPI_Datatype) :: outer
    integer :: k, code
    call MPI_Type_dup(element, type, code)
    call io_mpi(code, 'MPI_Type_dup', what)
    if (product(count) > 0) then
        do k = 1, size(count)
            if (count(k) == 1) cycle
            if (count(k) > huge(1)) call io_stop('sizes', what, &
                'a count of more than 2^31 - 1 in one dimension: split that dimension into two')
            call MPI_Type_create_hvector(int(count(k)), 1, int(step(k), MPI_ADDRESS_KIND), type, outer, code)
            call io_mpi(code, 'MPI_Type_create_hvector', what)
            call MPI_Type_free(type, code)
            call io_mpi(code, 'MPI_Type_free', what)
            type = outer
        end do
        if (at /= 0) then
            call MPI_Type_create_hindexed(1, [1], [int(at, MPI_ADDRESS_KIND)], type, outer, code)
            call io_mpi(code, 'MPI_Type_create_hindexed', what)
            call MPI_Type_free(type, code)
            call io_mpi(code, 'MPI_Type_free', what)
            type = outer
        end if
    end if
    call MPI_Type_commit(type, code)
    call io_mpi(code, 'MPI_Type_commit', what)
end subroutine io_box
""",
    ),
    "io_join": (
        ["io_mpi"],
        """\
! One datatype of several, each at its place; those without elements are left out. Frees them.
subroutine io_join(what, elements, at, types, type)
    character(len=*), intent(in) :: what
    integer(MPI_OFFSET_KIND), intent(in) :: elements(:)
    integer(MPI_ADDRESS_KIND), intent(in) :: at(:)
    type(MPI_Datatype), intent(inout) :: types(:)
    type(MPI_Datatype), intent(out) :: type
    integer :: code, k
    if (sum(elements) > 0) then
        call MPI_Type_create_struct(size(types), merge(1, 0, elements > 0), at, types, type, code)
        call io_mpi(code, 'MPI_Type_create_struct', what)
    else
        call MPI_Type_dup(MPI_BYTE, type, code)
        call io_mpi(code, 'MPI_Type_dup', what)
    end if
    call MPI_Type_commit(type, code)
    call io_mpi(code, 'MPI_Type_commit', what)
    do k = 1, size(types)
        call MPI_Type_free(types(k), code)
        call io_mpi(code, 'MPI_Type_free', what)
    end do
end subroutine io_join
""",
    ),
    "io_moved": (
        ["io_mpi", "io_stop"],
        """\
! A read beyond the end of a file, or a full file system, moves less.
subroutine io_moved(what, call, status, type, elements)
    character(len=*), intent(in) :: what, call
    type(MPI_Status), intent(in) :: status
    type(MPI_Datatype), intent(in) :: type
    integer(MPI_OFFSET_KIND), intent(in) :: elements
    integer(MPI_COUNT_KIND) :: moved
    integer :: code
    character(len=120) :: why
    moved = 0
    if (elements > 0) then
        call MPI_Get_elements_x(status, type, moved, code)
        call io_mpi(code, 'MPI_Get_elements_x', what)
    end if
    if (moved == elements) return
    write (why, '(i0,a,i0,a)') moved, ' of ', elements, ' elements moved: the file is shorter, or the file system is full'
    call io_stop(call, what, trim(why))
end subroutine io_moved
""",
    ),
    "io_expect": (
        ["io_stop"],
        """\
! What a file that exists has has to be what the program declares (negative: unlimited).
subroutine io_expect(what, k, found, wanted)
    character(len=*), intent(in) :: what
    integer, intent(in) :: k
    integer(MPI_OFFSET_KIND), intent(in) :: found, wanted
    character(len=160) :: why
    if (wanted < 0 .or. found == wanted) return
    write (why, '(3(a,i0))') 'dimension ', k, ' has ', found, ' elements in the file, the program declares ', wanted
    call io_stop('sizes', what, trim(why))
end subroutine io_expect
""",
    ),
}
