// Templates: what Jinja2, as transformers sets it up, made of the chats and expressions in test/templates
// (benchmark/peers/templates.py wrote them), what is said of templates that it refuses or that are not read, and bounds.
#include "test/runtime/TrainFixture.h"

#include "runtime/template/ChatTemplate.h"

#include <gtest/gtest.h>

namespace braid::runtime::test {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> linesOf(const std::filesystem::path &path) {
  std::vector<Json> lines;
  std::istringstream stream(readText(path.string()));
  for (std::string line; std::getline(stream, line);)
    lines.push_back(Json::parse(line));
  return lines;
}

Expected<std::string> rendered(std::string_view source, const Json &variables = Json::object(), std::time_t now = 0) {
  BRAID_ASSIGN(Template parsed, Template::parse(source, "t.jinja"));
  return parsed.render(variables, now);
}

std::string errorOf(std::string_view source, const Json &variables = Json::object()) {
  Expected<std::string> text = rendered(source, variables);
  return text ? "'" + *text + "'" : text.message();
}

TEST(Templates, ChatsAreThoseOfTransformers) {
  int kinds = 0, refused = 0;
  for (const auto &entry : std::filesystem::directory_iterator(BRAID_TEST_TEMPLATES)) {
    std::filesystem::path path = entry.path();
    if (path.extension() != ".jinja")
      continue;
    ++kinds;
    auto read = ChatTemplate::load(BRAID_TEST_TEMPLATES, path.string());
    ASSERT_TRUE(read) << read.message();
    EXPECT_EQ(read->endToken(), "<|im_end|>");
    std::vector<Json> cases = linesOf(path.replace_extension(".cases.jsonl"));
    EXPECT_EQ(cases.size(), 16u);
    for (const Json &one : cases) {
      SCOPED_TRACE(path.string() + " " + one["chat"].dump());
      auto chat = chatOf(one["chat"]);
      ASSERT_TRUE(chat) << chat.message();
      auto text = read->render(*chat, 0);
      refused += one.contains("refused");
      if (one.contains("refused"))
        EXPECT_FALSE(text) << *text;
      else
        EXPECT_EQ(text ? *text : text.message(), one["text"].get<std::string>());
    }
  }
  EXPECT_EQ(kinds, 8);
  EXPECT_GT(refused, 5);
}

TEST(Templates, ExpressionsAndStatementsAreThoseOfJinja) {
  std::vector<Json> lines = linesOf(std::filesystem::path(BRAID_TEST_TEMPLATES) / "language.jsonl");
  ASSERT_GT(lines.size(), 50u);
  for (size_t i = 1; i < lines.size(); ++i) {
    std::string source = lines[i]["template"];
    SCOPED_TRACE(source);
    auto text = rendered(source, lines[0]);
    if (lines[i].contains("refused"))
      EXPECT_FALSE(text) << *text;
    else
      EXPECT_EQ(text ? *text : text.message(), lines[i]["text"].get<std::string>());
  }
}

TEST(Templates, SaysFileLineAndConstruct) {
  auto expect = [](std::string_view source, std::string_view message) {
    EXPECT_EQ(errorOf(source, {{"d", {{"a", 1}}}, {"l", {1, 2}}}), message) << source;
  };
  expect("a\n{{ x.y }}", "t.jinja:2: 'x' is undefined: it has no 'y'");
  expect("a\r\nb\r\n{{ d.b.c }}", "t.jinja:3: 'dict' has no member 'b': it has no 'c'");
  expect("{% for i in l %}\n{% if true %}\n{{ 1 + 'a' }}{% endif %}{% endfor %}",
         "t.jinja:3: '+' does not take 'int' and 'str'");
  expect("{{ raise_exception('roles must take turns') }}",
         "t.jinja:1: the template refuses this: roles must take turns");
  expect("\n{% include 'x' %}", "t.jinja:2: 'include' is not read; valid: if, for, set, macro, with, raw, generation, "
                                "break, continue");
  expect("{{ l.append(3) }}",
         "t.jinja:1: method 'append' of 'list': is not read: no list is changed; valid: list + [item], a slice");
  expect("{{ d.update(l) }}",
         "t.jinja:1: method 'update' of 'dict': is not read: no dict is changed; valid: dict(other, key=value)");
  expect("{{ 'a'.encode() }}", "t.jinja:1: method 'encode' of 'str': is not read");
  expect("{{ f(*l) }}", "t.jinja:1: '*' before an argument is not read");
  expect("{{ joiner() }}", "t.jinja:1: 'joiner' is not read");
  expect("{% for i in l recursive %}{% endfor %}", "t.jinja:1: 'recursive' of a loop is not read");
  expect("{{ l|map('upper') }}", "t.jinja:1: what map, select and the like give is printed behind |list or |join only");
  expect("{{ ('<'|safe) + '<' }}", "t.jinja:1: '+' escapes what is added to a text behind |safe, which is not read");
  expect("{{ l|round(x=1) }}", "t.jinja:1: filter 'round': has no parameter 'x'");
  expect("{{ {l: 1} }}", "t.jinja:1: a 'list' cannot be a key");
  expect("\n{% if true %}\n\n", "t.jinja:2: the block that begins here has no 'endif'");
  expect("{% endif %}", "t.jinja:1: 'endif' ends no block that began");
  expect("{{ 'a\n\n", "t.jinja:1: the text that begins with ' here has no end");
  expect("{{ (1] }}", "t.jinja:1: unexpected ']', expected ')'");
  expect("{{ 1 2 }}", "t.jinja:1: unexpected '2'; valid: '}}'");
  expect("{{ 0x1f }}", "t.jinja:1: '0x' is no number that is read; valid: decimal digits");
  expect("{{ 9223372036854775807 + 1 }}", "t.jinja:1: the number is greater than 9223372036854775807");
  expect("{# \n", "t.jinja:1: the comment that begins here has no end");
  expect("a\n\xff", "t.jinja:2: byte 2 of the template is no UTF-8");
  expect("{% break %}", "t.jinja:1: 'break' stands in no loop");
  expect("{% set l.x = 1 %}", "t.jinja:1: 'set l.x': 'l' is no namespace but 'list'");
  EXPECT_NE(errorOf("{{ 1|nope }}").find("t.jinja:1: filter 'nope' is not read; valid: abs, "), std::string::npos);
  EXPECT_NE(errorOf("{{ 1 is nope }}").find("t.jinja:1: test 'nope' is not read; valid: !=, "), std::string::npos);
}

TEST(Templates, KnowsTheTime) {
  ASSERT_EQ(setenv("TZ", "UTC", 1), 0);
  tzset();
  auto text = rendered("{{ strftime_now('%d %b %Y, %H:%M%z') }}", Json::object(), 1767225600);
  ASSERT_TRUE(text) << text.message();
  EXPECT_EQ(*text, "01 Jan 2026, 00:00");
}

// Whatever a template says, it ends with an error and not the process.
TEST(Templates, HasBounds) {
  std::string grows = "{% set ns = namespace(x=[1], y='ab') %}{% for i in range(99999) %}";
  auto many = [](std::string_view text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i)
      result += text;
    return result;
  };
  for (const auto &[source, message] : std::vector<std::pair<std::string, std::string>>{
           {"{{ " + many("(", 9999) + "1" + many(")", 9999) + " }}", "is nested deeper than 200 levels"},
           {"{{ " + many("[", 9999) + many("]", 9999) + " }}", "is nested deeper than 200 levels"},
           {"{{ " + many("not ", 9999) + "1 }}", "is nested deeper than 200 levels"},
           {"{{ 1" + many(" + 1", 9999) + " }}", "is nested deeper than 200 levels"},
           {"{{ a" + many("|trim", 9999) + " }}", "is nested deeper than 200 levels"},
           {many("{% if 1 %}", 9999) + many("{% endif %}", 9999), "is nested deeper than 200 levels"},
           {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "is nested deeper than 300 levels"},
           {"{% macro m(a=m()) %}{% endmacro %}{{ m() }}", "is nested deeper than 300 levels"},
           {grows + "{% set ns.x = [ns.x] %}{% endfor %}", "values are nested deeper than 100 levels"},
           {grows + "{% set ns.x = {'a': ns.x} %}{% endfor %}", "values are nested deeper than 100 levels"},
           {grows + "{% for j in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}",
            "values are nested deeper than 100 levels"},
           {grows + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}", "a value holds more than 4194304 values"},
           {grows + "{% set ns.y = ns.y ~ ns.y %}{% endfor %}", "takes more than 16777216 steps"},
           {grows + "{% for j in range(99999) %}{% endfor %}{% endfor %}", "takes more than 16777216 steps"},
           {"{% set x = 'a' * 1000000 %}" + grows + "{{ x }}{% endfor %}", "takes more than 16777216 steps"},
           {"{{ 'a' * 99999999999 }}", "takes more than 16777216 steps"},
           {"{{ [1] * 99999999999 }}", "takes more than 16777216 steps"},
           {"{{ 'a'.zfill(99999999999) }}", "takes more than 16777216 steps"},
           {"{{ range(-9223372036854775807, 9223372036854775807) }}", "is beyond"},
           {"{{ '%99999d' % 1 }}", "a width in '%' is greater than 1000"},
           {"{{ 1|tojson(indent=99999) }}", "'indent' is longer than 1000"},
           {"{{ 9 ** 9 ** 9 }}", "the number is greater than 9223372036854775807"},
           {"{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}", "a 'Namespace' is not printed"}}) {
    EXPECT_NE(errorOf(source).find(message), std::string::npos) << source.substr(0, 200) << ": " << errorOf(source);
  }
}

