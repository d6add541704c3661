// Changes values of a JSON document at random, as somebody would who wants a program to fail. Test:
// tests/python/campaigns_test.py
#pragma once

#include <nlohmann/json.hpp>
#include <random>

namespace millrace::campaigns {

using Json = nlohmann::ordered_json;

// One to three changes: a value of the same or another type, one from elsewhere in the document, an element removed,
// repeated or moved. `spared`: a top-level key whose value stays.
void alter(Json& document, const std::string& spared, std::mt19937_64& random);

}  // namespace millrace::campaigns
