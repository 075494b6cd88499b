#include "runtime/Stream.h"

#include <cstring>

namespace braid::runtime {

Expected<std::unique_ptr<Stream>> Stream::create(Execute execute, void *context) {
  std::unique_ptr<Stream> stream(new Stream());
  stream->execute = execute;
  stream->context = context;
  auto main = [](void *argument) -> void * {
    static_cast<Stream *>(argument)->progress();
    return nullptr;
  };
  if (int error = pthread_create(&stream->thread, nullptr, main, stream.get()))
    return Status::error(ErrorCode::ioError, "cannot start a progress thread: {}", std::strerror(error));
  stream->started = true;
  return stream;
}

Stream::~Stream() {
  if (!started)
    return;
  {
    std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  pthread_join(thread, nullptr);
}

void Stream::push(const StreamItem &item) {
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return pushed - executed < capacity; });
    items[pushed++ % capacity] = item;
  }
  changed.notify_all();
}

void Stream::drain() {
  std::unique_lock lock(mutex);
  uint64_t target = pushed;
  changed.wait(lock, [&] { return executed >= target; });
}

void Stream::progress() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return pushed != executed || stop; });
    if (pushed == executed)
      return;
    StreamItem item = items[executed % capacity];
    lock.unlock();
    execute(context, item);
    lock.lock();
    ++executed;
    changed.notify_all();
  }
}

} // namespace braid::runtime