class ChatTemplates : public ::testing::Test {
protected:
  void SetUp() override {
    directory = std::filesystem::path(::testing::TempDir()) / "chat-templates";
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
  }
  void TearDown() override { std::filesystem::remove_all(directory); }

  static std::string withoutPath(const std::string &message) {
    size_t at = message.find("chat-templates");
    return at == std::string::npos ? message : message.substr(at);
  }
  std::string text(const Json &chat) {
    auto read = ChatTemplate::load(directory.string());
    if (!read)
      return withoutPath(read.message());
    auto asked = chatOf(chat);
    if (!asked)
      return asked.message();
    auto result = read->render(*asked, 0);
    return result ? *result : withoutPath(result.message());
  }
  void write(const std::string &name, const std::string &content) {
    std::filesystem::create_directories((directory / name).parent_path());
    writeText(directory / name, content);
  }

  std::filesystem::path directory;
  const Json hi = Json::parse(R"([{"role": "user", "content": "hi"}])");
};

TEST_F(ChatTemplates, AreFoundBesideTheTokenizer) {
  EXPECT_EQ(text(hi), "chat-templates: holds no chat template: neither chat_template.jinja nor chat_template in "
                      "tokenizer_config.json is there");
  write("tokenizer_config.json", R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
                                     "bos_token": {"content": "<s>"}, "eos_token": null, "pad_token": 3})");
  EXPECT_EQ(text(hi), "<s>hi");
  write("special_tokens_map.json", R"({"bos_token": "<other>", "eos_token": "</s>"})");
  EXPECT_EQ(text(hi), "<s>hi</s>");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
                                                       {"name": "tool_use", "template": "t{{ tools|length }}"}]})");
  EXPECT_EQ(text(hi), "d");
  Json tools = {{"messages", hi}, {"tools", Json::array()}};
  EXPECT_EQ(text(tools), "t0");
  write("additional_chat_templates/rag.jinja", "r");
  EXPECT_NE(text(hi).find("of the chat templates rag none is the default; valid: --chat-template"), std::string::npos);
  write("chat_template.jinja", "{{ tools is none }}{{ x }}");
  EXPECT_EQ(text(hi), "True");
  EXPECT_EQ(text({{"messages", hi}, {"chat_template_kwargs", {{"x", 1}}}}), "True1");
  write("additional_chat_templates/tool_use.jinja", "{{ nope.nope }}");
  EXPECT_EQ(text(tools), "chat-templates/additional_chat_templates/tool_use.jinja:1: 'nope' is undefined: it has no "
                         "'nope'");
  std::filesystem::remove(directory / "chat_template.jinja");
  std::filesystem::remove_all(directory / "additional_chat_templates");
  write("tokenizer_config.json", R"({"chat_template": "a\n{% if"})");
  EXPECT_EQ(text(hi), "chat-templates/tokenizer_config.json: chat_template:2: what begins with '{%' here has no '%}'");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_NE(text(hi).find("chat_template is a list; valid: a text, or a list of objects with name and template"),
            std::string::npos);
  write("tokenizer_config.json", "{");
  EXPECT_NE(text(hi).find("tokenizer_config.json: is not JSON"), std::string::npos);
}

