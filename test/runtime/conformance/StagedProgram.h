// A program with pipeline stages that pass values on.
#pragma once

#include "test/runtime/TestProgram.h"

namespace braid::runtime::test {

// Each stage has tensors 'x' and 'y' and a parameter, which it adds to what the one before sends, and sends that on; the last
// sends the end to the first. Those of stage s begin with arena 2 s, tensor 3 s and entry s.
struct Staged : TestProgram {
  explicit Staged(int count = 3, uint32_t dp = 2) {
    addKernels();
    axis(std::string(stageAxis), static_cast<uint32_t>(count));
    axis("dp", dp);
    axis(std::string(stageAxis), static_cast<uint32_t>(count), true);
    axis("edp", dp, true);
    stream("dp", "dp");
    for (int s = 0; s < count; ++s)
      stream(pair(s, count), pair(s, count));
    for (int s = 0; s < count; ++s) {
      uint32_t io = arena("io", 1024), parameters = arena("parameters", 1024);
      arenas[io]->stage = arenas[parameters]->stage = s;
      tensor("x", schema::DType::f32, {4}, io, 0);
      tensor("y", schema::DType::f32, {4}, io, 64 * (s + 1), schema::Role::output);
      tensor("layers.{}.w", schema::DType::f32, {4}, parameters, 0, schema::Role::parameter, {2 * s, 2 * s + 1});
    }
    for (int s = 0; s < count; ++s) {
      uint32_t io = 2 * static_cast<uint32_t>(s);
      auto x = [&] { return buffer(io, 0, 16); };
      auto y = [&] { return buffer(io, 64 * (io / 2 + 1), 16); };
      int before = (s + count - 1) % count;
      std::vector<CommandPtr> commands;
      auto add = [&](auto body, uint32_t stream = 0) { commands.push_back(command(std::move(body), "step", stream)); };
      auto pass = [&](int from, BufferPtr send, BufferPtr recv) {
        add(collective(schema::CollectiveKind::shift, pair(from, count), std::move(send), std::move(recv)),
            2 + static_cast<uint32_t>(from));
      };
      if (s > 0) {
        pass(before, y(), x());
        add(recordEvent(0), 2 + static_cast<uint32_t>(before));
        add(waitEvent(0));
      }
      add(launch(addScaled, {4, 1, 1}, arg("x", x()), arg("y", buffer(io + 1, 0, 16)), arg("out", y()),
                 arg("scale", 1.0)));
      add(recordEvent(1));
      add(waitEvent(1), 2 + static_cast<uint32_t>(s));
      pass(s, y(), buffer(io, 512, 16));
      add(recordEvent(2), 2 + static_cast<uint32_t>(s));
      add(waitEvent(2));
      if (s == 0) {
        pass(before, y(), y());
        add(recordEvent(3), 2 + static_cast<uint32_t>(before));
        add(waitEvent(3));
      }
      entry("main", std::move(commands), 4).stage = s;
      entries.back()->inputs = {static_cast<uint32_t>(3 * s)};
      entries.back()->outputs = {static_cast<uint32_t>(3 * s + 1)};
    }
  }

  // From a stage to the next, from the last to the first.
  static std::string pair(int from, int count) { return fmt::format("pp[{},{}]", from, (from + 1) % count); }
};

} // namespace braid::runtime::test
