// Finds the files of the installation that contains this code, even after it was moved. Test:
// tests/base/installation_test.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace {

// The folder of a prefix in which a file is installed.
enum class InstalledIn { libexec, lib };

// Where the file may be: beside the program; beside the library that contains this code, for Python; in the folder of
// the prefix that contains them, as PREFIX/bin or PREFIX/libexec/millrace; where the build would install it.
std::vector<std::filesystem::path> installed_places(const std::string& file, InstalledIn where);

// The same for the folders of a program and a library; `within` is relative to a prefix, and `built_for` may be empty.
std::vector<std::filesystem::path> places_near(const std::vector<std::filesystem::path>& own, const std::string& file,
                                               const std::filesystem::path& within,
                                               const std::filesystem::path& built_for);

}  // namespace millrace
