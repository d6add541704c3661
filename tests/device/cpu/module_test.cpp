#include "device/cpu/module.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/sha256.h"
#include "device/cpu/kernels.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class ModuleTest : public KernelTest {
 protected:
  // One object per kernel.
  CompiledKernel compiled(const KernelSource& source, const std::string& file) {
    const KernelCache cache = cache_with(quick_compiler());
    const Result<std::string> hash = cache.compile_together({source}, path(file));
    EXPECT_TRUE(hash) << to_string(hash.error());
    return {cache.name_of(source), path(file), hash ? *hash : ""};
  }
  static int call_in(const KernelModule& module, const CompiledKernel& kernel, int x) {
    const Result<void*> function = module.function(kernel.name);
    EXPECT_TRUE(function) << to_string(function.error());
    return function ? reinterpret_cast<Kernel>(*function)(x) : -1;
  }
};

TEST_F(ModuleTest, LoadsAndFinds) {
  const CompiledKernel kernel = compiled(adding(5), "a.so");
  Result<KernelModule> module = KernelModule::load(kernel.path, kernel.sha256);
  ASSERT_TRUE(module) << to_string(module.error());
  EXPECT_EQ(call_in(*module, kernel, 2), 7);
  const Result<void*> absent = module->function("absent");
  ASSERT_FALSE(absent);
  EXPECT_TRUE(says(absent.error(), "no function 'absent' in '" + kernel.path)) << to_string(absent.error());
  KernelModule moved = std::move(*module);
  fs::remove(kernel.path);
  EXPECT_EQ(call_in(moved, kernel, 3), 8) << "its file's name is no longer needed";
}

TEST_F(ModuleTest, OnlyTheExpectedFileIsLoaded) {
  const CompiledKernel kernel{"k", path("a.so"), sha256("bytes")};
  ASSERT_TRUE(write_file(kernel.path, "bytes"));
  EXPECT_TRUE(says(KernelModule::load(kernel.path, sha256("other")).error(), "its hash differs"));
  EXPECT_TRUE(says(KernelModule::load(path("absent.so"), kernel.sha256).error(), "No such file"));
  fs::create_symlink(kernel.path, path("link.so"));
  EXPECT_TRUE(says(KernelModule::load(path("link.so"), kernel.sha256).error(), "symbolic links"));
  ASSERT_EQ(mkfifo(path("pipe.so").c_str(), 0600), 0);
  EXPECT_TRUE(says(KernelModule::load(path("pipe.so"), kernel.sha256).error(), "not a regular file"));
  EXPECT_TRUE(says(KernelModule::load(folder_.string(), kernel.sha256).error(), "not a regular file"));
  ASSERT_EQ(chmod(kernel.path.c_str(), 0666), 0);
  EXPECT_TRUE(says(KernelModule::load(kernel.path, kernel.sha256).error(), "other users may write"));
}

TEST_F(ModuleTest, AnotherUsersFileIsNotLoaded) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot make another user's file";
  ASSERT_TRUE(write_file(path("a.so"), "bytes"));
  ASSERT_EQ(chown(path("a.so").c_str(), 65534, 65534), 0);
  EXPECT_TRUE(says(KernelModule::load(path("a.so"), sha256("bytes")).error(), "belongs to user 65534"));
}

TEST_F(ModuleTest, AFileThatIsNotAnObjectIsAnError) {
  ASSERT_TRUE(write_file(path("a.so"), "no object"));
  const Result<KernelModule> module = KernelModule::load(path("a.so"), sha256("no object"));
  ASSERT_FALSE(module);
  EXPECT_TRUE(says(module.error(), "cannot load the kernels in '" + path("a.so"))) << to_string(module.error());
}

TEST_F(ModuleTest, AnObjectThatStaysLoadedIsNotReusedForAnother) {
  // A static variable of an inline function is a unique symbol, so glibc never unloads the object.
  const auto keeping = [](int number) {
    return KernelSource{concat("inline int& kept() { static int value = ", number, "; return value; }\n",
                               "extern \"C\" int MILLRACE_KERNEL(int x) { return x + kept(); }")};
  };
  for (int number = 0; number < 2; ++number) {
    const CompiledKernel kernel = compiled(keeping(number), concat(number, ".so"));
    const Result<KernelModule> module = KernelModule::load(kernel.path, kernel.sha256);
    ASSERT_TRUE(module) << to_string(module.error());
    EXPECT_EQ(call_in(*module, kernel, 10), 10 + number);
  }
}

TEST_F(ModuleTest, TwoModulesOfOneFileAndAssignment) {
  const CompiledKernel first = compiled(adding(1), "1.so");
  const CompiledKernel second = compiled(adding(2), "2.so");
  Result<KernelModule> a = KernelModule::load(first.path, first.sha256);
  Result<KernelModule> b = KernelModule::load(first.path, first.sha256);
  Result<KernelModule> c = KernelModule::load(second.path, second.sha256);
  ASSERT_TRUE(a && b && c);
  *a = std::move(*c);
  EXPECT_EQ(call_in(*a, second, 0), 2);
  EXPECT_EQ(call_in(*b, first, 0), 1);
}

}  // namespace
}  // namespace millrace
