// Open MPI's side of the rows of all-reduce (see all_reduce_server.h): MPI_Allreduce in place. Its
// algorithm is chosen by mpirun's settings.
//   mpirun -n 2 openmpi_peer --control FOLDER     with named pipes 1, 2, … in it
#include <mpi.h>

#include "all_reduce_server.h"

namespace {

class MpiReducer final : public bench::AllReducer {
 public:
  void prepare(size_t floats) override { array_.assign(floats, 0.0f); }
  float* array() override { return array_.data(); }
  void all_reduce() override {
    MPI_Allreduce(MPI_IN_PLACE, array_.data(), static_cast<int>(array_.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }

 private:
  std::vector<float> array_;
};

void run(const bench::Options& options) {
  int rank = 0, world = 1;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MpiReducer reducer;
  bench::serve(reducer, bench::open_pipes(options.text("control", "."), rank, world));
  MPI_Finalize();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program(argc, argv, run); }
