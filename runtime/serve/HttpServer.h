// Api over HTTP/1.1, by cpp-httplib. Neither TLS nor keys: those are a proxy's.
//
//   POST /v1/completions, /v1/chat/completions, /tokenize, /detokenize
//   GET /v1/models, /v1/models/NAME, /tokenizer_info, /health, /metrics
//
// Each connection has a thread. A body is no longer than a prompt of the whole context needs, and not packed: whoever
// unpacks it does not count.
#pragma once

#include "runtime/Status.h"
#include "runtime/serve/Api.h"

namespace braid::runtime {

class HttpServer {
public:
  // Takes the address, so that an error comes before weights are read; port 0: any that is free. Nobody is answered yet.
  static Expected<std::unique_ptr<HttpServer>> listen(const std::string &host, int port);
  ~HttpServer();

  int port() const;
  // Answers from a thread of its own; `connections` at a time.
  void start(Api &api, size_t connections);
  // Nobody new is answered; returns when those who are have their answers. The service of `api` has ended, so that no more of
  // them come.
  void stop();

private:
  HttpServer();
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace braid::runtime