TEST_F(ChatTemplates, RefusesWhatIsNoChat) {
  write("chat_template.jinja", "{{ messages[0] }}");
  EXPECT_EQ(text(3), "is 3; valid: a list of messages, or an object with one");
  EXPECT_EQ(text(Json::array()), "messages is empty; valid: at least one message");
  EXPECT_EQ(text({{"tools", nullptr}}), "messages is null; valid: a list");
  EXPECT_EQ(text(Json::array({1})), "messages[0] is 1; valid: an object");
  EXPECT_EQ(text({{"messages", hi}, {"tool", 1}}),
            "has 'tool'; valid: messages, tools, documents, chat_template_kwargs");
  EXPECT_EQ(text({{"messages", hi}, {"tools", "x"}}), "tools is \"x\"; valid: a list");
  EXPECT_EQ(text({{"messages", hi}, {"chat_template_kwargs", 1}}), "chat_template_kwargs is 1; valid: an object");
  // Members that are null are left out; thoughts have all names that templates ask for.
  EXPECT_EQ(text(Json::parse(R"([{"role": "assistant", "content": null, "reasoning": "so"}])")),
            "{'thinking': 'so', 'role': 'assistant', 'reasoning': 'so', 'reasoning_content': 'so'}");
}

} // namespace
} // namespace braid::runtime::test
