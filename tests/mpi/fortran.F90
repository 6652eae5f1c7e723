! An MPI program in Fortran that knows nothing of hetccl, with the module mpi_f08 or with mpi. Prints
! "ok" on rank 0, or ends with what is wrong.
program fortran
#ifdef F08
  use mpi_f08
#define REQUEST type(MPI_Request)
#define OPERATOR type(MPI_Op)
#else
  use mpi
#define REQUEST integer
#define OPERATOR integer
#endif
  implicit none
  integer, parameter :: n = 5000, rounds = 4
  integer :: rank, size, i, round, error, index
  integer :: mine(n), sums(n)
  double precision :: x(n), highest(n), lowest(n)
  integer, allocatable :: all(:), lengths(:), places(:)
  REQUEST :: requests(3)
  logical :: done

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size, error)
  allocate(all(n * size), lengths(size), places(size))

  do round = 1, rounds
    mine = rank + round
    call MPI_Allreduce(mine, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call expect(all_equal(sums, size * (size - 1) / 2 + size * round), 'allreduce')
    call MPI_Allreduce(MPI_IN_PLACE, mine, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call expect(all_equal(mine, size * (size - 1) / 2 + size * round), 'allreduce in place')

    x = rank
    mine = merge(round, -1, rank == 0)
    call MPI_Iallreduce(x, highest, n, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, &
                        requests(1), error)
    call MPI_Ibcast(mine, n, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(2), error)
    call MPI_Iallreduce(x, lowest, n, MPI_DOUBLE_PRECISION, MPI_MIN, MPI_COMM_WORLD, &
                        requests(3), error)
    select case (mod(round, 3))
    case (0)
      call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, error)
    case (1)
      do i = 1, 3
        call MPI_Wait(requests(i), MPI_STATUS_IGNORE, error)
      end do
    case default
      call MPI_Waitany(3, requests, index, MPI_STATUS_IGNORE, error)
      call expect(index >= 0 .and. index <= 3, 'waitany')  ! MPICH 4.0's mpi_f08 counts from 0
      done = .false.
      do while (.not. done)
        call MPI_Testall(3, requests, done, MPI_STATUSES_IGNORE, error)
      end do
    end select
    call expect(maxval(abs(highest - (size - 1))) == 0, 'iallreduce, max')
    call expect(maxval(abs(lowest)) == 0, 'iallreduce, min')
    call expect(all_equal(mine, round), 'ibcast')

    ! Rank r has n - r elements, at places in reverse order.
    do i = 1, size
      lengths(i) = n - i + 1
      places(i) = (size - i) * n
    end do
    mine = rank * round
    call MPI_Allgatherv(mine, lengths(rank + 1), MPI_INTEGER, all, lengths, places, MPI_INTEGER, &
                        MPI_COMM_WORLD, error)
    do i = 1, size
      call expect(all_equal(all(places(i) + 1:places(i) + lengths(i)), (i - 1) * round), &
                  'allgatherv')
    end do
    all = rank
    call MPI_Reduce_scatter_block(all, mine, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call expect(all_equal(mine, size * (size - 1) / 2), 'reduce_scatter_block')
    call MPI_Barrier(MPI_COMM_WORLD, error)
  end do
  if (rank == 0) print '(a)', 'ok'
  call MPI_Finalize(error)

contains

  logical function all_equal(values, wanted)
    integer, intent(in) :: values(:), wanted
    all_equal = maxval(abs(values - wanted)) == 0
  end function

  subroutine expect(ok, what)
    logical, intent(in) :: ok
    character(len=*), intent(in) :: what
    if (ok) return
    print '(a,i0,a,a)', 'rank ', rank, ': wrong: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, error)
  end subroutine
end program
