//===- ThreadEmulator.h - how a launch of a device reaches the emulator -------------------------------------------===//
#ifndef TEST_EMULATOR_THREADEMULATOR_H
#define TEST_EMULATOR_THREADEMULATOR_H

#include <cstdint>

extern "C" {
/// The kernel that this thread calls next is a launch of `blocks` blocks: theirs must be the threads and the bytes of shared
/// memory that it was compiled for, and the scratch of block i begins i times its size behind `scratch`. blocks 0: no launch; every
/// program is a block, with scratch of its own.
void braid_emulate_launch(int64_t blocks, int64_t threads, int64_t sharedBytes, char *scratch);
}

#endif // TEST_EMULATOR_THREADEMULATOR_H
