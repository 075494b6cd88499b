// What a description's `import` says of a weight, and what that makes of shapes.
#include "runtime/train/ImportMap.h"
#include <gtest/gtest.h>

using namespace braid::runtime;

namespace {

Expected<std::optional<ImportMap>> parse(const std::string &tensor) {
  return ImportMap::parse("{\"import\": {\"weights\": {\"layers.{layer}.w\": " + tensor + "}}}");
}

} // namespace

TEST(ImportMap, ExpertsOfOneTensor) {
  auto map = parse(R"({"name": "{layer}.w", "stacked": true, "rows": [2, 5], "transposed": true})");
  ASSERT_TRUE(map && *map) << map.status().message();
  const ImportedTensor &tensor = (*map)->weights.at("layers.{layer}.w");
  EXPECT_TRUE(tensor.stacked);
  EXPECT_TRUE(tensor.ofExperts());
  EXPECT_EQ(fillName(tensor.name, 7, 0), "7.w");
  EXPECT_EQ(fillName(tensor.name, 7, 3), "7.w");
  auto shape = importedShape(tensor, {6, 4}); // of an expert
  ASSERT_TRUE(shape) << shape.status().message();
  EXPECT_EQ(*shape, (std::vector<int64_t>{4, 3}));
  map = parse(R"({"name": "{layer}.{expert}.w", "stacked": false})");
  ASSERT_TRUE(map && *map) << map.status().message();
  EXPECT_EQ(fillName((*map)->weights.at("layers.{layer}.w").name, 7, 3), "7.3.w");
}

TEST(ImportMap, Columns) {
  auto map = parse(R"({"name": "{layer}.w", "stacked": true, "columns": [1, 3], "transposed": true})");
  ASSERT_TRUE(map && *map) << map.status().message();
  const ImportedTensor &tensor = (*map)->weights.at("layers.{layer}.w");
  auto shape = importedShape(tensor, {4, 6});
  ASSERT_TRUE(shape) << shape.status().message();
  EXPECT_EQ(*shape, (std::vector<int64_t>{2, 4}));
  TakenUnits taken = takenUnits(tensor, {4, 6});
  EXPECT_EQ(taken.groups, 8U);
  EXPECT_EQ(taken.units, 3U);
  EXPECT_EQ(taken.first, 1U);
  EXPECT_EQ(taken.last, 2U);
  shape = importedShape(tensor, {6, 4});
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.status().message(), "has shape [6, 4], whose 4 columns are not 3 by 3");
  // Neighbours: of every 6 columns 2 from the third.
  map = parse(R"({"name": "{layer}.w", "columns": [2, 6, 2]})");
  ASSERT_TRUE(map && *map) << map.status().message();
  const ImportedTensor &neighbours = (*map)->weights.at("layers.{layer}.w");
  shape = importedShape(neighbours, {5, 12});
  ASSERT_TRUE(shape) << shape.status().message();
  EXPECT_EQ(*shape, (std::vector<int64_t>{5, 4}));
  taken = takenUnits(neighbours, {5, 12});
  EXPECT_EQ(taken.groups, 10U);
  EXPECT_EQ(taken.units, 6U);
  EXPECT_EQ(taken.first, 2U);
  EXPECT_EQ(taken.last, 4U);
}

TEST(ImportMap, Errors) {
  const std::pair<const char *, const char *> cases[] = {
      {"3", "it is 3"},
      {"{}", "it has no name"},
      {R"({"name": "w", "stacked": 1})", "stacked is 1"},
      {R"({"name": "{layer}.{expert}.w", "stacked": true})", "it is stacked, and its name has {expert}"},
      {R"({"name": "w", "transposed": "yes"})", "transposed is \"yes\""},
      {R"({"name": "w", "groups": 0})", "groups is 0"},
      {R"({"name": "w", "or": 3})", "or is 3"},
      {R"({"name": "w", "turned": true})", "turned is true"},
      {R"({"name": "w", "columns": [2, 2]})", "columns is array"},
      {R"({"name": "w", "columns": [2, 4, 3]})", "columns is array"},
      {R"({"name": "w", "columns": [2, 4, 0]})", "columns is array"},
      {R"({"name": "w", "columns": [0, 4, 1, 1]})", "columns is array"},
      {R"({"name": "w", "columns": [0, 2], "rows": [0, 1]})", "it has rows and columns"},
  };
  for (auto [tensor, message] : cases) {
    auto map = parse(tensor);
    ASSERT_FALSE(map) << tensor;
    EXPECT_EQ(map.status().message(), "import: weights['layers.{layer}.w']: " + std::string(message));
  }
}
