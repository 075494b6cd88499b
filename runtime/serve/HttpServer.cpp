#include "runtime/serve/HttpServer.h"

#include "runtime/io/JsonText.h"

#include <httplib.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sys/socket.h>
#include <thread>

namespace braid::runtime {

struct HttpServer::Impl {
  httplib::Server server;
  int port = 0, socket = -1;
  std::atomic<bool> hasEnded = false, isStopping = false;
  std::atomic<size_t> answering = 0; // requests for texts
  std::thread thread;
};

namespace {

// A request for texts, until the last of it is written.
class Answering {
public:
  explicit Answering(std::atomic<size_t> &count) : count(count) { ++count; }
  ~Answering() { --count; }
  Answering(const Answering &) = delete;
  Answering &operator=(const Answering &) = delete;

private:
  std::atomic<size_t> &count;
};

} // namespace

HttpServer::HttpServer() : impl(std::make_unique<Impl>()) {}
HttpServer::~HttpServer() { stop(); }
int HttpServer::port() const { return impl->port; }

Expected<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string &host, int port) {
  std::unique_ptr<HttpServer> result(new HttpServer());
  httplib::Server &server = result->impl->server;
  // A port that another process has is an error. (By default the library shares it, and requests go to either.)
  server.set_socket_options([impl = result->impl.get()](int socket) {
    impl->socket = socket;
    int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.set_tcp_nodelay(true);
  errno = 0;
  bool bound = true;
  if (port == 0)
    result->impl->port = server.bind_to_any_port(host);
  else
    bound = server.bind_to_port(host, result->impl->port = port);
  if (!bound || result->impl->port < 0)
    return Status::error(ErrorCode::ioError, "cannot listen on {}:{}: {}", host, port,
                         errno ? std::strerror(errno) : "no address of that name");
  ::listen(result->impl->socket, SOMAXCONN); // the library lets 5 wait
  return result;
}

static void fail(httplib::Response &response, const Status &status) {
  response.status = Api::httpStatus(status);
  if (response.status == 503)
    response.set_header("Retry-After", "1");
  response.set_content(Api::errorBody(status), "application/json");
}

// What comes is sent as it does. Once the head is out an error can only be told in a stream; a whole answer is cut off.
static void send(const httplib::Request &request, httplib::Response &response, std::shared_ptr<Answering> answering,
                 Expected<std::unique_ptr<ApiAnswer>> begun) {
  if (!begun)
    return fail(response, begun.status());
  if (Status status = (*begun)->wait(); !status.ok())
    return fail(response, status);
  std::shared_ptr<ApiAnswer> answer = *std::move(begun);
  const char *type = answer->contentType();
  response.set_header("Cache-Control", "no-cache");
  if (request.version == "HTTP/1.0") { // which has no parts
    std::string whole;
    Expected<bool> goesOn = true;
    while (goesOn && *goesOn)
      goesOn = answer->next(whole);
    return goesOn ? response.set_content(whole, type) : fail(response, goesOn.status());
  }
  auto more = [answer, answering = std::move(answering)](size_t, httplib::DataSink &sink) {
    std::string body;
    Expected<bool> goesOn = answer->next(body);
    if (!goesOn && !answer->streams())
      return false;
    if (!goesOn)
      body = "data: " + Api::errorBody(goesOn.status()) + "\n\n";
    if (!body.empty() ? !sink.write(body.data(), body.size()) : !sink.is_writable())
      return false; // the client has left
    if (!goesOn || !*goesOn)
      sink.done();
    return true;
  };
  response.set_chunked_content_provider(type, more);
}

void HttpServer::start(Api &api, size_t connections) {
  using httplib::Request, httplib::Response;
  httplib::Server &server = impl->server;
  server.set_payload_max_length(api.mostBodyBytes());
  server.set_keep_alive_timeout(2); // idle connections hold their threads
  server.set_pre_routing_handler([](const Request &request, Response &response) {
    std::string coding = request.get_header_value("Content-Encoding");
    if (coding.empty() || coding == "identity")
      return httplib::Server::HandlerResponse::Unhandled;
    fail(response, Status::error("Content-Encoding: is '{}'; valid: identity", escaped(coding)));
    response.status = 415;
    return httplib::Server::HandlerResponse::Handled;
  });
  server.new_task_queue = [connections] { return new httplib::ThreadPool(connections); };
  // Bodies are JSON, whatever their type says: the library takes no more than 8192 bytes of what curl calls a form.
  auto post = [&server](const char *path, auto &&answer) {
    server.Post(path, [answer](const Request &request, Response &response, const httplib::ContentReader &read) {
      std::string body;
      auto add = [&](const char *data, size_t size) {
        body.append(data, size);
        return true;
      };
      if (read(add))
        answer(request, response, body);
    });
  };
  // Who asks an ended service is refused, and nobody waits for that: else a crowd could hold up the end.
  auto answering = [this] { return impl->isStopping ? nullptr : std::make_shared<Answering>(impl->answering); };
  post("/v1/completions", [&, answering](const Request &request, Response &response, const std::string &body) {
    send(request, response, answering(), api.completion(body));
  });
  post("/v1/chat/completions", [&, answering](const Request &request, Response &response, const std::string &body) {
    send(request, response, answering(), api.chatCompletion(body));
  });
  server.Get("/v1/models",
             [&](const Request &, Response &response) { response.set_content(api.models(), "application/json"); });
  auto reply = [](Response &response, const Expected<std::string> &body) {
    body ? response.set_content(*body, "application/json") : fail(response, body.status());
  };
  server.Get("/v1/models/(.+)", [&, reply](const Request &request, Response &response) {
    reply(response, api.modelNamed(request.matches[1].str()));
  });
  post("/tokenize", [&, reply](const Request &, Response &response, const std::string &body) {
    reply(response, api.tokenize(body));
  });
  post("/detokenize", [&, reply](const Request &, Response &response, const std::string &body) {
    reply(response, api.detokenize(body));
  });
  server.Get("/tokenizer_info",
             [&, reply](const Request &, Response &response) { reply(response, api.tokenizerInfo()); });
  server.Get("/metrics", [&](const Request &, Response &response) {
    response.set_content(api.metrics(), "text/plain; version=0.0.4");
  });
  server.Get("/health", [](const Request &, Response &response) {
    response.set_content("{\"status\":\"ok\"}", "application/json");
  });
  server.set_error_handler([&api](const Request &request, Response &response) {
    if (!response.body.empty())
      return;
    Status status =
        Status::error("the request was refused with status {}: it is no HTTP, or too long", response.status);
    if (response.status == 404)
      status = Status::error(ErrorCode::notFound,
                             "{} {}: there is no such place; valid: POST /v1/completions, /v1/chat/completions, "
                             "/tokenize, /detokenize, GET /v1/models, /tokenizer_info, /health, /metrics",
                             escaped(request.method), escaped(request.path));
    else if (response.status == 413)
      status = Status::error("the body is longer than {} bytes, which is enough for the context", api.mostBodyBytes());
    response.set_content(Api::errorBody(status), "application/json");
  });
  server.set_exception_handler([](const Request &, Response &response, std::exception_ptr error) {
    std::string why = "something that is no exception";
    try {
      std::rethrow_exception(error);
    } catch (const std::exception &exception) {
      why = exception.what();
    } catch (...) {
    }
    fail(response, Status::error(ErrorCode::internal, "{}", why));
  });
  impl->thread = std::thread([this] {
    impl->server.listen_after_bind();
    impl->hasEnded = true;
  });
  while (!server.is_running() && !impl->hasEnded) // before that the library hears no stop()
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void HttpServer::stop() {
  if (!impl->thread.joinable())
    return;
  // The library cuts what is written in parts off as soon as it is stopped, whatever of it is left.
  impl->isStopping = true;
  while (impl->answering > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  impl->server.stop();
  impl->thread.join();
}

} // namespace braid::runtime
