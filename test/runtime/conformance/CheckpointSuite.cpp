// Checkpoints between meshes: what any ranks wrote together, any others read, whatever those ranks are.
#include "test/runtime/conformance/CommunicatorBackend.h"
#include "test/runtime/conformance/ShardedProgram.h"

#include <cstdlib>
#include <filesystem>

using namespace braid::runtime;
using namespace braid::runtime::test;

namespace {

struct Mesh {
  uint32_t dp, tp, ep, pp = 1;
  int size() const { return static_cast<int>(pp * dp * tp); }
};

std::vector<int> sizes() { return communicatorBackend().worldSizes(); }

// On every rank of this process, of a world as large as the backend has.
void together(const std::function<Status(CommunicatorGroup &)> &body) {
  MeshInfo all{{{"dp", static_cast<uint32_t>(sizes().back())}}, {}};
  Status status = communicatorBackend().run(all, std::chrono::minutes(1), body);
  ASSERT_TRUE(status.ok()) << status.message();
}

// A directory that all processes see, removed with the object of the first of them.
class SharedDirectory {
public:
  SharedDirectory() {
    together([this](CommunicatorGroup &group) -> Status {
      char own[256] = "/tmp/braid-conformance-XXXXXX";
      if (group.rank() == 0 && !mkdtemp(own))
        return Status::error(ErrorCode::ioError, "cannot make {}", own);
      std::vector<char> all(sizeof(own) * static_cast<size_t>(group.worldSize()));
      BRAID_TRY(group.world().allGather(reinterpret_cast<std::byte *>(own), reinterpret_cast<std::byte *>(all.data()),
                                        sizeof(own), "directory"));
      if (group.rank() == 0)
        mine = own;
      if (group.rank() == 0 || communicatorBackend().process() != 0)
        path = all.data();
      return Status::success();
    });
  }
  ~SharedDirectory() {
    together([](CommunicatorGroup &group) { return group.world().allReduce(nullptr, nullptr, 0, DType::i32, "end"); });
    if (!mine.empty())
      std::filesystem::remove_all(mine);
  }
  std::string path;

private:
  std::string mine;
};

// `body` on the ranks of the mesh: those of the backend when it has so many, else threads of the first process.
void onMesh(Mesh mesh, const std::function<Status(Rank &)> &body) {
  std::shared_ptr<const Program> program =
      shardedProgram(mesh.dp, mesh.tp, mesh.ep, 12, {0, 3}, false, Kept::f32, mesh.pp);
  Status status = Status::success();
  std::vector<int> native = sizes();
  if (std::find(native.begin(), native.end(), mesh.size()) != native.end()) {
    status =
        communicatorBackend().run(program->mesh(), std::chrono::minutes(1), [&](CommunicatorGroup &group) -> Status {
          SessionOptions options;
          options.threads = 1;
          options.rank = group.rank();
          options.worldSize = group.worldSize();
          options.comm = &group;
          BRAID_ASSIGN(std::unique_ptr<Session> session, Session::create(program, options));
          Rank rank(*session, &group);
          return body(rank);
        });
  } else {
    if (communicatorBackend().process() == 0) {
      RankOptions options;
      options.ranks = mesh.size();
      options.threads = 1;
      status = runRanks(program, options, body);
    }
    together(
        [](CommunicatorGroup &group) { return group.world().allReduce(nullptr, nullptr, 0, DType::i32, "written"); });
  }
  EXPECT_TRUE(status.ok()) << status.message();
}

} // namespace

TEST(Checkpoints, AnyMeshReadsWhatAnyMeshWrote) {
  constexpr Mesh meshes[] = {{1, 1, 1}, {2, 1, 2}, {1, 2, 1},    {2, 2, 2},
                             {1, 2, 2}, {2, 2, 4}, {1, 1, 1, 2}, {1, 2, 2, 2}};
  for (Mesh from : meshes) {
    SharedDirectory directory;
    onMesh(from, [&](Rank &rank) { return saveFilled(rank, directory.path, 7); });
    for (Mesh to : meshes)
      onMesh(to, [&](Rank &rank) -> Status {
        BRAID_ASSIGN(CheckpointState state, loadCheckpoint(rank, directory.path, Restored::all));
        EXPECT_EQ(state.step, 7u);
        EXPECT_EQ(state.dataPosition, 56u);
        EXPECT_EQ(state.seed, 0xfedcba9876543210u);
        EXPECT_EQ(state.corpusHash, UINT64_MAX);
        EXPECT_EQ(state.learningRate, 0.1);
        int64_t wrong = 0;
        forEach(rank, [&](float &value, const std::string &name, const std::vector<int64_t> &index) {
          wrong += value != valueAt(name, index);
        });
        EXPECT_EQ(wrong, 0) << "from " << from.pp << from.dp << from.tp << from.ep << " to " << to.pp << to.dp << to.tp
                            << to.ep;
        return Status::success();
      });
  }
}
